# SPDX-License-Identifier: GPL-2.0-or-later
"""When a device's reservations may be switched or cleared, and when that is done."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, Mon, MonNode, NodeState, Role
from sanctl.model.device import DeviceSpec, PoolUsage, ReplicaState
from sanctl.model.host_session import HostSession
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.model.published_reservations import PublishedReservations
from sanctl.model.reservation import Reservations, Version
from sanctl.parse.cib import parse_cib
from sanctl.plan.device.reservations import (
    Published,
    clear_progress,
    keeping_problem,
    plan_clear,
    plan_reservations,
    published_by_active,
    switch_progress,
)
from sanctl.plan.replicas.replica_safety import new_replica_problems
from tests.fakes.pacemaker import FakePacemaker

NODES = (NodeName.parse("n1"), NodeName.parse("n2"))
N3 = NodeName.parse("n3")
WEB = DeviceName.parse("web")
A = "iqn.2026-11.net.example:a"
TOKEN, OTHER = "1" * 16, "2" * 16
SPEC = DeviceSpec(
    name=WEB, uuid="a" * 32, minor=1, size=ByteSize(bytes=64 << 20),
    pool=PoolName.parse("main"), nodes=NODES, initiators=(), replicas=2,
)  # fmt: skip
KEEPS = PoolUsage(total_bytes=1 << 40, free_bytes=1 << 40, keeps_reservations=True)
NONE = PublishedReservations(Version(1, 0), Reservations())
HELD = PublishedReservations(Version(1, 1), Reservations(((A, 1),), A, 5))
QUIET: Mapping[str, Collection[HostSession]] = {"n1": (), "n2": ()}
ON = SetParameter(name=WEB, parameter="reservations", value="on")
OFF = ClearParameter(name=WEB, parameter="reservations")
NEEDS = SetParameter(name=WEB, parameter="needs", value="reservations")
NEEDS_NONE = ClearParameter(name=WEB, parameter="needs")
NO_ORDER = ClearParameter(name=WEB, parameter="clear-reservations")
_EMPTY = parse_cib(FakePacemaker().root)


def cluster(
    *,
    is_on: bool = False,
    order: str = "",
    states: Sequence[NodeState] = (NodeState.ONLINE, NodeState.ONLINE),
    roles: dict[str, Role] | None = None,
    pools: dict[str, PoolUsage] | None = None,
    primary: str = "n1",
    **device: Any,
) -> Cluster:
    roles = {"n1": Role.PROMOTED, "n2": Role.UNPROMOTED} if roles is None else roles
    pools = {"n1": KEEPS, "n2": KEEPS, "n3": KEEPS} if pools is None else pools
    spec = replace(SPEC, reservations=is_on, clear_reservations=order, **device)
    named = zip((*NODES, N3), (*states, NodeState.ONLINE), strict=True)
    return Cluster(
        cib=replace(
            _EMPTY,
            devices=(spec,),
            pools={("main", node): usage for node, usage in pools.items()},
            replicas={("web", primary): ReplicaState(role="Primary")},
        ),
        mon=Mon(
            has_quorum=True,
            has_dc=True,
            nodes=tuple(MonNode(name=str(node), state=state) for node, state in named),
            instances=tuple(
                Instance(resource="web", node=node, role=role) for node, role in roles.items()
            ),
            failures=(),
        ),
    )


def switch(
    seen: Cluster,
    sessions: Mapping[str, Collection[HostSession]] = QUIET,
    published: Published | None = None,
    *,
    is_on: bool,
) -> tuple[object, ...]:
    known = {"n1": NONE} if published is None else published
    return plan_reservations(seen, WEB, sessions, known, is_on=is_on)


def refused(seen: Cluster, *args: Any, is_on: bool = True) -> list[str]:
    with pytest.raises(Refused) as found:
        switch(seen, *args, is_on=is_on)
    return [f"{problem.code}: {problem.text}" for problem in found.value.problems]


def test_on_and_off_where_no_host_is_logged_in() -> None:
    assert switch(cluster(), is_on=True) == (ON, NEEDS)
    assert switch(cluster(is_on=True, needs=("reservations",)), is_on=False) == (OFF, NEEDS_NONE)
    # Of a device that was given them before there were needs.
    assert switch(cluster(is_on=True), is_on=False) == (OFF,)
    # Sessions with other devices do not matter.
    others = {"n1": (HostSession("db", A, ()),), "n2": ()}
    assert switch(cluster(), others, is_on=True) == (ON, NEEDS)


def test_what_a_later_release_needs_stays() -> None:
    both = SetParameter(name=WEB, parameter="needs", value="future reservations")
    assert switch(cluster(needs=("future",)), is_on=True) == (ON, both)
    later = SetParameter(name=WEB, parameter="needs", value="future")
    with_both = cluster(is_on=True, needs=("future", "reservations"))
    assert switch(with_both, is_on=False) == (OFF, later)


def test_a_word_that_does_not_agree_is_put_right() -> None:
    """It touches no host. What broke: nothing was to do, and no release without it could be set."""
    sessions = {"n1": (HostSession("web", A, ()),)}
    left = cluster(needs=("reservations",))
    assert switch(left, sessions, is_on=False) == (NEEDS_NONE,)
    assert switch(cluster(is_on=True), sessions, is_on=True) == (NEEDS,)


def test_what_is_like_that_is_not_looked_into() -> None:
    sessions = {"n1": (HostSession("web", A, ()),)}
    assert switch(cluster(), sessions, is_on=False) == ()
    on = cluster(is_on=True, needs=("reservations",))
    assert switch(on, sessions, {"n1": HELD}, is_on=True) == ()


@pytest.mark.parametrize("node", ["n1", "n2"])
@pytest.mark.parametrize("is_on", [True, False])
def test_a_host_that_is_logged_in_on_any_node(node: str, is_on: bool) -> None:
    sessions = {**QUIET, node: (HostSession("web", A, ("10.0.0.1",)),)}
    (line,) = refused(cluster(is_on=not is_on), sessions, is_on=is_on)
    assert line == f"SAN-RES-011: hosts are logged in to device web: {A}"


def test_a_node_that_does_not_say_counts_as_one_with_sessions() -> None:
    (line,) = refused(cluster(), {"n1": ()})
    assert line.startswith("SAN-RES-011: it is not known") and line.endswith(" on n2")
    first, second = refused(cluster(), {"n1": (HostSession("web", A, ()),)})
    assert A in first and second.endswith(" on n2")


@pytest.mark.parametrize(
    ("state", "is_certain"),
    [
        (NodeState.OFFLINE, True),
        (NodeState.UNCLEAN, False),
        (NodeState.PENDING, False),
        (NodeState.UNKNOWN, False),
        (NodeState.STANDBY, True),
    ],
)
def test_a_node_that_is_away(state: NodeState, is_certain: bool) -> None:
    """One that was fenced has no sessions; one that may still run has to say."""
    seen = cluster(is_on=True, states=(NodeState.ONLINE, state), roles={"n1": Role.PROMOTED})
    if is_certain:
        assert switch(seen, {"n1": ()}, is_on=False) == (OFF,)
    else:
        (line,) = refused(seen, {"n1": ()}, is_on=False)
        assert line.startswith("SAN-RES-011")


def test_a_node_in_maintenance_would_not_carry_it_out() -> None:
    states = (NodeState.ONLINE, NodeState.MAINTENANCE)
    seen = cluster(is_on=True, states=states, roles={"n1": Role.PROMOTED})
    assert refused(seen, {"n1": ()}, is_on=False)[0].startswith("SAN-DEV-018")


def test_what_a_node_that_is_away_keeps_is_not_known() -> None:
    seen = cluster(states=(NodeState.ONLINE, NodeState.OFFLINE), roles={"n1": Role.PROMOTED})
    assert refused(seen, {"n1": ()})[0].startswith("SAN-RES-014")


def test_a_node_in_standby_that_still_runs_the_device_has_to_say() -> None:
    seen = cluster(states=(NodeState.ONLINE, NodeState.STANDBY))
    assert refused(seen, {"n1": ()})[0].endswith(" on n2")


def test_every_node_has_to_keep_them() -> None:
    older = PoolUsage(total_bytes=1 << 40, free_bytes=1 << 40)
    for pools in ({"n1": KEEPS}, {"n1": KEEPS, "n2": older}):
        (line,) = refused(cluster(pools=pools))
        assert line.startswith("SAN-RES-014: sanctl on n2 ")
        # To be without needs nothing of a node.
        assert switch(cluster(is_on=True, pools=pools), is_on=False) == (OFF,)
    assert keeping_problem(cluster(), SPEC.pool, NODES) is None


def test_a_new_replica_is_on_a_node_that_keeps_them() -> None:
    pools = {"n3": PoolUsage(total_bytes=1 << 40, free_bytes=1 << 40)}
    on, off = cluster(is_on=True, pools=pools), cluster(pools=pools)
    assert new_replica_problems(off, off.cib.devices[0], N3) == ()
    assert [p.code for p in new_replica_problems(on, on.cib.devices[0], N3)] == ["SAN-RES-014"]
    able = cluster(is_on=True)
    assert new_replica_problems(able, able.cib.devices[0], N3) == ()


def test_off_is_refused_while_hosts_are_registered_or_that_is_not_known() -> None:
    on = cluster(is_on=True)
    (line,) = refused(on, QUIET, {"n1": HELD}, is_on=False)
    assert line.startswith("SAN-RES-012: hosts are registered") and line.endswith(A)
    # What the standby says may be of the time when it served.
    (line,) = refused(on, QUIET, {"n2": NONE}, is_on=False)
    assert line.startswith("SAN-RES-012: it is not known")
    nobody = cluster(is_on=True, roles={"n1": Role.UNPROMOTED}, primary="")
    assert refused(nobody, QUIET, {"n1": NONE}, is_on=False)[0].startswith("SAN-RES-012")


def test_an_order_to_clear_does_not_outlive_a_switch() -> None:
    """Left over it would clear what hosts register later."""
    assert switch(cluster(order=TOKEN), is_on=True) == (NO_ORDER, ON, NEEDS)
    assert switch(cluster(order=TOKEN, is_on=True), is_on=False) == (NO_ORDER, OFF)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_device_that_is_stopped_is_not_switched(is_on: bool) -> None:
    seen = cluster(is_on=not is_on, is_stopping=True)
    assert refused(seen, is_on=is_on)[0].startswith("SAN-DEV-014")
    with pytest.raises(Refused, match="SAN-DEV-014"):
        plan_clear(seen, WEB, TOKEN, {})


def test_a_switch_is_done_when_the_active_node_says_so() -> None:
    on, off = cluster(is_on=True), cluster()
    assert switch_progress(on, WEB, {"n1": NONE}).is_done
    assert switch_progress(off, WEB, {}).is_done
    assert switch_progress(on, WEB, {"n2": NONE}).seen == "n1 has none yet"
    assert switch_progress(off, WEB, {"n1": NONE}).seen == "n1 still has reservations"
    nobody = cluster(is_on=True, roles={"n2": Role.UNPROMOTED})
    assert switch_progress(nobody, WEB, {"n1": NONE}).seen == "no node serves the device"
    # Pacemaker shows the Primary for a moment as another one.
    moving = cluster(is_on=True, primary="n2")
    found = switch_progress(moving, WEB, {"n1": NONE})
    assert (found.is_done, "n2" in found.seen) == (False, True)


def test_an_order_to_clear() -> None:
    on = cluster(is_on=True)
    order = SetParameter(name=WEB, parameter="clear-reservations", value=TOKEN)
    assert plan_clear(on, WEB, TOKEN, {"n1": HELD}) == (order,)
    assert plan_clear(on, WEB, TOKEN, {"n1": NONE}) == ()
    # A state that is lost ends like that.
    assert plan_clear(on, WEB, TOKEN, {"n2": NONE}) == (order,)
    nobody = cluster(is_on=True, roles={})
    assert plan_clear(nobody, WEB, TOKEN, {"n1": NONE}) == (order,)
    with pytest.raises(Refused, match="SAN-RES-013"):
        plan_clear(cluster(), WEB, TOKEN, {"n1": HELD})


def test_an_order_is_done_when_the_active_node_says_so() -> None:
    ordered = cluster(is_on=True, order=TOKEN)
    assert clear_progress(ordered, WEB, TOKEN, {"n1": NONE}).is_done
    # A live host registers again at once.
    assert clear_progress(ordered, WEB, TOKEN, {"n1": HELD._replace(cleared=TOKEN)}).is_done
    for found in (HELD, HELD._replace(cleared=OTHER)):
        seen = clear_progress(ordered, WEB, TOKEN, {"n1": found, "n2": NONE})
        assert (seen.is_done, seen.seen) == (False, "n1 says that 1 hosts are registered")
    assert clear_progress(ordered, WEB, TOKEN, {"n2": NONE}).seen == (
        "n1 does not say who is registered"
    )
    nobody = cluster(is_on=True, order=TOKEN, roles={})
    assert clear_progress(nobody, WEB, TOKEN, {"n1": NONE}).seen == "no node serves the device"


@pytest.mark.parametrize("order", ["", OTHER])
def test_an_order_that_was_replaced(order: str) -> None:
    with pytest.raises(CommandError, match="SAN-RES-015"):
        clear_progress(cluster(is_on=True, order=order), WEB, TOKEN, {"n1": NONE})


def test_of_two_nodes_that_serve_neither_is_believed() -> None:
    both = cluster(is_on=True, roles={"n1": Role.PROMOTED, "n2": Role.PROMOTED})
    assert published_by_active(both, SPEC, {"n1": HELD, "n2": NONE}) is None


def test_what_is_read_while_pacemaker_shows_no_role_is_of_the_node_that_says_it_serves() -> None:
    moment = cluster(
        is_on=True,
        roles={"n1": Role.UNPROMOTED, "n2": Role.UNPROMOTED},
        needs=("reservations",),
    )
    assert published_by_active(moment, SPEC, {"n1": HELD, "n2": NONE}) is HELD
    assert plan_clear(moment, WEB, TOKEN, {"n1": NONE}) == ()
    assert switch(moment, QUIET, {"n1": NONE}, is_on=False) == (OFF, NEEDS_NONE)
