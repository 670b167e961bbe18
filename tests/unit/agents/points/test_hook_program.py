# SPDX-License-Identifier: GPL-2.0-or-later
"""The hook after runs once the hook before was begun; what the point's process learns of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents.points import follower, hook_program, hook_unit
from sanctl.agents.points.hook_unit import Quiet
from sanctl.drivers import hook_files
from sanctl.errors import CommandError, Problem
from sanctl.model.point_hook import MAX_LIMIT_S, HookResult, HookRun, PointHook
from sanctl.model.restore_point import PointOrder
from sanctl.system import process_start, state_files
from sanctl.system.runner import CommandResult, LocalRunner, run_in_own_group

HOOK = PointHook("freeze", 20)


class Node(LocalRunner):
    """systemd as far as the unit of a hook needs it, and the hook itself."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.statuses: dict[str, int | None] = {}
        self.fails: set[str] = set()
        self.is_missing = False
        self.running: set[str] = set()

    def run(self, argv: Sequence[str], *, timeout_s: float, **_: object) -> CommandResult:
        verb = " ".join(argv[1:-1])
        self.asked.append(verb)
        if verb in self.fails:
            raise CommandError(Problem("SAN-CMD-003", f"{verb} failed"))
        name = argv[-1].removeprefix("sanctl-point-hook@").removesuffix(".service")
        if verb == "start":
            if hook_program.begin(name):
                self.end(name)
                raise CommandError(Problem("SAN-CMD-003", "the unit failed"))
            self.running.add(name)
        elif name in self.running:
            self.end(name)
        return CommandResult(tuple(argv), 0, "", "", 0.0)

    def end(self, name: str) -> None:
        self.running.discard(name)
        hook_program.end(name)
        hook_program.end(name)

    def hook(self, argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]) -> int | None:
        assert env["SANCTL_PHASE"] == argv[1] and timeout_s == HOOK.limit_s
        self.ran.append(argv[1])
        return self.statuses.get(argv[1], 0)

    def path_of(self, name: str) -> str:
        if self.is_missing:
            raise CommandError(Problem("SAN-HOOK-002", f"{name} is missing"))
        return f"/hooks/{name}"


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    made = Node()
    monkeypatch.setattr(hook_files, "path_of", made.path_of)
    monkeypatch.setattr(hook_program, "run_in_own_group", made.hook)
    monkeypatch.setattr(hook_program, "notify", lambda _: None)
    # It stays until it is stopped: here it returns, and the unit counts as running.
    monkeypatch.setattr(
        hook_program, "time", SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    )
    return made


def quiet(node: Node, hook: PointHook | None = HOOK, token: str = "1" * 16) -> Quiet:
    return Quiet(node, "web", PointOrder("one", token, 1000, hook))


def test_once_before_and_once_after(node: Node) -> None:
    with quiet(node) as held:
        held.check()
        held.begin()
        held.check_time_left()
        held.check_was_quiet()
        assert node.ran == ["before"] and held.is_quiet
    assert node.ran == ["before", "after"], "it is not waited for the flush of the copies"
    assert held.result() == HookResult("freeze")
    assert node.ran == ["before", "after"]


def test_without_a_hook_nothing_runs(node: Node) -> None:
    with quiet(node, None) as held:
        held.check()
        held.begin()
        held.check_time_left()
        held.check_was_quiet()
    assert held.result() is None and node.ran == node.asked == []
    assert hook_unit.longest_begin_s(PointOrder("one", "1" * 16, 0)) == 0


@pytest.mark.parametrize(("status", "code"), [(3, "003"), (-9, "003"), (None, "004")])
def test_a_hook_that_fails_before_runs_after_as_well(
    node: Node, status: int | None, code: str
) -> None:
    node.statuses["before"] = status
    with quiet(node) as held, pytest.raises(CommandError, match=f"SAN-HOOK-{code}.*no restore"):
        held.begin()
    assert node.ran == ["before", "after"]
    node.ran.clear()
    with quiet(node, HOOK._replace(or_crash=True)) as held:
        held.begin()
        held.check_time_left()
        held.check_was_quiet()
    assert held.result() == HookResult("freeze", f"SAN-HOOK-{code}")
    assert node.ran == ["before", "after"]


