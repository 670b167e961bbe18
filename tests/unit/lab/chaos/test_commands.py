# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl chaos run --only`: which numbered faults are injected."""

from __future__ import annotations

import re

import click
import pytest

from sanctl.lab.chaos.commands import parse_fault_numbers, select_faults
from sanctl.lab.chaos.fault import Fault, Reboot

FAULTS: tuple[Fault, ...] = tuple(Reboot(node=f"n{k}") for k in range(1, 6))


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ((), [1, 2, 3, 4, 5]),
        (("2",), [2]),
        (("4-9",), [4, 5]),
        (("1", "3-4"), [1, 3, 4]),
    ],
)
def test_numbers_and_ranges(words: tuple[str, ...], meant: list[int]) -> None:
    found = select_faults(FAULTS, [parse_fault_numbers(word) for word in words])
    assert [number for number, _ in found] == meant
    # A fault keeps its number: it is what repeats it.
    assert all(FAULTS[number - 1] is fault for number, fault in found)


def test_none_at_all_is_refused() -> None:
    with pytest.raises(click.UsageError):
        select_faults(FAULTS, [parse_fault_numbers("6-7")])


@pytest.mark.parametrize("word", ["", "x", "3-", "-3", "1-2-3", "1.5"])
def test_anything_else_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(word)}$"):
        parse_fault_numbers(word)
