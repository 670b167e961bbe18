# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which copies at a second site are of one moment, and which of those nobody removes.

A moment is complete when each device of its group has a proven copy of it: each copy says which
devices these are. The newest complete moment of a group stays, whatever is half there beside it.

The site decides by these rules, too: so nothing is imported here but Python's standard library (3.9
or later).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

#: So many first digits are the same in the tokens of restore points that were made at one moment:
#: as in model/restore_point.py, which a site does not have.
MOMENT_DIGITS = 12
#: In the place of the names of copies that cannot be read: the folder cannot be, so none is known.
UNLISTED = "*"


class GroupCopy(NamedTuple):
    """A proven copy of a restore point that was made with those of other devices at one moment.

    Attributes:
        folder: the folder at the site that has it, DEVICE.UUID.
        token: its token.
        name: the name of its restore point.
        made_s: when the restore point was made, in seconds since 1970, by a node's clock.
        number: the later it was proven the higher, as the site counts: no clock is asked.
        group: the folders of all devices of the moment, this one among them, sorted.
        left: the folders of devices that have left the group: a moment with them may go.
    """

    folder: str
    token: str
    name: str
    made_s: int
    number: int
    group: tuple[str, ...]
    left: tuple[str, ...] = ()


class Moment(NamedTuple):
    """A moment of which each device of the group has its copy at the site.

    Attributes:
        id: the digits that the tokens share.
        name: the name of the restore points.
        made_s: when the first of the restore points was made.
        number: that of the copy that was proven last.
        group: the folders of its devices, sorted.
        left: the folders of devices that have left the group.
        tokens: the tokens of the copies, in the order of `group`.
    """

    id: str
    name: str
    made_s: int
    number: int
    group: tuple[str, ...]
    left: tuple[str, ...]
    tokens: tuple[str, ...]

    def token_of(self, folder: str) -> str:
        """Return the token of the copy in a folder; empty: the moment has none there."""
        return dict(zip(self.group, self.tokens)).get(folder, "")  # noqa: B905 - Python 3.9


def moment_of(token: str) -> str:
    """Return the digits of a token that all copies of its moment have."""
    return token[:MOMENT_DIGITS]


def complete_moments(copies: Iterable[GroupCopy]) -> tuple[Moment, ...]:
    """Return the moments that are complete, the one that was made last first.

    One whose copies do not agree on the group is not complete: it is not known what belongs to it.
    """
    by_id: dict[str, list[GroupCopy]] = {}
    for copy in copies:
        by_id.setdefault(moment_of(copy.token), []).append(copy)
    found = []
    for digits, members in by_id.items():
        in_order = sorted(members)
        group = tuple(copy.folder for copy in in_order)
        if any(copy.group != group for copy in in_order):
            continue
        found.append(
            Moment(
                digits,
                in_order[0].name,
                min(copy.made_s for copy in in_order),
                max(copy.number for copy in in_order),
                group,
                tuple(sorted({folder for copy in in_order for folder in copy.left})),
                tuple(copy.token for copy in in_order),
            )
        )
    return tuple(sorted(found, key=lambda each: (each.made_s, each.number), reverse=True))


def kept_moments(moments: Sequence[Moment]) -> tuple[Moment, ...]:
    """Return the moments that stay, whatever is to be kept: each that no later one replaces."""
    return tuple(
        moment for moment in moments if not any(replaces(other, moment) for other in moments)
    )


def replaces(later: Moment, moment: Moment) -> bool:
    """Whether a complete moment makes another one dispensable.

    It has to be made later, and to have come later: a node's clock may be wrong, and two runs may
    overtake each other. It has to have all devices of the other one, but for those that were said
    to have left the group.
    """
    return (
        later.made_s > moment.made_s
        and later.number > moment.number
        and not set(later.group).isdisjoint(moment.group)
        and set(moment.group) <= {*later.group, *later.left}
    )


def protected_tokens(
    copies: Collection[GroupCopy], folder: str, *, unread: Collection[str] = ()
) -> frozenset[str]:
    """Return the tokens of the copies in a folder that nobody removes.

    Args:
        copies: all copies at the site that are of groups.
        folder: the folder, DEVICE.UUID.
        unread: the tokens of copies at the site of which nothing is known now. A moment with one of
            them may be complete: it stays as such a one, and makes no other one dispensable.
    """
    complete = complete_moments(copies)
    kept = frozenset(each.token_of(folder) for each in kept_moments(complete)) - {""}
    doubtful = {moment_of(token) for token in unread}
    return kept | {
        copy.token
        for copy in copies
        if copy.folder == folder
        and moment_of(copy.token) in doubtful
        and not any(replaces(later, _seen_from(copy)) for later in complete)
    }


def _seen_from(copy: GroupCopy) -> Moment:
    """Return the moment of a copy, of whose other copies something is not known."""
    return Moment(
        moment_of(copy.token),
        copy.name,
        copy.made_s,
        copy.number,
        copy.group,
        copy.left,
        tuple(copy.token if folder == copy.folder else "" for folder in copy.group),
    )


def retained_tokens(copies: Collection[GroupCopy], folder: str, keep: int) -> frozenset[str]:
    """Return the tokens of the copies in a folder that are of the newest complete moments.

    Args:
        copies: all copies at the site that are of groups.
        folder: the folder, DEVICE.UUID.
        keep: how many moments are kept: those made last, and those that came last.
    """
    moments = [each for each in complete_moments(copies) if folder in each.group]
    as_they_came = sorted(moments, key=lambda each: each.number, reverse=True)
    newest = {each.token_of(folder) for each in (*moments[:keep], *as_they_came[:keep])}
    return protected_tokens(copies, folder) | newest
