# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's before-resync-source handler: marks the peer that is about to be filled.

A resync ends on its target a moment before the source hears of it. If the link breaks in that
moment, the source takes the peer for Inconsistent, and as a Primary goes on alone without asking
anybody (drbd_state.c, sanitize_state: only a peer that may be as good as this one freezes I/O). So
the peer has to be marked before it can become UpToDate by its own word. A peer that was fenced or
cut off is marked since then; one that was stopped in an orderly way, or whose disk was exchanged,
is not. Once both have heard of the end, unfence-peer clears the mark
(sanctl/agents/fencing/outdate.py).

While this works, the resync has not begun and the peer knows that it is Outdated; the source's
I/O goes on (drbd_receiver.c, receive_bitmap; drbd_req.c, drbd_should_send_out_of_sync). But what
the peer asks for over the connection waits, and so does the end of the connection. So this ends
within seconds, and at once when the connection is gone: fence-peer is called only after it.

DRBD 9 may drop that connection for good all the same: what the peer has to say of its resyncs from
others meets ours as it begins (9.3.3: "Can not start OV/resync since it is already active", and
StandAlone on this side). So there the note stays until the copies are in sync, and the monitor
connects again, once for each resync that was to begin.

What if the mark is not certain by then? Any status but 0 makes DRBD drop the connection without a
resync, for good (drbd_worker.c, drbd_start_resync). That is what is done: a peer that is behind and
knows it harms nobody, and the next monitor connects again, to ask anew.
"""

from __future__ import annotations

import time

from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdadm, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.system import journal, state_files
from sanctl.system.runner import DeadlineRunner, LocalRunner, Runner

_RUNNER = LocalRunner()
#: DRBD answers nothing on that connection meanwhile; `drbdsetup down` waits for 20 s.
_DEADLINE_S = 15.0
_BEGIN, _DROP = 0, 1
_UNMARKED = "outdated-unmarked"


def before_resync_source() -> int:
    """Mark the peer that DRBD is about to fill; return 0 for DRBD to begin, 1 to disconnect."""
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write(
            "before-resync-source: DRBD named no resource or peer", priority=journal.ERROR
        )
        return _DROP
    # First of all: whatever ends this process, the monitor shall know whom to connect again.
    write_note(device, peer)
    begin = time.monotonic()
    runner = DeadlineRunner(_RUNNER, begin + _DEADLINE_S)
    last = "nothing was answered in time"
    while time.monotonic() - begin < _DEADLINE_S:
        try:
            with outdate.locked(device, wait_s=1.0) as is_mine:
                if not is_mine:
                    continue
                if not _is_in_contact(runner, device, peer):
                    last = "the connection is gone"
                    break
                standing = outdate.mark_outdated(runner, device, peer)
        except SanctlError as error:
            last = str(error)
        else:
            if fence_rules.is_certain(standing):
                if drbdsetup.generation() < 9:
                    _note(device, peer).remove()
                else:
                    write_note(device, peer)  # a monitor may have used the first one up meanwhile
                _tell(device, f"{peer} is marked as outdated, its resync begins", begin, "marked")
                return _BEGIN
            last = f"{peer} is {standing}"
        time.sleep(0.2)
    write_note(device, peer)
    _tell(
        device,
        f"{peer} cannot be marked as outdated, and so not be filled now: {last}; the monitor"
        " connects again",
        begin,
        "refused",
        priority=journal.WARNING,
    )
    return _DROP


def reconnect(runner: Runner, device: str, state: ResourceState) -> ResourceState:
    """Connect again where the handler had DRBD drop the connection; return the state after that.

    Only there: replicas that have diverged stand alone, too, and stay so until an operator decides.

    Raises:
        SanctlError: DRBD refused or did not answer; the next monitor tries again.
    """
    noted = state_files.device_suffixes(device, _UNMARKED)
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


def _is_in_contact(runner: Runner, device: str, peer: str) -> bool:
    state = drbdsetup.observe(runner, device)
    return state is not None and state.with_only_peer(peer).is_connected


def _note(device: str, peer: str) -> state_files.StateFile:
    return state_files.of_device(device, f"{_UNMARKED}.{peer}")


def write_note(device: str, peer: str) -> None:
    """Have the monitor connect to that peer again, should DRBD stand alone towards it."""
    _note(device, peer).write()


def _tell(
    device: str, text: str, begin: float, step: str, *, priority: int = journal.NOTICE
) -> None:
    journal.write(
        f"{device}: {text}",
        priority=priority,
        device=device,
        action="before-resync-source",
        step=step,
        duration_ms=round((time.monotonic() - begin) * 1000),
    )
