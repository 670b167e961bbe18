# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: how fast a copy is sent to a site with a limit: a token bucket, from a clock alone.

What is sent in any time of T seconds is at most the rate times T, and beside that one burst and
one piece.
"""

from __future__ import annotations

from typing import NamedTuple

#: What was not used for a moment may be sent later, as far as it is this many seconds of the rate.
BURST_S = 0.5
#: A piece is this many seconds of the rate, within the bounds: what crosses the line at once.
_PIECE_S = 0.125
_LEAST_PIECE_BYTES, _MOST_PIECE_BYTES = 4096, 1 << 20


class Pace(NamedTuple):
    """The state of the bucket.

    Attributes:
        rate_bytes_s: the limit, in bytes a second; positive.
        level_bytes: what may be sent at once; negative: what was sent ahead of time.
        at_s: when that was so, by a clock that does not go back.
    """

    rate_bytes_s: int
    level_bytes: float
    at_s: float


def begin(rate_bytes_s: int, now_s: float) -> Pace:
    """Return the bucket at the begin: empty, so that there is no burst."""
    return Pace(rate_bytes_s, 0.0, now_s)


def after(pace: Pace, sent_bytes: int, now_s: float) -> tuple[Pace, float]:
    """Return the bucket after some bytes were sent, and for how many seconds nothing may follow."""
    gained = max(0.0, now_s - pace.at_s) * pace.rate_bytes_s
    level = min(pace.level_bytes + gained, BURST_S * pace.rate_bytes_s) - sent_bytes
    return Pace(pace.rate_bytes_s, level, now_s), max(0.0, -level / pace.rate_bytes_s)


def piece_bytes(rate_bytes_s: int) -> int:
    """Return how much is written at once, so that other users of the line wait for a moment."""
    return min(max(int(rate_bytes_s * _PIECE_S), _LEAST_PIECE_BYTES), _MOST_PIECE_BYTES)


def left_s(left_bytes: int, rate_bytes_s: int) -> int:
    """Return how many seconds some bytes take at a rate, if no less has to be sent."""
    return -(-left_bytes // rate_bytes_s)
