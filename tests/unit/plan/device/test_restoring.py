# SPDX-License-Identifier: GPL-2.0-or-later
"""What the node that serves does next for an order to restore, in every state that it may find."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import SetParameter, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, Mon, MonNode, NodeState, Role
from sanctl.model.device import DeviceSpec, PoolUsage, ReplicaState, access_digest
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    ORDER_LIFE_S,
    RestoreOrder,
    RestoreReport,
)
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.model.restore_point import PointFailure, PointOrder, RestorePoint
from sanctl.model.site_copy import SiteCopy
from sanctl.parse.cib import parse_cib
from sanctl.plan.device import restore_progress, restore_request, restoring
from sanctl.plan.device.restore_points import plan_point_recorded
from sanctl.plan.device.restoring import Begin, Copy, CopyFromSite, GiveUp, NothingToDo, Stuck, Wait
from tests.fakes.pacemaker import FakePacemaker
from tests.unit.model.test_site import SITE

NODES = (NodeName.parse("n1"), NodeName.parse("n2"))
ORDER = RestoreOrder("1" * 16, "good", "2" * 16, "3" * 16, 1000)
COPYING_ORDER = ORDER._replace(state=COPYING)
GOOD = RestorePoint("web", "good", "2" * 16, "a" * 32, "main", 900, 64 << 20, 30, ("n1", "n2"))
KEPT = GOOD._replace(name="kept", token="3" * 16)
CLOSED, OPEN = access_digest(()), access_digest(("iqn.a",))
SPEC = DeviceSpec(
    name=DeviceName.parse("web"), uuid="a" * 32, minor=1, size=ByteSize(bytes=64 << 20),
    pool=PoolName.parse("main"), nodes=NODES, initiators=(), replicas=2,
)  # fmt: skip
_EMPTY = parse_cib(FakePacemaker().root)


def cluster(
    order: RestoreOrder | None,
    *,
    points: tuple[RestorePoint, ...] = (GOOD, KEPT),
    states: tuple[NodeState, NodeState] = (NodeState.ONLINE, NodeState.ONLINE),
    runs_on: tuple[str, ...] = ("n1", "n2"),
    access: tuple[str | None, str | None] = (CLOSED, CLOSED),
    has_quorum: bool = True,
    is_stopping: bool = False,
    peer_disk: str = "UpToDate",
    **cib: Any,
) -> Cluster:
    device = replace(
        SPEC,
        restore=order,
        is_restoring=order is None or order.is_open,
        is_stopping=is_stopping,
    )
    roles = {"n1": Role.PROMOTED, "n2": Role.UNPROMOTED}
    return Cluster(
        cib=replace(
            _EMPTY,
            devices=(device,),
            points=points,
            replicas={
                ("web", str(node)): ReplicaState(
                    disk="UpToDate",
                    connection="Connected",
                    peer_disk=peer_disk,
                    access=found,
                )
                for node, found in zip(NODES, access, strict=True)
            },
            **cib,
        ),
        mon=Mon(
            has_quorum=has_quorum,
            has_dc=True,
            nodes=tuple(
                MonNode(name=str(node), state=state)
                for node, state in zip(NODES, states, strict=True)
            ),
            instances=tuple(
                Instance(resource="web", node=node, role=roles[node]) for node in runs_on
            ),
            failures=(),
        ),
    )


def step(
    seen: Cluster,
    *,
    here: str = "n1",
    is_closed: bool = True,
    now_s: float = 1010.0,
    waited_s: float | None = None,
    noted_here: str = "",
) -> restoring.Step:
    waited = now_s - ORDER.given_s if waited_s is None else waited_s
    return restoring.next_step(
        seen,
        "web",
        here,
        is_closed_here=is_closed,
        now_s=now_s,
        waited_s=waited,
        noted_here=noted_here,
    )


@pytest.mark.parametrize(
    "order", [None, ORDER._replace(state=DONE), ORDER._replace(state=GIVEN_UP)]
)
def test_nothing_without_an_open_order(order: RestoreOrder | None) -> None:
    assert step(cluster(order)) == NothingToDo()


def test_nothing_for_a_device_that_is_gone_or_being_deleted() -> None:
    assert step(cluster(COPYING_ORDER, is_stopping=True)) == NothingToDo()
    seen = cluster(COPYING_ORDER)
    assert step(replace(seen, cib=replace(seen.cib, devices=()))) == NothingToDo()


def test_it_begins_when_hosts_are_out_and_the_present_state_is_kept() -> None:
    assert step(cluster(ORDER)) == Begin(goal=Copy(point=GOOD))
    assert step(cluster(ORDER._replace(kept_token=""), points=(GOOD,))) == Begin(
        goal=Copy(point=GOOD)
    )


@pytest.mark.parametrize("now_s", [1010.0, 1001.0 + ORDER_LIFE_S])
@pytest.mark.parametrize(
    ("why", "is_closed", "changes"),
    [
        ("n1 still lets hosts in", False, {}),
        ("n2 still lets hosts in", True, {"access": (CLOSED, OPEN)}),
        ("n2 still lets hosts in", True, {"access": (CLOSED, None)}),
        ("n2 is unclean", True, {"states": (NodeState.ONLINE, NodeState.UNCLEAN)}),
        ("n2 is pending", True, {"states": (NodeState.ONLINE, NodeState.PENDING)}),
        ("n2 is unknown", True, {"states": (NodeState.ONLINE, NodeState.UNKNOWN)}),
        ("what is on the device is not kept yet", True, {"points": (GOOD,)}),
    ],
)
def test_what_it_waits_for(
    why: str, is_closed: bool, changes: dict[str, Any], now_s: float
) -> None:
    found = step(cluster(ORDER, **changes), is_closed=is_closed, now_s=now_s)
    if now_s == 1010.0:
        assert found == Wait(why=why)
    else:
        assert isinstance(found, GiveUp) and found.problem.code == "SAN-REST-007"
        assert why in found.problem.text


@pytest.mark.parametrize("off_s", [-7200, 7200])
def test_clocks_that_differ_keep_hosts_out_no_longer(off_s: int) -> None:
    """One that is ahead gives nothing up at once either."""
    seen = cluster(ORDER, points=(GOOD,))
    assert isinstance(step(seen, now_s=1010.0 + off_s, waited_s=10.0), Wait)
    found = step(seen, now_s=1001.0 + off_s + ORDER_LIFE_S, waited_s=ORDER_LIFE_S + 1.0)
    assert isinstance(found, GiveUp) and found.problem.code == "SAN-REST-007"
    # The clock may have been ahead at an order before: each is given after that (newer_s).
    assert "or an earlier one, differ by 7200 s" in found.problem.hint
    alike = step(seen, now_s=1001.0 + ORDER_LIFE_S, waited_s=ORDER_LIFE_S + 1.0)
    assert isinstance(alike, GiveUp) and not alike.problem.hint


@pytest.mark.parametrize(
    "changes",
    [
        {"states": (NodeState.ONLINE, NodeState.OFFLINE), "access": (CLOSED, OPEN)},
        {"runs_on": ("n1",), "access": (CLOSED, OPEN)},
        {"runs_on": ("n1",), "states": (NodeState.ONLINE, NodeState.STANDBY)},
    ],
)
def test_a_replica_that_is_not_up_is_not_waited_for(changes: dict[str, Any]) -> None:
    assert step(cluster(ORDER, **changes)) == Begin(goal=Copy(point=GOOD))


@pytest.mark.parametrize(
    ("points", "code"),
    [
        ((KEPT,), "SAN-REST-003"),
        ((GOOD._replace(is_deleting=True), KEPT), "SAN-REST-003"),
        ((GOOD._replace(nodes=("n2",)), KEPT), "SAN-REST-002"),
        ((GOOD._replace(nodes=("n9",)), KEPT), "SAN-REST-002"),
    ],
)
def test_without_its_point(points: tuple[RestorePoint, ...], code: str) -> None:
    """Before anything is written the order is given up; afterwards hosts stay out."""
    found = step(cluster(ORDER, points=points))
    assert isinstance(found, GiveUp) and found.problem.code == code
    found = step(cluster(COPYING_ORDER, points=points), now_s=1e9)
    assert isinstance(found, Stuck) and found.problem.code == code


def test_given_up_where_the_present_state_could_not_be_kept() -> None:
    other = {("web", "n1"): PointFailure("9" * 16, "SAN-SNAP-003", "no room")}
    assert step(cluster(ORDER, points=(GOOD,), point_failures=other)) == Wait(
        why="what is on the device is not kept yet"
    )
    failed = {("web", "n1"): PointFailure("3" * 16, "SAN-SNAP-003", "no room")}
    found = step(cluster(ORDER, points=(GOOD,), point_failures=failed))
    assert isinstance(found, GiveUp) and found.problem.code == "SAN-SNAP-003"
    assert step(cluster(ORDER, point_failures=failed)) == Begin(goal=Copy(point=GOOD)), (
        "it was kept all the same"
    )


def test_a_copy_that_has_begun_is_never_given_up() -> None:
    for now_s in (1010.0, 1e9):
        assert step(cluster(COPYING_ORDER), now_s=now_s) == Copy(point=GOOD)
        # It needs nothing of the other node, nor what is kept.
        assert step(
            cluster(COPYING_ORDER, points=(GOOD,), access=(CLOSED, OPEN)), now_s=now_s
        ) == Copy(point=GOOD)
        assert step(cluster(COPYING_ORDER), here="n2", now_s=now_s) == Copy(point=GOOD)


def test_nothing_is_written_where_hosts_are_let_in() -> None:
    assert step(cluster(COPYING_ORDER), is_closed=False) == Wait(why="n1 still lets hosts in")


def test_what_is_kept_is_on_all_nodes_unless_that_was_accepted() -> None:
    """The standby was in sync as the order was given, and was lost before the point was made."""
    alone = KEPT._replace(nodes=("n1",))
    for waited_s in (1.0, ORDER_LIFE_S + 1.0):
        found = step(cluster(ORDER, points=(GOOD, alone)), waited_s=waited_s)
        assert isinstance(found, GiveUp)
        assert found.problem.code == "SAN-REST-012" and "not on n2" in found.problem.text
    accepted = ORDER._replace(may_keep_on_few=True)
    assert step(cluster(accepted, points=(GOOD, alone))) == Begin(goal=Copy(point=GOOD))
    # Begun, it goes on.
    assert step(cluster(COPYING_ORDER, points=(GOOD, alone))) == Copy(point=GOOD)


def test_the_order_says_that_it_was_accepted() -> None:
    out = cluster(ORDER._replace(state=DONE), peer_disk="Outdated")
    for request, word in ((keeping(("SAN-REST-012",)), True), (keeping(), False)):
        seen = out if word else cluster(ORDER._replace(state=DONE))
        changes = restore_request.plan_restore(seen, request, {"n1": (), "n2": ()}, 2000.0)
        (given,) = (
            RestoreOrder.parse(each.value)
            for each in changes
            if isinstance(each, SetParameter) and each.parameter == "restore"
        )
        assert given is not None and given.may_keep_on_few is word


def test_without_keeping_the_pool_has_to_have_room() -> None:
    request = restore_request.RestoreRequest(
        device=SPEC.name, point="good", token="7" * 16, kept=None
    )
    sessions: dict[str, tuple[Any, ...]] = {"n1": (), "n2": ()}
    done = ORDER._replace(state=DONE)
    full = {("main", "n2"): PoolUsage(total_bytes=1 << 30, free_bytes=0, allocated_bytes=0)}
    with pytest.raises(Refused, match=r"SAN-REST-009: .*on n2 may still write 64 MiB more"):
        restore_request.plan_restore(cluster(done, pools=full), request, sessions, 2000.0)
    roomy = {("main", "n2"): PoolUsage(total_bytes=1 << 30, free_bytes=1 << 29, allocated_bytes=0)}
    (change,) = restore_request.plan_restore(cluster(done, pools=roomy), request, sessions, 2000.0)
    assert isinstance(change, SetParameter)
    order = RestoreOrder.parse(change.value)
    assert order == RestoreOrder("7" * 16, "good", "2" * 16, "", 2000)


def test_all_reasons_are_given_at_once() -> None:
    request = restore_request.RestoreRequest(
        device=SPEC.name, point="good", token="7" * 16, kept=None
    )
    points = (GOOD._replace(nodes=("n2",), size_bytes=1 << 40),)
    with pytest.raises(Refused) as refused:
        restore_request.plan_restore(
            cluster(ORDER._replace(state=DONE), points=points), request, {}, 2000.0
        )
    assert [each.code for each in refused.value.problems] == [
        "SAN-REST-003", "SAN-REST-002", "SAN-REST-001",
    ]  # fmt: skip


def keeping(accepted: tuple[str, ...] = (), point: str = "good") -> restore_request.RestoreRequest:
    return restore_request.RestoreRequest(
        device=SPEC.name, point=point, token="7" * 16,
        kept=PointOrder("kept7", "8" * 16, 5), accepted=accepted,
    )  # fmt: skip


def refused_codes(seen: Cluster, request: restore_request.RestoreRequest) -> list[str]:
    sessions: dict[str, tuple[Any, ...]] = {"n1": (), "n2": ()}
    try:
        assert restore_request.plan_restore(seen, request, sessions, 2000.0) != ()
    except Refused as error:
        return [each.code for each in error.problems]
    return []


def test_a_point_that_not_all_nodes_have_is_accepted_by_its_code() -> None:
    """What broke: the node that had it died in the middle, and hosts stayed out."""
    done = ORDER._replace(state=DONE)
    alone = cluster(done, points=(GOOD._replace(nodes=("n1",)),))
    assert refused_codes(cluster(done), keeping()) == []
    for other in ((), ("SAN-REST-012",), ("SAN-REST-001",)):
        assert refused_codes(alone, keeping(other)) == ["SAN-REST-011"]
    assert refused_codes(alone, keeping(("SAN-REST-011",))) == []
    assert refused_codes(alone, replace(keeping(), kept=None)) == ["SAN-REST-011"]
    # What is accepted later belongs to the order that has not begun.
    (change,) = restore_request.plan_restore(
        cluster(ORDER, points=(GOOD, KEPT)), keeping(("SAN-REST-012",)), {}, 2000.0
    )
    assert isinstance(change, SetParameter)
    assert RestoreOrder.parse(change.value) == ORDER._replace(may_keep_on_few=True)
    # The same one that is under way is waited for.
    seen = cluster(ORDER, points=(GOOD._replace(nodes=("n1",)), KEPT))
    assert restore_request.plan_restore(seen, keeping(), {}, 2000.0) == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"peer_disk": "Inconsistent"},
        {"states": (NodeState.ONLINE, NodeState.OFFLINE), "runs_on": ("n1",)},
        {"runs_on": ("n1",)},
    ],
)
def test_what_one_node_alone_would_keep_is_accepted_by_its_code(changes: dict[str, Any]) -> None:
    seen = cluster(ORDER._replace(state=DONE), **changes)
    assert refused_codes(seen, keeping()) == ["SAN-REST-012"]
    assert refused_codes(seen, keeping(("SAN-REST-012",))) == []
    assert refused_codes(seen, replace(keeping(), kept=None)) == []
    with pytest.raises(Refused, match="the replica on n2 is not known to be in sync"):
        restore_request.plan_restore(seen, keeping(), {"n1": (), "n2": ()}, 2000.0)


def test_to_another_point_that_cannot_be_used() -> None:
    request = restore_request.RestoreRequest(
        device=SPEC.name, point="kept", token="7" * 16, kept=None
    )
    points = (GOOD, KEPT._replace(nodes=("n2",)))
    with pytest.raises(Refused, match="SAN-REST-002"):
        restore_request.plan_restore(cluster(COPYING_ORDER, points=points), request, {}, 2000.0)


def test_why_it_was_given_up() -> None:
    reports = {("web", "n2"): RestoreReport(ORDER.token, "SAN-REST-007", "after 180 s: no")}
    seen = cluster(ORDER, restore_reports=reports)
    problem = restore_progress.given_up_problem(seen, SPEC, ORDER)
    assert (problem.code, problem.text) == ("SAN-REST-007", "after 180 s: no; nothing was written")
    problem = restore_progress.given_up_problem(cluster(ORDER), SPEC, ORDER)
    assert problem.code == "SAN-REST-007" and "journalctl" in problem.hint


def test_a_device_that_is_not_restored_is_not_stuck() -> None:
    assert restore_progress.stuck_problem(cluster(ORDER), SPEC) is None
    assert restore_progress.report_of(cluster(ORDER), SPEC) is None


COPY = SiteCopy("far", "web", "e" * 32, "to-far", "2" * 16, "c" * 64)
FROM_SITE = ORDER._replace(point=str(COPY), point_token=ORDER.token)


def test_a_copy_at_a_site_begins_as_a_restore_point_does() -> None:
    """The token of a restore point here may be the copy's: that is not read."""
    sites = (SITE,)
    assert step(cluster(FROM_SITE, sites=sites)) == Begin(goal=CopyFromSite(site=SITE, copy=COPY))
    assert step(cluster(FROM_SITE, sites=sites), is_closed=False) == Wait(
        why="n1 still lets hosts in"
    )
    assert step(cluster(FROM_SITE, sites=sites, access=(CLOSED, OPEN))) == Wait(
        why="n2 still lets hosts in"
    )
    assert step(cluster(FROM_SITE, sites=sites, points=(GOOD,))) == Wait(
        why="what is on the device is not kept yet"
    )
    copying = FROM_SITE._replace(state=COPYING)
    wanted = CopyFromSite(site=SITE, copy=COPY)
    for here in ("n1", "n2"):
        assert step(cluster(copying, sites=sites, points=()), here=here, now_s=1e9) == wanted
    assert step(cluster(copying, sites=sites), is_closed=False) == Wait(
        why="n1 still lets hosts in"
    )


