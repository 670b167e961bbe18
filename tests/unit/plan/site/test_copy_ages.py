# SPDX-License-Identifier: GPL-2.0-or-later
"""How old the newest copy was: only of what the site keeps, and never less than it was."""

from __future__ import annotations

from sanctl.model.site import ProvenCopy
from sanctl.plan.site.copy_ages import CopyAge, copy_ages, course, worst_s

WEB, LOG = f"web.{'a' * 32}", f"log.{'1' * 32}"


def copy(number: int, made_s: int, proven_s: int, *group: str, device: int = 0) -> ProvenCopy:
    """Return one whose token is of that moment."""
    token = f"{number:012x}{device:04x}"
    return ProvenCopy(f"p{number}", token, made_s, proven_s, 8, 4, 2, "c" * 64, group)


def test_just_before_the_next_one_counted() -> None:
    folders = {WEB: [copy(3, 2800, 2900), copy(1, 1000, 1100), copy(2, 1900, 2200)]}
    ages = copy_ages(WEB, folders, is_grouped=False)
    assert ages == (
        CopyAge("p1", 1000, 1100, None),
        CopyAge("p2", 1900, 2200, 1200),
        CopyAge("p3", 2800, 2900, 1000),
    )
    assert worst_s(ages) == 1200
    assert course(ages, 3000.5) == (
        (1100, 100),
        (2200, 1200),
        (2200, 300),
        (2900, 1000),
        (2900, 100),
        (3000, 200),
    )


def test_too_few_say_nothing() -> None:
    assert copy_ages(LOG, {WEB: [copy(1, 1, 2)]}, is_grouped=False) == ()
    assert worst_s(()) is None and course((), 9) == ()
    one = copy_ages(WEB, {WEB: [copy(1, 1000, 1100)]}, is_grouped=False)
    assert worst_s(one) is None
    assert course(one, 50) == ((1100, 100), (1100, 100)), "a clock that is behind"


def test_an_older_one_that_comes_late_makes_nothing_newer() -> None:
    ages = copy_ages(
        WEB, {WEB: [copy(2, 2000, 2100), copy(1, 1000, 2500), copy(3, 2900, 3000)]},
        is_grouped=False,
    )  # fmt: skip
    assert [each.before_s for each in ages] == [None, 500, 1000]
    assert course(ages, 3000)[2] == (2500, 500)


def test_clocks_that_disagree_give_no_negative_age() -> None:
    ages = copy_ages(WEB, {WEB: [copy(1, 5000, 100), copy(2, 600, 700)]}, is_grouped=False)
    assert worst_s(ages) is None and course(ages, 800) == ((700, 100), (800, 200))


def test_after_a_clock_was_put_back_no_age_is_known_and_later_ones_are() -> None:
    """By the site's numbers: two were made a week ahead, and the two after them are the newer."""
    ahead = 7 * 86400
    folders = {
        WEB: [
            copy(number, made_s, made_s + 100)._replace(number=number, after=number - 1)
            for number, made_s in ((1, ahead), (2, ahead + 900), (3, 2000), (4, 2900))
        ]
    }
    ages = copy_ages(WEB, folders, is_grouped=False)
    assert [each.name for each in ages] == ["p1", "p2", "p3", "p4"]
    assert [each.before_s for each in ages] == [None, 1000, None, 1000]
    assert worst_s(ages) is None, "what it was is not known, so neither is the worst"
    assert course(ages, 3100)[0] == (2100, 100)


def test_of_devices_that_are_copied_together_complete_moments_count() -> None:
    both = (LOG, WEB)
    folders = {
        WEB: [copy(1, 1000, 1100, *both), copy(2, 1900, 2000, *both), copy(3, 2800, 2900, *both),
              copy(4, 2950, 2960)],
        LOG: [copy(1, 990, 1150, *both, device=1), copy(3, 2801, 2999, *both, device=1)],
    }  # fmt: skip
    ages = copy_ages(WEB, folders, is_grouped=True)
    assert ages == (CopyAge("p1", 990, 1150, None), CopyAge("p3", 2800, 2999, 2009))
    assert len(copy_ages(WEB, folders, is_grouped=False)) == 4
