# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl chaos run`: which faults are injected, on which devices, and what repeats a run."""

from __future__ import annotations

import re
import shlex
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sanctl.lab.chaos.commands import (
    chaos,
    device_names,
    parse_fault_numbers,
    repeat_command,
    run,
    select_faults,
)
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


def test_a_kind_of_a_fixed_list_is_refused() -> None:
    done = CliRunner().invoke(chaos, ["run", "--scenario", "quick", "--kind", "reboot"])
    assert done.exit_code == 2
    assert "--kind is for random faults" in done.output


@pytest.mark.parametrize(
    "words", [("--scenario", "site"), ("--kind", "site-full"), ("--kind", "copy-killed")]
)
def test_faults_of_a_site_that_there_is_not_are_refused(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(chaos, ["run", *words])
    assert done.exit_code == 2
    assert "faults of a second site take --site SECONDS" in done.output


def test_none_at_all_is_refused() -> None:
    with pytest.raises(click.UsageError):
        select_faults(FAULTS, [parse_fault_numbers("6-7")])


@pytest.mark.parametrize("word", ["", "x", "3-", "-3", "1-2-3", "1.5"])
def test_anything_else_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(word)}$"):
        parse_fault_numbers(word)


DRAWN: dict[str, Any] = {"seed": 7, "count": 20, "scenario": None, "kinds": (), "mode": "none"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"devices": 3}, "--seed 7 --faults 20"),
        ({"devices": 15}, "--seed 7 --faults 20 --devices 15"),
        ({"devices": 3, "recovery_s": 900}, "--seed 7 --faults 20 --recovery 900"),
        (
            {"devices": 4, "kinds": ("reboot", "slow-link")},
            "--seed 7 --faults 20 --kind reboot --kind slow-link --devices 4",
        ),
        (
            {"devices": 15, "scenario": "power", "mode": "write-back"},
            "--scenario power --devices 15 --cache write-back",
        ),
        (
            {"devices": 3, "points_s": 10, "site_s": 60},
            "--seed 7 --faults 20 --points 10 --site 60",
        ),
        (
            {"devices": 3, "scenario": "site", "site_s": 60},
            "--scenario site --seed 7 --site 60",
        ),
    ],
)
def test_the_command_printed_repeats_faults_and_devices(given: dict[str, Any], words: str) -> None:
    printed = repeat_command(**(DRAWN | given))
    assert printed == f"sanctl chaos run {words}"
    # What is printed is understood, and means the same.
    with run.make_context("run", shlex.split(printed)[3:]) as context:
        assert context.params["device_count"] == given["devices"]


def test_devices_have_numbers_from_one() -> None:
    assert device_names(3) == ("chaos1", "chaos2", "chaos3")


@pytest.mark.parametrize("count", ["0", "65", "some"])
def test_a_number_of_devices_that_cannot_be_is_refused(count: str) -> None:
    assert CliRunner().invoke(chaos, ["run", "--devices", count]).exit_code == 2
