# SPDX-License-Identifier: GPL-2.0-or-later
"""Processes of a group go on together or not at all, whichever of them fails, dies or is late."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sanctl.agents.points import group_barrier
from sanctl.agents.points.group_barrier import GroupBarrier, GroupFailed
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.plan.device.point_group import group_orders
from sanctl.system import process_start, state_files
from tests.fakes.node import FakeNode

pytestmark = pytest.mark.usefixtures("fake_node")

ORDERS = {
    device.value: order
    for device, order in group_orders(
        [DeviceName.parse(name) for name in ("web", "db", "log")], "one", "5" * 16, 1000
    ).items()
}
NAMES = ("db", "log", "web")


def barrier(name: str) -> GroupBarrier:
    return GroupBarrier(name, ORDERS[name])


def point(name: str) -> RestorePoint:
    token = ORDERS[name].token
    return RestorePoint(name, "one", token, "a" * 32, "main", 1, 2, 3, ("n1", "n2"))


def say(name: str, phase: str, text: str = "", owner: str = "") -> None:
    """Write what another device's process says, which is this process unless said."""
    owner = owner or f"{os.getpid()}:{process_start.ticks(os.getpid())}"
    state_files.of_node(f"point-group.{ORDERS[name].token}").write(f"{phase} {owner} {text}")


def flushed(name: str) -> None:
    say(name, "flushed", f"{point(name).id}={point(name).value}")


def test_the_orders_know_each_other() -> None:
    assert [ORDERS[name].token for name in NAMES] == [f"{'5' * 12}{n:04x}" for n in range(3)]
    for order in ORDERS.values():
        assert PointOrder.parse(str(order)) == order
        assert order.group == NAMES
        assert [order.of_member(name) for name in NAMES] == [ORDERS[name] for name in NAMES]
    assert point("web").is_of_same_moment(point("db"))
    assert not point("web").is_of_same_moment(point("web"))
    assert not point("web").is_of_same_moment(point("db")._replace(token="6" * 16))


def test_an_order_without_a_group_waits_for_nobody(fake_node: FakeNode) -> None:
    alone = GroupBarrier("web", PointOrder("one", "5" * 16, 1000))
    alone.await_prepared()
    alone.await_held(within_s=0.5)
    added: list[object] = []
    alone.record(point("web"), added.append)
    alone.fail(OSError("late"))
    assert added == [(point("web"),)]
    assert fake_node.clock.passed_s == 0.0
    assert state_files.node_suffixes("point-group") == []


def test_all_are_prepared_before_any_goes_on(fake_node: FakeNode) -> None:
    say("db", "prepared")

    def go_on() -> None:
        if fake_node.clock.passed_s > 5.0:
            say("log", "held")  # It has seen that this one is prepared, and goes on.

    fake_node.clock.on_sleep = go_on
    barrier("web").await_prepared()
    assert 5.0 < fake_node.clock.passed_s < 6.0


@pytest.mark.parametrize("wait", ["await_prepared", "await_held"])
def test_one_that_says_nothing_is_given_up_in_time(fake_node: FakeNode, wait: str) -> None:
    say("db", "held")
    with pytest.raises(GroupFailed, match=r"SAN-SNAP-018: log, of the same group, was not"):
        if wait == "await_prepared":
            barrier("web").await_prepared()
        else:
            barrier("web").await_held(within_s=0.5)
    assert fake_node.clock.passed_s < (61.0 if wait == "await_prepared" else 0.6)


def test_all_have_caught_up_before_any_is_held(fake_node: FakeNode) -> None:
    """What hosts wrote while one was still being prepared is not left to the hold."""
    say("db", "settled")
    say("log", "prepared")
    with pytest.raises(GroupFailed, match="log, of the same group, was not settled"):
        barrier("web").await_settled()
    say("log", "settled")
    barrier("web").await_settled()


def test_one_that_is_only_prepared_holds_nothing(fake_node: FakeNode) -> None:
    say("db", "held")
    say("log", "prepared")
    with pytest.raises(GroupFailed, match="log, of the same group, was not held"):
        barrier("web").await_held(within_s=0.5)


def test_the_reason_of_one_is_told_by_all(fake_node: FakeNode) -> None:
    barrier("log").fail(CommandError(Problem("SAN-SNAP-002", "too many extents")))
    with pytest.raises(GroupFailed, match="SAN-SNAP-002: log, of the same group: too many extents"):
        barrier("web").await_prepared()
    barrier("log").fail(OSError("no disk"))
    with pytest.raises(GroupFailed, match="SAN-SNAP-005: log, of the same group: no disk"):
        barrier("web").await_held(within_s=0.5)


def test_the_first_records_the_points_of_all_in_one_change() -> None:
    flushed("log")
    flushed("web")
    added: list[object] = []
    barrier("db").record(point("db"), added.append)
    assert added == [(point("db"), point("log"), point("web"))]
    barrier("web").record(point("web"), added.append)
    assert len(added) == 1


def test_who_waits_for_one_that_hangs_ends_once_another_has_failed(fake_node: FakeNode) -> None:
    """Its unit would take no other order meanwhile."""
    flushed("db")

    def fail() -> None:
        if fake_node.clock.passed_s > 5.0:
            barrier("log").fail(CommandError(Problem("SAN-SNAP-003", "no room", "make some")))

    fake_node.clock.on_sleep = fail
    with pytest.raises(GroupFailed, match="SAN-SNAP-003: log, of the same group: no room") as told:
        barrier("web").record(point("web"), fall_silent)
    assert told.value.problems[0].hint == "make some"
    assert 5.0 < fake_node.clock.passed_s < 6.0


