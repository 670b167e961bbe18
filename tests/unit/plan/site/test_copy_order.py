# SPDX-License-Identifier: GPL-2.0-or-later
"""Which copy is the newer one: numbers that no clock turns round; times where there are none."""

from __future__ import annotations

import itertools

from sanctl.model.site import ProvenCopy
from sanctl.plan.site.copy_order import is_surely_older, newest_first, rival_of
from sanctl.plan.site.copying import surplus_copies

AHEAD_S = 7 * 86400


def copy(number: int, made_s: int, after: int | None = None) -> ProvenCopy:
    """Return a copy that was proven ten seconds after it was made, by the same clock."""
    known = number - 1 if after is None else after
    return ProvenCopy(
        f"p{number}", f"{number:016x}", made_s, made_s + 10, 8, 4, 2, "c" * 64, (), (), number,
        known,
    )  # fmt: skip


def earlier(number: int, made_s: int) -> ProvenCopy:
    """Return a copy that an earlier release has proven."""
    return copy(number, made_s)._replace(number=0, after=-1)


def test_numbers_hold_whatever_clocks_say() -> None:
    """The clock was ahead for the first two, and put back."""
    copies = [copy(1, AHEAD_S), copy(2, AHEAD_S + 900), copy(3, 1800), copy(4, 2700)]
    for some in itertools.permutations(copies):
        assert newest_first(some) == copies[::-1]
        assert surplus_copies(some, 2) == (copies[0].token, copies[1].token)
        assert surplus_copies(some, 0) == tuple(each.token for each in copies[:3])
    assert rival_of(copies[3], copies) is None
    assert rival_of(copies[0], copies) == copies[3]
    assert not any(is_surely_older(each, each) for each in copies)


def test_of_runs_that_overtook_each_other_times_and_numbers_have_to_agree() -> None:
    """Both were begun after the first; neither says that the other one was there."""
    first, slow, quick = copy(1, 100), copy(3, 200, 1), copy(2, 300, 1)
    assert newest_first([first, quick, slow])[0] == slow
    assert rival_of(slow, [first, quick, slow]) == quick
    assert surplus_copies([first, quick, slow], 1) == (first.token,), "either may be the newest"
    later = copy(3, 400, 1)
    assert rival_of(later, [first, quick, later]) is None
    assert surplus_copies([first, quick, later], 1) == (first.token, quick.token)
    assert rival_of(copy(4, 150), [first, quick, slow, copy(4, 150)]) is None


def test_copies_of_an_earlier_release_go_by_both_their_times() -> None:
    old = [earlier(11, 100), earlier(12, 200)]
    assert newest_first(old)[0] == old[1] and rival_of(old[1], old) is None
    assert surplus_copies(old, 1) == (old[0].token,)
    new = copy(1, 300, 0)
    assert newest_first([*old, new])[0] == new and rival_of(new, [*old, new]) is None
    assert surplus_copies([*old, new], 1) == (old[0].token, old[1].token)


def test_one_of_an_earlier_release_never_makes_a_numbered_one_dispensable() -> None:
    """Its clock was ahead: it is not known whether it is older, so none is taken unasked."""
    ahead = [earlier(number, AHEAD_S + number) for number in (11, 12, 13)]
    new = [copy(1, 1000, 0), copy(2, 1900), copy(3, 2800)]
    assert newest_first([*new, *ahead])[0] == new[2]
    assert rival_of(new[2], [*ahead, *new]) == ahead[2]
    assert surplus_copies([*ahead, *new], 2) == (ahead[0].token, new[0].token)


def test_a_group_of_an_earlier_release_has_numbers_of_the_site() -> None:
    """They count all groups there, so they say nothing beside those of one device."""
    old = copy(40, 900)._replace(after=-1, group=("a", "b"))
    assert not old.is_numbered and rival_of(copy(3, 1000), [old, copy(3, 1000)]) is None
    assert rival_of(copy(3, 800), [old, copy(3, 800)]) == old
