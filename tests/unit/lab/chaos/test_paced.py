# SPDX-License-Identifier: GPL-2.0-or-later
"""A thread that acts beside faults, and commands on nodes that may not answer."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from itertools import repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.errors import CommandError, Problem
from sanctl.lab.chaos.paced import PacedThread, answering_node, run_command
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure.attempts import NO_ANSWER

_WITHIN_S = 10.0


class Acts:
    """Counts the calls, and can be made to hang or fail in one."""

    def __init__(self) -> None:
        self.count = 0
        self.began, self.may_end = threading.Event(), threading.Event()
        self.may_end.set()
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.count += 1
        self.began.set()
        assert self.may_end.wait(_WITHIN_S)
        if self.error:
            raise self.error


@pytest.fixture
def acts() -> Acts:
    return Acts()


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def paced(acts: Acts, lines: list[str]) -> Iterator[PacedThread]:
    """A thread that acts when it is asked to, as its intervals are long."""
    thread = PacedThread("points", repeat(3600.0), acts, lines.append)
    yield thread
    acts.may_end.set()
    thread.end()


def test_it_acts_at_its_intervals(acts: Acts) -> None:
    waited = threading.Event()

    def intervals_s() -> Iterator[float]:
        yield 0.0
        yield 0.0
        waited.set()
        yield 3600.0

    thread = PacedThread("points", intervals_s(), acts, lambda _: None)
    thread.resume()
    assert waited.wait(_WITHIN_S)
    assert acts.count == 2
    thread.end()


def test_while_it_is_paused_it_does_not_act(acts: Acts, paced: PacedThread) -> None:
    paced.resume()
    assert paced.pause(_WITHIN_S)
    paced.act_now()
    assert not acts.began.wait(1.0)
    paced.resume()
    assert acts.began.wait(_WITHIN_S)


def test_a_pause_waits_for_what_is_under_way(acts: Acts, paced: PacedThread) -> None:
    acts.may_end.clear()
    paced.resume()
    paced.act_now()
    assert acts.began.wait(_WITHIN_S)
    assert not paced.pause(0.1)
    acts.may_end.set()
    assert paced.pause(_WITHIN_S)
    assert acts.count == 1


def test_an_error_is_printed_and_is_no_end(
    acts: Acts, paced: PacedThread, lines: list[str]
) -> None:
    acts.error = OSError("no such node")
    paced.resume()
    for _ in range(2):
        acts.began.clear()
        paced.act_now()
        assert acts.began.wait(_WITHIN_S)
    assert paced.pause(_WITHIN_S)
    assert lines == ["   points: no such node"] * 2


def test_one_that_has_died_is_known(acts: Acts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    thread = PacedThread("points", iter([0.0]), acts, lambda _: None)
    assert not thread.has_died()
    thread.resume()
    assert acts.began.wait(_WITHIN_S)
    # There is no further interval.
    thread._thread.join(_WITHIN_S)
    assert thread.has_died()
    thread.resume()
    assert thread.has_died()


def bed(answers: dict[str, Any]) -> LabSession:
    """Return a laboratory whose nodes answer with a result, hang (None), or are off (absent)."""

    def sh(node: str, script: str, **_given: Any) -> Any:
        if answers[node] is None:
            raise CommandError(Problem("SAN-CMD-002", f"no answer: {script}"))
        return answers[node]

    nodes = [SimpleNamespace(name=name) for name in ("n1", "n2")]
    stub = SimpleNamespace(storage=nodes, sh=sh, has_power=lambda name: name in answers)
    return cast("LabSession", stub)


UP = SimpleNamespace(status=0, stdout='{"problems": [], "data": 7}', stderr="")


def test_a_node_that_answers_is_found_and_each_may_be() -> None:
    choose = random.Random(1)
    assert answering_node(bed({"n2": UP}), choose) == "n2"
    assert answering_node(bed({"n1": UP, "n2": None}), choose) == "n1"
    assert answering_node(bed({"n1": None}), choose) is None
    both = bed({"n1": UP, "n2": UP})
    assert {answering_node(both, choose) for _ in range(30)} == {"n1", "n2"}


def test_a_command_that_gets_no_answer_is_an_outcome() -> None:
    there = bed({"n1": UP, "n2": None})
    assert run_command(there, "n1", "sanctl status", limit_s=5).data == 7
    assert run_command(there, "n2", "sanctl status", limit_s=5).code == NO_ANSWER
