# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which offsets of other nodes' clocks a node publishes.

For the pool agent, which imports nothing of the findings (clock_health.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

#: Far more than a time service leaves, and far less than harms.
LIMIT_S = 5
_PART = 10


def beyond_limit(offsets: Mapping[int, float]) -> dict[int, int]:
    """Return the offsets that are worth a word, in whole seconds."""
    return {peer: round(each) for peer, each in offsets.items() if abs(each) >= LIMIT_S}


def to_publish(
    seen: Mapping[int, int],
    before: Mapping[int, int],
    said: Mapping[int, int],
    *,
    answered: Collection[int],
) -> dict[int, int]:
    """Return the offsets to publish, in seconds: those that two looks in a row have found.

    An offset that has hardly changed keeps the number that was published first: a clock that drifts
    must not cost a message to all nodes each minute.

    Args:
        seen: the offsets beyond the limit that this look has found.
        before: those of the look before it.
        said: the offsets that are published now.
        answered: the nodes that have answered this look. An answer that is lost once says nothing.
    """
    found = {peer: said[peer] for peer in said if peer in before and peer not in answered}
    for peer, offset in seen.items():
        if peer in before:
            last = said.get(peer)
            is_same = last is not None and abs(offset - last) <= max(LIMIT_S, abs(last) // _PART)
            found[peer] = last if is_same and last is not None else offset
    return found
