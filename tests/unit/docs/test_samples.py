# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documentation tells people to type can be typed, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from sanctl.cli.codes import all_codes
from sanctl.cli.main import cli
from sanctl.lab.documents import ALL_DOCUMENTS
from tests.support import samples
from tests.support.contract import breaches
from tests.support.samples import Sample

_CODE = re.compile(r"SAN-[A-Z]+-\d{3}")
_MAKE = re.compile(r"(?:^|`|\$ )(?:\s{4,})?make ([a-z-]+)", re.MULTILINE)
PAGES = samples.pages()
COMMANDS = [
    sample
    for page in PAGES
    if page.parent != samples.GENERATED
    for sample in samples.commands(page)
]


def parse(words: list[str], *, is_mention: bool = False) -> None:
    """Have click read a command line, to its last option, without running it.

    Args:
        words: the command line after `sanctl`.
        is_mention: naming a command without its arguments will do.

    Raises:
        click.UsageError: it does not read.
    """
    context = cli.make_context("sanctl", list(words))
    while isinstance(context.command, click.Group):
        # Groups leave what is not theirs in one of two places, by click's version.
        rest = [*getattr(context, "_protected_args", ()), *context.args]
        name, command, rest = context.command.resolve_command(context, rest)
        assert command is not None
        if is_mention and not rest:
            return
        context = command.make_context(name, rest, parent=context)
    if context.command_path == "sanctl lab ssh" and context.params["command"][:1] == ("sanctl",):
        parse(list(context.params["command"][1:]))


def test_there_are_samples() -> None:
    """A reader that finds none would approve of everything."""
    pages = {sample.page.name for sample in COMMANDS}
    assert {"README.md", "first-failover.md", "hosts-linux.md", "night-page.md"} <= pages
    assert len(COMMANDS) >= 30


@pytest.mark.parametrize("sample", COMMANDS, ids=str)
def test_every_command_can_be_typed(sample: Sample) -> None:
    words = samples.words(sample.command)
    assert words[0] == "sanctl"
    is_mention = sample.command == " ".join(words) and not any("-" in word for word in words)
    parse(words[1:], is_mention=is_mention)


@pytest.mark.parametrize(
    "line",
    ["sanctl devise list", "sanctl device create vol1 --sise 1G", "sanctl device create --size 1G",
     "sanctl lab ssh n1 sanctl device show", "sanctl status now"],
)  # fmt: skip
def test_what_cannot_be_typed_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line.split()[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_exists(page: Path) -> None:
    named = set(_CODE.findall(page.read_text(encoding="utf-8")))
    assert named - set(all_codes()) == set()


def test_every_make_target_exists() -> None:
    makefile = (samples.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in _MAKE.findall(page.read_text(encoding="utf-8"))}
    assert "demo" in named
    assert named - targets == set()


def test_json_that_is_shown_is_json_as_it_is() -> None:
    shown = [
        sample
        for page in PAGES
        for sample in samples.consoles(page)
        if "--output json" in sample.command and sample.output is not None
    ]
    assert shown
    for sample in shown:
        assert sample.output is not None
        assert "|" not in sample.command, "a pipe makes something else of it"
        line = sample.command.removeprefix("sanctl ")
        name = max((name for name in ALL_DOCUMENTS if line.startswith(name)), key=len)
        assert breaches(name, "\n".join(sample.output)) == [], sample


def test_the_comparison_sees_a_difference() -> None:
    shown = ("device vol1: 1 GiB, served by n1, 12.4 s", "…", "wwid: " + "a" * 33)
    said = "device vol1: 1 GiB, served by n1, 3.0 s\nmore\nand more\nwwid:  " + "0" * 33 + "\n"
    assert samples.is_shown(shown, said, "test")
    assert not samples.is_shown(shown, said.replace("by n1", "by n2"), "test")
    assert not samples.is_shown(shown, said + "one more\n", "test")
    assert not samples.is_shown(shown[:1], said, "test")
