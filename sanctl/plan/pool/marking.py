# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a mounted filesystem may take the place of the lost one of a pool without flash.

The rollout marks a pool's filesystem once, while the node has no replica in it. Where it is lost
later, a filesystem without a marker may be the wrong one, or none at all: only an operator's
`pool prepare NAME --anew` marks it, and only where it holds nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sanctl.errors import Problem
from sanctl.model.topology import Pool

MARKER, DEVICES = ".sanctl-pool", "devices"
#: What mkfs.ext4 makes.
_OF_THE_FILESYSTEM = frozenset({"lost+found"})


class MountEvidence(NamedTuple):
    """What was found at a pool's path.

    Attributes:
        is_mounted: the path is the root of a mounted filesystem.
        real_path: the path without symbolic links.
        entries: the names in the filesystem's root.
        marker: the uuid that its marker names; None without one.
        holds_devices: there is something in its folder of devices.
    """

    is_mounted: bool
    real_path: str
    entries: Collection[str]
    marker: str | None
    holds_devices: bool


def marking_problems(pool: Pool, node: str, found: MountEvidence) -> tuple[Problem, ...]:
    """Return why what is mounted at a pool's path does not become the pool."""
    path = str(pool.path)
    if found.real_path != path:
        why = f"{path} leads through a symbolic link to {found.real_path}"
        return (_problem(pool, node, why, "give the pool that path in the inventory"),)
    if not found.is_mounted:
        return (
            _problem(
                pool,
                node,
                f"no filesystem is mounted at {path}",
                "make one on the new disk, put it into /etc/fstab, mount it, and run this again",
            ),
        )
    if found.marker == pool.uuid and found.holds_devices:
        return (
            _problem(
                pool,
                node,
                f"{path} is the pool already, and {path}/{DEVICES} holds replicas",
                "nothing is missing; to discard them, unmount it and make a new filesystem",
            ),
        )
    if found.marker not in {None, pool.uuid}:
        why = f"{path} is marked as another pool, {found.marker}"
        return (_problem(pool, node, why, "mount the right filesystem"),)
    # Interrupted after the marker, the command goes on.
    ours = {MARKER, DEVICES} if found.marker is not None else set()
    others = sorted(
        each
        for each in set(found.entries) - _OF_THE_FILESYSTEM - ours
        if not each.startswith(f"{MARKER}.new.")
    )
    if others:
        more = " ..." if len(others) > 5 else ""
        return (
            _problem(
                pool,
                node,
                f"the filesystem at {path} is not empty: {', '.join(others[:5])}{more}",
                "mount the right one; or, if nobody needs that, make a new filesystem",
            ),
        )
    return ()


def _problem(pool: Pool, node: str, why: str, do: str) -> Problem:
    return Problem("SAN-POOL-032", f"pool {pool.name} on {node}: {why}; nothing was changed", do)
