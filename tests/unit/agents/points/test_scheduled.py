# SPDX-License-Identifier: GPL-2.0-or-later
"""Points by schedule: begun by the node that serves, one attempt for a slot, then pruned."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from sanctl.agents.points import leader, scheduled
from sanctl.drivers import gate, node_attributes
from sanctl.drivers.node_facts import NodeFacts
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import PointSchedule, ScheduledSlot, parse_rules, schedule_id
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.plan.cluster.cib_size import point_of_order
from sanctl.plan.device.point_schedule import plan_schedule
from sanctl.system import state_files
from sanctl.system.runner import CommandResult, LocalRunner
from tests.unit.ops.test_snapshot import Bed, bed_with_device, two_devices

NOW = 1_764_000_000.0
RULES = parse_rules("15m keep 1")
SCHEDULE = PointSchedule(0, RULES)
PROPERTIES = {schedule_id("web"): SCHEDULE.value, "dc-version": "3.0.0"}


class Recorder(LocalRunner):
    def __init__(self) -> None:
        self.started: list[str] = []
        self.fails = False

    def run(self, argv: Sequence[str], **_: object) -> CommandResult:
        self.started.append(argv[-1])
        if self.fails:
            raise CommandError(Problem("SAN-CMD-002", "systemd does not answer"))
        return CommandResult(tuple(argv), 0, "", "", 0.0)


@pytest.fixture(autouse=True)
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    now = [NOW]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(gate, "gate_table", lambda _: "drbd1")
    yield now


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return bed_with_device(monkeypatch)


def made(slot_s: float, *, device: str = "web") -> RestorePoint:
    slot = ScheduledSlot.of(RULES, slot_s)
    return RestorePoint(
        device, "auto-x", "1" * 16, "a" * 32, "main", int(slot_s), 1, 2, ("n1",), False, slot
    )


def test_started_once_in_a_slot_where_the_device_is_served(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = Recorder()
    scheduled.start_due(runner, PROPERTIES, [])
    assert runner.started == ["sanctl-point@web.service"]
    scheduled.note_attempt("web", SCHEDULE, time.time())
    scheduled.start_due(runner, PROPERTIES, [])
    assert len(runner.started) == 1, "it failed, and the next attempt is that of the next slot"
    clock[0] += 900
    scheduled.start_due(runner, PROPERTIES, [made(NOW + 900)])
    assert len(runner.started) == 1, "another node has made it"
    scheduled.start_due(runner, PROPERTIES, [made(NOW + 900, device="db")])
    assert len(runner.started) == 2
    for table in ("error", "absent"):
        monkeypatch.setattr(gate, "gate_table", lambda _, table=table: table)
        scheduled.start_due(runner, PROPERTIES, [])
    assert len(runner.started) == 2


def test_a_few_at_a_time_and_none_of_a_later_release() -> None:
    runner = Recorder()
    runner.fails = True
    many = {schedule_id(f"web{number}"): SCHEDULE.value for number in range(9)}
    scheduled.start_due(runner, {schedule_id("x"): "of a later release", **many}, [])
    assert runner.started == [f"sanctl-point@web{number}.service" for number in range(4)]


def test_the_units_of_a_group_are_started_together(monkeypatch: pytest.MonkeyPatch) -> None:
    names = tuple(f"log{number}" for number in range(8))
    together = {schedule_id(each): SCHEDULE._replace(group=names).value for each in names}
    alone = {schedule_id(f"web{number}"): SCHEDULE.value for number in range(9)}
    # The CIB's order is any.
    order = dict(sorted({**together, **alone}.items(), key=lambda each: each[0][::-1]))
    runner = Recorder()
    scheduled.start_due(runner, order, [])
    started = {each for each in runner.started if "log" in each}
    assert len(started) == 8 and len(runner.started) == 8 + 3
    # One of them has a point for this slot, and the others wait for the next.
    runner = Recorder()
    scheduled.start_due(runner, together, [made(NOW, device="log3")])
    assert runner.started == []
    # Those that are served elsewhere, and those that were deleted.
    monkeypatch.setattr(gate, "gate_table", lambda name: "error" if name == "log1" else "drbd1")
    scheduled.note_attempt("log2", SCHEDULE, time.time())
    del together[schedule_id("log0")]
    scheduled.start_due(runner, together, [])
    assert runner.started == [f"sanctl-point@log{number}.service" for number in range(3, 8)]


class Taking:
    """What stands for the hold: it records the point, or fails."""

    def __init__(self) -> None:
        self.slots: list[ScheduledSlot | None] = []
        self.error: Exception | None = None

    def __call__(
        self,
        session: object,
        device: DeviceSpec,
        order: PointOrder,
        record: Callable[[Cluster, tuple[RestorePoint, ...]], tuple[Change, ...]],
        slot: ScheduledSlot | None = None,
    ) -> None:
        self.slots.append(slot)
        if self.error:
            raise self.error
        point = point_of_order(device, order)._replace(slot=slot)
        session.change(lambda seen: record(seen, (point,)))  # type: ignore[attr-defined]


@pytest.fixture
def taking(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Taking:
    found = Taking()
    monkeypatch.setattr(leader, "_carry_out", found)
    name = DeviceName.parse("web")
    bed.session.change(lambda seen: plan_schedule(seen, (name,), RULES, NOW))
    return found


def keep(bed: Bed) -> list[RestorePoint]:
    leader._keep_schedule(bed.session, bed.seen(), "web")
    bed.cluster.tick()
    return list(bed.seen().cib.points_of("web"))


def test_a_point_for_each_slot_and_the_older_goes(
    bed: Bed,
    taking: Taking,
    clock: list[float],
) -> None:
    (first,) = keep(bed)
    assert first.slot == ScheduledSlot.of(RULES, NOW) and first.slot.intervals == ("15m",)
    assert keep(bed) == [first] and len(taking.slots) == 1
    clock[0] += 900
    (second,) = keep(bed)
    assert second.name != first.name and len(taking.slots) == 2
    # A node that serves from now on has no note, and makes none twice.
    state_files.of_node("point-attempt.web").remove()
    assert keep(bed) == [second] and len(taking.slots) == 2
    assert keep(bed) == [second]


def test_a_failure_is_published_and_tried_again_in_the_next_slot(
    bed: Bed,
    taking: Taking,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[str] = []
    monkeypatch.setattr(node_attributes, "publish", lambda *words: published.append(words[2]))
    (first,) = keep(bed)
    clock[0] += 900
    taking.error = CommandError(Problem("SAN-SNAP-003", "no room"))
    assert keep(bed) == [first] and published[0].endswith(" SAN-SNAP-003 no room")
    assert keep(bed) == [first] and len(taking.slots) == 2
    clock[0] += 900
    taking.error = None
    (second,) = keep(bed)
    assert second.slot == ScheduledSlot.of(RULES, NOW + 1800) and len(published) == 1


def test_a_failure_in_the_next_slot_is_none_of_that(
    bed: Bed,
    taking: Taking,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a hook an attempt may take minutes; the slot that had begun meanwhile got no point."""
    monkeypatch.setattr(node_attributes, "publish", lambda *_: None)

    def take_long(*_args: object, **_more: object) -> None:
        clock[0] += 900
        raise CommandError(Problem("SAN-SNAP-003", "no room"))

    monkeypatch.setattr(leader, "_carry_out", take_long)
    assert keep(bed) == []
    monkeypatch.setattr(leader, "_carry_out", taking)
    (made,) = keep(bed)
    assert made.slot == ScheduledSlot.of(RULES, NOW + 900)


