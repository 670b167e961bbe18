# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's before-resync-source handler: marks the target, and how long it waits for certainty.

A resync ends on its target a moment before the source hears of it. If the link breaks in that
moment, the source takes the peer for Inconsistent, and as a Primary goes on alone without calling
fence-peer (drbd_state.c, sanitize_state: only a peer that may be as good as this node freezes I/O).
So the peer has to be marked before its own disk state can become UpToDate. A peer that was fenced
or cut off is marked since then, and the mark is read, not written again; a peer that was stopped in
an orderly way, or whose disk was exchanged, is not. Once both nodes have heard of the end,
unfence-peer clears the mark (sanctl/agents/fencing/outdate.py).

While this handler runs, the resync has not begun and the peer's own state is Outdated; the source's
I/O goes on (drbd_receiver.c, receive_bitmap; drbd_req.c, drbd_should_send_out_of_sync). But the
peer's requests over the connection wait, and so does the end of the connection. So this handler
ends within seconds, and at once when the connection is gone: DRBD calls fence-peer only after that.

DRBD may drop that connection for good all the same; then the monitor connects again
(sanctl/agents/connections/reconnect_dropped.py).

If the mark is not certain by then, or the peer is no member (a fenced peer that DRBD is connected
to runs, and reads another CIB), the handler returns 1. Any status but 0 makes DRBD drop the
connection without a resync, for good (drbd_worker.c, drbd_start_resync). That is safe: a peer whose
own state is Outdated is not promoted, and the next monitor connects again, which calls this handler
again.
"""

from __future__ import annotations

import time

from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.model.drbd import IN_CONTACT
from sanctl.plan.failover import fence_rules
from sanctl.system import journal
from sanctl.system.runner import DeadlineRunner, LocalRunner, Runner

_RUNNER = LocalRunner()
#: DRBD answers no request on that connection meanwhile; `drbdsetup down` waits for 20 s.
_DEADLINE_S = 15.0
_BEGIN, _DROP = 0, 1
_log = DeviceLog("before-resync-source")


def main() -> int:
    """Mark the peer; return 0 to let DRBD begin the resync, 1 to make DRBD disconnect."""
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write(
            "before-resync-source: DRBD named no resource or peer", priority=journal.ERROR
        )
        return _DROP
    # First of all: if this process is killed, the monitor must know which peer to reconnect.
    _note_peer(device, peer)
    begin = time.monotonic()
    runner = DeadlineRunner(_RUNNER, begin + _DEADLINE_S)
    last = "the cluster did not answer in time"
    while time.monotonic() - begin < _DEADLINE_S:
        try:
            with outdate.locked(device, wait_s=1.0) as is_mine:
                if not is_mine:
                    continue
                if not _is_in_contact(runner, device, peer):
                    last = "the connection is gone"
                    break
                # Time is left for a change of its own, if the process that leads hangs.
                wait_s = max(0.0, begin + _DEADLINE_S - time.monotonic()) / 2
                membership = outdate.mark_outdated(
                    runner,
                    device,
                    peer,
                    wait_s=wait_s,
                    # With DRBD 9 there may be other peers, and one that serves clears the mark.
                    keeps_mark=drbd_kernel.generation() < 9,
                )
        except Exception as error:
            # Also an error of this program itself: a handler that ends by one leaves no note, and
            # nothing says why the connection was dropped.
            last = repr(error)
        else:
            if fence_rules.may_begin_resync(membership):
                outdate.record_found_mark(device, peer)
                if drbd_kernel.generation() < 9:
                    reconnect_dropped.remove_note(device, peer)
                else:
                    # A monitor may have removed the first note meanwhile.
                    _note_peer(device, peer)
                    _note_filling(device, peer)
                _log(
                    device,
                    f"{peer} is marked as outdated, its resync begins",
                    step="marked",
                    duration_s=time.monotonic() - begin,
                )
                return _BEGIN
            last = f"{peer} is {membership}"
        time.sleep(0.2)
    _note_peer(device, peer)
    _log(
        device,
        f"the resync of {peer} does not begin, as it is not certain to be marked as outdated and a"
        f" member: {last}; the monitor connects again",
        step="refused",
        duration_s=time.monotonic() - begin,
        priority=journal.WARNING,
    )
    return _DROP


def _note_peer(device: str, peer: str) -> None:
    try:
        reconnect_dropped.write_note(device, peer)
    except OSError as error:
        # The mark does not need it; without it a connection that is dropped now stays so.
        _log(device, f"{peer}: no note that it is to be connected again: {error}", step="unnoted")


def _note_filling(device: str, peer: str) -> None:
    try:
        reconnect_dropped.write_filled(device, peer)
    except OSError as error:
        # Without it two replicas that are the same, and do not know it, wait for an operator.
        _log(device, f"{peer}: no note that it is filled from here: {error}", step="unnoted")


def _is_in_contact(runner: Runner, device: str, peer: str) -> bool:
    minor = drbd_environment.minor()
    # With DRBD 8.4 without a process: many devices may ask at the same time.
    connection = None if minor is None else drbd_kernel.connections().get(minor)
    if connection is not None:
        return connection in IN_CONTACT
    state = drbdsetup.observe(runner, device)
    return state is not None and state.with_only_peer(peer).is_connected
