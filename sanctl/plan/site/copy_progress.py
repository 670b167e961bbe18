# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a copy is under way, of what nodes have published, and how long it still takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sanctl.errors import Problem, Refused
from sanctl.model.copy_progress import CopyProgress
from sanctl.model.site import CopyRecord

#: What is older is of a process that was killed: one that lives publishes every 10 s, and while it
#: waits for the site at each sign of life, of which there is one every 15 s; it gives up after 90 s
#: without one. The clocks of two nodes may disagree a little.
FRESH_S = 120


#: Accepted where the copy that is under way may be thrown away.
UNDER_WAY = "SAN-SITE-040"


def refuse_second_copy(
    devices: Sequence[str],
    site: str,
    copies: Mapping[tuple[str, str], tuple[str, CopyProgress]],
    accepted: Collection[str] = (),
) -> None:
    """Refuse a run while a copy of one of its devices to the same site is under way.

    The site keeps one unfinished copy of a device: the second run would remove that of the first.

    Args:
        devices: the names of the devices.
        site: the site's name.
        copies: the copies that nodes say they make now, by device and site.
        accepted: the codes that the operator accepted; SAN-SITE-040 lets the run go on.

    Raises:
        Refused: the data that a copy has sent so far would be thrown away.
    """
    problems = []
    for device in devices:
        node, progress = copies.get((device, site), ("", None))
        if progress is None or UNDER_WAY in accepted:
            continue
        percent = progress.percent
        far = progress.step.phase + (f", {percent:.0f} %" if percent is not None else "")
        problems.append(
            Problem(
                UNDER_WAY,
                f"node {node} is making a copy of device {device} at site {site} ({far}): another "
                "run would take its place, and what was sent so far would be thrown away",
                "wait: 'sanctl replicate status' shows how far it is; or --accept " + UNDER_WAY,
            )
        )
    if problems:
        raise Refused(*problems)


def under_way(
    record: CopyRecord, published: Mapping[str, str], now_s: float
) -> tuple[str, CopyProgress] | None:
    """Return the node that makes a copy, and how far the copy is.

    Args:
        record: the CIB's record of a device's copies at a site, with the token of the latest run.
        published: the progress that nodes have published of copies of that device there, by node.
        now_s: seconds since 1970.

    Returns:
        None: no copy is under way, or nothing is published of it.
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