def test_a_hook_that_fails_both_times_says_both(node: Node) -> None:
    node.statuses.update(before=1, after=1)
    with quiet(node) as held, pytest.raises(CommandError, match=r"003.*may still be quiet"):
        held.begin()
    assert node.ran == ["before", "after", "after"]


@pytest.mark.parametrize("status", [1, None])
def test_a_hook_that_fails_after_is_tried_twice(node: Node, status: int | None) -> None:
    node.statuses["after"] = status
    with quiet(node) as held:
        held.begin()
    assert node.ran == ["before", "after", "after"]
    assert held.result() == HookResult("freeze", "", "SAN-HOOK-005")
    # The next restore point ends that first, and begins anew.
    node.statuses.clear()
    node.ran.clear()
    with quiet(node, token="2" * 16) as held:
        held.check()
        assert node.ran == ["after"]
        held.begin()
    assert held.result() == HookResult("freeze") and node.ran == ["after", "before", "after"]


def test_no_hook_begins_before_an_earlier_one_has_ended(node: Node) -> None:
    """The application may be quiet still, by whatever hook of whatever order."""
    node.statuses["after"] = 1
    with quiet(node) as held:
        held.check()
        held.begin()
    held.result()
    node.ran.clear()
    other = PointHook("checkpoint", HOOK.limit_s)
    for token in ("2" * 16, "3" * 16):
        with quiet(node, other, token) as held:
            with pytest.raises(CommandError, match=r"SAN-HOOK-008.*hook freeze.*point one"):
                held.check()
            # Nor if nobody had asked.
            with pytest.raises(CommandError, match="SAN-HOOK-008"):
                held.begin()
        assert "before" not in node.ran and "after" in node.ran
        node.ran.clear()
    # A point without it says what both have come to.
    with quiet(node, other._replace(or_crash=True), "4" * 16) as held:
        held.check()
        held.begin()
        assert not held.is_quiet
    assert held.result() == HookResult("checkpoint", "SAN-HOOK-008", "SAN-HOOK-005")
    assert "before" not in node.ran
    # The unit's program begins nothing, either.
    assert hook_program.begin("web") == 1 and node.ran[-1] == "after"
    # A note that nobody can read is one, too.
    hook_unit.held_note("web").write("?")
    with quiet(node, other) as held, pytest.raises(CommandError, match="SAN-HOOK-008"):
        held.check()


def test_no_hook_begins_before_one_of_a_group_with_the_same_device_has_ended(node: Node) -> None:
    """The first device of the group has the unit; another of its devices comes alone, or first."""
    node.statuses["after"] = 1
    order = PointOrder("both", "1" * 16, 1000, HOOK, ("db", "web"))
    with Quiet(node, "db", order) as held:
        held.check()
        held.begin()
    held.result()
    assert node.ran == ["before", "after", "after"]
    for name, group in (("web", ()), ("app", ("app", "web")), ("db", ())):
        other = Quiet(node, name, PointOrder("two", "2" * 16, 1000, HOOK, group))
        for ask in (other.check, other.begin):
            with pytest.raises(CommandError, match=r"SAN-HOOK-008.*after restore point both"):
                ask()
        if name != "db":
            hook_unit.run_note(name).write(str(HookRun("2" * 16, "two", HOOK, group)))
        assert hook_program.begin(name) == 1
    assert node.ran.count("before") == 1
    # Another device's hook has nothing to do with it.
    with Quiet(node, "app", PointOrder("two", "2" * 16, 1000, HOOK)) as alone:
        alone.check()
        alone.begin()
    assert node.ran.count("before") == 2
    # It has succeeded when another device of the group asks for a point.
    node.statuses.clear()
    for name in ("app", "web"):
        with Quiet(node, name, PointOrder("two", "3" * 16, 1000, HOOK)) as held:
            held.check()
            held.begin()
        assert held.result() == HookResult("freeze")
    assert state_files.node_suffixes("point-hook-held") == []


