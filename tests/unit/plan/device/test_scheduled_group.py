# SPDX-License-Identifier: GPL-2.0-or-later
"""Devices with one schedule get points of one moment, all or none, whichever process decides."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import RemoveSchedule, SetPoint, SetSchedule
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.point_hook import PointHook
from sanctl.model.point_schedule import PointSchedule, ScheduledSlot, parse_rules
from sanctl.model.restore_point import MAX_POINTS, RestorePoint
from sanctl.plan.cluster.cib_size import point_of_order
from sanctl.plan.device.point_schedule import DuePoint, plan_schedule
from sanctl.plan.device.scheduled_group import (
    due_points,
    members_of,
    plan_scheduled_points,
    refuse_part_of_group,
    rules_due_of_all,
)
from tests.unit.ops.test_snapshot import Bed, bed_with_device, two_devices

WEB, DB = DeviceName.parse("web"), DeviceName.parse("db")
NOON = calendar.timegm((2026, 11, 25, 12, 0, 0))
RULES = parse_rules("15m keep 3, 1h keep 2")
SEED = "n1 boot"


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """A cluster whose devices db and web have one schedule."""
    made = bed_with_device(monkeypatch)
    two_devices(made, monkeypatch)
    made.session.change(lambda seen: plan_schedule(seen, (WEB, DB), RULES, NOON))
    return made


def due(seen: Cluster, name: str = "web", now_s: float = NOON, seed: str = SEED) -> list[DuePoint]:
    return list(due_points(seen, name, "1" * 16, now_s, seed))


def made_of(found: Sequence[DuePoint]) -> list[RestorePoint]:
    return [point_of_order(each.device, each.order)._replace(slot=each.slot) for each in found]


def with_points(seen: Cluster, points: Sequence[RestorePoint]) -> Cluster:
    return replace(seen, cib=replace(seen.cib, points=tuple(points)))


def with_schedules(seen: Cluster, **schedules: PointSchedule) -> Cluster:
    return replace(seen, cib=replace(seen.cib, schedules=schedules))


def test_it_is_read_as_it_was_written_and_by_no_release_without_groups() -> None:
    schedule = PointSchedule(5, RULES, None, ("db", "web"))
    assert schedule.value == "5 15m=3 1h=2 group=db,web"
    assert PointSchedule.parse(schedule.value) == schedule
    for wrong in ("group=db,web", "5 group=db,web", f"{schedule.value} hook=x,20", "5 hook=x,20"):
        assert PointSchedule.parse(wrong) is None


def test_all_processes_of_a_node_decide_alike(bed: Bed) -> None:
    seen = bed.seen()
    web, db = due(seen), due(seen, "db", NOON + 20)
    assert [each.device.name for each in web] == [WEB, DB]
    assert [each.device.name for each in db] == [DB, WEB]
    assert web[0].order.token == db[1].order.token and db[0].order.token == web[1].order.token
    assert web[0].order.token[:12] == db[0].order.token[:12]
    assert {each.order.group for each in (*web, *db)} == {("db", "web")}
    assert {each.slot for each in (*web, *db)} == {ScheduledSlot(NOON, ("15m", "1h"))}
    # No other attempt has these tokens: of another node or boot, a later slot, a later schedule.
    later = plan_schedule(seen, (WEB, DB), parse_rules("15m keep 9"), NOON + 1)
    schedules = {each.name.value: each.schedule for each in later if isinstance(each, SetSchedule)}
    tokens = {
        found[0].order.token
        for found in (
            web,
            due(seen, seed="n2 boot"),
            due(seen, now_s=NOON + 900),
            due(with_schedules(seen, **schedules)),
        )
    }
    assert len(tokens) == 4


def test_the_hook_is_that_of_all(bed: Bed) -> None:
    hook = PointHook("freeze", 20, or_crash=True)
    bed.session.change(lambda seen: plan_schedule(seen, (WEB, DB), RULES, NOON, hook))
    for name in ("web", "db"):
        assert [each.order.hook for each in due(bed.seen(), name)] == [hook, hook]
    schedule = bed.seen().cib.schedules["web"]
    with pytest.raises(Refused, match="SAN-SCHED-006") as told:
        due(with_schedules(bed.seen(), web=schedule, db=schedule._replace(hook=None)))
    assert f"--group {hook.options}'" in str(told.value.problems[0].hint)
    # One that is left of the group has it alone.
    web = bed.seen().cib.device("web")
    assert web is not None
    cib = replace(bed.seen().cib, devices=(web,), schedules={"web": schedule})
    (found,) = due(replace(bed.seen(), cib=cib))
    assert (found.order.hook, found.order.group) == (hook, ())


def test_what_is_made_is_recorded_as_a_whole(bed: Bed) -> None:
    found = due(bed.seen())
    points = made_of(found)
    bed.session.change(lambda seen: plan_scheduled_points(seen, points, NOON))
    seen = bed.seen()
    assert sorted(each.device for each in seen.cib.points) == ["db", "web"]
    assert seen.cib.points[0].is_of_same_moment(seen.cib.points[1])
    assert due(seen) == due(seen, "db") == []
    # Made, and answered as if not; also where the schedule has changed since.
    assert plan_scheduled_points(seen, points, NOON) == ()
    assert plan_scheduled_points(with_schedules(seen), points, NOON) == ()
    others = [point._replace(made_s=point.made_s + 1) for point in points]
    for each in (others, [points[0], others[1]]):
        with pytest.raises(CommandError, match="SAN-SCHED-004"):
            plan_scheduled_points(seen, each, NOON)
    assert due(seen, now_s=NOON + 900)[0].slot == ScheduledSlot(NOON + 900, ("15m",))
    # One whose point an operator has deleted waits for the next moment of all.
    left = with_points(seen, [each for each in seen.cib.points if each.device == "web"])
    assert due(left, "db", NOON + 60) == []
    assert len(due(left, "db", NOON + 900)) == 2
    assert rules_due_of_all(PointSchedule(0, RULES), {}, NOON) == ()


@pytest.mark.parametrize("change", ["rules", "gone", "alone", "one"])
def test_nothing_is_recorded_for_a_schedule_that_has_changed(bed: Bed, change: str) -> None:
    points = made_of(due(bed.seen()))
    seen, schedule = bed.seen(), bed.seen().cib.schedules["web"]
    if change == "rules":
        other = schedule._replace(set_s=NOON + 1)
        seen = with_schedules(seen, web=schedule, db=other)
    elif change == "gone":
        seen = with_schedules(seen)
    elif change == "alone":
        alone = schedule._replace(group=())
        seen = with_schedules(seen, web=alone, db=alone)
    else:
        points = points[:1]
    with pytest.raises(CommandError, match="SAN-SCHED-004"):
        plan_scheduled_points(seen, points, NOON)


def test_one_that_cannot_have_a_point_leaves_all_without(bed: Bed) -> None:
    full = [
        RestorePoint("db", f"p{n}", f"{n:016x}", "a" * 32, "main", n, 1, 2, ("n1",))
        for n in range(MAX_POINTS)
    ]
    for name in ("web", "db"):
        with pytest.raises(Refused, match="SAN-SNAP-011: device db"):
            due(with_points(bed.seen(), full), name)


def test_devices_that_two_nodes_serve_are_refused(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "serving_node", lambda _, name: "n1" if name == WEB else "n2")
    for name in ("web", "db"):
        with pytest.raises(Refused, match="SAN-SNAP-017"):
            due(bed.seen(), name)


def test_a_device_without_a_schedule_and_one_whose_schedule_is_its_own(bed: Bed) -> None:
    seen = bed.seen()
    assert due(with_schedules(seen)) == due(seen, "none") == []
    own = PointSchedule(NOON, RULES, PointHook("freeze", 20))
    (found,) = due(with_schedules(seen, web=own))
    assert (found.order.group, found.order.hook, found.order.token) == ((), own.hook, "1" * 16)
    (change,) = plan_scheduled_points(with_schedules(seen, web=own), made_of([found]), NOON)
    assert isinstance(change, SetPoint)
    done = with_points(with_schedules(seen, web=own), [change.point])
    assert due(done) == []


def test_a_device_that_was_deleted_is_of_no_group_any_more(bed: Bed) -> None:
    seen = bed.seen()
    web = seen.cib.device("web")
    assert web is not None
    schedule = seen.cib.schedules["web"]
    seen = replace(seen, cib=replace(seen.cib, devices=(web,), schedules={"web": schedule}))
    assert members_of(seen, schedule) == ("web",)
    (found,) = due(seen)
    assert found.order.group == ()
    assert plan_scheduled_points(seen, made_of([found]), NOON)
    refuse_part_of_group(seen, (WEB,))


def test_schedules_that_differ_make_none(bed: Bed) -> None:
    """As where the device was made anew, or a command of another release gave it one alone."""
    schedule = bed.seen().cib.schedules["web"]
    seen = with_schedules(bed.seen(), web=schedule)
    with pytest.raises(Refused, match=r"SAN-SCHED-006.*that of db is another") as told:
        due(seen)
    assert "schedule db web" in str(told.value.problems[0].hint)


def test_it_changes_and_ends_for_all(bed: Bed) -> None:
    for names in ((WEB,), (DB,)):
        with pytest.raises(Refused, match="SAN-SCHED-006"):
            refuse_part_of_group(bed.seen(), names)
    refuse_part_of_group(bed.seen(), (WEB, DB))
    assert plan_schedule(bed.seen(), (DB, WEB), RULES, NOON + 9) == ()
    # One of them has another: both get it anew.
    schedule = bed.seen().cib.schedules["web"]
    seen = with_schedules(bed.seen(), web=schedule, db=schedule._replace(set_s=NOON + 1))
    assert len(plan_schedule(seen, (DB, WEB), RULES, NOON + 9)) == 2
    ended = plan_schedule(bed.seen(), (DB, WEB), (), NOON)
    assert set(ended) == {RemoveSchedule(name=DB), RemoveSchedule(name=WEB)}
    bed.session.change(lambda seen: plan_schedule(seen, (DB, WEB), (), NOON))
    refuse_part_of_group(bed.seen(), (WEB,))
    bed.session.change(lambda seen: plan_schedule(seen, (WEB,), RULES, NOON))
    refuse_part_of_group(bed.seen(), (WEB,))
    assert bed.seen().cib.schedules["web"].group == ()
