# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a start, or a monitor, wait for its turn to connect: few resyncs of a node begin at a time.

The rule is in sanctl/plan/drbd/reconnect_pace.py. Only DRBD 8.4 is asked, at /proc/drbd, without a
process. A turn that is taken is noted under a lock, as a connection is seen a moment after it was
made.
"""

from __future__ import annotations

import time

from sanctl.drivers import drbd_kernel
from sanctl.plan.drbd import reconnect_pace
from sanctl.system import state_files

_POLL_S = 0.2


def await_turn(*, within_s: float) -> bool:
    """Return True when few connections are being made here, False after that time."""
    begin_s = time.monotonic()
    while not take(waited_s=0.0):
        if time.monotonic() - begin_s >= within_s:
            return False
        time.sleep(_POLL_S)
    return True


def take(*, waited_s: float | None) -> bool:
    """Return whether a connection may be made now; if so, that is noted for the next one.

    Args:
        waited_s: how long it has waited, in seconds; None where that is not known.
    """
    last = state_files.of_node("connected")
    try:
        with state_files.locked(state_files.node_lock("connect"), wait_s=0.0) as is_mine:
            if not is_mine or not reconnect_pace.may_connect(
                drbd_kernel.connections().values(), waited_s=waited_s, last_s=last.age_s()
            ):
                return False
            last.write()
    except OSError:
        pass  # /run is full, or worse: a replica that connects matters more than the pace.
    return True
