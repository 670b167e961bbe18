# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points by order: made, refused, withdrawn, deleted, and what they keep from happening."""

from __future__ import annotations

import io
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

import sanctl.cli.environment
from sanctl.cli.main import main
from sanctl.errors import CommandError, NotConverged, Problem, Refused, UsageError
from sanctl.model.cib_change import (
    RemoveDevice,
    RemovePoint,
    SetNodes,
    SetParameter,
    SetPoint,
    SetSchedule,
)
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.point_hook import HookResult, PointHook
from sanctl.model.point_schedule import PointSchedule, Rule, ScheduledSlot
from sanctl.model.restore_point import (
    MAX_ALL_POINTS,
    MAX_POINTS,
    PointFailure,
    PointOrder,
    RestorePoint,
    parse_point_name,
    parse_sizes,
)
from sanctl.ops.session import Session
from sanctl.ops.snapshot import (
    create_group,
    create_point,
    create_point_patiently,
    delete_point,
)
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.device import restore_points as plan
from sanctl.plan.device.point_group import group_orders, plan_group_order, plan_group_recorded
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakeReporter
from tests.unit.cli.test_commands import I1, FakeEnvironment

NAME = DeviceName.parse("web")


class Bed:
    def __init__(self) -> None:
        self.env = FakeEnvironment()
        self.cluster = self.env.pacemaker
        self.ipc_buffer_bytes = 128 << 10
        self.session = Session(self.cluster, self.env.clock, FakeReporter())

    def order(self, name: str, number: int = 1) -> PointOrder:
        return PointOrder(name, f"{number:016x}", int(self.env.clock.wall_s()))

    def create(self, name: str, number: int = 1) -> RestorePoint:
        order = self.order(name, number)
        return create_point(
            self.session, NAME, order, ipc_buffer_bytes=self.ipc_buffer_bytes, timeout_s=30
        )[1]

    def seen(self) -> Cluster:
        return self.session.observe()


def bed_with_device(monkeypatch: pytest.MonkeyPatch) -> Bed:
    """Return a cluster that has device web."""
    made = Bed()
    monkeypatch.setattr(sanctl.cli.environment, "Environment", lambda: made.env)
    line = f"sanctl device create web --size 64M --initiator {I1}"
    monkeypatch.setattr(sys, "argv", line.split())
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    return made


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return bed_with_device(monkeypatch)


def test_made_and_deleted(bed: Bed) -> None:
    made = bed.create("one")
    assert (made.name, made.nodes, made.size_bytes) == ("one", ("n1", "n2"), 64 << 20)
    assert bed.seen().cib.points_of("web") == (made,)
    assert delete_point(bed.session, NAME, "one", timeout_s=30) == ()
    assert bed.seen().cib.points == ()
    with pytest.raises(Refused, match="SAN-SNAP-009"):
        delete_point(bed.session, NAME, "one", timeout_s=30)


def test_an_order_is_given_once_pacemaker_has_forgotten_a_cleanup(bed: Bed) -> None:
    """Else it might be too old by then (ORDER_LIFE_S), and no node would carry it out."""
    bed.cluster.query()
    (last,) = bed.cluster.history("n1", "web")
    probe = {"operation": "monitor", "last-rc-change": str(int(bed.env.clock.wall_s()))}
    last.attrib.update(probe)
    without_digest = {**last.attrib, "id": "web_last_failure_0", "op-restart-digest": ""}
    ET.SubElement(bed.cluster.history("n1", "web"), "lrm_rsc_op", without_digest)
    order = bed.order("one")
    made = create_point(bed.session, NAME, order, ipc_buffer_bytes=128 << 10, timeout_s=30)[1]
    # This cluster never forgets, so the command has waited for as long as it does at most.
    assert 60 < made.made_s - order.given_s < 130
    assert 0 <= bed.env.clock.wall_s() - made.made_s < 10


def test_a_node_that_is_away_removes_its_file_later(bed: Bed) -> None:
    bed.create("one")
    bed.cluster.crash("n2")
    assert delete_point(bed.session, NAME, "one", timeout_s=30) == ("n2",)
    (left,) = bed.seen().cib.points
    assert (left.nodes, left.is_deleting) == (("n2",), True)