def test_one_that_does_not_know_is_no_end_for_who_does_not_wait_for_it(fake_node: FakeNode) -> None:
    """The first one may have recorded all."""
    flushed("db")
    log = barrier("log")
    log._has_flushed = True
    log.fail(CommandError(Problem("SAN-SNAP-018", "db was late")))

    def record() -> None:
        if fake_node.clock.passed_s > 5.0:
            say("db", "recorded")

    fake_node.clock.on_sleep = record
    barrier("web").record(point("web"), fall_silent)


def test_what_another_release_says_of_its_failure() -> None:
    say("log", "failed", "SAN-SNAP-002")
    with pytest.raises(GroupFailed, match="SAN-SNAP-018: log, of the same group: it has failed"):
        barrier("web").await_prepared()


def test_nothing_is_recorded_while_one_is_not_flushed(fake_node: FakeNode) -> None:
    flushed("log")
    say("web", "held")
    added: list[object] = []
    first = barrier("db")
    with pytest.raises(GroupFailed, match="web, of the same group, was not flushed") as late:
        first.record(point("db"), added.append)
    assert added == []
    first.is_undone = True  # what its caller makes of that error
    first.fail(late.value)
    with pytest.raises(GroupFailed, match="db, of the same group: web"):
        barrier("log").record(point("log"), added.append)


def refuse(_: object) -> None:
    raise Refused(Problem("SAN-CLU-006", "no room"))


def fall_silent(_: object) -> None:
    raise CommandError(Problem("SAN-CMD-002", "no answer"))


@pytest.mark.parametrize(("add", "is_undone"), [(refuse, True), (fall_silent, False)])
def test_what_became_of_the_change_is_known_or_not(
    add: Callable[[object], None], is_undone: bool
) -> None:
    """Where it is not known nobody removes a copy: the restore points may be in the CIB."""
    flushed("log")
    flushed("web")
    first = barrier("db")
    with pytest.raises((Refused, CommandError)) as failed:
        first.record(point("db"), add)
    first.is_undone = is_undone
    first.fail(failed.value)
    with pytest.raises(CommandError, match="db, of the same group: no") as told:
        barrier("web").record(point("web"), fall_silent)
    assert isinstance(told.value, GroupFailed) == is_undone


def test_a_first_one_that_dies_leaves_it_unknown(fake_node: FakeNode) -> None:
    flushed("db")
    other = barrier("web")
    with pytest.raises(CommandError, match="db, of the same group, was not recorded") as late:
        other.record(point("web"), fall_silent)
    assert not isinstance(late.value, GroupFailed)
    other.fail(late.value)
    # Nor does the first one, should it be only late, take what the other has said for nothing.
    flushed("log")
    with pytest.raises(CommandError, match="web, of the same group") as unknown:
        barrier("db").record(point("db"), fall_silent)
    assert unknown.value.problems[0].code == "SAN-SNAP-018"


@pytest.mark.parametrize(
    ("phase", "name", "is_undone"), [("held", "log", True), ("flushed", "db", False)]
)
def test_a_process_that_has_died_is_not_waited_for(
    fake_node: FakeNode, phase: str, name: str, is_undone: bool
) -> None:
    """Its unit would take no other order meanwhile."""
    flushed("db")
    flushed("log")
    say(name, phase, owner=f"{os.getpid()}:1")
    waiting = barrier("db" if name == "log" else "web")
    with pytest.raises(CommandError, match=f"{name}, of the same group, was not .* ended") as dead:
        waiting.record(point("db" if name == "log" else "web"), fall_silent)
    assert isinstance(dead.value, GroupFailed) == is_undone
    assert fake_node.clock.passed_s == 0.0


def test_what_a_process_has_said_before_its_end_counts(fake_node: FakeNode) -> None:
    flushed("log")
    say("db", "recorded", owner="0:1")
    barrier("web").record(point("web"), fall_silent)


def test_what_was_recorded_stays_so_whatever_fails_then() -> None:
    flushed("log")
    flushed("web")
    first = barrier("db")
    first.record(point("db"), lambda _: None)
    first.fail(OSError("a copy could not be named"))
    barrier("web").record(point("web"), fall_silent)


def test_what_another_release_says_is_no_point() -> None:
    flushed("log")
    say("web", "flushed", "sanctl-point.web.one=what")
    with pytest.raises(GroupFailed, match="no restore point"):
        barrier("db").record(point("db"), fall_silent)


def test_what_groups_of_long_ago_have_said_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    old = state_files.of_node("point-group.0000000000000000")
    for age_s, is_left in ((-60.0, True), (60.0, True), (4000.0, False)):
        old.write("recorded ")
        say("db", "prepared")
        monkeypatch.setattr(state_files.StateFile, "age_s", lambda _self, age_s=age_s: age_s)
        with pytest.raises(GroupFailed, match="of the same group"):
            barrier("web").await_prepared()
        assert old.exists() == is_left


def test_three_processes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds only between the two waits, and all have been held at one moment."""
    pause = threading.Event()
    # Nobody is late, however busy the machine is.
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=pause.wait)
    monkeypatch.setattr(group_barrier, "time", clock)
    held, seen, added = set[str](), list[set[str]](), list[object]()
    lock = threading.Lock()

    def make(name: str) -> None:
        this = barrier(name)
        this.await_prepared()
        with lock:
            held.add(name)
        this.await_held(within_s=5.0)
        with lock:
            seen.append(set(held))
        this.record(point(name), added.append)

    threads = [threading.Thread(target=make, args=(name,)) for name in NAMES]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30.0)
    assert seen == [set(NAMES)] * 3
    assert added == [(point("db"), point("log"), point("web"))]
