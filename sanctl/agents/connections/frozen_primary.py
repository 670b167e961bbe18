# SPDX-License-Identifier: GPL-2.0-or-later
"""Has DRBD call fence-peer again for a frozen Primary whose handler died, by a new connection.

The rule, and why a new connection, is in sanctl/plan/failover/handler_calls.py.
"""

from __future__ import annotations

import os
import time

from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_handlers, drbdadm, drbdsetup
from sanctl.errors import CommandError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import handler_calls
from sanctl.system import journal
from sanctl.system.runner import DeadlineRunner, Runner

#: Between two looks. A handler is missing where both find none: DRBD may freeze, or end a call, a
#: moment before it calls the handler.
_SECOND_LOOK_S = 1.0
#: For all that is asked of DRBD here: a monitor that runs out of time is a failed one.
_LIMIT_S = 12.0
_log = DeviceLog("fence-peer")


def call_handler_again(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Disconnect and connect a Primary that is frozen for fencing while no handler is under way.

    Waits for no handler. A process that dies between the two steps leaves the handler called and
    the peer disconnected; the monitor connects again by the note that is written first.

    Returns:
        The state after that.

    Raises:
        SanctlError, OSError: it is not known whether a handler is under way, or DRBD refused; the
            next monitor tries again.
    """
    if not handler_calls.is_frozen_for_fencing(state):
        return state  # Every monitor comes here: the processes are not looked at for nothing.
    if not handler_calls.must_call_again(state, drbd_handlers.observe_calls()):
        return state
    runner = DeadlineRunner(runner, time.monotonic() + _LIMIT_S)
    time.sleep(_SECOND_LOOK_S)
    now = drbdsetup.observe(runner, device.name)
    if now is None or not handler_calls.must_call_again(now, drbd_handlers.observe_calls()):
        return now or state
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return now  # A suspect replica's bitmap misses its lost writes (docs/adr/0027).
    _log(
        device.name,
        "I/O is frozen for fencing and no fence-peer handler runs, it was killed or could not be"
        " started: DRBD is disconnected and connected, to call it again",
        step="call-again",
        priority=journal.ERROR,
    )
    for peer in device.nodes:
        if peer != os.uname().nodename:
            _note_peer(device.name, peer)
    drbdadm.disconnect(runner, device.name)
    try:
        drbdadm.connect(runner, device.name)
    except CommandError as error:
        # Mostly that an operator or another process has connected it first.
        _log(device.name, f"not connected again yet: {error}", step="call-again")
    return drbdsetup.observe(runner, device.name) or now


def _note_peer(device: str, peer: str) -> None:
    try:
        reconnect_dropped.write_note(device, peer)
    except OSError as error:
        # Without the note the peer stays disconnected if this process dies now. Without a handler
        # no host's request is answered.
        _log(device, f"{peer}: no note that it is to be connected again: {error}", step="unnoted")