def test_a_site_that_is_not_known() -> None:
    found = step(cluster(FROM_SITE))
    assert isinstance(found, GiveUp) and found.problem.code == "SAN-SITE-002"
    seen = cluster(FROM_SITE._replace(state=COPYING))
    found = step(seen, now_s=1e9)
    assert isinstance(found, Stuck) and found.problem.code == "SAN-SITE-002"
    problem = restore_progress.stuck_problem(seen, seen.cib.devices[0])
    assert problem is not None and problem.code == "SAN-SITE-002"
    seen = cluster(FROM_SITE._replace(state=COPYING), sites=(SITE,))
    assert restore_progress.stuck_problem(seen, seen.cib.devices[0]) is None


def asked(size_bytes: int = 64 << 20, copy: SiteCopy = COPY) -> restore_request.RestoreRequest:
    return restore_request.RestoreRequest(
        device=SPEC.name,
        point=(copy, size_bytes),
        token="7" * 16,
        kept=PointOrder("kept7", "8" * 16, 5),
    )


def test_a_device_is_put_back_to_a_copy_at_a_site() -> None:
    sessions: dict[str, tuple[Any, ...]] = {"n1": (), "n2": ()}
    seen = cluster(ORDER._replace(state=DONE), points=())
    kept, change = restore_request.plan_restore(seen, asked(), sessions, 2000.0)
    assert isinstance(kept, SetParameter) and kept.parameter == "point"
    assert isinstance(change, SetParameter)
    order = RestoreOrder.parse(change.value)
    assert order == RestoreOrder("7" * 16, str(COPY), "7" * 16, "8" * 16, 2000)
    assert asked().goal == "copy web.eeeeeeee@to-far at site far"
    # The same one once more is waited for; another one takes its place once the copy has begun.
    assert restore_request.plan_restore(cluster(FROM_SITE), asked(), {}, 2000.0) == ()
    other = COPY._replace(point="later", token="5" * 16)
    with pytest.raises(Refused, match="SAN-REST-005"):
        restore_request.plan_restore(cluster(FROM_SITE), asked(copy=other), {}, 2000.0)
    copying = cluster(FROM_SITE._replace(state=COPYING))
    (change,) = restore_request.plan_restore(copying, asked(copy=other), {}, 2000.0)
    assert isinstance(change, SetParameter)
    order = RestoreOrder.parse(change.value)
    assert order is not None and order.copy == other and order.state == COPYING
    assert order.kept_token == FROM_SITE.kept_token


