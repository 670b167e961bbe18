# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads the console samples out of docs/: the commands to type and the output to expect."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Made from the program itself, and held against it by tests/unit/cli.
GENERATED = ROOT / "docs" / "reference"
_FENCE = re.compile(r"^\s*```(\w*)\s*$")
# Not over an empty line: a backtick that stands alone would turn all that follows inside out.
_SPAN = re.compile(r"`((?:[^`\n]|\n(?!\n))+)`")
_PROMPT = re.compile(r"^(?:(?P<where>root@\w+):\S*# |\$ )")
_INDENTED = " " * 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One command of a page."""

    page: Path
    line: int
    command: str
    where: str = ""
    """The machine named in the prompt; empty: the reader's own, or not given."""
    output: tuple[str, ...] | None = None
    """What the page shows below it; None: the page shows no output here."""

    def __str__(self) -> str:
        """Return where it stands."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """Return every page of the documentation."""
    return sorted(
        [*ROOT.glob("*.md"), *(ROOT / "ansible").glob("*.md"), *ROOT.glob("docs/**/*.md")]
    )


def consoles(page: Path) -> Iterator[Sample]:
    """Return the commands of a page's console blocks, each with the output shown below it."""
    lines = page.read_text(encoding="utf-8").splitlines()
    is_console = False
    number, command, where = 0, "", ""
    shown: list[str] = []

    def sample() -> Iterator[Sample]:
        if command:
            output = tuple(shown) or None
            yield Sample(page=page, line=number, command=command, where=where, output=output)

    for at, line in enumerate(lines, start=1):
        if fence := _FENCE.match(line):
            yield from sample()
            command = ""
            is_console = not is_console and fence[1] == "console"
        elif is_console and (prompt := _PROMPT.match(line)):
            yield from sample()
            number, command, where = at, line[prompt.end() :].strip(), prompt["where"] or ""
            shown = []
        elif is_console:
            shown.append(line)


def commands(page: Path) -> Iterator[Sample]:
    """Return everything on a page that looks like a call of sanctl, in blocks and in the text."""
    in_fence = False
    prose: list[str] = []
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        is_fence = bool(_FENCE.match(line))
        in_fence ^= is_fence
        if not in_fence and not is_fence and not line.startswith(_INDENTED):
            prose.append(line)
            continue
        prose.append("")
        text = _PROMPT.sub("", line.strip())
        if text.startswith("sanctl "):
            yield Sample(page=page, line=number, command=text)
    # As one text, for a span may go on in the next line.
    text = "\n".join(prose)
    for span in _SPAN.finditer(text):
        if span[1].startswith("sanctl "):
            line_number = text.count("\n", 0, span.start()) + 1
            yield Sample(page=page, line=line_number, command=" ".join(span[1].split()))


def words(command: str) -> list[str]:
    """Split a command as a shell does; what a pipe or a redirection begins is left out."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return list(itertools.takewhile(lambda word: word.strip("|&;<>"), lexer))


#: Differ from one run to the next: ids, and numbers that have a unit.
_MASKS = (
    (re.compile(r"[0-9a-f]{32,33}\b"), r"[0-9a-f]{32,33}"),
    (re.compile(r"(?<=SANCTL,)[0-9a-f]{8}"), "[0-9a-f]{8}"),
    (re.compile(r"(?<![\w.])\d+\.\d+(?= (s|GiB)\b)"), r"\\d+(\\.\\d+)?"),
    (re.compile(r"\bdm-\d+"), r"dm-\\d+"),
    (re.compile(r"(?<=minor )\d+(?=, port)"), r"\\d+"),
    (re.compile(r"(?<=: up, )trixie"), "(trixie|bookworm)"),
    (re.compile(r"(?<=port )78\d\d"), r"78\\d\\d"),
)


def pattern_of(line: str, lab: str) -> str:
    """Return what a shown line stands for; `…` in it is whatever there is."""
    text = re.escape(line.replace(":default.", f":{lab}.").replace("lab default:", f"lab {lab}:"))
    # re.escape escapes spaces and dashes, too: put them back, so that the masks see the text.
    text = text.replace(r"\ ", " ").replace(r"\-", "-").replace(r"\.", ".")
    for mask, pattern in _MASKS:
        text = mask.sub(pattern, text)
    return re.sub(r" +", r"\\s+", text.replace("…", ".*"))


def is_shown(expected: tuple[str, ...], printed: str, lab: str) -> bool:
    """Whether what was printed is what the page shows; a line `…` stands for any lines."""
    expected, printed = _ordered(expected), "".join(_ordered(printed.splitlines(keepends=True)))
    pattern = "".join(
        r"(?:.*\n)*" if line == "…" else pattern_of(line, lab) + r"\s*\n" for line in expected
    )
    return re.fullmatch(pattern, printed) is not None


def _ordered(lines: Iterable[str]) -> tuple[str, ...]:
    """Sort the login lines: iscsiadm prints them in the order in which they are done.

    Debian 12's says before it that it is about to.
    """
    lines = [line for line in lines if not line.startswith("Logging in to ")]
    return tuple(
        line
        for is_login, run in groupby(lines, lambda line: line.startswith("Login to "))
        for line in (sorted(run) if is_login else run)
    )
