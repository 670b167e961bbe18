# SPDX-License-Identifier: GPL-2.0-or-later
"""What a schedule makes, what it removes and what it never does, and when it is late."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import RemoveSchedule, SetPoint, SetSchedule
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import HookResult, PointHook
from sanctl.model.point_schedule import PointSchedule, Rule, ScheduledSlot, parse_rules
from sanctl.model.restore_point import (
    MAX_ALL_POINTS,
    MAX_POINTS,
    PointFailure,
    PointOrder,
    RestorePoint,
)
from sanctl.plan.device import point_schedule as plan
from sanctl.plan.device.restore_points import plan_point_order
from sanctl.plan.health.schedule_health import hook_findings, schedule_findings
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NAME = DeviceName.parse("web")
NOON = calendar.timegm((2026, 11, 25, 12, 0, 0))
MINUTE, HOUR, DAY = 60, 3600, 86400
SCHEDULE = PointSchedule(NOON - DAY, parse_rules("15m keep 3, 1h keep 2"))
BOTH = ("n1", "n2")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return bed_with_device(monkeypatch)


def point(
    begin_s: int, *intervals: str, nodes: Sequence[str] = BOTH, is_deleting: bool = False
) -> RestorePoint:
    slot = ScheduledSlot(begin_s, intervals) if intervals else None
    token, name = f"{begin_s:016x}", f"p{begin_s}"
    return RestorePoint(
        "web", name, token, "a" * 32, "main", begin_s + 5, 1, 2, tuple(nodes), is_deleting, slot
    )


def quarters(count: int, *, last_s: int = NOON, nodes: Sequence[str] = BOTH) -> list[RestorePoint]:
    """Return points of every quarter of an hour, the oldest first."""
    begins = [last_s - number * 15 * MINUTE for number in reversed(range(count))]
    return [
        point(begin_s, "15m", *(() if begin_s % HOUR else ("1h",)), nodes=nodes)
        for begin_s in begins
    ]


def names(points: Sequence[RestorePoint]) -> list[int]:
    return [(each.made_s - 5 - NOON) // MINUTE for each in points]


def due(points: Sequence[RestorePoint], now_s: float) -> list[str]:
    return [rule.interval for rule in plan.due_rules(SCHEDULE, points, now_s)]


def test_a_point_is_due_once_in_each_slot() -> None:
    assert due((), NOON) == ["15m", "1h"]
    points = [point(NOON, "15m", "1h")]
    assert due(points, NOON) == due(points, NOON + 899) == []
    assert due(points, NOON + 900) == ["15m"]
    assert due(points, NOON + HOUR) == ["15m", "1h"]
    # What an operator made is for no slot.
    assert due([point(NOON)], NOON) == ["15m", "1h"]
    # One that is being deleted was made.
    assert due([points[0]._replace(is_deleting=True)], NOON) == []


def test_what_was_missed_is_not_made_up_for() -> None:
    points = [point(NOON - DAY, "15m", "1h")]
    assert due(points, NOON + 7 * MINUTE) == ["15m", "1h"]
    points.append(point(NOON, "15m", "1h"))
    assert due(points, NOON + 8 * MINUTE) == []
    # A rule whose slot has begun before is made with the next point.
    assert due([point(NOON, "15m")], NOON + 900) == ["15m", "1h"]


def test_clocks_that_differ_make_none_twice() -> None:
    # Made by a node whose clock is a minute ahead.
    assert due([point(NOON + HOUR, "15m", "1h")], NOON + HOUR - MINUTE) == []
    # One of next year keeps none from being made.
    assert due([point(NOON + 365 * DAY, "15m", "1h")], NOON) == ["15m", "1h"]


def test_one_attempt_in_each_of_the_shortest_intervals() -> None:
    assert plan.attempt_of(SCHEDULE, NOON + 899) == NOON
    assert plan.attempt_of(SCHEDULE, NOON + 900) == NOON + 900
    daily = PointSchedule(0, parse_rules("1d keep 7"))
    assert plan.attempt_of(daily, NOON + HOUR + 5) == NOON + HOUR


def test_of_each_rule_the_newest_stay() -> None:
    points = quarters(9)  # from 10:00 to 12:00
    gone = plan.surplus(SCHEDULE, points, BOTH, NOON + 900)
    # 11:30, 11:45, 12:00 of the quarters; 11:00, 12:00 of the hours.
    assert names(gone) == [-120, -105, -90, -75, -45]
    left = [each for each in points if each not in gone]
    assert plan.surplus(SCHEDULE, left, BOTH, NOON + 900) == ()
    assert plan.surplus(SCHEDULE, (), BOTH, NOON + 900) == ()


def test_what_an_operator_made_stays() -> None:
    by_hand = [point(NOON - DAY - number) for number in range(9)]
    assert plan.surplus(SCHEDULE, by_hand, BOTH, NOON + 900) == ()
    assert not set(plan.surplus(SCHEDULE, [*by_hand, *quarters(9)], BOTH, NOON + 900)) & set(
        by_hand
    )


def test_points_of_a_rule_that_is_gone_stay() -> None:
    old = point(NOON - DAY, "15m", "1d")
    assert old not in plan.surplus(SCHEDULE, [old, *quarters(9)], BOTH, NOON + 900)


def test_points_that_are_being_deleted_do_not_count() -> None:
    points = quarters(4)
    deleting = [each._replace(is_deleting=True) for each in points[1:]]
    assert plan.surplus(SCHEDULE, [points[0], *deleting], BOTH, NOON + 900) == ()


def test_a_failure_takes_no_point_along() -> None:
    # Nothing was made for a day: what is there is kept, however old.
    assert plan.surplus(SCHEDULE, quarters(3, last_s=NOON - DAY), BOTH, NOON + 900) == ()


def test_points_of_a_node_with_a_wrong_clock_push_none_out() -> None:
    ahead = quarters(9, last_s=NOON + 365 * DAY)
    now = quarters(3)
    assert plan.surplus(SCHEDULE, [*now, *ahead], BOTH, NOON) == ()
    assert len(plan.surplus(SCHEDULE, [*now, *ahead], BOTH, NOON + 366 * DAY)) == 8


def test_the_last_point_on_all_nodes_stays_while_a_replica_is_away() -> None:
    whole = quarters(3, last_s=NOON - DAY)
    alone = quarters(9, nodes=("n1",))
    gone = plan.surplus(SCHEDULE, [*whole, *alone], BOTH, NOON + 900)
    assert whole[-1] not in gone and set(whole[:-1]) <= set(gone)
    # Of a device with that replica alone they are whole.
    assert set(whole) <= set(plan.surplus(SCHEDULE, [*whole, *alone], ("n1",), NOON + 900))
    # As soon as one is on both nodes again.
    again = [*alone, *quarters(1, last_s=NOON + 900)]
    assert set(whole) <= set(plan.surplus(SCHEDULE, [*whole, *again], BOTH, NOON + 900))


def test_late_after_two_intervals() -> None:
    points = [point(NOON, "15m", "1h")]
    assert plan.late_rules(SCHEDULE, points, NOON + 2 * 900 + 60) == ()
    (late,) = plan.late_rules(SCHEDULE, points, NOON + 2 * 900 + 61)
    assert late.interval == "15m"
    assert len(plan.late_rules(SCHEDULE, points, NOON + 2 * HOUR + 61)) == 2
    # A new schedule has had no time yet.
    new = SCHEDULE._replace(set_s=NOON)
    assert plan.late_rules(new, (), NOON + 900) == ()
    assert len(plan.late_rules(new, (), NOON + DAY)) == 2
    # Set by a clock that was ahead: it would not be late until then.
    assert len(plan.late_rules(SCHEDULE._replace(set_s=NOON + DAY), (), NOON)) == 2


def test_the_next_slot() -> None:
    assert plan.next_slot(SCHEDULE, (), NOON + 5) == NOON + 5
    assert plan.next_slot(SCHEDULE, [point(NOON, "15m", "1h")], NOON + 5) == NOON + 900


def seen_with(
    made: Bed, *points: RestorePoint, schedule: PointSchedule | None = SCHEDULE
) -> Cluster:
    seen = made.seen()
    device = seen.cib.device("web")
    assert device is not None
    own = tuple(each._replace(uuid=device.uuid) for each in points)
    schedules = {"web": schedule} if schedule else {}
    return replace(seen, cib=replace(seen.cib, points=own, schedules=schedules))


def test_a_due_point_and_its_record(bed: Bed) -> None:
    assert plan.due_point(seen_with(bed, schedule=None), "web", "1" * 16, NOON) is None
    assert plan.due_point(seen_with(bed), "none", "1" * 16, NOON) is None
    found = plan.due_point(seen_with(bed), "web", "1" * 16, NOON + 70)
    assert found is not None
    assert (found.order.name, found.slot) == (
        "auto-20261125-1200", ScheduledSlot(NOON, ("15m", "1h"))
    )  # fmt: skip
    made = point(NOON, "15m", "1h")._replace(uuid=found.device.uuid, name=found.order.name)
    now_s = NOON + 75
    assert plan.plan_scheduled_point(seen_with(bed), made, now_s) == (SetPoint(point=made),)
    # Another node was faster, also under another name.
    again = seen_with(bed, made._replace(name="other", token="2" * 16))
    assert plan.due_point(again, "web", "1" * 16, now_s) is None
    other = SCHEDULE._replace(rules=parse_rules("15m keep 3"))
    stopping = seen_with(bed)
    devices = (replace(found.device, is_stopping=True),)
    half = (replace(found.device, is_restoring=True),)
    for seen, wrong in (
        (replace(stopping, cib=replace(stopping.cib, devices=half)), made),
        (again, made),
        (seen_with(bed, schedule=None), made),
        (seen_with(bed, schedule=other), made),
        (replace(stopping, cib=replace(stopping.cib, devices=devices)), made),
        (seen_with(bed), made._replace(slot=None)),
        (seen_with(bed), made._replace(device="none")),
        (seen_with(bed), made._replace(uuid="b" * 32)),
        (seen_with(bed), made._replace(nodes=("n1", "n3"))),
    ):
        with pytest.raises(CommandError, match="SAN-SCHED-004"):
            plan.plan_scheduled_point(seen, wrong, now_s)
    larger = made._replace(size_bytes=found.device.size.bytes + 4096)
    with pytest.raises(CommandError, match=r"SAN-SNAP-006.*device resize"):
        plan.plan_scheduled_point(seen_with(bed), larger, now_s)


def test_what_refuses_a_point_by_hand_refuses_one_by_schedule(bed: Bed) -> None:
    taken = point(NOON)._replace(name="auto-20261125-1200")
    with pytest.raises(Refused, match="SAN-SNAP-010"):
        plan.due_point(seen_with(bed, taken), "web", "1" * 16, NOON)
    full = [point(NOON - number) for number in range(1, MAX_POINTS + 1)]
    with pytest.raises(Refused, match="SAN-SNAP-011"):
        plan.due_point(seen_with(bed, *full), "web", "1" * 16, NOON)
    # Those that wait for a node to come back do not count.
    deleting = [each._replace(is_deleting=True) for each in full]
    assert plan.due_point(seen_with(bed, *deleting), "web", "1" * 16, NOON) is not None


def test_a_node_in_maintenance_stops_no_schedule(bed: Bed) -> None:
    """Such a point changes no parameter of the device, of which agents would have to be told."""
    seen = seen_with(bed)
    by_hand = PointOrder("by-hand", "2" * 16, int(NOON))
    (serving,) = seen.mon.active_nodes(NAME)
    for name in BOTH:
        nodes = [
            replace(each, state=NodeState.MAINTENANCE) if each.name == name else each
            for each in seen.mon.nodes
        ]
        kept = replace(seen, mon=replace(seen.mon, nodes=tuple(nodes)))
        assert plan.due_point(kept, "web", "1" * 16, NOON) is not None
        # One by hand, as backups and copies have it: the node that serves has to be told.
        if name != serving:
            assert plan_point_order(kept, NAME, by_hand, NOON) != ()
            continue
        with pytest.raises(Refused, match="SAN-DEV-018"):
            plan_point_order(kept, NAME, by_hand, NOON)


def test_the_schedule_goes_into_the_cib_and_with_the_device(bed: Bed) -> None:
    rules = parse_rules("15m keep 3")
    assert plan.plan_schedule(bed.seen(), (NAME,), (), NOON) == ()
    made = bed.session.change(lambda seen: plan.plan_schedule(seen, (NAME,), rules, NOON))
    assert made == (SetSchedule(name=NAME, schedule=PointSchedule(NOON, rules)),)
    assert bed.seen().cib.schedules == {"web": PointSchedule(NOON, rules)}
    assert plan.plan_schedule(bed.seen(), (NAME,), rules, NOON + 5) == ()
    assert plan.plan_schedule(bed.seen(), (NAME,), parse_rules("1h keep 2"), NOON) != ()
    off = bed.session.change(lambda seen: plan.plan_schedule(seen, (NAME,), (), NOON))
    assert off == (RemoveSchedule(name=NAME),) and bed.seen().cib.schedules == {}
    with pytest.raises(Refused, match="SAN-DEV"):
        plan.plan_schedule(bed.seen(), (DeviceName.parse("none"),), rules, NOON)


def test_a_schedule_that_keeps_too_many(bed: Bed) -> None:
    most = (Rule(900, MAX_POINTS - 1),)
    assert plan.plan_schedule(seen_with(bed, schedule=None), (NAME,), most, NOON)
    for rules, points in (
        ((Rule(900, MAX_POINTS),), ()),
        (most, (point(NOON),)),
        (most, (point(NOON, "1d"),)),
    ):
        with pytest.raises(Refused, match="SAN-SCHED-003"):
            plan.plan_schedule(seen_with(bed, *points, schedule=None), (NAME,), rules, NOON)
    assert plan.plan_schedule(
        seen_with(bed, point(NOON, "15m"), schedule=None), (NAME,), most, NOON
    )
    others = {f"web{number}": PointSchedule(0, most) for number in range(MAX_ALL_POINTS // 64)}
    seen = seen_with(bed)
    with pytest.raises(Refused, match=f"all devices {MAX_ALL_POINTS + 64}"):
        plan.plan_schedule(
            replace(seen, cib=replace(seen.cib, schedules=others)), (NAME,), most, NOON
        )
    strange = [point(NOON)._replace(device="db") for _ in range(MAX_ALL_POINTS)]
    with pytest.raises(Refused, match="SAN-SCHED-003"):
        plan.plan_schedule(
            replace(seen, cib=replace(seen.cib, points=tuple(strange))), (NAME,), most, 0
        )
    # Of a node that is away, they stay in the CIB until it is back.
    gone = tuple(each._replace(is_deleting=True) for each in strange)
    bare = seen_with(bed, schedule=None)
    assert plan.plan_schedule(replace(bare, cib=replace(bare.cib, points=gone)), (NAME,), most, 0)


def test_pruning(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="SAN-SCHED-005"):
        plan.plan_pruning(seen_with(bed, schedule=None), NAME, NOON)
    seen = seen_with(bed, *quarters(5))
    (change,) = plan.plan_pruning(seen, NAME, NOON)
    assert isinstance(change, SetPoint)
    assert change.point.is_deleting and change.point.name == f"p{NOON - 45 * MINUTE}"

    def refuse(*_: object) -> None:
        raise Refused(Problem("SAN-SNAP-009", "something needs it"))

    monkeypatch.setattr(plan, "plan_point_deletion", refuse)
    assert plan.plan_pruning(seen, NAME, NOON) == ()


def test_a_late_schedule_is_a_finding(bed: Bed) -> None:
    seen = seen_with(bed, point(NOON, "15m", "1h"))
    assert list(schedule_findings(seen, now_s=NOON + 900)) == []
    (found,) = schedule_findings(seen, now_s=NOON + HOUR)
    assert (found.code, found.subject) == ("SAN-HLT-098", "device web")
    assert found.what.endswith(": 15m")
    gone = replace(seen, cib=replace(seen.cib, schedules={"gone": SCHEDULE}))
    assert list(schedule_findings(gone, now_s=NOON + HOUR)) == []

    failures = {
        ("web", "n1"): PointFailure("1" * 16, "SAN-SNAP-003", "no room"),
        ("db", "n1"): PointFailure("1" * 16, "SAN-SNAP-002", "extents"),
    }
    failing = replace(seen, cib=replace(seen.cib, point_failures=failures))
    (found,) = schedule_findings(failing, now_s=NOON + HOUR)
    assert found.why == "n1 says SAN-SNAP-003: no room"


def test_a_schedule_gives_its_points_its_hook(bed: Bed) -> None:
    hook = PointHook("freeze", 20, True)
    rules = SCHEDULE.rules
    bed.session.change(lambda seen: plan.plan_schedule(seen, (NAME,), rules, NOON, hook))
    found = plan.due_point(bed.seen(), "web", "1" * 16, NOON)
    assert found is not None and found.order.hook == hook
    assert plan.plan_schedule(bed.seen(), (NAME,), rules, NOON, hook) == ()
    # Given again without one it has none.
    (change,) = plan.plan_schedule(bed.seen(), (NAME,), rules, NOON)
    assert isinstance(change, SetSchedule) and change.schedule.hook is None


def test_a_hook_that_failed_is_a_warning_until_the_next_point(bed: Bed) -> None:
    def found(*hooks: HookResult | None) -> list[str]:
        points = tuple(
            point(NOON + number)._replace(hook=hook) for number, hook in enumerate(hooks)
        )
        cib = replace(bed.seen().cib, points=points)
        return [each.what for each in hook_findings(replace(bed.seen(), cib=cib))]

    assert found() == found(None) == found(HookResult("x")) == []
    assert "before its newest" in found(HookResult("x", "SAN-HOOK-003"))[0]
    assert "after its newest" in found(None, HookResult("x", "SAN-HOOK-003", "SAN-HOOK-005"))[0]
    assert found(HookResult("x", "", "SAN-HOOK-005"), HookResult("x")) == []
