# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many starts run on a node at a time, how long one waits, and for what it makes way."""

from __future__ import annotations

from enum import Enum, auto

#: A start waits for other nodes and the kernel as long as it computes.
_AT_LEAST, _PER_PROCESSOR = 16, 4
#: The cluster does nothing else meanwhile; about as long as an action's own waits.
_LONGEST_S = 45.0
#: What a start needs after its wait: its own waits, and programs that start slowly.
_RUN_S = 60.0


class Wait(Enum):
    """What a start does that waits for its turn."""

    ON = auto()
    """It waits on."""
    NO_LONGER = auto()
    """It goes on without a turn: hosts may wait for it."""
    GIVE_WAY = auto()
    """It fails, and is repeated."""


def at_a_time(processors: int) -> int:
    """Return how many starts run at a time on a node with so many processors."""
    return max(_AT_LEAST, _PER_PROCESSOR * processors)


def longest_wait_s(remaining_s: float) -> float:
    """Return how long a start waits for its turn, of the seconds that it has left.

    After that it goes on all the same: the turns may be held by starts that hang.
    """
    return min(_LONGEST_S, max(0.0, remaining_s - _RUN_S))


def after_look(before: frozenset[str] | None, now: frozenset[str] | None, active: str) -> Wait:
    """Return what a start does once it has looked at the members of its partition.

    Args:
        before: the members at its latest look; None: not known.
        now: those of now, in the same way.
        active: the node that served the device when the wait began; empty: none, or not known.
    """
    if before is None or now is None or not before - now:
        return Wait.ON
    return Wait.GIVE_WAY if active in now else Wait.NO_LONGER
