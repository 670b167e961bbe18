# SPDX-License-Identifier: GPL-2.0-or-later
"""Connects a StandAlone peer whose connection DRBD dropped, or a start has left to the monitor.

Before a resync DRBD drops a connection whose handler was not certain in time. DRBD's handlers leave
a note of the peer (sanctl/agents/handlers/before_resync_source.py and fence_peer.py), and the
monitor connects again. DRBD 9 may drop the connection although the handler let the resync begin:
the peer's report of its resyncs from other nodes arrives while this one begins (9.3.3: "Can not
start OV/resync since it is already active", and StandAlone on this side).
So with DRBD 9 the note stays until the replicas are in sync, and the monitor connects again, once
for each resync that was to begin.

Not all of a node's connections at the same time (sanctl/plan/drbd/reconnect_pace.py): the rest have
to wait for a later monitor. A start that gets no turn in time leaves a note, too, if another node
serves the device: of twenty resyncs at once each may be dropped, and hosts wait after each drop.
That note goes with the first attempt: if the replicas have diverged, DRBD drops the connection, and
it stays so. So it is with a suspect replica, which a start connects to none, once an operator has
accepted it (sanctl/agents/recovery/heal.py).

And a replica of DRBD 9 whose disk went on negotiating beside a Primary is connected once that
Primary's fence-peer has ended, by what it has published (reconnect_stalled.py): where the
connection is back before, DRBD keeps the generation and clears the bitmaps of both (9.3.3, seen),
also of what the Primary's alone names.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from sanctl.agents.connections import connect_turn, primary_node
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.promotion import NO_DISK
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_NOTE_KIND, _LATER_KIND = "outdated-unmarked", "connects-later"
#: Of a peer: a resync from here has begun, and neither disk was away since; and one that is
#: connected when it, a Primary, has noticed that the connection ended.
_FILLED_KIND, _NOTICED_KIND = "filled", "connects-noticed"
_REMOVED_IN_SYNC = (_NOTE_KIND, _LATER_KIND, _FILLED_KIND)
#: A program that did not answer in time.
_SILENCE = "SAN-CMD-002"
#: What a disk is that has what a resync wrote to it.
_THERE = frozenset({"Inconsistent", "Consistent", "Outdated", "UpToDate"})


def reconnect(runner: Runner, device: str, state: ResourceState) -> ResourceState:
    """Connect again where a handler's note says so; return the state after that.

    Only there: replicas that have diverged are StandAlone, too, and stay so until an operator
    decides.

    Raises:
        SanctlError: DRBD refused or did not answer; the next monitor tries again.
    """
    if _is_a_note_over(device, state):
        # The monitor's look may be many seconds old, of before the connection broke: by that one
        # the peer is in sync, and what a handler has noted since would be removed.
        state = drbdsetup.observe(runner, device) or state
    _forget_filled(device, state)
    failed: SanctlError | OSError | None = None
    try:
        state = _connect_noticed(runner, device, state)
    except (SanctlError, OSError) as error:
        if _is_silence(error):
            raise
        failed = error
    state = _connect_noted(runner, device, state)
    if failed is not None:
        raise failed
    return state


def _is_a_note_over(device: str, state: ResourceState) -> bool:
    """Whether a note of a peer is to be removed by what was seen."""
    noted = {
        peer for kind in _REMOVED_IN_SYNC for peer in state_files.device_suffixes(device, kind)
    }
    pairs = [state.with_only_peer(peer) for peer in noted]
    return any(pair.is_in_sync or not pair.peers or pair.disk not in _THERE for pair in pairs)


def _connect_noted(runner: Runner, device: str, state: ResourceState) -> ResourceState:
    later = state_files.device_suffixes(device, _LATER_KIND)
    noted = sorted({*state_files.device_suffixes(device, _NOTE_KIND), *later})
    if not noted or lost_writes.is_suspect(device, lost_writes.data_file(device)):
        return state  # A suspect replica's bitmap misses its lost writes (docs/adr/0027).
    dropped = []
    for peer in noted:
        pair = state.with_only_peer(peer)
        if pair.is_in_sync or (state.peers and not pair.peers):
            _note(device, peer).remove()
            _later(device, peer).remove()
        elif drbdsetup.is_standalone(pair):
            dropped.append(peer)
    state, dropped = _that_may_be_asked(runner, device, state, dropped)
    if dropped and connect_turn.take(state.minor, waited_s=_waited_s(device, dropped[0])):
        if drbd_kernel.generation() >= 9:
            # If the replicas have diverged, DRBD drops the connection again, and no note is left.
            # Before the attempt: a handler that DRBD calls for it writes a note of its own.
            for peer in dropped:
                _note(device, peer).remove()
        asked: Collection[str] = ()
        try:
            attempt = connect_again(runner, device, state, dropped)
            asked = attempt.asked
        finally:
            for peer in set(dropped) - set(later) - set(asked):
                write_note(device, peer)
        for peer in set(later) & set(asked):
            _later(device, peer).remove()
        if asked:
            journal.write(
                f"{device}: connecting: DRBD had dropped the connection before a resync began, or"
                " it had no turn",
                priority=journal.NOTICE,
                device=device,
                action="resync",
                step="reconnect",
            )
        attempt.raise_error()
        return drbdsetup.observe(runner, device) or state
    return state


class Attempt(NamedTuple):
    """What became of an attempt to connect.

    Attributes:
        asked: the peers that DRBD has been told to connect to.
        error: the first refusal of another one.
    """

    asked: frozenset[str]
    error: SanctlError | OSError | None = None

    def raise_error(self) -> None:
        """Raise the refusal, if there is one, once it is noted who was asked."""
        if self.error is not None:
            raise self.error


def connect_again(
    runner: Runner, device: str, state: ResourceState, peers: Collection[str]
) -> Attempt:
    """Connect to peers that are StandAlone; a disk that DRBD has dropped stays as it is.

    `drbdadm adjust` attaches that first, past the rules for it (recovery/reattach_disk.py), and
    connects to nobody where the disk still fails. Once there is contact these rules have a peer to
    go by.

    Of peers that are asked one by one, a refused one keeps no other from its turn.

    Raises:
        SanctlError: DRBD refused or did not answer, and nobody is known to have been asked.
    """
    state, asked = _that_may_be_asked(runner, device, state, peers)
    if not asked:
        return Attempt(frozenset())
    if state.disk not in NO_DISK:
        drbdadm.adjust(runner, device)
        return Attempt(frozenset(asked))
    if drbd_kernel.generation() < 9:
        drbdadm.connect(runner, device)
        return Attempt(frozenset(asked))
    done, first = [], None
    for peer in state.peers:
        if peer.name not in asked or peer.node_id is None:
            continue
        try:
            drbdsetup.connect_peer(runner, device, peer.node_id)
        except (SanctlError, OSError) as error:
            first = first or error
            if _is_silence(error):
                break  # The others would wait as long.
        else:
            done.append(peer.name)
    return Attempt(frozenset(done), first)


def _is_silence(error: BaseException) -> bool:
    return isinstance(error, SanctlError) and error.problems[0].code == _SILENCE


def _that_may_be_asked(
    runner: Runner, device: str, state: ResourceState, peers: Collection[str]
) -> tuple[ResourceState, list[str]]:
    """Return the peers that an attempt would ask, and DRBD's state with them.

    Not one that the resource file does not name, as it limits the connections (isolation.py). And
    DRBD 9 without a disk is asked for peers that it knows: of a start that made no connection it
    knows none, and is told them.
    """
    if drbd_kernel.generation() < 9 or not peers:
        return state, list(peers)
    from sanctl.agents.replica import resource_file  # noqa: PLC0415 - rarely needed

    only = resource_file.only_peer(device)
    meant = [peer for peer in peers if only in {"", peer}]
    if not meant or state.disk not in NO_DISK:
        return state, meant
    if not state.peers:
        from sanctl.agents.connections import known_peers  # noqa: PLC0415 - rarely needed

        state = known_peers.make_known(runner, device, state, meant)
    waiting = {
        peer.name
        for peer in state.peers
        if peer.connection == "StandAlone" and peer.node_id is not None
    }
    return state, [peer for peer in meant if peer in waiting]


def _forget_filled(device: str, state: ResourceState) -> None:
    for peer in state_files.device_suffixes(device, _FILLED_KIND):
        pair = state.with_only_peer(peer)
        disks = {state.disk, *(each.disk for each in pair.peers)}
        if pair.is_in_sync or not pair.peers or not disks <= _THERE:
            _filled(device, peer).remove()


def _connect_noticed(runner: Runner, device: str, state: ResourceState) -> ResourceState:
    first: SanctlError | OSError | None = None
    for peer in state_files.device_suffixes(device, _NOTICED_KIND):
        pair = state.with_only_peer(peer)
        if state.peers and not drbdsetup.is_standalone(pair):
            _noticed(device, peer).remove()
        elif state.peers and _has_noticed(runner, device, peer):
            attempt = connect_again(runner, device, state, [peer])
            if peer in attempt.asked:
                _noticed(device, peer).remove()
                return drbdsetup.observe(runner, device) or state
            if attempt.error is not None and _is_silence(attempt.error):
                raise attempt.error
            first = first or attempt.error
    if first is not None:
        raise first
    return state


def _has_noticed(runner: Runner, device: str, peer: str) -> bool:
    """Whether a peer has published that the connection is gone and that its I/O goes on.

    It had published the connection before: the disk here was negotiating for a minute. From the end
    of the connection on its I/O is frozen until its fence-peer has answered.
    """
    # Imported here: rarely needed, and monitors must start fast.
    from sanctl.agents.connections import published_state  # noqa: PLC0415

    published = published_state.of_peer(runner, device, peer)
    if published is None or published.suspended != "no" or published.connection is None:
        return False
    here = os.uname().nodename
    named = [link for link in published.peers if link.node == here]
    if named:
        return named[0].connection is not None and not named[0].is_connected
    return not published.is_connected


def leave_to_monitor(runner: Runner, device: Device) -> bool:
    """Have the monitor connect a replica that starts, if another node serves the device.

    Where none does, hosts wait until the replicas are in contact. Returns whether the start is to
    make no connection; where something is not known, it is to.
    """
    if drbd_kernel.generation() >= 9:
        return False
    try:
        active = primary_node.find(runner, device)
        if not active:
            return False
        _later(device.name, active).write()
    except (SanctlError, OSError):
        return False
    return True


def is_served_by_none(runner: Runner, device: Device) -> bool:
    """Whether no other node serves a device; False where that is not known, or DRBD is 9."""
    if drbd_kernel.generation() >= 9:
        return False
    try:
        return primary_node.find(runner, device) == ""
    except (SanctlError, OSError):
        return False


def published_field(device: str, state: ResourceState | None) -> str:
    """Return the field that is published of a replica which has no turn yet: since when it waits.

    Raises:
        OSError: it is not known whether it waits.
    """
    if state is None:
        return ""
    waits = [
        written_ns
        for peer in state_files.device_suffixes(device, _LATER_KIND)
        if drbdsetup.is_standalone(state.with_only_peer(peer))
        and (written_ns := _later(device, peer).written_ns()) is not None
    ]
    return f" connects-later={min(waits) // 10**9}" if waits else ""


def _waited_s(device: str, peer: str) -> float | None:
    """Return for how long a peer has not been connected, as far as its notes say."""
    ages = [note.age_s() for note in (_note(device, peer), _later(device, peer))]
    return max((age for age in ages if age is not None), default=None)


def _later(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_LATER_KIND}.{peer}")


def _note(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_NOTE_KIND}.{peer}")


def write_note(device: str, peer: str) -> None:
    """Have the monitor connect to that peer again where the connection is StandAlone."""
    _note(device, peer).write()


def write_later(device: str, peer: str) -> None:
    """Have the monitor connect to that peer once, which the start has not."""
    _later(device, peer).write()


def write_noticed(device: str, peer: str) -> None:
    """Have the monitor connect to a Primary once that has noticed that the connection ended."""
    _noticed(device, peer).write()


def write_filled(device: str, peer: str) -> None:
    """Note that a resync of that peer from here begins."""
    _filled(device, peer).write()


def is_filled(device: str, peer: str) -> bool:
    """Whether a resync of a peer from here has begun, and neither disk was seen away since."""
    return _filled(device, peer).exists()


def _filled(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_FILLED_KIND}.{peer}")


def _noticed(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_NOTICED_KIND}.{peer}")


def remove_note(device: str, peer: str) -> None:
    """Have the monitor leave that connection as it is: the resync has begun."""
    _note(device, peer).remove()