def test_a_failure_is_reported_and_the_order_withdrawn(bed: Bed) -> None:
    bed.cluster.point_failure = ("SAN-SNAP-002", "too many extents")
    with pytest.raises(CommandError, match="SAN-SNAP-002: too many extents"):
        bed.create("one")
    device = bed.seen().cib.device("web")
    assert device is not None and device.point_order is None
    bed.cluster.point_failure = None
    bed.create("one", 2)


def test_an_order_that_nobody_answers_is_withdrawn(bed: Bed) -> None:
    bed.cluster.ignores_points = True
    with pytest.raises(NotConverged):
        bed.create("one")
    device = bed.seen().cib.device("web")
    assert device is not None and device.point_order is None
    bed.cluster.ignores_points = False
    bed.cluster.tick()
    assert bed.seen().cib.points == (), "made although nobody waits for it"


def test_refusals(bed: Bed) -> None:
    made = bed.create("one")
    with pytest.raises(Refused, match="SAN-SNAP-010"):
        bed.create("one", 2)
    with pytest.raises(Refused, match="SAN-SNAP-013"):
        plan.refuse_with_points(bed.seen(), NAME)
    device = bed.seen().cib.device("web")
    assert device is not None
    n1, n2 = NodeName.parse("n1"), NodeName.parse("n2")
    assert plan.only_holder_problems(bed.seen(), device, (n1,)) == ()
    assert plan.only_holder_problems(bed.seen(), device, (n1, n2)) != ()
    for number in range(2, MAX_POINTS + 1):
        point = made._replace(name=f"p{number}", token=f"{number:016x}")
        bed.cluster.patch(render_patchset(bed.cluster.root, (SetPoint(point=point),)))
    with pytest.raises(Refused, match="SAN-SNAP-011"):
        bed.create("more", 99)
    order, now_s = bed.order("more", 999), bed.env.clock.wall_s()
    points = tuple(made._replace(device=f"web{n}") for n in range(MAX_ALL_POINTS))
    full = replace(bed.seen(), cib=replace(bed.seen().cib, points=points))
    with pytest.raises(Refused, match=r"SAN-SNAP-011: .*all devices have 256"):
        plan.plan_point_order(full, NAME, order, now_s)
    # Those that a node has to remove that is away do not keep all devices from having new ones.
    deleting = tuple(point._replace(is_deleting=True) for point in points)
    live = (made, *points[2:])
    waiting = replace(full, cib=replace(full.cib, points=(*live, *deleting)))
    assert plan.plan_point_order(waiting, NAME, order, now_s)
    waiting = replace(full, cib=replace(full.cib, points=(*live, *deleting, deleting[0])))
    with pytest.raises(Refused, match="SAN-SNAP-011: 257 restore points wait to be removed"):
        plan.plan_point_order(waiting, NAME, order, now_s)
    with pytest.raises(UsageError, match="SAN-SNAP-008"):
        plan.split_point("web")
    assert plan.split_point("web@one") == (NAME, "one")


def test_a_point_that_pacemakers_messages_cannot_hold_is_refused(bed: Bed) -> None:
    bed.ipc_buffer_bytes = bed.session.compressed_cib_bytes() * 5 // 4 + 40
    before = bed.cluster.query()
    with pytest.raises(Refused, match="SAN-CLU-006"):
        bed.create("one")
    assert bed.cluster.query() == before
    # The order alone would fit, and the point that it leads to does not.
    order = bed.order("one")
    change = SetParameter(name=NAME, parameter="point", value=str(order))
    assert len(added_text(bed.seen(), (change,))) > len(str(order)) + 100
    assert added_text(bed.seen(), (replace(change, value="of a later release"),)) == ""
    assert added_text(bed.seen(), (replace(change, name=DeviceName.parse("none")),)) == ""
    schedule = PointSchedule(0, (Rule(900, 1),))
    change_it = SetSchedule(name=NAME, schedule=schedule)
    assert added_text(bed.seen(), (change_it,)) == schedule.value
    seen = bed.seen()
    known = replace(seen, cib=replace(seen.cib, schedules={"web": schedule}))
    assert added_text(known, (change_it,)) == ""
    bed.ipc_buffer_bytes = 128 << 10
    made = bed.create("one")
    # What is there already adds nothing when it changes.
    assert added_text(bed.seen(), (SetPoint(point=made._replace(nodes=("n1",))),)) == ""
    assert made.token in added_text(bed.seen(), (SetPoint(point=made._replace(name="two")),))


