# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a start wait for its turn to connect, so that few resyncs of a node begin at a time.

The rule is in sanctl/plan/drbd/reconnect_pace.py. Only DRBD 8.4 is asked, at /proc/drbd: no process
and no lock. Starts look at different moments, as a connection is seen a moment after it was made:
those that looked together would go on together.
"""

from __future__ import annotations

import os
import time

from sanctl.drivers import drbdsetup
from sanctl.plan.drbd import reconnect_pace

_POLL_S, _APART_S, _MOMENTS = 0.2, 0.15, 8


def await_turn(*, within_s: float) -> None:
    """Return when few connections are being made here, or after that time."""
    deadline_s = time.monotonic() + within_s
    poll_s = _POLL_S + os.getpid() % _MOMENTS * _APART_S
    while (
        not reconnect_pace.may_connect(drbdsetup.connections().values())
        and time.monotonic() < deadline_s
    ):
        time.sleep(poll_s)
