# SPDX-License-Identifier: GPL-2.0-or-later
"""The node on which the agents under test run; nothing is written through to a disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.agents import ocf
from sanctl.system import state_files
from tests.fakes.node import FakeNode


@pytest.fixture(autouse=True, scope="module")
def _no_fsync() -> Iterator[None]:
    """Only look whether the descriptor is open: what fsync keeps is shown in the laboratory.

    Beside a laboratory, thousands of fsyncs are a good part of the time of these tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(autouse=True)
def _own_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what an agent notes below /run from the machine, and from the test's next run.

    What broke: the room of a pool was known from a run less than a minute before.
    """
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run-sanctl"))


@pytest.fixture(autouse=True)
def _no_action_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget when an action of a test before has begun: in a real process there is one alone."""
    monkeypatch.setattr(ocf._Begin, "at_s", None)


@pytest.fixture
def fake_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node in memory that the agents find in place of the real one."""
    return FakeNode(tmp_path).install(monkeypatch)
