# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which of a device's copies at a site is the newer one, whatever clocks have said.

A site numbers the copies of a device as they are proven, and each copy says the highest number that
was there before its restore point was made. So one whose `after` reaches another one's number was
made when that one was there: it is newer, by no clock. Of two runs that overtook each other neither
says that, and the times decide as far as they agree with the numbers.

A copy that an earlier release has proven has no number. Of two such copies the times of their
restore points and of their proofs have to agree. Beside one with a number it counts as the older
one if both its times are earlier, and never as the newer one: its clock may have been ahead.
"""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.model.site import ProvenCopy

#: How far the clocks of nodes may differ before a moment counts as one that has not come yet.
AHEAD_S = 60


def newest_first(copies: Sequence[ProvenCopy]) -> list[ProvenCopy]:
    """Return copies of one device, the newest first; those without a number last."""
    return sorted(copies, key=_rank, reverse=True)


def _rank(copy: ProvenCopy) -> tuple[int, int, int]:
    return (copy.number if copy.is_numbered else 0, copy.made_s, copy.proven_s)


def is_surely_older(copy: ProvenCopy, than: ProvenCopy) -> bool:
    """Whether a copy of a device holds an older state than another one of it, beyond doubt."""
    if copy.is_numbered and not than.is_numbered:
        return False
    is_earlier = copy.made_s <= than.made_s
    if not copy.is_numbered:
        return is_earlier and copy.proven_s <= than.proven_s and _rank(copy) < _rank(than)
    if than.after >= copy.number:
        return True
    # One run has overtaken the other: only the clocks say whose restore point came first.
    return is_earlier and copy.number < than.number


def rival_of(copy: ProvenCopy, copies: Sequence[ProvenCopy]) -> ProvenCopy | None:
    """Return the newest of the copies that may be newer than that one; None: none may."""
    found = [
        each
        for each in newest_first(copies)
        if each.token != copy.token and not is_surely_older(each, copy)
    ]
    return found[0] if found else None


def is_ahead(moment_s: int, now_s: float) -> bool:
    """Whether a moment has not come yet: the clock that said it was ahead, and it says no age."""
    return moment_s > now_s + AHEAD_S
