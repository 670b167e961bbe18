# SPDX-License-Identifier: GPL-2.0-or-later
"""How many replicas of one device the loaded DRBD version can keep: 8.4 two, 9 four."""

from __future__ import annotations

from sanctl.errors import Problem

_LIMIT_8 = 2
_LIMIT_9 = 4


def replica_limit(drbd_version: str | None) -> int:
    """Return how many nodes may hold a replica of one device at one time."""
    return _LIMIT_9 if drbd_version is not None and _major(drbd_version) >= 9 else _LIMIT_8


def drbd_version_problem(replicas: int, drbd_version: str | None) -> Problem | None:
    """Return why that many replicas cannot be kept; None where they can."""
    if replicas <= replica_limit(drbd_version):
        return None
    return Problem(
        "SAN-DEV-004",
        f"{replicas} replicas need DRBD 9; what is loaded here: {drbd_version or 'none'}",
        "install the DRBD 9 kernel module and drbd-utils on every storage node (LINBIT's packages, "
        "or the distribution's drbd-dkms or kmod-drbd9x), or ask for 1 or 2",
    )


def _major(version: str) -> int:
    text = version.partition(".")[0]
    return int(text) if text.isdecimal() else 0
