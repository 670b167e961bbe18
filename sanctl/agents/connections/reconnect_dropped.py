# SPDX-License-Identifier: GPL-2.0-or-later
"""Reconnects a peer whose connection DRBD has dropped for good before a resync to it could begin.

DRBD's handlers leave a note of the peer (sanctl/agents/handlers/before_resync_source.py and
fence_peer.py), and the monitor connects again. DRBD 9 may drop the connection although the handler
let the resync begin: what the peer has to say of its resyncs from others meets ours as it begins
(9.3.3: "Can not start OV/resync since it is already active", and StandAlone on this side). So there
the note stays until the copies are in sync, and the monitor connects again, once for each resync
that was to begin.
"""

from __future__ import annotations

from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdadm, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_NOTE_KIND = "outdated-unmarked"


def reconnect(runner: Runner, device: str, state: ResourceState) -> ResourceState:
    """Connect again where the handler had DRBD drop the connection; return the state after that.

    Only there: replicas that have diverged stand alone, too, and stay so until an operator decides.

    Raises:
        SanctlError: DRBD refused or did not answer; the next monitor tries again.
    """
    noted = state_files.device_suffixes(device, _NOTE_KIND)
    if not noted or lost_writes.is_suspect(device, lost_writes.data_file(device)):
        return state  # who is suspect would be compared by what it has lost (docs/adr/0027)
    alone = []
    for peer in noted:
        beside = state.with_only_peer(peer)
        if beside.is_in_sync or (state.peers and not beside.peers):
            _note(device, peer).remove()
        elif drbdsetup.is_standalone(beside):
            alone.append(peer)
    if alone:
        if drbdsetup.generation() >= 9:
            # Should they have diverged, DRBD gives the connection up again, and that is left alone.
            # Before the attempt: a handler that is called for it leaves a note of its own.
            for peer in alone:
                _note(device, peer).remove()
        try:
            drbdadm.adjust(runner, device)
        except BaseException:
            for peer in alone:
                write_note(device, peer)
            raise
        journal.write(
            f"{device}: connecting again: a resync that was to begin has not",
            priority=journal.NOTICE,
            device=device,
            action="resync",
            step="reconnect",
        )
        return drbdsetup.observe(runner, device) or state
    return state


def _note(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_NOTE_KIND}.{peer}")


def write_note(device: str, peer: str) -> None:
    """Have the monitor connect to that peer again, should DRBD stand alone towards it."""
    _note(device, peer).write()


def remove_note(device: str, peer: str) -> None:
    """Leave that connection alone: the resync has begun."""
    _note(device, peer).remove()