def test_what_the_kernel_refuses_beside_the_point_fails_no_unit(
    bed: Bed,
    taking: Taking,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(leader, "plan_pruning", refuse)
    monkeypatch.setattr(node_attributes, "publish", refuse)
    taking.error = CommandError(Problem("SAN-SNAP-003", "no room"))
    assert keep(bed) == []
    said = capsys.readouterr().err
    assert "no room" in said and "are not removed: [Errno 28]" in said


def test_a_refusal_is_tried_once_in_a_slot_too(
    bed: Bed,
    taking: Taking,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    published: list[str] = []
    monkeypatch.setattr(node_attributes, "publish", lambda *words: published.append(words[2]))
    monkeypatch.setattr(leader, "DEFAULT_IPC_BUFFER_BYTES", 64)
    monkeypatch.setattr(NodeFacts, "ipc_buffer_bytes", lambda _: None)
    assert keep(bed) == [] and keep(bed) == []
    assert len(published) == 1 and "SAN-CLU-006" in published[0]
    assert taking.slots == [], "nothing is held for a point that has no room"


def test_a_group_is_taken_with_the_order_of_all(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    """The process of one device; the others' points are those that it hears of."""
    two_devices(bed, monkeypatch)
    names = [DeviceName.parse("web"), DeviceName.parse("db")]
    bed.session.change(lambda seen: plan_schedule(seen, names, RULES, NOW))
    orders: list[PointOrder] = []

    def take(
        session: object,
        device: DeviceSpec,
        order: PointOrder,
        record: Callable[[Cluster, tuple[RestorePoint, ...]], tuple[Change, ...]],
        slot: ScheduledSlot | None = None,
    ) -> None:
        orders.append(order)
        points = tuple(
            point_of_order(each, order.of_member(each.name.value))._replace(slot=slot)
            for each in bed.seen().cib.devices
        )
        if len(orders) == 2:
            session.change(lambda seen: record(seen, points))  # type: ignore[attr-defined]

    monkeypatch.setattr(leader, "_carry_out", take)
    cluster = bed.seen()
    for name in ("web", "db"):
        leader._keep_schedule(bed.session, cluster, name)
    assert orders[0].of_member("db") == orders[1] and orders[1].group == ("db", "web")
    (one,), (other,) = (bed.seen().cib.points_of(name) for name in names)
    assert one.is_of_same_moment(other) and one.name == other.name and one.slot == other.slot
    for name in ("web", "db"):
        leader._keep_schedule(bed.session, bed.seen(), name)
    assert len(orders) == 2
    clock[0] += 900
    leader._keep_schedule(bed.session, bed.seen(), "web")
    assert len(orders) == 3 and orders[2].token[:12] != orders[0].token[:12]


def test_no_schedule(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Taking()
    monkeypatch.setattr(leader, "_carry_out", found)
    assert keep(bed) == [] and found.slots == []
