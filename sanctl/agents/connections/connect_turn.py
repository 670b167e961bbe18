# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a start wait for its turn to connect, so that few resyncs of a node begin at a time.

The rule is in sanctl/plan/drbd/reconnect_pace.py. Only DRBD 8.4 is asked, at /proc/drbd: no process
and no lock. Starts that look at the same moment may all go on; Pacemaker runs few at a time.
"""

from __future__ import annotations

import time

from sanctl.drivers import drbdsetup
from sanctl.plan.drbd import reconnect_pace

_POLL_S = 0.1


def await_turn(*, within_s: float) -> None:
    """Return when few connections are being made here, or after that time."""
    deadline_s = time.monotonic() + within_s
    while (
        not reconnect_pace.may_connect(drbdsetup.connections().values())
        and time.monotonic() < deadline_s
    ):
        time.sleep(_POLL_S)
