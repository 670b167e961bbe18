# SPDX-License-Identifier: GPL-2.0-or-later
"""The newest complete moment of a group stays, whatever is half there, left, or wrongly timed."""

from __future__ import annotations

import random

import pytest

from sanctl.plan.site.moments import (
    GroupCopy,
    complete_moments,
    kept_moments,
    protected_tokens,
    retained_tokens,
)

A, B, C = (f"{name}.{name * 32}" for name in "abc")


def moment(
    number: int,
    *group: str,
    made_s: int | None = None,
    came: int | None = None,
    left: tuple[str, ...] = (),
) -> list[GroupCopy]:
    made = number * 100 if made_s is None else made_s
    came = number * 100 if came is None else came
    return [
        GroupCopy(folder, f"{number:012x}{at:04x}", f"p{number}", made + at, came + at, group, left)
        for at, folder in enumerate(group)
    ]


def complete(copies: list[GroupCopy]) -> list[str]:
    return [each.name for each in complete_moments(copies)]


def kept(copies: list[GroupCopy]) -> list[str]:
    return [each.name for each in kept_moments(complete_moments(copies))]


def test_a_moment_is_complete_with_all_devices() -> None:
    whole = moment(1, A, B)
    (found,) = complete_moments(whole)
    assert found.group == (A, B) and (found.made_s, found.number) == (100, 101)
    assert found.token_of(A) == whole[0].token and found.token_of(C) == ""
    assert complete([*moment(2, A, B), *whole]) == ["p2", "p1"]
    for each in whole:
        assert complete([each]) == []
    assert complete([]) == []


@pytest.mark.parametrize(
    "copies",
    [
        pytest.param([*moment(1, A, B)[:1], *moment(1, B, C)[1:]], id="of two groups"),
        pytest.param([*moment(1, A, B), moment(1, A, B)[0]], id="twice"),
        pytest.param([moment(1, A, B)[0], moment(1, A, B, C)[1]], id="another group"),
        pytest.param([*moment(1, A, B), moment(1, B, C)[1]], id="one more"),
    ],
)
def test_what_does_not_agree_is_not_complete(copies: list[GroupCopy]) -> None:
    assert complete(copies) == []


def test_one_that_is_half_there_replaces_none() -> None:
    whole, half = moment(1, A, B), moment(2, A, B)[:1]
    assert kept([*whole, *half]) == ["p1"]
    assert protected_tokens([*whole, *half], A) == {whole[0].token}
    assert protected_tokens([*whole, *half], B) == {whole[1].token}
    assert protected_tokens([*whole, *half], C) == frozenset()
    assert kept([*whole, *moment(2, A, B)]) == ["p2"]


def test_clocks_that_disagree_remove_none() -> None:
    ahead = moment(1, A, B, made_s=10**9)
    assert set(kept([*ahead, *moment(2, A, B)])) == {"p1", "p2"}
    # The next one replaces the one that was made by the right clock, and the wrong one stays.
    assert set(kept([*ahead, *moment(2, A, B), *moment(3, A, B)])) == {"p1", "p3"}
    # Made earlier, and came later.
    late = moment(1, A, B, came=900)
    assert set(kept([*late, *moment(2, A, B)])) == {"p1", "p2"}
    assert set(kept([*moment(1, A, B), *moment(2, A, B, made_s=100)])) == {"p1", "p2"}


def test_devices_that_join_or_leave() -> None:
    old = moment(1, A, B)
    assert kept([*old, *moment(2, A, B, C)]) == ["p2"]
    # Nobody has said that B has left.
    for others in ((A, C), (A,), (C,)):
        assert set(kept([*old, *moment(2, *others)])) == {"p1", "p2"}
    assert kept([*old, *moment(2, A, C, left=(B,))]) == ["p2"]
    # Of devices that are all gone nothing else is known.
    assert set(kept([*old, *moment(2, C, f"d.{'d' * 32}", left=(A, B))])) == {"p1", "p2"}


def test_what_is_retained_beside_the_newest_complete_one() -> None:
    copies = [*moment(1, A, B), *moment(2, A, B), *moment(3, A, B), *moment(4, A, B)[:1]]
    assert {token[:12] for token in retained_tokens(copies, A, 2)} == {f"{n:012x}" for n in (2, 3)}
    assert {token[:12] for token in retained_tokens(copies, A, 9)} == {
        f"{n:012x}" for n in (1, 2, 3)
    }
    assert retained_tokens(copies, C, 2) == frozenset()
    # By either time.
    late = [*moment(1, A, B, came=999), *moment(2, A, B), *moment(3, A, B)]
    assert {token[:12] for token in retained_tokens(late, A, 1)} == {f"{n:012x}" for n in (1, 3)}


def test_whatever_is_removed_in_whatever_order_the_newest_complete_one_stays() -> None:
    """Each removal looks at what is there then, as the site does, one after the other."""
    chosen = random.Random(7)
    for _ in range(300):
        copies: list[GroupCopy] = []
        newest = ""
        for number in range(1, 9):
            made = moment(number, A, B, C)[: chosen.choice((1, 2, 3, 3))]
            copies += made
            newest = made[0].name if len(made) == 3 else newest
            for _ in range(chosen.randrange(6)):
                victim = chosen.choice(copies or made)
                if victim in copies and victim.token not in protected_tokens(copies, victim.folder):
                    copies.remove(victim)
            assert not newest or complete(copies)[0] == newest
