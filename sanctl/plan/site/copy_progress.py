# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a copy is under way, of what nodes have published, and how long it still takes."""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.model.copy_progress import CopyProgress
from sanctl.model.site import CopyRecord

#: What is older is of a process that was killed: one that lives publishes every 10 s, and while it
#: waits for the site at each sign of life, of which there is one every 15 s; it gives up after 90 s
#: without one. The clocks of two nodes may disagree a little.
FRESH_S = 120


def under_way(
    record: CopyRecord, published: Mapping[str, str], now_s: float
) -> tuple[str, CopyProgress] | None:
    """Return the node that makes a copy, and how far it is; None: none is, or that is not known.

    Args:
        record: what is known of a device's copies at a site; the run has noted its token in it.
        published: what nodes have published of copies of that device there, by node.
        now_s: seconds since 1970.
    """
    found = [
        (node, progress)
        for node, text in sorted(published.items())
        if (progress := CopyProgress.parse(text)) is not None
        and progress.token == record.attempt
        and abs(now_s - progress.at_s) <= FRESH_S
    ]
    return max(found, key=lambda each: each[1].at_s, default=None)


def left_s(progress: CopyProgress, now_s: float) -> int | None:
    """Return how long the phase takes at its pace until now, in seconds; None: not known."""
    _, done, total = progress.step
    took_s = progress.at_s - progress.since_s
    if progress.percent is None or done <= 0 or took_s <= 0:
        return None
    whole_s = max(0, total - done) * took_s / done
    return max(0, int(whole_s - max(0.0, now_s - progress.at_s)))
