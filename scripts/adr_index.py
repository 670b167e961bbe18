#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Writes docs/adr/README.md, the index of the decisions; with --check only compares it.

Each line is made of a decision's number, its title and the first sentence of its section
"Decision", so that the index cannot say anything that the decision does not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path("docs/adr")
_INDEX = "README.md"
_TITLE = re.compile(r"^# 0*(\d+)[.:] (.+)$", re.MULTILINE)
_DECISION = re.compile(
    r"^## Decision\n+(.+?)(?=\n\n|\n## |\n\* |\n\| |\Z)", re.MULTILINE | re.DOTALL
)
_SUPERSEDED = re.compile(r"^Status: superseded by \[ADR 0*(\d+)\]", re.MULTILINE)
_SENTENCE = re.compile(r"(.+?[.!?])(?=\s|$)", re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_HEAD = """\
# Decisions

<!-- Made by `python scripts/adr_index.py`: do not edit. -->

Each page is one decision with its reasons: what was found, what was decided, what was rejected,
what follows. A decision is not deleted; a later one supersedes it.
"""


class Decision(NamedTuple):
    """What the index says of one decision."""

    number: int
    title: str
    sentence: str
    file: str
    superseded_by: int | None


def read(path: Path) -> Decision:
    """Return what the index says of a page.

    Raises:
        ValueError: it has no title with its number, or no section "Decision".
    """
    text = path.read_text(encoding="utf-8")
    title, decision = _TITLE.search(text), _DECISION.search(text)
    if title is None or int(title[1]) != int(path.name[:4]):
        raise ValueError(f"{path}: no title '# {int(path.name[:4])}. ...'")
    if decision is None:
        raise ValueError(f"{path}: no section '## Decision'")
    paragraph = " ".join(_LINK.sub(r"\1", decision[1]).removeprefix("* ").split())
    sentence = _SENTENCE.match(paragraph)
    superseded = _SUPERSEDED.search(text)
    return Decision(
        number=int(title[1]),
        title=title[2].strip(),
        sentence=(sentence[1] if sentence else paragraph).rstrip(":.") + ".",
        file=path.name,
        superseded_by=int(superseded[1]) if superseded else None,
    )


def render(decisions: list[Decision]) -> str:
    """Return the text of the index."""
    lines = [_HEAD]
    for each in decisions:
        note = f" Superseded by {each.superseded_by}." if each.superseded_by else ""
        lines.append(f"* [{each.number}. {each.title}]({each.file}): {each.sentence}{note}\n")
    used = {each.number for each in decisions}
    unused = [str(number) for number in range(1, max(used)) if number not in used]
    if unused:
        lines.append(
            f"\nNumbers without a decision, now and in the history: {', '.join(unused)}.\n"
        )
    return lines[0] + "\n" + "".join(lines[1:])


def main(arguments: list[str]) -> int:
    """Write the index, or compare it with --check."""
    try:
        decisions = [read(path) for path in sorted(_FOLDER.glob("[0-9]*.md"))]
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    text, index = render(decisions), _FOLDER / _INDEX
    if "--check" not in arguments:
        index.write_text(text, encoding="utf-8")
        return 0
    if not index.exists() or index.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{index} is not of today's decisions: run python scripts/adr_index.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
