# SPDX-License-Identifier: GPL-2.0-or-later
"""Has DRBD 9 compare a replica with the node that serves once more, where nothing differs.

A new copy meets all its peers at once. It may judge one of them before that one has told of its
disk, wait for a bitmap that nobody sends, and be called Outdated when the resync from the node that
serves is over; that wait ends with the connection, and Outdated stays (9.3.3, seen: every peer
Established and UpToDate, nothing out of sync, for eight minutes). Such a copy is never promoted. A
connection to the Primary that is made anew makes it UpToDate, or shows what it lacks.
"""

from __future__ import annotations

import os
import time

from sanctl.agents import ocf
from sanctl.agents.handlers import before_resync_source
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, outdated_marks
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, Runner

#: Longer than what a resync that has just ended takes to be told of; two monitors see it. Twice as
#: long with each try that has not helped.
_PATIENCE_S = 15.0
_LONGEST_S = 3600.0
#: What the rest of a monitor takes.
_RESERVE_S = 5.0


def primary_in_sync(state: ResourceState) -> PeerState | None:
    """Return the Primary beside an Outdated replica that differs in nothing from any peer.

    All peers have to be there: a Primary that has lost the other copy may count this one.
    """
    if state.role != "Secondary" or state.disk != "Outdated":
        return None
    if any(
        (peer.replication, peer.disk, peer.out_of_sync_kib) != ("Established", "UpToDate", 0)
        for peer in state.peers
    ):
        return None
    return next((peer for peer in state.peers if peer.role == "Primary"), None)


def reconnect(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Connect to the node that serves anew, if this replica has been overlooked for a while.

    Only one that the cluster has marked: who takes itself for good by this handshake is promoted by
    nobody until the Primary has said the same.

    Returns:
        The state after that.

    Raises:
        SanctlError: DRBD or the cluster did not answer; the next monitor tries again.
    """
    if state.disk != "Outdated" or drbdsetup.generation() < 9:
        _note(device).remove()
        return state
    peer = primary_in_sync(state)
    if peer is None or peer.node_id is None:
        # Behind, or busy: whatever was seen before, it has not lasted. The tries still count.
        _note(device).touch()
        return state
    if not _has_lasted(device):
        return state
    hurried = DeadlineRunner(runner, time.monotonic() + ocf.remaining_s(25.0) - _RESERVE_S)
    if not outdated_marks.read(hurried, device.name, os.uname().nodename).is_marked:
        return state
    journal.write(
        f"{device.name}: Outdated, though nothing differs from {peer.name}: connecting to it anew",
        priority=journal.NOTICE,
        device=device.name,
        action="handshake",
    )
    _count(device)
    # First: should this end half way, the next monitor connects again.
    before_resync_source.write_note(device.name, peer.name)
    drbdsetup.disconnect_peer(hurried, device.name, peer.node_id)
    drbdadm.adjust(hurried, device.name)
    return drbdsetup.observe(hurried, device.name) or state


def _has_lasted(device: Device) -> bool:
    """Note when it was seen first; tell whether that, or the last try, is long enough ago."""
    age_s = _note(device).age_s()
    if age_s is None:
        _note(device).write("0")
        return False
    wait_s = min(_LONGEST_S, _PATIENCE_S * 2 ** min(_tries(device), 16))
    # Not from before the clock was put right either.
    return not 0 <= age_s < wait_s


def _tries(device: Device) -> int:
    text = _note(device).read("0").strip()
    return int(text) if text.isdecimal() else 0


def _count(device: Device) -> None:
    _note(device).write(str(_tries(device) + 1))


def _note(device: Device) -> state_files.StateFile:
    """How often this has been tried for a replica that is Outdated; as old as the last try."""
    return state_files.of_device(device.name, "outdated-since")
