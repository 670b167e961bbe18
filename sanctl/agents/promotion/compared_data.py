# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a replica from promotion whose disk came back while no connected peer had one.

A Primary whose disk fails goes on with its peer's. If the peer's disk fails, too, the peer has
writes that this node's disk lacks, and has them alone. This node is fenced, as it can neither serve
nor stop, and comes back with its disk. DRBD 8.4 then calls the replica UpToDate as soon as it is
connected: a peer without a disk has no generation to compare with. DRBD 9 leaves it Consistent as a
rule, and UpToDate where it was that before they met. So a replica is promoted only if it has met a
peer's disk since its own was attached, or knows itself that it is ahead of the peer
(plan/failover/promotion.py, `may_lack_writes`). When the peer's disk answers, reattach_disk.py
attaches it, and DRBD finds out which replica is newer. With three and more replicas a majority has
to be connected, and what it could miss is marked (plan/failover/fence_rules.py, `could_be_missed`).
"""

from __future__ import annotations

import contextlib

from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.plan.drbd.data_generations import parse_generations
from sanctl.plan.failover.promotion import NO_DISK, has_met_a_disk, may_lack_writes
from sanctl.system import state_files
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0


def record(device: Device, state: ResourceState) -> None:
    """Note that this replica has met a peer's disk, or drop the note: its own disk is gone.

    Raises:
        OSError: the note cannot be dropped.
    """
    state = state.with_only_peers(device.nodes)
    note = _note(state.name)
    if state.disk in NO_DISK:
        note.remove()
        return
    # Without the note the replica counts as one that has met none.
    with contextlib.suppress(OSError):
        if has_met_a_disk(state) and not note.exists():
            note.write()


def forget(device: str) -> None:
    """Drop the note of a replica that is being started."""
    _note(device).remove()


def is_candidate(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Whether a replica may be promoted, as far as a connected peer without a disk decides.

    What is not known counts as no.
    """
    state = state.with_only_peers(device.nodes)
    if uses_quorum(len(device.nodes)) or not may_lack_writes(state, bitmap_generation=0):
        return True
    subject = [str(device.minor)]
    if drbd_kernel.generation() >= 9:
        # Of two replicas the other one is the only peer that is left.
        subject = [state.name, str(state.peers[0].node_id), "0"]
    try:
        if _note(state.name).exists():
            return True
        text = drbdsetup.generation_identifiers(runner, *subject, timeout_s=_QUERY_TIMEOUT_S)
    except (SanctlError, OSError):
        return False
    held = None if text is None else parse_generations(text)
    return not may_lack_writes(state, bitmap_generation=0 if held is None else held.bitmap)


def refuse_promotion(runner: Runner, device: Device, state: ResourceState) -> None:
    """Refuse to make a replica Primary that `is_candidate` does not call one.

    Raises:
        CommandError: a connected peer may have newer data.
    """
    if not is_candidate(runner, device, state):
        raise CommandError(
            Problem(
                "SAN-AGENT-013",
                f"{state.name}: its peer has no disk now, and may have newer data",
                "bring the peer's disk back; it is attached by itself",
            )
        )


def _note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, "met-disk")