def test_a_copy_that_is_too_large_or_a_device_that_nobody_serves() -> None:
    seen = cluster(ORDER._replace(state=DONE), points=(), runs_on=())
    sessions: dict[str, tuple[Any, ...]] = {"n1": (), "n2": ()}
    with pytest.raises(Refused) as refused:
        restore_request.plan_restore(seen, asked(65 << 20), sessions, 2000.0)
    codes = {problem.code for problem in refused.value.problems}
    assert {"SAN-SITE-020", "SAN-REST-004"} <= codes


def test_that_the_configuration_has_another_size_is_said() -> None:
    """A growth was taken back as its reload was under way: both replicas grew all the same."""
    order = PointOrder("new", "4" * 16, 1000)
    seen = cluster(ORDER._replace(state=DONE))
    device = replace(seen.cib.devices[0], point_order=order)
    seen = replace(seen, cib=replace(seen.cib, devices=(device,)))
    made = GOOD._replace(name="new", token=order.token, size_bytes=(1 << 30) + 4096)
    with pytest.raises(CommandError) as refused:
        plan_point_recorded(seen, made, order)
    (problem,) = refused.value.problems
    assert problem.code == "SAN-SNAP-006" and "the configuration is 64 MiB" in problem.text
    assert "sanctl device resize web 1073745920" in problem.hint
    # Withdrawn it is, whatever its size.
    with pytest.raises(CommandError, match="was withdrawn"):
        plan_point_recorded(seen, made, order._replace(token="5" * 16))


@pytest.mark.parametrize("is_half", [False, True])
def test_no_restore_point_is_recorded_of_what_is_neither_state(is_half: bool) -> None:
    order = PointOrder("new", "4" * 16, 1000)
    seen = cluster(COPYING_ORDER if is_half else ORDER)
    device = replace(seen.cib.devices[0], point_order=order)
    seen = replace(seen, cib=replace(seen.cib, devices=(device,)))
    made = GOOD._replace(name="new", token=order.token)
    if is_half:
        with pytest.raises(CommandError, match="SAN-SNAP-006"):
            plan_point_recorded(seen, made, order)
    else:
        assert plan_point_recorded(seen, made, order) == (SetPoint(point=made),)
