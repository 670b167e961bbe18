# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how many starts run on a node at a time, how long one waits, and for what it makes way."""

from __future__ import annotations

#: A start waits for other nodes and the kernel as long as it computes.
_AT_LEAST, _PER_PROCESSOR = 16, 4
#: What a start needs after its wait: its own waits, and programs that start slowly.
_RUN_S = 60.0


def at_a_time(processors: int) -> int:
    """Return how many starts run at a time on a node with so many processors."""
    return max(_AT_LEAST, _PER_PROCESSOR * processors)


def longest_wait_s(remaining_s: float) -> float:
    """Return how long a start waits for its turn, of the seconds that it has left.

    After that it goes on all the same: the turns may be held by starts that hang.
    """
    return max(0.0, remaining_s - _RUN_S)


def lost_nodes(before: frozenset[str] | None, now: frozenset[str] | None) -> frozenset[str]:
    """Return the nodes that have left this node's partition; what is not known has not."""
    if before is None or now is None:
        return frozenset()
    return before - now