def test_a_standby_waits_for_all_that_a_hook_may_take() -> None:
    """Else a point that --or-crash allows is lost by the hook that hangs, and its end."""
    order = PointOrder("one", "1" * 16, 1000, PointHook("freeze", MAX_LIMIT_S, or_crash=True))
    assert hook_unit.longest_begin_s(order) >= 3 * MAX_LIMIT_S
    assert hook_unit.longest_begin_s(order) <= follower.MAX_HOOK_S


def test_a_file_that_may_not_run(node: Node) -> None:
    node.is_missing = True
    with pytest.raises(CommandError, match="SAN-HOOK-002"):
        quiet(node).check()
    with quiet(node, HOOK._replace(or_crash=True)) as held:
        held.check()
        held.begin()
    assert held.result() == HookResult("freeze", "SAN-HOOK-002")
    # Gone only when the unit has started: nothing was begun, so nothing is to be ended.
    with quiet(node) as held, pytest.raises(CommandError, match="SAN-HOOK-002"):
        held.begin()
    assert node.ran == []


def test_a_file_that_is_gone_afterwards_is_told(node: Node) -> None:
    with quiet(node) as held:
        held.begin()
        node.is_missing = True
    assert held.result() == HookResult("freeze", "", "SAN-HOOK-005")


@pytest.mark.parametrize("verb", ["start", "stop"])
def test_a_systemd_that_does_not_run_the_unit(node: Node, verb: str) -> None:
    node.fails.add(verb)
    with quiet(node) as held, pytest.raises(CommandError, match="SAN-HOOK-007"):
        held.check()
        held.begin()
    with quiet(node, HOOK._replace(or_crash=True)) as held:
        held.check()
        held.begin()
    result = held.result()
    assert result is not None and result.before == "SAN-HOOK-007" and node.ran == []


def test_a_stop_that_does_not_come_back_is_told(node: Node) -> None:
    with quiet(node) as held:
        held.begin()
        node.fails.update({"stop --no-block", "stop"})
    assert held.result() == HookResult("freeze", "", "SAN-HOOK-005")


def test_what_kept_it_quiet_has_ended_meanwhile(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quiet(node) as held:
        held.begin()
        real = process_start.ticks
        monkeypatch.setattr(process_start, "ticks", lambda _: "")
        with pytest.raises(CommandError, match="SAN-HOOK-006"):
            held.check_was_quiet()
    monkeypatch.setattr(process_start, "ticks", real)
    with quiet(node, HOOK._replace(or_crash=True)) as held:
        held.begin()
        hook_unit.held_note("web").write("another 1 2 3.0")
        held.check_time_left()
        assert not held.is_quiet
        held.check_was_quiet()
    assert (held.result() or HookResult("")).before == "SAN-HOOK-006"


def test_nothing_is_run_without_notes(node: Node) -> None:
    assert hook_program.begin("web") == 1 and hook_program.end("web") == 0
    assert node.ran == []


def test_the_program_does_what_it_is_told(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["point-hook", "end", "web"])
    assert hook_program.main() == 0


def test_a_file_in_a_folder_of_somebody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_files, "FOLDER", str(tmp_path / "hooks"))
    with pytest.raises(CommandError, match=r"SAN-HOOK-002.*No such file"):
        hook_files.path_of("x")
    (tmp_path / "hooks").mkdir(mode=0o777)
    (tmp_path / "hooks").chmod(0o777)
    (tmp_path / "hooks/x").write_text("")
    with pytest.raises(CommandError, match="SAN-HOOK-002"):
        hook_files.path_of("x")


def test_a_program_that_hangs_goes_with_what_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = f"sleep 60 & echo $! >{note}; wait"
    began_s = time.monotonic()
    assert run_in_own_group(["sh", "-c", script], timeout_s=1.0, env={}) is None
    assert time.monotonic() - began_s < 20
    pid = int(note.read_text())
    deadline_s = time.monotonic() + 10
    while process_start.ticks(pid) and time.monotonic() < deadline_s:
        os.sched_yield()
    assert not process_start.ticks(pid)
    assert run_in_own_group(["sh", "-c", 'exit "$X"'], timeout_s=30.0, env={"X": "7"}) == 7
    with pytest.raises(CommandError, match="SAN-CMD-004"):
        run_in_own_group(["/none"], timeout_s=1.0, env={})
