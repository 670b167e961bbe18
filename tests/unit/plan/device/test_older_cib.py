# SPDX-License-Identifier: GPL-2.0-or-later
"""What is ordered, made and let in while the CIB is older than what nodes have noted of a hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    HELD,
    ORDER_LIFE_S,
    ORDERED,
    TURNED,
    RestoreOrder,
)
from sanctl.model.point_schedule import PointSchedule, Rule
from sanctl.model.release_needs import HELD_COPIES
from sanctl.model.restore_point import PointOrder
from sanctl.plan.cluster.cib_size import point_of_order
from sanctl.plan.device import (
    point_schedule,
    restore_changes,
    restore_points,
    restore_request,
    restoring,
)
from sanctl.plan.device.alteration import plan_resize
from sanctl.plan.device.backups import check_reader
from sanctl.plan.device.noted_hold import closes_older, is_older, may_be_base, next_note
from sanctl.plan.device.notes_of_nodes import nodes_with_newer_hold
from sanctl.plan.device.restore_refusals import being_restored_problem, unknown_content_problem
from sanctl.plan.device.restoring import Begin, Stuck
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.site import hold_release
from sanctl.plan.site.choosing import copies_in_use
from tests.unit.model.test_site import SITE
from tests.unit.plan.device.test_held_restore import (
    HELD_ORDER,
    HOLDS,
    LATER,
    NEXT,
    SESSIONS,
    needing,
    ordered,
    request,
)
from tests.unit.plan.device.test_noted_hold import BEFORE, with_notes
from tests.unit.plan.device.test_restoring import (
    COPY,
    FROM_SITE,
    GOOD,
    KEPT,
    OPEN,
    SPEC,
    cluster,
    step,
)

HALF = HOLDS._replace(kept_token=KEPT.token).in_state(COPYING)
NOW_S = 5000.0


def older(**noted: RestoreOrder | None) -> Cluster:
    """Return a cluster whose CIB lets hosts in, and is older than what its nodes have noted."""
    return with_notes(cluster(BEFORE, sites=(SITE,)), **noted)


def given(seen: Cluster, *, holds: bool = True) -> RestoreOrder:
    accepted = () if holds else ("SAN-REST-016",)
    wanted = replace(request(holds=holds), accepted=accepted)
    return ordered(restore_request.plan_restore(seen, wanted, SESSIONS, NOW_S))


def as_ordered(order: RestoreOrder, **noted: RestoreOrder | None) -> Cluster:
    """Return the cluster once an order is in the CIB; the nodes have noted it, but for these."""
    return with_notes(needing(order), **noted)


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("noted", [HALF, HELD_ORDER, NEXT, None])
def test_an_order_that_is_given_up_lets_no_host_in_to_half_a_copy(
    noted: RestoreOrder | None, holds: bool
) -> None:
    """Nothing was written by it; what was there before may be half of another copy.

    So it neither ends nor begins: what hosts wrote before may not be kept yet.
    """
    order = given(older(n1=noted, n2=noted), holds=holds)
    assert RestoreOrder.parse(str(order)) == order and order.state == ORDERED
    assert order.is_unsure and order.is_of_holds and order.base is None
    # Which each node notes in the place of what it had, and knows no newer hold any more.
    if noted is not None:
        assert not is_older(str(order), str(noted))
        assert next_note(str(order), str(noted)) == str(order)
    seen = as_ordered(order)
    found = step(replace(seen, cib=replace(seen.cib, sites=())))
    assert isinstance(found, Stuck) and found.problem.code == "SAN-SITE-002"
    assert restore_changes.plan_given_up(seen, "web", order) == ()
    with pytest.raises(Refused, match="SAN-REST-013") as refused:
        restore_changes.plan_cancelled(seen, SPEC.name)
    assert "takes its place" in refused.value.problems[0].hint
    # It begins as any other, once what is there is kept, and is done.
    kept = KEPT._replace(token=order.kept_token)
    assert isinstance(step(replace(seen, cib=replace(seen.cib, points=(kept,)))), Begin)
    begun = ordered(restore_changes.plan_begun(seen, "web", order))
    assert begun.token == order.token and not begun.is_unsure and begun.holds is holds
    assert step(needing(begun)) == restoring.CopyFromSite(site=SITE, copy=LATER)
    ends = ordered(restore_changes.plan_done(needing(begun), "web", begun, "n1"))
    assert ends.state == (HELD if holds else DONE)


def test_an_order_of_an_older_cib_that_is_given_up_lets_no_host_in() -> None:
    """One that another node has begun already, or one of before that."""
    for order, noted in ((HOLDS, HALF), (FROM_SITE, NEXT), (NEXT, HALF._replace(given_s=9000))):
        seen = as_ordered(order, n2=noted)
        assert is_older(str(order), str(noted)) and next_note(str(order), str(noted)) is None
        assert restore_changes.plan_given_up(seen, "web", order) == ()
        with pytest.raises(Refused, match=r"SAN-REST-01[35]"):
            restore_changes.plan_cancelled(seen, SPEC.name)
        # Where it was given up all the same, as by an earlier release.
        assert closes_older(str(order.in_state(GIVEN_UP)), str(noted))
    # One that was given up here is, whatever comes back of it, until it begins.
    up = HOLDS.in_state(GIVEN_UP)
    assert not closes_older(str(up), str(HOLDS)) and next_note(str(up), str(HOLDS)) == str(up)
    assert next_note(str(HOLDS), str(up)) is None
    assert next_note(str(HALF), str(up)) == str(HALF)


def test_what_may_be_half_of_a_copy_is_kept_where_nothing_of_before_is() -> None:
    """It costs but room, and it may be what hosts wrote: the first hold may not have begun."""
    begun = HOLDS._replace(kept_token="4" * 16).in_state(COPYING)
    unsure = HOLDS._replace(kept_token="4" * 16, is_unsure=True)
    for noted in (begun, unsure, HOLDS._replace(kept_token="4" * 16), None):
        wanted = request()
        changes = restore_request.plan_restore(older(n1=noted), wanted, SESSIONS, NOW_S)
        assert ordered(changes).kept_token == "8" * 16 and ordered(changes).is_unsure
        assert any(getattr(each, "parameter", "") == "point" for each in changes)
        # What is not to be kept is not.
        without = replace(wanted, kept=None)
        new = ordered(restore_request.plan_restore(older(n1=noted), without, SESSIONS, NOW_S))
        assert new.kept_token == ""
    # As little where it was begun as far as is known, and hosts have written since its point.
    first = HOLDS._replace(kept_token=KEPT.token)
    assert given(older(n1=first)).kept_token == "8" * 16
    for noted in (HALF.in_state(DONE), HALF._replace(given_s=9000).in_state(DONE)):
        assert given(older(n1=HALF, n2=noted)).kept_token == "8" * 16
    # What an older CIB keeps is of before what hosts wrote.
    copying = as_ordered(HALF, n1=begun._replace(given_s=9000))
    assert given(copying).kept_token == "8" * 16


def test_what_is_half_of_a_copy_is_not_kept_and_what_was_kept_before_is() -> None:
    order = given(older(n1=HALF, n2=HALF))
    hint = being_restored_problem(as_ordered(order), as_ordered(order).cib.devices[0]).hint
    assert "--cancel" not in hint
    assert order.kept_token == KEPT.token and order.may_keep_on_few
    assert isinstance(step(as_ordered(order)), Begin)
    gone = older(n1=HALF)
    gone = replace(gone, cib=replace(gone.cib, points=(GOOD,)))
    assert given(gone).kept_token == "8" * 16 and not given(gone).may_keep_on_few
    # Where the node that serves has noted nothing of it, hosts have been let in there.
    wanted = replace(request(), kept=PointOrder("before", "4" * 16, 0))
    changes = restore_request.plan_restore(older(n2=HALF), wanted, SESSIONS, NOW_S)
    assert ordered(changes).kept_token == "4" * 16 and ordered(changes).is_unsure
    assert any(getattr(each, "parameter", "") == "point" for each in changes)
    with pytest.raises(Refused, match="SAN-REST-001"):
        restore_request.plan_restore(older(n2=HALF), wanted, {}, NOW_S)


@pytest.mark.parametrize(
    "seen",
    [
        # n2 has served with hosts in, and has filled the replica of n1: its note did not go.
        older(n1=HALF),
        older(n1=HALF, n2=HALF.in_state(GIVEN_UP)._replace(given_s=9000)),
        older(n1=HALF, n2=HOLDS._replace(kept_token=KEPT.token)),
        # So it may be where the CIB is in the middle of a copy.
        as_ordered(
            FROM_SITE._replace(kept_token=KEPT.token).in_state(COPYING),
            n2=HALF._replace(given_s=9000),
        ),
    ],
)
def test_what_any_replica_may_have_of_hosts_is_kept(seen: Cluster) -> None:
    """A note lies beside the data of its node, and says nothing of what a resync has brought."""
    assert given(seen).kept_token == "8" * 16


def test_what_is_kept_is_the_point_that_each_node_has_noted() -> None:
    """The order of one node may be of before hosts wrote what that of another has kept."""
    other = HALF._replace(given_s=9000, kept_token=GOOD.token)
    for notes in ({"n1": HALF, "n2": other}, {"n1": other, "n2": HALF}, {"n1": None, "n2": HALF}):
        assert given(older(**notes)).kept_token == "8" * 16
    assert given(older(n1=HALF, n2=HALF.in_state(HELD))).kept_token == KEPT.token


def test_what_a_device_is_held_as_by_an_older_cib_is_no_base() -> None:
    """Nor is it that copy where the same one is ordered, or where that is released."""
    turned = HELD_ORDER._replace(turn=TURNED)
    for noted in (NEXT.in_state(COPYING), NEXT._replace(given_s=9000).in_state(DONE)):
        seen = as_ordered(turned, n1=noted)
        for copy in (COPY, LATER):
            found = restore_request.plan_restore(seen, request(copy), SESSIONS, NOW_S)
            order = ordered(found)
            assert order.base is None and order.is_unsure and order.copy == copy
            assert order.turn == TURNED and RestoreOrder.parse(str(order)) == order
            assert order.given_s > noted.given_s, "also where a clock was ahead"
            assert order.in_state(COPYING).turn == TURNED
        with pytest.raises(Refused, match="SAN-REST-015"):
            hold_release.plan_released(seen, SPEC.name)
        accepted = ("SAN-REST-015",)
        ends = ordered(hold_release.plan_released(seen, SPEC.name, None, accepted))
        assert ends.state == GIVEN_UP and not closes_older(str(ends), str(noted))
        assert not is_older(str(ends), str(turned))
    copying = as_ordered(HALF, n1=HALF.in_state(HELD))
    with pytest.raises(Refused, match="SAN-REST-005"):
        hold_release.plan_released(copying, SPEC.name, None, accepted)


def test_a_clock_that_was_ahead_makes_no_finished_order_older() -> None:
    """Also while an order of the older CIB is open, by which nodes keep hosts out anyway."""
    ahead = HALF._replace(given_s=90_000)
    order = given(as_ordered(HOLDS.in_state(COPYING), n2=ahead))
    assert order.given_s == 90_001 and order.state == ORDERED and order.is_unsure
    assert not closes_older(str(order.in_state(DONE)), str(ahead))


def test_what_was_published_before_an_order_came_does_not_count() -> None:
    after = HOLDS._replace(token="6" * 16, given_s=9000)
    for order in (after, after.in_state(COPYING), after.in_state(DONE), NEXT):
        seen = as_ordered(order, n2=NEXT)
        assert not nodes_with_newer_hold(seen, seen.cib.devices[0])
    # Nor where an order was withdrawn and another given: it can be withdrawn as well.
    for order in (after.in_state(HELD), after._replace(base=COPY)):
        seen = as_ordered(order, n2=NEXT)
        assert not nodes_with_newer_hold(seen, seen.cib.devices[0])
    assert ordered(restore_changes.plan_cancelled(seen, SPEC.name)).state == HELD
    # The node that has another one in its note does not go by the claim.
    assert not may_be_base(order, str(NEXT))


def test_nothing_is_ordered_before_the_node_that_serves_says_what_it_has_noted() -> None:
    seen = cluster(BEFORE, sites=(SITE,))
    replicas = {key: state for key, state in seen.cib.replicas.items() if key[1] != "n1"}
    silent = replace(seen, cib=replace(seen.cib, replicas=replicas))
    with pytest.raises(Refused, match="SAN-REST-019"):
        given(silent)


def test_no_point_is_made_and_none_is_pruned() -> None:
    """What is on the device is not known: it is no reason for a good point to go."""
    seen = older(n2=HALF)
    order = PointOrder("new", "4" * 16, int(NOW_S))
    with pytest.raises(Refused, match="SAN-REST-018") as refused:
        restore_points.plan_point_order(seen, SPEC.name, order, NOW_S)
    assert "n2 has noted" in str(refused.value) and "newer CIB" in refused.value.problems[0].hint
    schedule = PointSchedule(0, (Rule(3600, 1),))
    kept = replace(seen, cib=replace(seen.cib, schedules={"web": schedule}))
    with pytest.raises(Refused, match="SAN-REST-018"):
        point_schedule.due_point(kept, "web", "4" * 16, NOW_S)
    with pytest.raises(Refused, match="SAN-REST-018"):
        point_schedule.plan_pruning(kept, SPEC.name, NOW_S)
    # Nor recorded, where that became known while it was made.
    device = replace(seen.cib.devices[0], point_order=order)
    asked = replace(seen, cib=replace(seen.cib, devices=(device,)))
    with pytest.raises(Refused, match="SAN-REST-018"):
        restore_points.plan_point_recorded(asked, point_of_order(device, order), order)
    with pytest.raises(Refused, match="SAN-REST-018"):
        plan_resize(seen, SPEC.name, replace(SPEC.size, bytes=SPEC.size.bytes * 2))


def test_the_point_of_before_the_hold_is_not_deleted() -> None:
    for noted in (HALF, None):
        with pytest.raises(Refused, match="SAN-REST-018"):
            restore_points.plan_point_deletion(older(n2=noted), SPEC.name, KEPT.name)
    assert restore_points.plan_point_deletion(older(n2=HALF), SPEC.name, GOOD.name)


def test_no_backup_is_made_but_of_a_point_of_before() -> None:
    seen = older(n1=HALF)
    device = seen.cib.devices[0]
    with pytest.raises(Refused, match="SAN-REST-018"):
        check_reader(seen, device, None, "n2", may_be_active=False, may_be_elsewhere=True)
    assert check_reader(seen, device, GOOD, "n2", may_be_active=False, may_be_elsewhere=False)


def test_the_copies_that_nodes_have_noted_stay_at_the_site() -> None:
    assert copies_in_use(older(n2=NEXT), "far") == {COPY.token, LATER.token}


def test_nothing_is_written_before_each_node_has_noted_the_hold() -> None:
    for order, is_awaited in ((HOLDS, True), (NEXT, True), (FROM_SITE, False)):
        seen = needing(order._replace(kept_token=""))
        key = "web", "n2"
        state = replace(seen.cib.replicas[key], is_hold_unnoted=True)
        seen = replace(seen, cib=replace(seen.cib, replicas={**seen.cib.replicas, key: state}))
        found = step(seen, now_s=order.given_s + 10.0, waited_s=10.0)
        assert isinstance(found, restoring.Wait if is_awaited else Begin)
    found = step(
        replace(seen, cib=replace(needing(HOLDS).cib, replicas=seen.cib.replicas)),
        waited_s=ORDER_LIFE_S + 1.0,
    )
    assert isinstance(found, restoring.GiveUp) and "n2 cannot note it" in found.problem.text


def test_a_node_that_lets_hosts_in_still_is_waited_for() -> None:
    order = given(older(n1=HALF))
    seen = with_notes(
        cluster(order, sites=(SITE,), access=(OPEN, OPEN)),
    )
    assert step(seen) == restoring.Wait(why="n2 still lets hosts in")
    assert isinstance(step(seen, waited_s=ORDER_LIFE_S + 1.0), Stuck)
    assert HELD_COPIES in needing(order).cib.devices[0].needs


def test_no_order_is_said_to_be_withdrawn_that_a_node_has_noted_as_begun() -> None:
    """`--cancel` refuses it."""
    for noted, is_said in ((HALF, False), (HOLDS, True)):
        seen = as_ordered(HOLDS, n2=noted)
        hint = being_restored_problem(seen, seen.cib.devices[0]).hint
        assert ("--cancel" in hint) is is_said
        if is_said:
            assert ordered(restore_changes.plan_cancelled(seen, SPEC.name)).state == GIVEN_UP
        else:
            with pytest.raises(Refused, match="SAN-REST-013"):
                restore_changes.plan_cancelled(seen, SPEC.name)


@pytest.mark.parametrize("n1", [HALF._replace(given_s=9000), HALF])
def test_no_release_is_named_of_what_the_cib_itself_says_is_half_of_a_copy(
    n1: RestoreOrder,
) -> None:
    """No acceptance lets hosts in to that."""
    half = FROM_SITE.in_state(COPYING)
    ended = HELD_ORDER.in_state(DONE)._replace(given_s=9000)
    seen = as_ordered(half, n1=n1, n2=ended)
    (finding,) = restore_findings(seen, seen.cib.devices[0])
    found = step(seen)
    assert finding.code == "SAN-HLT-170" and isinstance(found, Stuck)
    problem = unknown_content_problem(seen, seen.cib.devices[0])
    assert problem is not None
    for hint in (finding.do, found.problem.hint, problem.hint):
        assert "--release" not in hint and "device restore web --to POINT" in hint
    # Where the node that serves has noted the end it is.
    seen = as_ordered(half, n1=ended)
    (finding,) = restore_findings(seen, seen.cib.devices[0])
    assert "--release --accept SAN-REST-015" in finding.do


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (as_ordered(HELD_ORDER), "--release"),
        (as_ordered(HOLDS), "--cancel"),
        (as_ordered(NEXT), ""),
        (as_ordered(HOLDS._replace(is_unsure=True)), ""),
        (as_ordered(HALF), ""),
        (older(n2=HELD_ORDER), ""),
        (older(n2=None), ""),
        (as_ordered(HELD_ORDER, n2=NEXT.in_state(COPYING)), ""),
    ],
)
def test_the_end_of_a_hold_is_named_where_it_is_not_refused(seen: Cluster, said: str) -> None:
    other = COPY._replace(point="third", token="4" * 16, digest="e" * 64)
    with pytest.raises(Refused, match="SAN-REST-016") as refused:
        restore_request.plan_restore(seen, request(other, holds=False), SESSIONS, NOW_S)
    hint = refused.value.problems[0].hint
    assert [each for each in ("--release", "--cancel") if each in hint] == [said] * bool(said)
    assert ("unless another device goes on" in hint) is (said == "--release")
    if said == "--release":
        assert ordered(hold_release.plan_released(seen, SPEC.name)).state == DONE
    elif said:
        assert ordered(restore_changes.plan_cancelled(seen, SPEC.name)).state == GIVEN_UP


def test_what_hosts_wrote_before_an_order_that_is_not_carried_out_is_kept() -> None:
    """The note that the node which serves has by then is that of the node that came back.

    With a clock behind it has given an ordinary order, older than that: hosts were in there.
    """
    noted = HALF._replace(given_s=9000)
    late = FROM_SITE._replace(token="9" * 16, kept_token="4" * 16, given_s=3000)
    stuck = step(as_ordered(late, n2=noted))
    assert isinstance(stuck, Stuck) and stuck.noted == noted
    new = given(as_ordered(late, n1=noted, n2=noted))
    assert new.kept_token == "8" * 16 and new.is_unsure
    assert given(older(n1=noted, n2=noted)).kept_token == KEPT.token
