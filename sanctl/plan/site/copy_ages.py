# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how old the newest copy of a device at a site was just before each one that came.

Only of copies that the site keeps: what was removed in between is not known. So an age is never
less than it was, and may be more. Where a clock was put back it is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.model.site import ProvenCopy
from sanctl.plan.site.copy_order import is_ahead
from sanctl.plan.site.grouping import moments_of


class CopyAge(NamedTuple):
    """A copy that a site keeps.

    Attributes:
        name: the name of its restore point.
        made_s: what it holds is of that moment, in seconds since 1970.
        proven_s: since when it counts.
        before_s: how old the newest kept copy was when this one began to count, in seconds; None:
            none before it is kept, or it is not known.
        is_unclear: it is not known: by the clocks the copy before was made after this one counted.
    """

    name: str
    made_s: int
    proven_s: int
    before_s: int | None
    is_unclear: bool = False


def copy_ages(
    folder: str, folders: Mapping[str, Sequence[ProvenCopy]], *, is_grouped: bool
) -> tuple[CopyAge, ...]:
    """Return the copies of a device that count, in the order in which they began to.

    Args:
        folder: the device's folder at the site, DEVICE.UUID.
        folders: all proven copies there, by folder.
        is_grouped: the device is copied with others: only moments that are complete count.
    """
    if is_grouped:
        proven = {copy.token: copy.proven_s for each in folders.values() for copy in each}
        found = [
            (each.number, each.name, each.made_s, max(proven[token] for token in each.tokens))
            for each in moments_of(folder, folders)
        ]
    else:
        found = [
            (each.number if each.is_numbered else 0, each.name, each.made_s, each.proven_s)
            for each in folders.get(folder, ())
        ]
    ages: list[CopyAge] = []
    newest_s: int | None = None
    # By the site's numbers, and of those without any by when they were proven.
    for _, name, made_s, proven_s in sorted(found, key=lambda each: (each[0], each[3], each[2])):
        is_unclear = newest_s is not None and is_ahead(newest_s, proven_s)
        before_s = None if newest_s is None or is_unclear else max(0, proven_s - newest_s)
        # One that is older than what is there makes nothing newer; but for one after a clock was
        # put back, which is made by the clock that holds from then on.
        newest_s = made_s if newest_s is None or is_unclear else max(newest_s, made_s)
        ages.append(CopyAge(name, made_s, proven_s, before_s, is_unclear))
    return tuple(ages)


def worst_s(ages: Sequence[CopyAge]) -> int | None:
    """Return the highest age before a copy that is kept; None: less than two are, or not known."""
    if any(each.is_unclear for each in ages):
        return None
    return max((each.before_s for each in ages if each.before_s is not None), default=None)


def course(ages: Sequence[CopyAge], now_s: float) -> tuple[tuple[int, int], ...]:
    """Return how the age of the newest copy has gone since the first one of which it is known.

    Returns:
        Moments in seconds since 1970 and the age then; it grows evenly from one to the next. None
        where no copy is kept.
    """
    points: list[tuple[int, int]] = []
    newest_s = 0
    for each in ages:
        if each.is_unclear:
            # Nothing is known of before.
            points.clear()
            newest_s = 0
        if each.before_s is not None:
            points.append((each.proven_s, each.before_s))
        newest_s = max(newest_s, each.made_s)
        points.append((each.proven_s, max(0, each.proven_s - newest_s)))
    if points:
        end_s = max(int(now_s), points[-1][0])
        points.append((end_s, max(0, end_s - newest_s)))
    return tuple(points)
