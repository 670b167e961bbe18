# SPDX-License-Identifier: GPL-2.0-or-later
"""Calls in child processes: bounded, before one deadline, and no error is lost."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path

import pytest

from sanctl.errors import CommandError, Problem
from sanctl.system import parallel_calls
from sanctl.system.parallel_calls import Ended, run_all


def always(_: Collection[float]) -> bool:
    return True


def run(
    calls: dict[str, Callable[[], None]],
    within_s: float = 30.0,
    may_begin: Callable[[Collection[float]], bool] = always,
) -> dict[str, str]:
    ended = list(run_all(calls, within_s=within_s, may_begin=may_begin))
    assert sorted(each.name for each in ended) == sorted(calls), "each call ends once"
    return {each.name: each.error for each in ended}


def fail(error: Exception) -> None:
    raise error


def hang() -> None:
    time.sleep(600)


def has_no_children() -> bool:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        time.sleep(0.02)
    return False


def test_each_error_is_reported_and_keeps_no_other_from_its_end() -> None:
    refused = CommandError(Problem("SAN-CMD-002", "no answer within 50 s"))
    found = run(
        {
            "refused": partial(fail, refused),
            "full": partial(fail, OSError(errno.ENOSPC, "No space left on device")),
            "ours": partial(fail, ValueError("no number")),
            "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
            "good": lambda: None,
            "long": partial(fail, CommandError(Problem("SAN-CMD-003", "ä" * 9000))),
        }
    )
    assert "no answer within 50 s" in found["refused"]
    assert "No space left on device" in found["full"]
    assert "an error of sanctl's own" in found["ours"] and "no number" in found["ours"]
    assert "ended from outside" in found["killed"]
    assert found["good"] == ""
    assert "ää" in found["long"] and len(found["long"]) < 5000
    assert has_no_children()


def test_one_that_hangs_keeps_no_other_and_is_ended_at_the_deadline(tmp_path: Path) -> None:
    began_s = time.monotonic()
    found = run({"hangs": hang, "next": (tmp_path / "next").touch}, within_s=1.0)
    assert found["next"] == "" and (tmp_path / "next").exists()
    assert "not ended within 1 s" in found["hangs"]
    assert time.monotonic() - began_s < 20
    assert has_no_children()


def test_the_bound_is_kept_and_what_gets_no_turn_is_named(tmp_path: Path) -> None:
    """The rule is asked about those that run now; here it lets one at a time."""
    ran: list[int] = []

    def one(running_s: Collection[float]) -> bool:
        ran.append(len(running_s))
        return not running_s

    found = run({"hangs": hang, "late": (tmp_path / "late").touch}, within_s=0.5, may_begin=one)
    assert max(ran) == 1
    assert "could not be begun" in found["late"] and not (tmp_path / "late").exists()
    found = run({str(n): (tmp_path / str(n)).touch for n in range(5)}, may_begin=one)
    assert not any(found.values()) and len(list(tmp_path.iterdir())) == 5
    assert max(ran) == 1


def test_calls_run_at_the_same_time(tmp_path: Path) -> None:
    """Each ends only when the other has begun."""

    def meet(own: str, other: str) -> None:
        (tmp_path / own).touch()
        while not (tmp_path / other).exists():
            time.sleep(0.01)

    assert run({"a": partial(meet, "a", "b"), "b": partial(meet, "b", "a")}) == {"a": "", "b": ""}


def test_without_processes_calls_are_made_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_process() -> int:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", no_process)
    handles = len(os.listdir("/proc/self/fd"))
    made: list[str] = []
    found = run(
        {
            "a": partial(made.append, "a"),
            "b": partial(fail, ValueError("no number")),
            "c": partial(made.append, "c"),
        }
    )
    assert made == ["a", "c"], "in this process"
    assert "no number" in found["b"] and found["a"] == found["c"] == ""
    assert len(os.listdir("/proc/self/fd")) == handles


def test_where_only_one_process_can_be_had_the_next_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as that one may end: beside one that hangs the call is made in this process."""
    fork, forked = os.fork, list[int]()

    def fork_once() -> int:
        if forked:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        forked.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", fork_once)
    monkeypatch.setattr(parallel_calls, "_NO_PROCESS_S", 0.5)
    made: list[str] = []
    found = run({"hangs": hang, "next": partial(made.append, "next")}, within_s=3.0)
    assert made == ["next"]
    assert found["next"] == "" and "not ended" in found["hangs"]


def test_children_end_with_whoever_stops_listening() -> None:
    ends = run_all({"good": lambda: None, "hangs": hang}, within_s=60.0, may_begin=always)
    assert next(ends) == Ended("good", "")
    ends.close()  # type: ignore[attr-defined]
    assert has_no_children()
