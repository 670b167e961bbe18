# SPDX-License-Identifier: GPL-2.0-or-later
"""What goes on while a node with a replica has not said what it has noted of a hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MonNode, NodeState, Role
from sanctl.model.device_restore import COPYING, DONE, GIVEN_UP, ORDER_LIFE_S, RestoreOrder
from sanctl.plan.device import restore_changes, restore_distrust, restore_request, restoring
from sanctl.plan.device.noted_hold import next_note
from sanctl.plan.device.restore_refusals import refuse_unknown_content
from sanctl.plan.device.restoring import CopyBackup, CopyFromSite, GiveUp, Stuck, Wait
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.site import hold_release
from tests.unit.plan.device.test_held_restore import (
    HELD_ORDER,
    HOLDS,
    NEXT,
    SESSIONS,
    ordered,
    request,
)
from tests.unit.plan.device.test_older_cib import NOW_S, as_ordered
from tests.unit.plan.device.test_overtaken_order import without_state
from tests.unit.plan.device.test_restoring import FROM_SITE, SPEC, step

LATE_S = ORDER_LIFE_S + 1.0
#: Of a device that was not held, as far as the CIB and the nodes say.
ORDINARY = FROM_SITE.in_state(COPYING)


def silent(order: RestoreOrder, **noted: RestoreOrder | None) -> Cluster:
    """Return the cluster with an order while n2 says nothing."""
    return without_state(as_ordered(order, **noted), "n2")


def with_role(seen: Cluster, role: Role | None) -> Cluster:
    """Return the cluster with a role of n2; None: no instance is known, in maintenance."""
    instances = tuple(
        replace(each, role=role) if each.node == "n2" and role else each
        for each in seen.mon.instances
        if each.node != "n2" or role
    )
    state = NodeState.ONLINE if role else NodeState.MAINTENANCE
    nodes = (MonNode(name="n1", state=NodeState.ONLINE), MonNode(name="n2", state=state))
    return replace(seen, mon=replace(seen.mon, nodes=nodes, instances=instances))


def late_step(seen: Cluster, *, noted_here: str = "") -> restoring.Step:
    return step(seen, now_s=NOW_S, waited_s=LATE_S, noted_here=noted_here)


def test_an_ordinary_order_waits_no_longer_for_it_than_for_anything_else() -> None:
    for order in (FROM_SITE, ORDINARY):
        found = step(silent(order), now_s=NOW_S, waited_s=ORDER_LIFE_S)
        assert found == Wait(why="what n2 has noted of it is not known")
    given_up = late_step(silent(FROM_SITE))
    assert isinstance(given_up, GiveUp) and given_up.problem.code == "SAN-REST-007"
    assert isinstance(late_step(silent(ORDINARY)), CopyFromSite)
    for changes in (
        restore_changes.plan_given_up(silent(FROM_SITE), "web", FROM_SITE),
        restore_changes.plan_cancelled(silent(FROM_SITE), SPEC.name),
    ):
        assert ordered(changes).state == GIVEN_UP
    assert ordered(restore_changes.plan_begun(silent(FROM_SITE), "web", FROM_SITE)) == ORDINARY
    # One of a hold does, also where a node alone says that there was one.
    later = NEXT._replace(given_s=9000)
    assert isinstance(late_step(silent(HOLDS)), Wait)
    assert isinstance(late_step(silent(ORDINARY, n1=later)), Wait)
    assert isinstance(late_step(silent(ORDINARY), noted_here=str(later)), Wait)
    with pytest.raises(Refused, match="SAN-REST-019"):
        restore_changes.plan_cancelled(silent(FROM_SITE, n1=later), SPEC.name)


@pytest.mark.parametrize("role", [Role.STARTING, Role.STOPPING, Role.UNKNOWN, None])
def test_a_replica_that_does_not_run_yet_or_any_more_says_nothing(role: Role | None) -> None:
    """Its start publishes its state, which may be minutes away."""
    assert isinstance(step(with_role(silent(ORDINARY), role)), CopyFromSite)
    # It starts by what it has noted, and that may be the end of a hold.
    held = step(with_role(silent(HOLDS.in_state(COPYING)), role))
    assert isinstance(held, Wait if role is Role.STARTING else CopyFromSite)


@pytest.mark.parametrize("role", [Role.UNPROMOTED, Role.STARTED, Role.PROMOTING, Role.DEMOTING])
def test_a_replica_that_runs_is_waited_for(role: Role) -> None:
    assert isinstance(step(with_role(silent(ORDINARY), role)), Wait)


def test_a_choice_of_a_replica_waits_for_it_only_where_a_hold_is_known() -> None:
    for order in (FROM_SITE, ORDINARY):
        seen = silent(order)
        changes = restore_distrust.plan_distrusted(seen, seen.cib.devices[0])
        if order.state == COPYING:
            assert ordered(changes) == order.distrusted
        else:
            assert changes == ()
    # The end of the same order may be noted there: by its new token it would be carried out again.
    again = HOLDS.in_state(COPYING).distrusted
    back = as_ordered(again, n2=HELD_ORDER.in_state(DONE))
    assert isinstance(step(back), CopyFromSite)
    for seen in (silent(HOLDS.in_state(COPYING)), silent(ORDINARY, n1=NEXT)):
        with pytest.raises(Refused, match="SAN-REST-019"):
            restore_distrust.plan_distrusted(seen, seen.cib.devices[0])


def test_a_new_device_is_filled_from_its_backup_at_once() -> None:
    """It has never been held."""
    order = RestoreOrder.from_backup("1" * 16, "far", "b", HOLDS.given_s - 1)
    assert isinstance(step(silent(order)), CopyBackup)


@pytest.mark.parametrize("order", [None, ORDINARY, FROM_SITE.in_state(DONE), HELD_ORDER])
def test_what_is_on_a_device_is_asked_of_it_only_where_a_hold_is_known(
    order: RestoreOrder | None,
) -> None:
    seen = silent(order or FROM_SITE)
    device = replace(seen.cib.devices[0], restore=order, is_restoring=bool(order and order.is_open))
    seen = replace(seen, cib=replace(seen.cib, devices=(device,)))
    if order == HELD_ORDER:
        with pytest.raises(Refused, match="SAN-REST-019"):
            refuse_unknown_content(seen, device)
    else:
        refuse_unknown_content(seen, device)


def test_a_release_of_what_is_not_held_changes_nothing() -> None:
    assert hold_release.plan_released(silent(HELD_ORDER.in_state(DONE)), SPEC.name) == ()


@pytest.mark.parametrize("order", [FROM_SITE, ORDINARY])
def test_nothing_is_written_where_this_nodes_own_note_cannot_be_read(order: RestoreOrder) -> None:
    """Also before the next monitor publishes that; it may be the end of a hold."""
    found = late_step(as_ordered(order), noted_here="damaged")
    assert isinstance(found, Stuck) and found.noted is None
    assert "n1 has a note that cannot be read" in found.problem.text
    assert "--accept" not in found.problem.hint
    assert isinstance(late_step(silent(order), noted_here="damaged"), Wait)
    # An order of a hold takes its place, so this is not for good.
    unsure = FROM_SITE._replace(is_unsure=True)
    for later in (HOLDS, HOLDS.in_state(COPYING), unsure):
        assert next_note(str(later), "damaged") == str(later)
        assert not isinstance(late_step(as_ordered(later), noted_here="damaged"), Stuck)


def test_a_hold_that_waits_for_a_silent_node_says_for_which() -> None:
    seen = silent(HOLDS.in_state(COPYING))
    (finding,) = restore_findings(seen, seen.cib.devices[0])
    assert finding.code == "SAN-HLT-110" and "it goes on by itself" not in finding.do
    assert "what n2 has noted" in finding.do and "sanctl node standby n2" in finding.do
    for goes_on in (silent(ORDINARY), as_ordered(HOLDS.in_state(COPYING))):
        (finding,) = restore_findings(goes_on, goes_on.cib.devices[0])
        assert finding.code == "SAN-HLT-110" and "it goes on by itself" in finding.do


def test_a_copy_that_is_stuck_is_replaced_once_no_node_is_silent() -> None:
    """What that has noted would be older than the new order, and that keeps nothing."""
    stuck = silent(ORDINARY)
    stuck = replace(stuck, cib=replace(stuck.cib, sites=()))
    wanted = replace(request(), holds=False)
    with pytest.raises(Refused, match="SAN-REST-019") as refused:
        restore_request.plan_restore(stuck, wanted, SESSIONS, NOW_S)
    assert "node standby n2" in refused.value.problems[0].hint
    stopped = with_role(stuck, Role.STOPPED)
    new = ordered(restore_request.plan_restore(stopped, wanted, SESSIONS, NOW_S))
    assert new.state == COPYING and new.given_s > ORDINARY.given_s
