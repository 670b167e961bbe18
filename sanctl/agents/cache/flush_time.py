# SPDX-License-Identifier: GPL-2.0-or-later
"""How long the flush that ends write-back may take in an action of Pacemaker.

It may take longer than the action has: what is dirty, divided by what the disk takes in a second.
The action would be killed, and a stop that is killed has the node fenced. So an action ends the
flush in time, and another one goes on: writes are synchronous by then, so what is left becomes
less. DRBD's handler flushes for as long as it takes, as I/O is frozen.
"""

from __future__ import annotations

import math

from sanctl.agents import ocf
from sanctl.plan.device import stop_pace

#: What an action keeps of its time for what is beside the flush: DRBD, the gate, the report, and
#: the piece of the flush that is being written when its time is over.
_REST_S = 30.0
#: Of a promotion, whose hosts wait: the gate and ALUA.
_PROMOTION_REST_S = 15.0
#: The most for it in a monitor, which has other duties, and in a change of parameters.
_AT_A_TIME_S = 25.0
_LEAST_S = 5.0


def of_action() -> float | None:
    """Return the time in any action, in seconds; None, for as long as it takes, in a handler."""
    return _limit_s(ocf.remaining_s(math.inf) - _REST_S)


def of_monitor() -> float | None:
    """As `of_action`, of one that is followed by another that goes on."""
    left_s = of_action()
    return None if left_s is None else min(left_s, _AT_A_TIME_S)


def of_promotion() -> float | None:
    """As `of_action`, of a promotion."""
    return _limit_s(ocf.remaining_s(math.inf) - _PROMOTION_REST_S)


def of_stop() -> float | None:
    """As `of_action`, of a stop, also of one that is not Pacemaker's (stop_remaining.py)."""
    return _limit_s(ocf.remaining_s(stop_pace.ALL_WITHIN_S) - _REST_S)


def _limit_s(left_s: float) -> float | None:
    return None if math.isinf(left_s) else max(_LEAST_S, left_s)
