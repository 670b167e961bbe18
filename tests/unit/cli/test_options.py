# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers on the command line are numbers, and within bounds."""

from __future__ import annotations

import math

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sanctl.cli.commands.device_create import creation_wait_s
from sanctl.cli.main import cli
from sanctl.cli.options import SECONDS, Number


@pytest.mark.parametrize(
    "text", ["nan", "-nan", "inf", "-inf", "infinity", "-1", "1e9", "1e999", "", "x", "9" * 5000]
)
def test_what_is_no_number_of_seconds(text: str) -> None:
    with pytest.raises(click.BadParameter):
        SECONDS.convert(text, None, None)


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("1.5", 1.5), ("604800", 604800)])
def test_numbers_of_seconds(text: str, seconds: float) -> None:
    assert SECONDS.convert(text, None, None) == seconds


@given(st.one_of(st.text(), st.floats().map(str), st.integers().map(str)))
def test_a_wait_has_an_end(text: str) -> None:
    try:
        number = SECONDS.convert(text, None, None)
    except click.BadParameter as error:
        assert len(error.message) < 400
    else:
        assert math.isfinite(number)
        assert number >= 0


def commands(group: click.Command, name: str) -> dict[str, click.Command]:
    if not isinstance(group, click.Group):
        return {name: group}
    context = click.Context(group)
    found: dict[str, click.Command] = {}
    for each in group.list_commands(context):
        command = group.get_command(context, each)
        assert command is not None
        found |= commands(command, f"{name} {each}")
    return found


def test_no_option_takes_what_is_no_number() -> None:
    """click's float and FloatRange take `nan`, which is within every range."""
    every = commands(cli, "sanctl")
    assert {"sanctl device create", "sanctl lab link", "sanctl chaos run"} <= set(every)
    wrong = [
        f"{name} {option.name}"
        for name, command in every.items()
        for option in command.params
        if isinstance(option.type, click.types.FloatParamType)
    ]
    assert wrong == []
    waits = [o for c in every.values() for o in c.params if o.name == "timeout_s"]
    assert waits
    assert all(isinstance(option.type, Number) for option in waits)


def test_twenty_devices_are_waited_for_longer_than_one() -> None:
    """In a laboratory of two cores the twentieth is served after more than three minutes."""
    assert creation_wait_s(1) == 180
    assert creation_wait_s(20) == 560


@pytest.mark.parametrize(
    "words",
    [
        "create web1 --iqn iqn.2026-11.net.example:a --chap",
        "set web1 --chap",
    ],
)
def test_an_empty_user_name_does_not_switch_chap_off(words: str) -> None:
    done = CliRunner().invoke(cli, ["host", *words.split(), ""])
    assert done.exit_code != 0
    assert "needs a user name" in f"{done.output}{done.exception!r}"


def test_an_iqn_is_not_added_and_removed_at_once() -> None:
    iqn = "iqn.2026-11.net.example:a"
    words = ["host", "set", "web1", "--add-iqn", iqn, "--remove-iqn", iqn]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code != 0
    assert "either to --add-iqn" in f"{done.output}{done.exception!r}"
