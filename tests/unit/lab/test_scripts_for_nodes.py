# SPDX-License-Identifier: GPL-2.0-or-later
"""Python that laboratory tests run on nodes is in texts, where no type checker reads it."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_NAMES = r"from (sanctl[\w.]*) import ([\w, ]+)"
#: A line of its own, or a statement in a line of shell.
_IMPORT = re.compile(rf"^\s*{_NAMES}$|(?<=[;\"'])\s*{_NAMES}", re.MULTILINE)
FILES = [
    path
    for folder in ("tests/lab", "tests/chaos", "tests/support", "sanctl/lab")
    for path in sorted((_ROOT / folder).rglob("*.py"))
]


def missing(text: str) -> list[str]:
    """Return what a text imports of sanctl, and sanctl does not have."""
    found = []
    for match in _IMPORT.finditer(text):
        module = importlib.import_module(match[1] or match[3])
        for word in (match[2] or match[4]).split(","):
            name = word.split(" as ")[0].strip()
            if name and not hasattr(module, name):
                try:
                    importlib.import_module(f"{module.__name__}.{name}")
                except ImportError:
                    found.append(f"{module.__name__}.{name}")
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_what_is_imported_is_there(path: Path) -> None:
    assert missing(path.read_text(encoding="utf-8")) == []


def test_a_name_that_was_renamed_is_found() -> None:
    """As a test of bcache had it for weeks: `Mode` was `CacheMode` by then."""
    script = "\"python3 -c 'import os; from sanctl.model.cache_policy import Mode, CachePolicy'\""
    assert missing(script) == ["sanctl.model.cache_policy.Mode"]
    assert missing("  from sanctl.drivers import bcache, loop as l\n") == []