def test_another_open_order_is_waited_for(bed: Bed) -> None:
    bed.cluster.ignores_points = True
    order, now_s = bed.order("one"), bed.env.clock.wall_s()
    bed.session.change(lambda seen: plan.plan_point_order(seen, NAME, order, now_s))
    with pytest.raises(Refused, match="SAN-SNAP-012"):
        plan.plan_point_order(bed.seen(), NAME, bed.order("two", 2), now_s)
    assert plan.plan_point_order(bed.seen(), NAME, bed.order("two", 2), now_s + 61)


def test_the_files_of_a_dropped_replica_are_no_part_of_a_point(bed: Bed) -> None:
    bed.create("one")
    n1 = NodeName.parse("n1")
    patch = render_patchset(bed.cluster.root, (SetNodes(name=NAME, nodes=(n1,), replicas=1),))
    assert f'value="{bed.seen().cib.points[0]._replace(nodes=("n1",)).value}"' in patch
    assert "sanctl-point.web.one" in render_patchset(bed.cluster.root, (RemoveDevice(name=NAME),))
    assert "sanctl-schedule" not in render_patchset(bed.cluster.root, (RemoveDevice(name=NAME),))
    change = SetSchedule(name=NAME, schedule=PointSchedule(0, (Rule(900, 1),)))
    bed.cluster.patch(render_patchset(bed.cluster.root, (change,)))
    assert "sanctl-schedule.web" in render_patchset(bed.cluster.root, (RemoveDevice(name=NAME),))


@pytest.mark.parametrize("is_deleting", [False, True])
@pytest.mark.parametrize("slot", [None, ScheduledSlot(900, ("15m", "1h"))])
def test_the_property_is_read_as_it_was_written(
    is_deleting: bool, slot: ScheduledSlot | None
) -> None:
    point = RestorePoint(
        "web", "one", "0" * 16, "a" * 32, "main", 1, 2, 3, ("n1", "n2"), is_deleting, slot
    )
    assert RestorePoint.parse(point.id, point.value) == point
    for wrong in (
        "",
        point.value + " more",
        f"{point.value} slot=x",
        f"{point.value} 900/15m",
        point.value.replace("0" * 16, "x"),
        "a b c d e f g",
    ):
        assert RestorePoint.parse(point.id, wrong) is None
    for identifier in ("sanctl-host.web.one", "sanctl-point..one", "sanctl-point.web.", "web.one"):
        assert RestorePoint.parse(identifier, point.value) is None


@pytest.mark.parametrize("name", ["", "A", "-a", "a-", "a.b", "a" * 41, "a@b", "a b"])
def test_a_name_that_is_none(name: str) -> None:
    with pytest.raises(UsageError, match="SAN-NAME-008"):
        parse_point_name(name)
    assert parse_point_name("a" * 40) == "a" * 40


def test_what_a_node_publishes() -> None:
    failure = PointFailure("1" * 16, "SAN-SNAP-002", "too many extents")
    assert PointFailure.parse(str(failure)) == failure
    failure = failure._replace(hint="see docs || more")
    assert PointFailure.parse(str(failure)) == failure
    problem = Problem("SAN-SNAP-002", "too many extents", "copy it")
    told = PointFailure.of("1" * 16, CommandError(problem))
    assert told.problem == problem and PointFailure.parse(str(told)) == told
    assert PointFailure.of("1" * 16, OSError("no disk")).code == "SAN-SNAP-005"
    for wrong in ("", "1" * 16, f"{'1' * 16} SAN-SNAP-002", "x SAN-SNAP-002 why"):
        assert PointFailure.parse(wrong) is None
    assert parse_sizes(f"{'1' * 16}=5 x=6 {'2' * 16}=x {'3' * 16}") == {"1" * 16: 5}


