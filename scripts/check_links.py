#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks that every relative link of the documentation leads to a file, and every #anchor there.

Links to other places are left alone: whether a site answers today is no property of this tree.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)")
_HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def anchors(text: str) -> set[str]:
    """Return the anchors a page's headings get, as forges make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }


def broken_links(page: Path) -> Iterator[str]:
    """Yield each link of a page that leads nowhere."""
    text = page.read_text()
    for target in _LINK.findall(_CODE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        if not linked.exists():
            yield f"{page}: {target}: no such file"
        elif anchor and linked.suffix == ".md" and anchor not in anchors(linked.read_text()):
            yield f"{page}: {target}: no such heading"


def main() -> int:
    """Check README.md, the other pages beside it and docs/."""
    pages = sorted([*Path().glob("*.md"), *Path("docs").rglob("*.md")])
    problems = [problem for page in pages for problem in broken_links(page)]
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
