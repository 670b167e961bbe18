# SPDX-License-Identifier: GPL-2.0-or-later
"""One run of a hook embraces the points of a group, whichever of its processes dies or fails.

The processes are threads here: each makes the point of one device by `leader`, with a systemd that
runs the hook's unit. What kills a process ends its thread where it is.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sanctl.agents import ocf
from sanctl.agents.points import group_barrier, held_copies, hook_program, hook_unit, leader
from sanctl.agents.points.group_barrier import GroupBarrier
from sanctl.agents.points.held_copies import HeldCopies
from sanctl.drivers import hook_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.model.point_hook import HookResult, PointHook
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.plan.device.point_group import group_orders
from sanctl.system import process_start, state_files
from sanctl.system.runner import CommandResult
from tests.unit.agents.points.test_hook_program import HOOK, Node

NAMES = ("db", "log", "web")
FIRST, OTHER = "db", "web"
OR_CRASH = HOOK._replace(or_crash=True)
#: In the order in which each process comes to them.
STEPS = ("checked", "point-prepared", "point-quiet", "held", "copied", "point-copied",
         "point-flushed")  # fmt: skip
JOIN_S = 60.0


class Killed(BaseException):
    """A process has been killed."""


class Copy:
    """A device's copy on this node."""

    may_be_known = False

    def __init__(self, node: GroupNode, name: str) -> None:
        self._node, self._name = node, name

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_error: object) -> None:
        if not self.may_be_known:
            self._node.removed.add(self._name)

    def prepare(self) -> int:
        return 1

    def catch_up(self, *, within_s: float = 20.0) -> None:
        if self._name == OTHER and self._node.ran:
            time.sleep(0.3)  # It has more to write for the hook than the others.
        self._node.note("flush", self._name)

    def make_stable(self) -> None:
        """It is."""

    def keep(self) -> None:
        """It has its name."""


