# SPDX-License-Identifier: GPL-2.0-or-later
"""What the documentation tells people to type can be typed, and what it names exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from sanctl.cli.codes import all_codes
from sanctl.cli.main import cli
from sanctl.lab.documents.by_command import ALL_DOCUMENTS
from tests.support import doc_samples
from tests.support.doc_samples import Sample
from tests.support.json_contract import breaches

_CODE = re.compile(r"SAN-[A-Z]+-\d{3}")
_MAKE = re.compile(r"(?:^|`|\$ )(?:\s{4,})?make ([a-z-]+)", re.MULTILINE)
_ACTION = re.compile(r"SANCTL_ACTION=([a-z-]+)")
_KIND_ROW = re.compile(r"\| (device|node|pool)\b[^|]*:")
_FILE = re.compile(
    r"(?<![/\w-])((?:sanctl|tests|scripts|resource-agents|ansible)/[\w./-]+\.(?:py|yml|j2))"
)
PAGES = doc_samples.pages()
COMMANDS = [
    sample
    for page in PAGES
    if page.parent != doc_samples.GENERATED
    for sample in doc_samples.commands(page)
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
    words = doc_samples.words(sample.command)
    assert words[0] == "sanctl"
    is_mention = sample.command == " ".join(words) and not any("-" in word for word in words)
    parse(words[1:], is_mention=is_mention)


@pytest.mark.parametrize(
    "line",
    ["sanctl devise list", "sanctl device create vol1 --sise 1G", "sanctl device resize vol1",
     "sanctl lab ssh n1 sanctl device show", "sanctl status now"],
)  # fmt: skip
def test_what_cannot_be_typed_is_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line.split()[1:])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_exists(page: Path) -> None:
    named = set(_CODE.findall(page.read_text(encoding="utf-8")))
    assert named - set(all_codes()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_of_the_tree_exists(page: Path) -> None:
    named = set(_FILE.findall(page.read_text(encoding="utf-8")))
    assert {name for name in named if not (doc_samples.ROOT / name).exists()} == set()


def test_a_file_that_is_gone_is_noticed() -> None:
    assert _FILE.findall("as `sanctl/gone.py` and (tests/lab/test_x.py), not /etc/sanctl/x.py") == [
        "sanctl/gone.py",
        "tests/lab/test_x.py",
    ]


def test_every_action_is_written_to_the_journal() -> None:
    """An operator who asks the journal for another finds nothing, and takes that for good news."""
    product = (doc_samples.ROOT / "sanctl").rglob("*.py")
    text = "\n".join(path.read_text(encoding="utf-8") for path in product)
    named = {name for page in PAGES for name in _ACTION.findall(page.read_text(encoding="utf-8"))}
    assert "fence-peer" in named
    assert {name for name in named if f'"{name}"' not in text} == set()


def test_every_room_is_on_the_page_about_architecture() -> None:
    product = doc_samples.ROOT / "sanctl"
    page = (doc_samples.ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    rooms = {f"{path.parent.relative_to(product)}" for path in product.glob("*/*/__init__.py")}
    layers = {f"sanctl.{path.parent.name}" for path in product.glob("*/__init__.py")}
    assert {"agents/fencing", "plan/failover"} <= rooms
    missing = {name for name in rooms | layers if f"`{name}`" not in page}
    assert missing == set(), "say in docs/explanation/architecture.md what is in it"


def test_every_kind_of_state_exists() -> None:
    """The table of what is below /run/sanctl names the kinds that the product has."""
    page = doc_samples.ROOT / "docs" / "explanation" / "architecture.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if _KIND_ROW.match(line)]
    named = {kind for row in rows for kind in re.findall(r"`([a-z-]+)[`.]", row.split("|")[1])}
    sources = (doc_samples.ROOT / "sanctl").rglob("*.py")
    text = "".join(source.read_text(encoding="utf-8") for source in sources)
    assert len(named) > 20
    assert {kind for kind in named if not re.search(f'"{kind}[".]', text)} == set()


def test_every_make_target_exists() -> None:
    makefile = (doc_samples.ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {name for page in PAGES for name in _MAKE.findall(page.read_text(encoding="utf-8"))}
    assert "demo" in named
    assert named - targets == set()


def test_json_that_is_shown_is_json_as_it_is() -> None:
    shown = [
        sample
        for page in PAGES
        for sample in doc_samples.consoles(page)
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
    assert doc_samples.is_shown(shown, said, "test")
    assert not doc_samples.is_shown(shown, said.replace("by n1", "by n2"), "test")
    assert not doc_samples.is_shown(shown, said + "one more\n", "test")
    assert not doc_samples.is_shown(shown[:1], said, "test")


def test_a_login_is_shown_whichever_release_prints_it() -> None:
    """Debian 12's iscsiadm says before each login that it is about to."""
    portals = ("10.77.1.1", "10.77.1.2")
    done = [
        f"Login to [iface: default, target: t, portal: {at},3260] successful." for at in portals
    ]
    before = "Logging in to [iface: default, target: t, portal: 10.77.1.1,3260]"
    for printed in ([*done], [*reversed(done)], [before, *done]):
        assert doc_samples.is_shown((*done,), "".join(f"{line}\n" for line in printed), "default")
    assert not doc_samples.is_shown((*done,), f"{done[0]}\n", "default")
