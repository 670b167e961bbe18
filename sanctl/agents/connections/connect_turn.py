# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a start, or a monitor, wait for its turn to connect: few resyncs of a node begin at a time.

The rule is in sanctl/plan/drbd/reconnect_pace.py. Only DRBD 8.4 is asked, at /proc/drbd, without a
process. A turn that is taken is noted under a lock, with the minor: on a busy node the connection
is seen some seconds after that.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.drivers import drbd_kernel
from sanctl.plan.drbd import reconnect_pace
from sanctl.system import state_files

_POLL_S = 0.2
_KIND = "connect-turn"


def await_turn(minor: int, *, within_s: float, is_new: bool) -> bool:
    """Return True when few connections are being made here, False after that time.

    Args:
        minor: the device's.
        within_s: how long, in seconds.
        is_new: of a replica whose files were just made no turn is kept until it is in contact: its
            peers may be as new, wait for turns of their own, and no resync begins then.
    """
    begin_s = time.monotonic()
    while not take(None if is_new else minor, waited_s=0.0):
        if time.monotonic() - begin_s >= within_s:
            return False
        time.sleep(_POLL_S)
    return True


def take(minor: int | None, *, waited_s: float | None) -> bool:
    """Return whether a connection may be made now; if so, that is noted for the next one.

    Args:
        minor: the device's; None: the turn counts for a moment alone.
        waited_s: how long it has waited, in seconds; None where that is not known.
    """
    last = state_files.of_node("connected")
    try:
        with state_files.locked(state_files.node_lock("connect"), wait_s=0.0) as is_mine:
            if not is_mine or not reconnect_pace.may_connect(
                reconnect_pace.being_made(drbd_kernel.connections(), _taken()),
                waited_s=waited_s,
                last_s=last.age_s(),
            ):
                return False
            last.write()
            if minor is not None and drbd_kernel.generation() < 9:
                _note(minor).write()
    except OSError:
        pass  # /run is full, or worse: a replica that connects matters more than the pace.
    return True


def release(minor: int) -> None:
    """Have a turn count for no longer than the connection itself does."""
    with contextlib.suppress(OSError):
        _note(minor).remove()


def _taken() -> dict[int, float]:
    """Return how long ago turns were taken, by minor, in seconds; old notes are removed."""
    taken = {}
    for minor in map(int, state_files.node_suffixes(_KIND)):
        age_s = _note(minor).age_s()
        if age_s is not None and 0 <= age_s < reconnect_pace.TAKEN_S:
            taken[minor] = age_s
        else:
            _note(minor).remove()
    return taken


def _note(minor: int) -> state_files.StateFile:
    return state_files.of_node(f"{_KIND}.{minor}")
