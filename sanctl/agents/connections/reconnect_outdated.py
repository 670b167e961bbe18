# SPDX-License-Identifier: GPL-2.0-or-later
"""Reconnects an Outdated replica that has no out-of-sync blocks, so that DRBD 9 makes it UpToDate.

A new replica connects to all its peers at once. DRBD may decide about one of them before that peer
has sent the state of its disk, wait for a bitmap that no peer sends, and leave the replica Outdated
after the resync from the Primary; the wait ends with the connection, and Outdated stays (9.3.3,
seen: every peer Established and UpToDate, nothing out of sync, for eight minutes). Such a replica
is never promoted. A new connection to the Primary makes it UpToDate, or shows what it lacks.

Not of two replicas, as where both have lost their disks and were attached again: at equal
generations a new connection makes the Outdated one UpToDate and clears the bitmaps of both, also
that of the peer, which names what hosts were answered for by the peer alone. That one is filled
(sanctl/agents/recovery/fill_outdated.py, docs/adr/0037).
"""

from __future__ import annotations

import os
import time

from sanctl.agents import ocf
from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup, outdated_marks
from sanctl.model.drbd import PeerState, ResourceState, uses_quorum
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, Runner

#: Longer than the news of the end of a resync takes; two monitors see the replica in that time.
#: Doubled with each attempt that has not helped.
_FIRST_WAIT_S = 15.0
_MAX_WAIT_S = 3600.0
#: The time that the rest of a monitor takes.
_RESERVE_S = 5.0


def primary_in_sync(state: ResourceState) -> PeerState | None:
    """Return the Primary that an Outdated replica without out-of-sync blocks is connected to.

    All peers have to be connected: a Primary that has lost another replica may count this one.
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
    """Disconnect from the Primary and connect again, if this replica has been Outdated for a while.

    Only a replica that is marked in the CIB: if the reconnect makes the replica UpToDate by its own
    view alone, the mark forbids its promotion until the Primary sees the same and clears the mark.

    Returns:
        The state after that.

    Raises:
        SanctlError: DRBD or the cluster did not answer; the next monitor tries again.
    """
    if state.disk != "Outdated" or drbd_kernel.generation() < 9:
        _attempts_note(device).remove()
        return state
    peer = primary_in_sync(state) if uses_quorum(len(device.nodes)) else None
    if peer is None or peer.node_id is None:
        # Behind, or busy: the wait begins again. The attempts still count.
        _attempts_note(device).touch()
        return state
    if not _is_due(device):
        return state
    deadline_runner = DeadlineRunner(runner, time.monotonic() + ocf.remaining_s(25.0) - _RESERVE_S)
    seen = outdated_marks.read_device(deadline_runner, device.name)
    if os.uname().nodename not in seen.devices[device.name].nodes():
        return state
    journal.write(
        f"{device.name}: Outdated, but nothing is out of sync with {peer.name}: reconnecting",
        priority=journal.NOTICE,
        device=device.name,
        action="reconnect",
    )
    _count_attempt(device)
    # First: if this process dies before it connects, the next monitor connects.
    reconnect_dropped.write_note(device.name, peer.name)
    drbdsetup.disconnect_peer(deadline_runner, device.name, peer.node_id)
    drbdadm.adjust(deadline_runner, device.name)
    return drbdsetup.observe(deadline_runner, device.name) or state


def _is_due(device: Device) -> bool:
    """Whether the state was first seen, or the last attempt made, long enough ago."""
    age_s = _attempts_note(device).age_s()
    if age_s is None:
        _attempts_note(device).write("0")
        return False
    wait_s = min(_MAX_WAIT_S, _FIRST_WAIT_S * 2 ** min(_attempts(device), 16))
    # A negative age means that the clock has been set back since: due, too.
    return not 0 <= age_s < wait_s


def _attempts(device: Device) -> int:
    text = _attempts_note(device).read("0").strip()
    return int(text) if text.isdecimal() else 0


def _count_attempt(device: Device) -> None:
    _attempts_note(device).write(str(_attempts(device) + 1))


def _attempts_note(device: Device) -> state_files.StateFile:
    """The note: the number of attempts for an Outdated replica, written at the last one."""
    return state_files.of_device(device.name, "outdated-since")
