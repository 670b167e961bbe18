# SPDX-License-Identifier: GPL-2.0-or-later
"""The fixture of the node on which the agents under test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes.node import FakeNode


@pytest.fixture
def fake_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node in memory that the agents find in place of the real one."""
    return FakeNode(tmp_path).install(monkeypatch)