def test_orders_expire() -> None:
    order = PointOrder("one", "0" * 16, 1000)
    assert PointOrder.parse(str(order)) == order
    assert order.is_open(1000) and order.is_open(1060) and order.is_open(980)
    assert not order.is_open(1061) and not order.is_open(900)
    for wrong in ("", "one", f"One {'0' * 16} 5", f"one {'0' * 15} 5", f"one {'0' * 16} x"):
        assert PointOrder.parse(wrong) is None


def test_a_role_that_is_hidden_for_a_moment_is_waited_for(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, real = [], Cluster.serving_node

    def hidden(cluster: Cluster, name: DeviceName) -> str | None:
        seen.append(name)
        return None if len(seen) < 4 else real(cluster, name)

    monkeypatch.setattr(Cluster, "serving_node", hidden)
    assert bed.create("one").nodes == ("n1", "n2")
    assert len(seen) >= 4


def test_a_device_that_nobody_serves_gets_no_order(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "serving_node", lambda *_: None)
    with pytest.raises(Refused, match="SAN-SNAP-005"):
        bed.create("one")
    device = bed.seen().cib.device("web")
    assert device is not None and device.point_order is None
    with pytest.raises(Refused, match="SAN-DEV"):
        create_point(
            bed.session, DeviceName.parse("none"), bed.order("one"), ipc_buffer_bytes=1 << 20,
            timeout_s=30,
        )  # fmt: skip


def test_a_point_is_recorded_only_for_the_order_that_stands(bed: Bed) -> None:
    bed.cluster.ignores_points = True
    order = bed.order("one")
    bed.session.change(lambda seen: plan.plan_point_order(seen, NAME, order, float(order.given_s)))
    device = bed.seen().cib.device("web")
    assert device is not None
    point = RestorePoint("web", "one", order.token, device.uuid, "main", 1, 2, 3, ("n1", "n2"))
    assert plan.plan_point_recorded(bed.seen(), point, order) == (SetPoint(point=point),)
    for wrong in (
        point._replace(device="none"),
        point._replace(uuid="b" * 32),
        point._replace(nodes=("n1", "n3")),
        point._replace(size_bytes=device.size.bytes + 4096),
    ):
        with pytest.raises(CommandError, match="SAN-SNAP-006"):
            plan.plan_point_recorded(bed.seen(), wrong, order)
    with pytest.raises(CommandError, match="SAN-SNAP-006"):
        plan.plan_point_recorded(bed.seen(), point, order._replace(token="2" * 16))
    seen = bed.seen()
    stopping = replace(seen.cib, devices=(replace(device, is_stopping=True),))
    with pytest.raises(CommandError, match="SAN-SNAP-006"):
        plan.plan_point_recorded(replace(seen, cib=stopping), point, order)
    taken = replace(seen.cib, points=(point._replace(token="3" * 16),))
    with pytest.raises(CommandError, match="SAN-SNAP-006"):
        plan.plan_point_recorded(replace(seen, cib=taken), point, order)
    # Made, and answered as if not: what was copied stays. Not what another node has made of it.
    made = replace(seen.cib, points=(point,))
    assert plan.plan_point_recorded(replace(seen, cib=made), point, order) == ()
    made = replace(seen.cib, points=(point._replace(is_deleting=True),))
    assert plan.plan_point_recorded(replace(seen, cib=made), point, order) == ()
    for other in (point._replace(made_s=9), point._replace(nodes=("n2",))):
        made = replace(seen.cib, points=(other,))
        with pytest.raises(CommandError, match="SAN-SNAP-006"):
            plan.plan_point_recorded(replace(seen, cib=made), point, order)
    # Withdrawn: what comes late is refused.
    bed.session.change(lambda seen: plan.plan_order_withdrawal(seen, NAME, order))
    with pytest.raises(CommandError, match="SAN-SNAP-006"):
        plan.plan_point_recorded(bed.seen(), point, order)
    assert plan.plan_order_withdrawal(bed.seen(), NAME, order) == ()


def test_an_order_that_has_made_its_point_is_not_withdrawn(bed: Bed) -> None:
    order = bed.order("one")
    create_point(bed.session, NAME, order, ipc_buffer_bytes=1 << 20, timeout_s=30)
    assert plan.plan_order_withdrawal(bed.seen(), NAME, order) == ()


def test_an_order_is_carried_out_once_wherever_the_device_moves(bed: Bed) -> None:
    now_s = bed.env.clock.wall_s()
    assert plan.due_order(bed.seen(), "web", now_s) is None
    bed.cluster.ignores_points = True
    order = bed.order("one")
    bed.session.change(lambda seen: plan.plan_point_order(seen, NAME, order, now_s))
    assert plan.due_order(bed.seen(), "none", now_s) is None
    found = plan.due_order(bed.seen(), "web", now_s)
    assert found is not None and found == (bed.seen().cib.device("web"), order)
    assert plan.due_order(bed.seen(), "web", now_s + 61) is None
    bed.cluster.ignores_points = False
    bed.cluster.tick()
    assert plan.due_order(bed.seen(), "web", now_s) is None
    # Nor is it made again once it is deleted.
    delete_point(bed.session, NAME, "one", timeout_s=30)
    assert plan.due_order(bed.seen(), "web", now_s) is None
    bed.cluster.tried_point = ""
    bed.cluster.tick()
    assert bed.seen().cib.points == ()
    # The deletion of another one leaves an order alone.
    bed.create("two", 2)
    bed.cluster.ignores_points = True
    later = bed.order("three", 3)
    bed.session.change(lambda seen: plan.plan_point_order(seen, NAME, later, now_s))
    delete_point(bed.session, NAME, "two", timeout_s=30)
    assert plan.due_order(bed.seen(), "web", float(later.given_s)) is not None


def test_what_changes_when_a_node_has_removed_its_file(bed: Bed) -> None:
    made = bed.create("one")
    deleting = made._replace(is_deleting=True)
    seen = bed.seen()

    def after(point: RestorePoint | None, node: str) -> tuple[object, ...]:
        points = () if point is None else (point,)
        cluster = replace(seen, cib=replace(seen.cib, points=points))
        return plan.plan_file_removed(cluster, deleting, node)

    assert after(deleting, "n1") == (SetPoint(point=deleting._replace(nodes=("n2",))),)
    assert after(deleting._replace(nodes=("n1",)), "n1") == (
        RemovePoint(point=deleting._replace(nodes=("n1",))),
    )
    # A node that has left the cluster for good is not waited for.
    gone = deleting._replace(nodes=("n1", "gone"))
    assert after(gone, "n1") == (RemovePoint(point=gone),)
    # Said twice, by a node that has none, of another attempt, of one that stays, of none.
    assert after(deleting._replace(nodes=("n2",)), "n1") == ()
    assert after(deleting._replace(token="9" * 16), "n1") == ()
    assert after(made, "n1") == ()
    assert after(None, "n1") == ()


def test_deleting_twice_is_one_change_and_needs_quorum(bed: Bed) -> None:
    bed.create("one")
    changes = plan.plan_point_deletion(bed.seen(), NAME, "one")
    bed.cluster.patch(render_patchset(bed.cluster.root, changes))
    assert plan.plan_point_deletion(bed.seen(), NAME, "one") == ()
    bed.cluster.has_quorum = False
    with pytest.raises(Refused, match="SAN-CLU-001"):
        plan.plan_point_deletion(bed.seen(), NAME, "one")
    plan.refuse_with_points(bed.seen(), DeviceName.parse("other"))


@pytest.mark.parametrize("before", ["", "SAN-HOOK-003"])
def test_a_hook_that_may_have_left_the_application_quiet_is_an_error(bed: Bed, before: str) -> None:
    hook = PointHook("freeze", or_crash=True)
    order = bed.order("one")._replace(hook=hook)
    bed.cluster.hook_codes = (before, "SAN-HOOK-005")
    kind = "crash" if before else "application"
    with pytest.raises(CommandError, match=rf"SAN-HOOK-005.*web@one was made and is {kind}-"):
        create_point(bed.session, NAME, order, ipc_buffer_bytes=1 << 20, timeout_s=30)
    (made,) = bed.seen().cib.points
    assert made.hook == HookResult("freeze", before, "SAN-HOOK-005")
    bed.cluster.hook_codes = (before, "")
    order = bed.order("two", 2)._replace(hook=hook)
    _, made = create_point(bed.session, NAME, order, ipc_buffer_bytes=1 << 20, timeout_s=30)
    assert made.is_application_consistent != bool(before)


def two_devices(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> dict[DeviceName, PointOrder]:
    """Make device db beside web, both served by n1; return the orders of a group of both."""
    run(monkeypatch, "device create db --size 64M --prefer n1")
    names = [NAME, DeviceName.parse("db")]
    assert {bed.seen().active_node(name) for name in names} == {"n1"}
    return group_orders(names, "both", "c" * 16, int(bed.env.clock.wall_s()))


def run(monkeypatch: pytest.MonkeyPatch, words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["sanctl", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def make_group(bed: Bed, orders: dict[DeviceName, PointOrder]) -> tuple[RestorePoint, ...]:
    return create_group(bed.session, orders, ipc_buffer_bytes=bed.ipc_buffer_bytes, timeout_s=30)[1]


def open_orders(bed: Bed) -> list[str]:
    return [device.name.value for device in bed.seen().cib.devices if device.point_order]


def test_a_group_is_made_together(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = two_devices(bed, monkeypatch)
    made = make_group(bed, orders)
    assert [(point.device, point.name) for point in made] == [("web", "both"), ("db", "both")]
    assert made[0].is_of_same_moment(made[1])
    alone = bed.create("alone")
    assert not any(alone.is_of_same_moment(point) for point in made)


def test_the_roles_of_a_group_are_waited_for_together(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: by when the last one's was seen, a reload had hidden the first one's again."""
    orders = two_devices(bed, monkeypatch)
    looks: list[Cluster] = []
    real = Cluster.serving_node

    def hidden(cluster: Cluster, name: DeviceName) -> str | None:
        if not any(cluster is each for each in looks):
            looks.append(cluster)
        is_hidden = {1: "db", 2: "web", 3: "web"}.get(len(looks)) == name.value
        return None if is_hidden else real(cluster, name)

    monkeypatch.setattr(Cluster, "serving_node", hidden)
    assert len(make_group(bed, orders)) == 2
    assert len(looks) >= 4


def test_a_group_goes_by_what_replicas_publish_while_a_role_is_hidden(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = two_devices(bed, monkeypatch)
    seen = bed.seen()
    monkeypatch.setattr(Cluster, "active_node", lambda *_: None)
    monkeypatch.setattr(Cluster, "serving_node", lambda *_: "n1")
    assert plan_group_order(seen, orders, 0.0)
    monkeypatch.setattr(Cluster, "serving_node", lambda *_: None)
    with pytest.raises(Refused, match="web by no node, db by no node"):
        plan_group_order(seen, orders, 0.0)


def test_a_group_has_one_hook(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_devices(bed, monkeypatch)
    capsys.readouterr()
    words = "snapshot create web db --group --hook freeze --hook-limit 20 --or-crash --name quiet"
    assert run(monkeypatch, words) == 0
    assert "consistency: application, by hook freeze" in capsys.readouterr().out
    points = bed.seen().cib.points
    assert len(points) == 2 and {point.hook for point in points} == {HookResult("freeze")}
    # That it has failed after them is told once, of all.
    bed.cluster.hook_codes = ("SAN-HOOK-004", "SAN-HOOK-005")
    names = [NAME, DeviceName.parse("db")]
    orders = group_orders(names, "two", "d" * 16, int(bed.env.clock.wall_s()), PointHook("freeze"))
    with pytest.raises(CommandError, match="SAN-HOOK-005: restore point web@two, db@two was made "):
        make_group(bed, orders)
    assert len(bed.seen().cib.points) == 4


def test_the_failure_of_one_is_that_of_the_group(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = two_devices(bed, monkeypatch)
    bed.cluster.point_failure = ("SAN-SNAP-002", "too many extents")
    with pytest.raises(CommandError, match="SAN-SNAP-002: too many extents"):
        make_group(bed, orders)
    assert open_orders(bed) == []
    assert bed.seen().cib.points == ()


def test_a_group_that_nobody_answers_is_withdrawn_as_a_whole(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = two_devices(bed, monkeypatch)
    bed.cluster.ignores_points = True
    with pytest.raises(NotConverged):
        make_group(bed, orders)
    assert open_orders(bed) == []


def test_the_reason_is_told_rather_than_who_has_heard_of_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = two_devices(bed, monkeypatch)
    bed.cluster.ignores_points = True
    for device, text in (("db", "web, of the same group: torn"), ("web", "torn")):
        order = orders[DeviceName.parse(device)]
        failure = PointFailure(order.token, "SAN-SNAP-005", text, "mend it")
        bed.cluster.attribute("n1", f"sanctl.point.{device}", str(failure))
    with pytest.raises(CommandError, match=r"^SAN-SNAP-005: torn") as told:
        make_group(bed, orders)
    assert told.value.problems[0].hint == "mend it"


def test_a_group_is_recorded_as_a_whole_or_not(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    orders = two_devices(bed, monkeypatch)
    db, now_s = DeviceName.parse("db"), bed.env.clock.wall_s()
    bed.cluster.ignores_points = True
    bed.session.change(lambda seen: plan_group_order(seen, orders, now_s))
    points = [
        RestorePoint(
            name.value, order.name, order.token, device.uuid, "main", 1, 2, 3, ("n1", "n2")
        )
        for name, order in orders.items()
        if (device := bed.seen().cib.device(name)) is not None
    ]
    both = plan_group_recorded(bed.seen(), points, orders[db])
    assert [change.point for change in both if isinstance(change, SetPoint)] == points
    bed.session.change(lambda seen: plan.plan_order_withdrawal(seen, db, orders[db]))
    with pytest.raises(CommandError, match="SAN-SNAP-006"):
        plan_group_recorded(bed.seen(), points, orders[NAME])


def test_a_group_that_cannot_be_made_changes_nothing(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = two_devices(bed, monkeypatch)
    before, other = bed.cluster.query(), point_of(bed)._replace(device="log")
    full = replace(bed.seen().cib, points=(other,) * (MAX_ALL_POINTS - 1))
    with pytest.raises(Refused, match="these would be 2 more"):
        plan_group_order(replace(bed.seen(), cib=full), orders, 0.0)
    gone = (other._replace(is_deleting=True),) * (MAX_ALL_POINTS - 1)
    assert plan_group_order(replace(bed.seen(), cib=replace(full, points=gone)), orders, 0.0)
    taken = replace(bed.seen().cib, points=(point_of(bed),))
    orders[NAME] = orders[NAME]._replace(name="old")
    with pytest.raises(Refused, match="SAN-SNAP-010"):
        plan_group_order(replace(bed.seen(), cib=taken), orders, 0.0)
    assert bed.cluster.query() == before


def point_of(bed: Bed) -> RestorePoint:
    return RestorePoint("web", "old", "1" * 16, "a" * 32, "main", 1, 2, 3, ("n1", "n2"))


def test_devices_of_two_nodes_are_no_group(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_devices(bed, monkeypatch)
    assert run(monkeypatch, "device move db --to n2") == 0
    before = bed.cluster.query()
    assert run(monkeypatch, "snapshot create web db --group --name both") == 4
    assert "SAN-SNAP-017" in (said := capsys.readouterr().err)
    assert "db by n2" in said and "web by n1" in said
    assert bed.cluster.query() == before


@pytest.mark.parametrize(
    "words",
    [
        "web --group",
        "web --group --hook quiet",
        "web web --group",
        "web db",
        " ".join(f"d{n}" for n in range(17)),
    ],
)
def test_what_is_no_group(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    before = bed.cluster.query()
    assert run(monkeypatch, f"snapshot create {words}") == 2
    assert "SAN-SNAP-016" in capsys.readouterr().err
    assert bed.cluster.query() == before


def test_the_command_shows_what_is_of_one_moment(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_devices(bed, monkeypatch)
    capsys.readouterr()
    assert run(monkeypatch, "snapshot create web db --group --name both") == 0
    assert "2 restore points of one moment" in capsys.readouterr().out
    assert run(monkeypatch, "snapshot show web@both") == 0
    assert "same moment:    db@both" in capsys.readouterr().out


class Patient:
    """Restore points that something cannot do without, and the orders for them."""

    def __init__(self, bed: Bed, fails: int = 0, code: str = "SAN-SNAP-007") -> None:
        self.bed, self.fails, self.code = bed, fails, code
        self.tokens: list[str] = []

    def begins(self, order: PointOrder) -> None:
        self.tokens.append(order.token)
        is_busy = len(self.tokens) <= self.fails
        self.bed.cluster.point_failure = (self.code, "not in time") if is_busy else None

    def make(self, timeout_s: float = 60.0) -> RestorePoint:
        return create_point_patiently(
            self.bed.session,
            NAME,
            self.bed.order("copy", 7),
            ipc_buffer_bytes=1 << 20,
            timeout_s=timeout_s,
            begins=self.begins,
        )


def test_what_a_busy_machine_has_not_made_in_time_is_tried_again(bed: Bed) -> None:
    patient = Patient(bed, fails=2)
    made = patient.make()
    assert made.name == "copy" and made.token == patient.tokens[-1]
    assert len(set(patient.tokens)) == 3 and patient.tokens[0] == f"{7:016x}"
    assert [each.name for each in bed.seen().cib.points] == ["copy"]


@pytest.mark.parametrize(
    ("fails", "code", "timeout_s", "tries"),
    [
        (9, "SAN-SNAP-007", 60.0, 3),
        (9, "SAN-SNAP-003", 60.0, 1),
        (9, "SAN-SNAP-007", 8.0, 1),
    ],
)
def test_it_is_not_tried_for_ever(
    bed: Bed, fails: int, code: str, timeout_s: float, tries: int
) -> None:
    patient = Patient(bed, fails, code)
    with pytest.raises(CommandError, match=code):
        patient.make(timeout_s)
    assert len(patient.tokens) == tries and bed.seen().cib.points == ()


def test_one_whose_begin_took_all_of_the_time_is_given_some(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the site was asked for a minute, and 'not reached within -4.4 s'."""
    patient = Patient(bed)
    begins = patient.begins

    def slow(order: PointOrder) -> None:
        begins(order)
        bed.env.clock.sleep(50.0)

    monkeypatch.setattr(patient, "begins", slow)
    assert patient.make(timeout_s=40.0).name == "copy"


def test_one_that_is_being_made_is_waited_for(bed: Bed) -> None:
    """Its process has died, say: after a minute nobody makes it any more."""
    bed.cluster.ignores_points = True
    other = bed.order("other", 3)
    bed.session.change(lambda seen: plan.plan_point_order(seen, NAME, other, other.given_s))
    bed.cluster.ignores_points = False
    bed.cluster.tried_point = other.token
    patient = Patient(bed)
    with pytest.raises(Refused, match="SAN-SNAP-012"):
        patient.make(timeout_s=20.0)
    assert len(patient.tokens) > 3
    assert patient.make(timeout_s=90.0).name == "copy"


def test_a_deletion_asks_and_deletes_only_what_was_shown(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "snapshot create web --name one") == 0
    (point,) = bed.seen().cib.points
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(monkeypatch, "snapshot delete web@one") == 2, "nobody to ask"
    assert "web@one of 20" in capsys.readouterr().err
    assert bed.seen().cib.points == (point,)

    def made_anew(*_: object, **__: object) -> None:
        anew = point._replace(token="f" * 16)
        bed.session.change(lambda _: (RemovePoint(point=point),))
        bed.session.change(lambda _: (SetPoint(point=anew),))

    monkeypatch.setattr("click.confirm", made_anew)
    assert run(monkeypatch, "snapshot delete web@one") == 4
    assert "SAN-SNAP-020" in capsys.readouterr().err
    (left,) = bed.seen().cib.points
    assert left.token == "f" * 16 and not left.is_deleting
    assert run(monkeypatch, "snapshot delete web@one --yes") in {0, 7}
    assert all(each.is_deleting for each in bed.seen().cib.points)


def test_what_a_prune_would_remove_is_shown(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "snapshot create web --name one") == 0
    (point,) = bed.seen().cib.points
    change = SetPoint(point=point._replace(is_deleting=True))
    monkeypatch.setattr("sanctl.ops.snapshot_schedule.plan_pruning", lambda *_: (change,))
    capsys.readouterr()
    assert run(monkeypatch, "snapshot prune web --dry-run") == 0
    assert capsys.readouterr().out == "restore point web@one would go\n"
    assert bed.seen().cib.points == (point,)
    assert run(monkeypatch, "snapshot prune web") == 0
    assert all(each.is_deleting for each in bed.seen().cib.points)
