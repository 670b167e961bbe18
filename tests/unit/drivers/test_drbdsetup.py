# SPDX-License-Identifier: GPL-2.0-or-later
"""What is tried again of what drbdsetup refuses."""

from __future__ import annotations

import time

import pytest

from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from tests.fakes.runner import Answer, FakeRunner


def test_a_down_in_a_handshake_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What broke: a stop right after a start failed, for which its node is fenced."""
    passed = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(time, "sleep", lambda s: passed.__setitem__(0, passed[0] + s))
    text = "vol1: State change failed: (-18) In transient state, retry after next state change"
    transient, refused = (
        CommandError(Problem("SAN-CMD-003", each)) for each in (text, "(-12) Device is held open")
    )
    answers: list[Answer] = [transient, transient, ""]
    drbdsetup.down(FakeRunner(lambda _: answers.pop(0)), "vol1")
    assert not answers
    for error, attempts in ((refused, 1), (transient, 41)):
        runner = FakeRunner(error)
        passed[0] = 0.0
        with pytest.raises(CommandError):
            drbdsetup.down(runner, "vol1")
        assert len(runner.calls) == attempts
