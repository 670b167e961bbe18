# SPDX-License-Identifier: GPL-2.0-or-later
"""scripts/adr_index.py: the index of the decisions says what today's decisions say."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.doc_samples import ROOT

_SCRIPT = ROOT / "scripts" / "adr_index.py"
_PAGE = """# {number}. {title}

Status: {status}. Date: 2026-11-23.

## Context
None.

## Decision
{decision}

## Consequences
None.
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(_SCRIPT), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with two decisions and their index."""
    pages = tmp_path / "docs" / "adr"
    pages.mkdir(parents=True)
    (pages / "0001-one.md").write_text(
        _PAGE.format(
            number=1,
            title="One",
            status="superseded by [ADR 3](0003-three.md)",
            decision="`a.b` is [linked](x.md): yes. And more.",
        )
    )
    (pages / "0003-three.md").write_text(
        _PAGE.format(
            number=3, title="Three", status="accepted", decision="* A list goes\n  on. B.\n* C."
        )
    )
    assert run(tmp_path).returncode == 0
    return tmp_path


def index(tree: Path) -> str:
    return (tree / "docs" / "adr" / "README.md").read_text()


def test_the_index_of_this_tree_is_of_its_decisions(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs" / "adr", tmp_path / "docs" / "adr")
    assert run(tmp_path, "--check").stderr == ""


def test_a_line_has_number_title_and_first_sentence(tree: Path) -> None:
    assert "* [1. One](0001-one.md): `a.b` is linked: yes. Superseded by 3.\n" in index(tree)
    assert "* [3. Three](0003-three.md): A list goes on.\n" in index(tree)
    assert "history: 2.\n" in index(tree)


def test_a_changed_decision_is_noticed(tree: Path) -> None:
    assert run(tree, "--check").returncode == 0
    page = tree / "docs" / "adr" / "0003-three.md"
    page.write_text(page.read_text().replace("A list goes", "A list went"))
    done = run(tree, "--check")
    assert done.returncode == 1
    assert "run python scripts/adr_index.py" in done.stderr


@pytest.mark.parametrize(
    ("old", "new"), [("## Decision", "Decision:"), ("# 3. Three", "# 4. Three")]
)
def test_a_page_that_cannot_be_indexed_is_named(tree: Path, old: str, new: str) -> None:
    page = tree / "docs" / "adr" / "0003-three.md"
    page.write_text(page.read_text().replace(old, new))
    done = run(tree)
    assert done.returncode == 1
    assert "0003-three.md" in done.stderr
