# SPDX-License-Identifier: GPL-2.0-or-later
"""When corosync's libraries are asked, and when its tool is; what they say: tests/lab."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import pytest

from sanctl.drivers import corosync, quorum_library
from sanctl.errors import CommandError
from sanctl.parse.corosync import Membership
from sanctl.system.runner import DeadlineRunner
from tests.fakes.runner import FakeRunner

_SEEN = Membership(True, frozenset({"n1", "n2"}), frozenset({"2Node", "Quorate"}), 2, 2, 1)
_TOOL = "Quorate: Yes\nNodeid Votes Name\n 3 1 n3 (local)\n"


def _answer(monkeypatch: pytest.MonkeyPatch, ask: Callable[[object], Membership]) -> None:
    monkeypatch.setattr(quorum_library, "load", lambda: "libraries")
    monkeypatch.setattr(quorum_library, "_ask", ask)


def test_no_process_is_started_where_the_libraries_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    _answer(monkeypatch, lambda _: _SEEN)
    runner = FakeRunner(_TOOL)
    assert corosync.membership(runner) == _SEEN
    assert runner.calls == []


def test_where_they_cannot_the_tool_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> Membership:
        raise quorum_library._RefusedError(2)

    assert corosync.membership(FakeRunner(_TOOL)).members == {"n3"}
    _answer(monkeypatch, refuse)
    assert corosync.membership(FakeRunner(_TOOL)).members == {"n3"}


def test_a_corosync_that_does_not_answer_is_no_membership(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_: object) -> Membership:
        ctypes.CDLL(None).poll(None, 0, 30_000)
        return _SEEN

    _answer(monkeypatch, hang)
    runner = FakeRunner(_TOOL)
    with pytest.raises(CommandError, match=r"no answer within 0\.05 s"):
        quorum_library.membership(within_s=0.05)
    with pytest.raises(CommandError, match="no time was left for corosync"):
        corosync.membership(DeadlineRunner(runner, time.monotonic() - 1))
    assert runner.calls == []
