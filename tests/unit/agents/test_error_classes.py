# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes on after an error of ours goes on after one of the system: sources of the agents."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

AGENTS = Path(__file__).parents[3] / "sanctl/agents"
#: The rooms that run while hosts wait: a missing OSError there froze or restarted devices.
ROOMS = ("handlers", "fencing", "cache", "publish")
#: DRBD calls these, and takes an exit by an error for an answer that it acts on.
CALLED_BY_DRBD = ("fence_peer.py", "before_resync_source.py")


def _handled(tree: ast.AST) -> Iterator[tuple[int, set[str]]]:
    """Yield the names of the classes in each `except` and each `contextlib.suppress`."""
    for node in ast.walk(tree):
        caught: list[ast.expr] = []
        if isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            caught = node.args
        if caught:
            assert isinstance(node, ast.ExceptHandler | ast.Call)
            yield node.lineno, {ast.unparse(each) for each in caught}


@pytest.mark.parametrize("room", ROOMS)
def test_an_error_of_ours_is_never_caught_without_one_of_the_system(room: str) -> None:
    """A program that cannot be started is SanctlError; a state file without room is OSError."""
    sources = sorted((AGENTS / room).glob("*.py"))
    assert sources
    alone = [
        f"{path.name}:{line}"
        for path in sources
        for line, names in _handled(ast.parse(path.read_text(encoding="utf-8")))
        if "SanctlError" in names and "OSError" not in names
    ]
    assert alone == []


@pytest.mark.parametrize("name", CALLED_BY_DRBD)
def test_a_handler_that_drbd_waits_for_outlives_any_error(name: str) -> None:
    tree = ast.parse((AGENTS / "handlers" / name).read_text(encoding="utf-8"))
    main = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "main")
    loop = next(n for n in ast.walk(main) if isinstance(n, ast.While))
    assert any("Exception" in names for _, names in _handled(loop))