class GroupNode(Node):
    """The node that serves all devices: what happens on it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.attempts = 0
        self.trace: list[str] = []
        self.removed: set[str] = set()
        self.added: list[tuple[RestorePoint, ...]] = []
        self.errors: dict[str, SanctlError | OSError] = {}
        self.on: dict[tuple[str, str], Callable[[], None]] = {}
        self.lock = threading.RLock()

    def note(self, what: str, name: str) -> None:
        with self.lock:
            self.trace.append(f"{what} {name}")

    def step(self, step: str) -> None:
        self.reach(step, threading.current_thread().name)

    def reach(self, step: str, name: str) -> None:
        self.note(step, name)
        self.on.get((step, name), lambda: None)()

    def run(self, argv: Sequence[str], *, timeout_s: float, **more: object) -> CommandResult:
        with self.lock:
            return super().run(argv, timeout_s=timeout_s, **more)

    def hook(self, argv: Sequence[str], *, timeout_s: float, env: Any) -> int | None:
        assert env["SANCTL_DEVICES"] == " ".join(NAMES) and env["SANCTL_DEVICE"] == FIRST
        self.note(f"hook {argv[1]}", "")
        return super().hook(argv, timeout_s=timeout_s, env=env)

    def hold(self, device: DeviceSpec, barrier: GroupBarrier) -> HeldCopies:
        """Stand in for `held_copies.make`."""
        name = device.name.value
        self.reach("held", name)
        barrier.await_held(within_s=5.0)
        if name != FIRST:
            time.sleep(0.2)  # The first has copied long before.
        self.reach("copied", name)
        return HeldCopies(0.01, device.size.bytes)

    def make(self, hook: PointHook | None) -> None:
        """Make the points of all devices, each in a process of its own."""
        self.attempts += 1
        token, names = f"{self.attempts:016x}"[::-1], [DeviceName.parse(name) for name in NAMES]
        orders = group_orders(names, "one", token, 1, hook)
        started = [
            threading.Thread(target=self._make_one, args=(device, order), name=device.value)
            for device, order in orders.items()
        ]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(JOIN_S)
        assert not any(thread.is_alive() for thread in started), "one waits still"
        assert self.running == set(), "the hook's unit runs on"

    def _make_one(self, name: DeviceName, order: PointOrder) -> None:
        device = DeviceSpec(
            name=name, uuid="a" * 32, minor=1, size=ByteSize(bytes=1 << 20),
            pool=PoolName.parse("main"), nodes=(NodeName.parse("n1"),), initiators=(), replicas=1,
        )  # fmt: skip
        session: Any = SimpleNamespace(change=lambda decide, *, can_wait: decide(None))

        def record(_: object, points: tuple[RestorePoint, ...]) -> tuple[()]:
            self.added.append(points)
            return ()

        try:
            leader._carry_out(session, device, order, record)
        except (SanctlError, OSError) as error:
            self.errors[name.value] = error
        except Killed:
            # What it has said last names a process that is no more.
            file = state_files.of_node(f"point-group.{order.token}")
            phase, _, rest = file.read().partition(" ")
            file.write(f"{phase} 0:1 {rest.partition(' ')[2]}" if phase else "")
        finally:
            # The unit's ExecStopPost.
            self.run(["systemctl", "stop", f"sanctl-point-hook@{name}.service"], timeout_s=5.0)

    def moment_of(self, what: str) -> int:
        return self.trace.index(what)

    def assert_all(self, result: HookResult) -> None:
        """Check that all devices have a point, all of one kind, from one run of the hook."""
        assert self.errors == {} and self.removed == set()
        (points,) = self.added
        assert [point.device for point in points] == list(NAMES)
        assert {point.hook for point in points} == {result}

    def assert_none(self) -> None:
        """Check that no device has a point, and that the application is not quiet."""
        assert self.added == []
        assert self.ran in ([], ["before", "after"])
        assert state_files.node_suffixes("point-hook-held") == []


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupNode]:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    made = GroupNode()
    monkeypatch.setattr(hook_files, "path_of", made.path_of)
    monkeypatch.setattr(hook_program, "run_in_own_group", made.hook)
    monkeypatch.setattr(hook_program, "notify", lambda _: None)
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: None)
    monkeypatch.setattr(hook_program, "time", clock)
    monkeypatch.setattr(leader, "_RUNNER", made)
    monkeypatch.setattr(leader, "notify", lambda _: None)
    monkeypatch.setattr(leader, "_log", lambda *_args, **_more: None)
    monkeypatch.setattr(leader, "_standbys", lambda _: ())
    monkeypatch.setattr(leader, "_channels", lambda _: contextlib.nullcontext({}))
    monkeypatch.setattr(
        leader, "LocalCopy", lambda _pool, name, _uuid, _token: Copy(made, str(name))
    )
    monkeypatch.setattr(
        held_copies, "make", lambda device, _copy, _channels, group: made.hold(device, group)
    )
    monkeypatch.setattr(ocf, "crash_point", made.step)
    check_hook = GroupBarrier.check_hook

    def checked(barrier: GroupBarrier, check: Callable[[], None]) -> None:
        check_hook(barrier, check)
        made.step("checked")

    monkeypatch.setattr(GroupBarrier, "check_hook", checked)
    yield made


def kill() -> None:
    raise Killed


def fail() -> None:
    raise CommandError(Problem("SAN-SNAP-005", "torn"))


def test_one_run_embraces_all_holds(node: GroupNode) -> None:
    node.make(HOOK)
    node.assert_all(HookResult("freeze"))
    assert node.ran == ["before", "after"]
    before, after = node.moment_of("hook before "), node.moment_of("hook after ")
    for name in NAMES:
        assert node.moment_of(f"point-prepared {name}") < before < node.moment_of(f"held {name}")
        assert max(node.moment_of(f"held {each}") for each in NAMES) < node.moment_of(
            f"copied {name}"
        )
        assert node.moment_of(f"copied {name}") < after
        # What the hook had the host write is flushed everywhere before any hold.
        held = min(node.moment_of(f"held {each}") for each in NAMES)
        assert f"flush {name}" in node.trace[before:held]


def test_without_a_hook_all_catch_up_before_any_is_held(node: GroupNode) -> None:
    """What hosts wrote while the slowest was being prepared is not left to the hold."""
    node.make(None)
    held = min(node.moment_of(f"held {each}") for each in NAMES)
    assert {f"flush {each}" for each in NAMES} <= set(node.trace[:held])
    assert len(node.added) == 1


def test_without_a_hook_nobody_waits_for_one(node: GroupNode) -> None:
    orders = group_orders([DeviceName.parse(name) for name in NAMES], "one", "5" * 16, 1)
    for barrier in (GroupBarrier(str(name), order) for name, order in orders.items()):
        ran: list[str] = []
        barrier.check_hook(lambda ran=ran: ran.append("check"))  # type: ignore[misc]
        barrier.await_copied()
        assert len(ran) == (barrier._device == FIRST)
    assert state_files.node_suffixes("point-group") == []


@pytest.mark.parametrize("name", [FIRST, OTHER])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", [kill, fail])
@pytest.mark.parametrize("hook", [HOOK, OR_CRASH])
def test_one_that_dies_or_fails_leaves_none(
    node: GroupNode, name: str, step: str, how: Callable[[], None], hook: PointHook
) -> None:
    node.on[step, name] = how
    node.make(hook)
    node.assert_none()
    if step in {"checked", "point-prepared"}:
        assert node.ran == [], "the application was made quiet for nothing"
    else:
        assert node.ran == ["before", "after"]
    others = {each for each in NAMES if each != name}
    assert set(node.errors) >= others
    # Once the first may have recorded all, nobody knows; before, nothing is left.
    is_unknown = how is kill and name == FIRST and step in STEPS[STEPS.index("copied") :]
    if node.ran:
        assert node.removed & others == (set() if is_unknown else others)


def test_the_first_dies_after_the_change(node: GroupNode) -> None:
    node.on["point-recorded", FIRST] = kill
    node.make(HOOK)
    node.assert_all(HookResult("freeze"))


@pytest.mark.parametrize(("status", "code"), [(3, "SAN-HOOK-003"), (None, "SAN-HOOK-004")])
def test_a_hook_that_fails_or_hangs_makes_none_or_all(
    node: GroupNode, status: int | None, code: str
) -> None:
    node.statuses["before"] = status
    node.make(HOOK)
    node.assert_none()
    assert not any(step.startswith("held") for step in node.trace), "held for nothing"
    told = {name: error.problems[0] for name, error in node.errors.items()}  # type: ignore[union-attr]
    assert {problem.code for problem in told.values()} == {code}
    assert "db, of the same group" in told[OTHER].text
    node.errors.clear()
    node.removed.clear()
    node.make(OR_CRASH)
    node.assert_all(HookResult("freeze", code))


def test_a_file_that_may_not_run_is_known_before_anything_is_done(node: GroupNode) -> None:
    node.is_missing = True
    node.make(HOOK)
    node.assert_none()
    assert {error.problems[0].code for error in node.errors.values()} == {"SAN-HOOK-002"}  # type: ignore[union-attr]
    assert not any(step.startswith("point-prepared") for step in node.trace)


@pytest.mark.parametrize("step", ["held", "copied"])
@pytest.mark.parametrize("name", [FIRST, OTHER])
def test_what_kept_it_quiet_ends_before_the_last_copy(
    node: GroupNode, monkeypatch: pytest.MonkeyPatch, name: str, step: str
) -> None:
    """Also while another device is copied than the first: none is application-consistent."""
    real = process_start.ticks
    ended = threading.Event()

    def ticks(pid: int) -> str:
        # Asked by the first device's process after the copies.
        is_of_hook = threading.current_thread().name == FIRST and "held web" in node.trace
        return "" if ended.is_set() and is_of_hook else real(pid)

    monkeypatch.setattr(hook_unit, "process_start", SimpleNamespace(ticks=ticks))
    node.on[step, name] = ended.set
    node.make(HOOK)
    node.assert_none()
    assert {error.problems[0].code for error in node.errors.values()} == {"SAN-HOOK-006"}  # type: ignore[union-attr]
    node.errors.clear()
    node.removed.clear()
    node.trace.clear()
    ended.clear()
    node.make(OR_CRASH)
    node.assert_all(HookResult("freeze", "SAN-HOOK-006"))


def test_a_hook_that_fails_after_is_told_by_all(node: GroupNode) -> None:
    node.statuses["after"] = 1
    node.make(HOOK)
    node.assert_all(HookResult("freeze", "", "SAN-HOOK-005"))
    assert node.ran == ["before", "after", "after"]


def test_one_that_is_not_copied_in_time_ends_the_quiet(
    node: GroupNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_barrier, "_COPIED_S", 0.3)
    go_on = threading.Event()

    def hang() -> None:
        go_on.wait(JOIN_S)

    node.on["copied", OTHER] = hang
    note = node.note

    def noted(what: str, name: str) -> None:
        note(what, name)
        if what == "hook after":
            go_on.set()  # It ends although one hangs.

    monkeypatch.setattr(node, "note", noted)
    node.make(HOOK)
    node.assert_none()
    assert "web, of the same group, was not copied within 0.3 s" in str(node.errors[FIRST])
