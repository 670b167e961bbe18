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

DRBD may drop that connection for good all the same; then the monitor connects again
(sanctl/agents/connections/reconnect_dropped.py).

What if the mark is not certain by then? Any status but 0 makes DRBD drop the connection without a
resync, for good (drbd_worker.c, drbd_start_resync). That is what is done: a peer that is behind and
knows it harms nobody, and the next monitor connects again, to ask anew.
"""

from __future__ import annotations

import time

from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.drivers import drbdsetup
from sanctl.errors import SanctlError
from sanctl.plan.failover import fence_rules
from sanctl.system import journal
from sanctl.system.runner import DeadlineRunner, LocalRunner, Runner

_RUNNER = LocalRunner()
#: DRBD answers nothing on that connection meanwhile; `drbdsetup down` waits for 20 s.
_DEADLINE_S = 15.0
_BEGIN, _DROP = 0, 1
_log = DeviceLog("before-resync-source")


def main() -> int:
    """Mark the peer that DRBD is about to fill; return 0 for DRBD to begin, 1 to disconnect."""
    device, peer = drbd_environment.resource(), drbd_environment.peer()
    if not device or not peer:
        journal.write(
            "before-resync-source: DRBD named no resource or peer", priority=journal.ERROR
        )
        return _DROP
    # First of all: whatever ends this process, the monitor shall know whom to connect again.
    reconnect_dropped.write_note(device, peer)
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
                    reconnect_dropped.remove_note(device, peer)
                else:
                    # A monitor may have used the first one up meanwhile.
                    reconnect_dropped.write_note(device, peer)
                _log(
                    device,
                    f"{peer} is marked as outdated, its resync begins",
                    step="marked",
                    duration_s=time.monotonic() - begin,
                )
                return _BEGIN
            last = f"{peer} is {standing}"
        time.sleep(0.2)
    reconnect_dropped.write_note(device, peer)
    _log(
        device,
        f"{peer} cannot be marked as outdated, and so not be filled now: {last}; the monitor"
        " connects again",
        step="refused",
        duration_s=time.monotonic() - begin,
        priority=journal.WARNING,
    )
    return _DROP


def _is_in_contact(runner: Runner, device: str, peer: str) -> bool:
    state = drbdsetup.observe(runner, device)
    return state is not None and state.with_only_peer(peer).is_connected
