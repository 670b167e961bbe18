# SPDX-License-Identifier: GPL-2.0-or-later
"""An order of an older CIB that nodes have noted more of is not carried out any further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device_restore import (
    ASKED,
    COPYING,
    DONE,
    GIVEN_UP,
    HELD,
    ORDER_LIFE_S,
    ORDERED,
    TURNED,
    RestoreOrder,
)
from sanctl.model.restore_point import PointFailure, PointOrder
from sanctl.model.site_takeover import Successor, Takeover
from sanctl.plan.device import (
    restore_changes,
    restore_distrust,
    restore_points,
    restore_request,
    restoring,
)
from sanctl.plan.device.alteration import plan_resize
from sanctl.plan.device.noted_hold import (
    closes_older,
    is_older,
    may_be_base,
    next_note,
    note_after_start,
    note_of_others,
)
from sanctl.plan.device.restoring import Begin, CopyFromSite, Stuck
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.site import hold_release
from sanctl.plan.site.takeover import plan_turn
from tests.unit.model.test_site import SITE
from tests.unit.plan.device.test_held_restore import (
    HELD_ORDER,
    HOLDS,
    LATER,
    NEXT,
    SESSIONS,
    ordered,
    request,
)
from tests.unit.plan.device.test_noted_hold import BEFORE
from tests.unit.plan.device.test_older_cib import HALF, NOW_S, as_ordered, given, older
from tests.unit.plan.device.test_restoring import (
    COPY,
    FROM_SITE,
    GOOD,
    KEPT,
    SPEC,
    asked,
    cluster,
    step,
)

THIRD = COPY._replace(point="third", token="4" * 16, digest="e" * 64)
WROTE = "what hosts wrote before the order, and the point that is to keep it"


def with_takeover(seen: Cluster) -> Cluster:
    takeover = Takeover("web", "far", SPEC.uuid, Successor("web", COPY.uuid, "to-far", 7))
    return replace(seen, cib=replace(seen.cib, takeovers=(takeover,)))


def has_point(seen: Cluster, order: RestoreOrder, now_s: float) -> Cluster:
    """Return the cluster with the order for the point by which an order keeps the device."""
    made = PointOrder("kept7", order.kept_token, int(now_s))
    device = replace(seen.cib.devices[0], point_order=made)
    return replace(seen, cib=replace(seen.cib, devices=(device,)))


def unsure_and_not_kept() -> tuple[RestoreOrder, Cluster]:
    """Return an order that is given while a standby has noted a hold, and hosts write on n1."""
    seen = older(n2=HALF)
    order = given(seen)
    assert order.is_unsure and order.kept_token == "8" * 16
    return order, has_point(as_ordered(order), order, NOW_S)


def failed(seen: Cluster, order: RestoreOrder) -> Cluster:
    """Return the cluster once that point could not be made, as the pool is full."""
    failure = PointFailure(order.kept_token, "SAN-SNAP-007", "the pool is full")
    return replace(seen, cib=replace(seen.cib, point_failures={("web", "n1"): failure}))


def test_nothing_is_written_over_what_is_not_kept() -> None:
    """A give-up was an order to begin: it skipped what had been the reason for it."""
    order, seen = unsure_and_not_kept()
    late_s = ORDER_LIFE_S + 1.0
    for found in (failed(seen, order), seen):
        stuck = step(found, now_s=NOW_S + late_s, waited_s=late_s)
        assert isinstance(stuck, Stuck), WROTE
        assert restore_changes.plan_given_up(found, "web", order) == ()
    few = KEPT._replace(token=order.kept_token, nodes=("n1",))
    stuck = step(replace(seen, cib=replace(seen.cib, points=(few,))))
    assert isinstance(stuck, Stuck) and stuck.problem.code == "SAN-REST-012"
    # So it is of a plain order, where n2 comes back with its note afterwards.
    plain = FROM_SITE._replace(token="f" * 16, given_s=3000)
    back = failed(as_ordered(plain, n2=HALF._replace(given_s=4000)), plain)
    assert isinstance(step(back), Stuck) and restore_changes.plan_given_up(back, "web", plain) == ()
    with pytest.raises(CommandError, match="SAN-REST-015"):
        restore_changes.plan_begun(back, "web", plain)


def test_another_order_takes_the_place_of_one_that_cannot_keep_what_it_is_to() -> None:
    order, seen = unsure_and_not_kept()
    again = replace(request(), token="9" * 16, kept=PointOrder("anew", "a" * 16, 0))
    other = replace(asked(copy=THIRD), token="9" * 16, holds=True, kept=again.kept)
    # The same one is waited for while the point may still come.
    assert restore_request.plan_restore(seen, again, SESSIONS, NOW_S + 1) == ()
    for found, wanted, now_s in (
        (failed(seen, order), again, NOW_S + 1),
        (seen, again, NOW_S + 1000),
        (failed(seen, order), other, NOW_S + 1),
    ):
        point, *changes = restore_request.plan_restore(found, wanted, {}, now_s)
        assert isinstance(point, SetParameter) and point.parameter == "point"
        new = ordered(tuple(changes))
        assert new.is_unsure and new.state == ORDERED and new.kept_token == "a" * 16
        assert new.token == "9" * 16 and new.given_s > order.given_s
    # What it has kept is not kept once more.
    kept = KEPT._replace(token=order.kept_token)
    there = replace(seen, cib=replace(seen.cib, points=(kept,)))
    new = ordered(restore_request.plan_restore(there, other, {}, NOW_S + 1000))
    assert new.kept_token == order.kept_token and new.is_unsure and new.copy == THIRD
    assert restore_request.plan_restore(there, again, {}, NOW_S + 1000) == ()
    # Nor is it kept where some of the nodes lack it, and nobody has accepted that.
    few = replace(seen, cib=replace(seen.cib, points=(kept._replace(nodes=("n1",)),)))
    for wanted in (again, other):
        point, *changes = restore_request.plan_restore(few, wanted, {}, NOW_S + 1)
        assert isinstance(point, SetParameter) and point.parameter == "point"
        new = ordered(tuple(changes))
        assert new.kept_token == "a" * 16 and not new.may_keep_on_few
    accepts = replace(again, accepted=("SAN-REST-012",))
    new = ordered(restore_request.plan_restore(few, accepts, {}, NOW_S + 1))
    assert new == order._replace(may_keep_on_few=True)
    # One that is sure is withdrawn first.
    sure = as_ordered(FROM_SITE._replace(token="f" * 16))
    with pytest.raises(Refused, match="SAN-REST-005"):
        restore_request.plan_restore(sure, other, {}, NOW_S)


@pytest.mark.parametrize("state", [ORDERED, COPYING])
@pytest.mark.parametrize("ends", [DONE, GIVEN_UP])
def test_an_order_that_has_ended_is_not_carried_out_again(state: str, ends: str) -> None:
    """Hosts have written since: the CIB is older, and says that it is under way."""
    order = HOLDS if state == ORDERED else HOLDS.in_state(COPYING)
    noted = HOLDS.in_state(ends)
    if not is_older(str(order), str(noted)):
        return
    seen = as_ordered(order, n1=noted, n2=noted)
    found = step(seen)
    assert isinstance(found, Stuck) and found.problem.code == "SAN-REST-015"
    assert "is held no more" in found.problem.text
    with pytest.raises(Refused, match="SAN-REST-015"):
        hold_release.plan_released(seen, SPEC.name)
    lets_in = ordered(hold_release.plan_released(seen, SPEC.name, None, ("SAN-REST-015",)))
    assert lets_in.state == GIVEN_UP and not closes_older(str(lets_in), str(noted))
    # What is ordered now keeps what they wrote.
    changes = restore_request.plan_restore(seen, request(), {}, NOW_S)
    new = ordered(changes)
    assert new.state == ORDERED and new.is_unsure and new.kept_token == "8" * 16
    assert any(getattr(each, "parameter", "") == "point" for each in changes)


def test_what_has_ended_and_is_said_to_be_held_is_kept() -> None:
    seen = as_ordered(HELD_ORDER, n1=HELD_ORDER.in_state(DONE))
    new = given(seen)
    assert new.base is None and new.is_unsure and new.kept_token == "8" * 16


def test_a_later_state_of_the_same_order_goes_on() -> None:
    for noted in (HALF, HALF.in_state(HELD)):
        assert isinstance(step(as_ordered(HOLDS, n2=noted)), Begin)
    # But for what the device was held as: all is read.
    seen = as_ordered(NEXT, n2=NEXT.in_state(COPYING))
    assert step(seen) == Begin(goal=CopyFromSite(site=SITE, copy=LATER))
    assert restore_changes.plan_given_up(seen, "web", NEXT) == ()
    with pytest.raises(Refused, match="SAN-REST-013"):
        restore_changes.plan_cancelled(seen, SPEC.name)
    # One that was withdrawn since does not.
    assert isinstance(step(as_ordered(NEXT, n2=NEXT.withdrawn)), Stuck)


def test_a_device_is_not_what_it_was_held_as_after_the_next_copy_has_begun() -> None:
    """A withdrawal by a CIB of before the begin has the same token, and a later state."""
    back, begun = NEXT.withdrawn, NEXT.in_state(COPYING)
    assert back.state == HELD and back.copy == COPY and begun.copy == LATER
    assert is_older(str(back), str(begun)) and closes_older(str(back), str(begun))
    seen = as_ordered(back, n2=begun)
    with pytest.raises(Refused, match="SAN-REST-015"):
        hold_release.plan_released(seen, SPEC.name)
    assert given(seen).base is None
    # So it is where hosts were let in to what it was by then.
    let_in = back.in_state(DONE)
    assert is_older(str(let_in), str(begun)) and closes_older(str(let_in), str(begun))
    assert is_older(str(let_in), str(begun.in_state(HELD)))
    # Its own end is later.
    for state in (HELD, DONE):
        assert not is_older(str(begun.in_state(state)), str(begun))
    assert not is_older(str(back), str(NEXT))


def test_a_start_does_not_say_that_the_next_copy_has_not_begun() -> None:
    """Another node may have begun it, and brought a part of it here, before all lost power."""
    assert note_after_start(str(NEXT), str(NEXT)) == str(NEXT.in_state(COPYING))
    assert not may_be_base(NEXT, str(NEXT.in_state(COPYING)))
    for order in (HOLDS, HELD_ORDER, NEXT.in_state(COPYING)):
        assert note_after_start(str(order), str(order)) is None
    for text in ("", str(HELD_ORDER), str(NEXT.withdrawn)):
        assert note_after_start(text, str(NEXT)) is None, "this CIB says something else"
    assert note_after_start("damaged", "damaged") is None


@pytest.mark.parametrize(
    "seen", [older(n2=HELD_ORDER), as_ordered(HELD_ORDER, n1=NEXT._replace(turn=ASKED))]
)
def test_hosts_are_let_in_beside_no_other_device_where_the_cib_is_older(seen: Cluster) -> None:
    """Both refusals are accepted, or none lets hosts in."""
    both = ("SAN-REST-015", "SAN-REST-017")
    if seen.cib.devices[0].restore == BEFORE:
        seen = with_takeover(seen)
    with pytest.raises(Refused, match="SAN-REST-017"):
        hold_release.plan_released(seen, SPEC.name, None, both[:1])
    with pytest.raises(Refused, match="SAN-REST-015"):
        hold_release.plan_released(seen, SPEC.name, None, both[1:])
    assert ordered(hold_release.plan_released(seen, SPEC.name, None, both)).state == GIVEN_UP


def test_the_sites_that_may_know_of_another_device_are_asked() -> None:
    seen = older(n2=NEXT)
    assert hold_release.sites_to_ask(seen, seen.cib.devices[0]) == ("far",)
    seen = as_ordered(FROM_SITE._replace(state=DONE))
    assert hold_release.sites_to_ask(seen, seen.cib.devices[0]) == ()


def test_a_failback_ends_no_hold_that_nodes_have_noted_alone() -> None:
    for noted, said in ((NEXT, "is to be held as"), (None, "a note that cannot be read")):
        seen = older(n2=noted)
        plain = replace(request(LATER), holds=False)
        with pytest.raises(Refused, match="SAN-REST-016") as refused:
            restore_request.plan_restore(seen, plain, SESSIONS, NOW_S)
        assert said in str(refused.value)
        accepted = replace(plain, accepted=("SAN-REST-016",))
        assert not ordered(restore_request.plan_restore(seen, accepted, SESSIONS, NOW_S)).holds
    own = COPY._replace(uuid=SPEC.uuid)
    seen = as_ordered(HELD_ORDER._replace(point=str(own)))
    with pytest.raises(Refused, match="SAN-REST-016") as refused:
        restore_request.plan_restore(seen, plain, SESSIONS, NOW_S)
    assert "--takeover" not in refused.value.problems[0].hint, "no roles turn by it"


def test_a_node_goes_by_its_own_note_also_where_it_is_not_published() -> None:
    """As after a restart of attrd: what is published of replicas is gone with it."""
    for order in (HOLDS, HOLDS.in_state(COPYING)):
        found = step(as_ordered(order), noted_here=str(HELD_ORDER.in_state(DONE)))
        assert isinstance(found, Stuck) and found.problem.code == "SAN-REST-015"
        # One that cannot be read is another order's from the next monitor on (noted_hold.py).
        for noted in (str(order), str(BEFORE), "damaged", ""):
            assert not isinstance(step(as_ordered(order), noted_here=noted), Stuck)
    begun = str(NEXT.in_state(COPYING))
    goal = CopyFromSite(site=SITE, copy=LATER)
    assert step(as_ordered(NEXT), noted_here=begun) == Begin(goal=goal), "all is read"
    seen = as_ordered(NEXT)
    gone = replace(seen, cib=replace(seen.cib, sites=()))
    assert isinstance(step(gone, noted_here=begun), Stuck)
    assert isinstance(step(gone, noted_here=str(NEXT)), restoring.GiveUp)


@pytest.mark.parametrize("order", [HOLDS, HOLDS.in_state(COPYING), NEXT])
def test_nothing_is_written_while_no_node_says_what_it_has_noted(order: RestoreOrder) -> None:
    """Also by an order that has begun: another node may have noted its end."""
    seen = as_ordered(order)
    silent = replace(seen, cib=replace(seen.cib, replicas={}))
    late_s = ORDER_LIFE_S + 1.0
    found = step(silent, now_s=NOW_S + late_s, waited_s=late_s)
    assert found == restoring.Wait(why="what n1, n2 has noted of it is not known")
    assert not isinstance(step(seen), restoring.Wait)


def without_state(seen: Cluster, node: str) -> Cluster:
    """Return the cluster while a node's attrd has not published the state of its replica."""
    replicas = {key: state for key, state in seen.cib.replicas.items() if key[1] != node}
    return replace(seen, cib=replace(seen.cib, replicas=replicas))


@pytest.mark.parametrize("silent", ["n1", "n2"])
@pytest.mark.parametrize("order", [HOLDS, HOLDS.in_state(COPYING), NEXT])
def test_nothing_goes_on_while_a_node_does_not_say_what_it_has_noted(
    order: RestoreOrder, silent: str
) -> None:
    """It may be the one that has noted the end: a replica that runs there, and says nothing."""
    seen = without_state(as_ordered(order), silent)
    found = step(seen, now_s=NOW_S, waited_s=ORDER_LIFE_S + 1.0)
    assert isinstance(found, restoring.Wait) and silent in found.why
    other = request(THIRD)
    asks: list[Callable[[], object]] = [
        lambda: restore_distrust.plan_distrusted(seen, seen.cib.devices[0]),
        lambda: restore_request.plan_restore(seen, other, SESSIONS, NOW_S),
    ]
    if order.state == ORDERED:
        asks += [
            lambda: restore_changes.plan_begun(seen, "web", order),
            lambda: restore_changes.plan_given_up(seen, "web", order),
            lambda: restore_changes.plan_cancelled(seen, SPEC.name),
        ]
    for ask in asks:
        with pytest.raises((CommandError, Refused), match=f"SAN-REST-019: what {silent} has"):
            ask()


def test_no_host_is_let_in_to_what_the_cib_says_is_half_of_a_copy() -> None:
    """Unless the node that serves has noted the end: what hosts wrote since is whole there."""
    both = ("SAN-REST-015", "SAN-REST-017")
    half, ended = FROM_SITE.in_state(COPYING), HELD_ORDER.in_state(DONE)._replace(given_s=9000)
    for notes in ({"n2": ended}, {"n1": HALF._replace(given_s=9000), "n2": ended}):
        seen = as_ordered(half, **notes)
        with pytest.raises(Refused, match=r"SAN-REST-013: .* parts of two states") as refused:
            hold_release.plan_released(seen, SPEC.name, None, both)
        assert "failback web --from SITE" in refused.value.problems[0].hint
    seen = as_ordered(half, n1=ended)
    assert ordered(hold_release.plan_released(seen, SPEC.name, None, both)).state == GIVEN_UP
    with pytest.raises(Refused, match=r"SAN-REST-015: .* was being filled from"):
        hold_release.plan_released(seen, SPEC.name)


def test_a_turn_that_broke_off_is_taken_up_by_a_failback_where_the_cib_is_older() -> None:
    seen = older(n2=NEXT._replace(turn=ASKED))
    with pytest.raises(Refused, match="SAN-REST-017") as refused:
        hold_release.plan_released(seen, SPEC.name)
    assert "--copy COPY --takeover" in refused.value.problems[0].hint
    assert "replicate takeover web" not in refused.value.problems[0].hint, "which is refused"


def test_an_order_of_a_choice_of_a_replica_says_what_it_waits_for() -> None:
    seen = as_ordered(HOLDS.in_state(COPYING), n2=HELD_ORDER._replace(given_s=9000).in_state(DONE))
    new = ordered(restore_distrust.plan_distrusted(seen, seen.cib.devices[0]))
    (finding,) = restore_findings(as_ordered(new), as_ordered(new).cib.devices[0])
    assert finding.code == "SAN-HLT-111" and "a replica was chosen" in finding.what
    assert "failback web --from SITE --copy COPY --hold'" in finding.do
    assert "device restore web --to POINT" in finding.do
    # One whose point is about to be made does not.
    _, waits = unsure_and_not_kept()
    (finding,) = restore_findings(waits, waits.cib.devices[0])
    assert finding.code == "SAN-HLT-110"


def test_an_order_that_is_overtaken_is_not_said_to_be_withdrawn_by_a_command() -> None:
    """`--cancel` refuses it."""
    seen = as_ordered(HOLDS, n2=HELD_ORDER.in_state(DONE))
    with pytest.raises(Refused, match="SAN-REST-018") as refused:
        plan_resize(seen, SPEC.name, replace(SPEC.size, bytes=SPEC.size.bytes * 2))
    assert "--cancel" not in refused.value.problems[0].hint
    with pytest.raises(Refused, match="SAN-REST-005") as refused:
        plan_resize(as_ordered(HOLDS), SPEC.name, replace(SPEC.size, bytes=SPEC.size.bytes * 2))
    assert "--cancel" in refused.value.problems[0].hint


def test_how_far_the_turn_is_is_noted_of_what_is_to_be_held_again() -> None:
    """A failback with `--hold` may be given while the site is asked."""
    (change,) = plan_turn(as_ordered(NEXT), [SPEC.name], ASKED)
    assert isinstance(change, SetParameter)
    assert RestoreOrder.parse(change.value) == NEXT._replace(turn=ASKED)
    assert plan_turn(as_ordered(HOLDS), [SPEC.name], ASKED) == ()


def test_no_clock_is_blamed_for_an_order_that_is_newer_than_each_note() -> None:
    order = HOLDS._replace(given_s=90_000_000, is_unsure=True)
    late_s = ORDER_LIFE_S + 1.0
    for each, is_blamed in ((order, False), (order._replace(is_unsure=False), True)):
        seen = replace(as_ordered(each), cib=replace(as_ordered(each).cib, points=()))
        found = step(seen, now_s=NOW_S, waited_s=late_s)
        assert isinstance(found, Stuck | restoring.GiveUp)
        assert bool(found.problem.hint) is is_blamed


def test_no_point_of_before_a_restore_is_deleted_while_an_order_is_unsure() -> None:
    """After a choice of a replica no order names the one of before the hold."""
    point = KEPT._replace(name="before-restore-1")
    unsure = HOLDS._replace(kept_token="a" * 16, is_unsure=True)
    for order, is_kept in ((unsure, True), (unsure._replace(is_unsure=False), False)):
        seen = as_ordered(order)
        seen = replace(seen, cib=replace(seen.cib, points=(GOOD, point)))
        assert restore_points.plan_point_deletion(seen, SPEC.name, GOOD.name)
        if is_kept:
            with pytest.raises(Refused, match="SAN-REST-005"):
                restore_points.plan_point_deletion(seen, SPEC.name, point.name)
        else:
            assert restore_points.plan_point_deletion(seen, SPEC.name, point.name)


def test_what_a_node_has_noted_is_noted_here_too() -> None:
    """Where that one leaves again, the older order would go on."""
    plain = FROM_SITE.in_state(COPYING)
    ended, later = HELD_ORDER.in_state(DONE)._replace(given_s=9000), HALF._replace(given_s=9001)
    for order, notes, newest in (
        (HOLDS, {"n2": ended}, ended),
        (plain, {"n2": ended}, ended),
        (plain, {"n1": ended, "n2": later}, later),
        (plain, {"n2": None}, None),
    ):
        found = step(as_ordered(order, **notes))
        assert isinstance(found, Stuck) and found.noted == newest
    # One that waits for something else is no such order.
    found = step(replace(as_ordered(plain), cib=replace(as_ordered(plain).cib, sites=())))
    assert isinstance(found, Stuck) and found.noted is None


def test_a_note_of_another_node_takes_the_place_of_an_older_one() -> None:
    ended, later = str(HELD_ORDER.in_state(DONE)), str(HALF._replace(given_s=9001))
    for noted in ("", str(HOLDS), str(HALF), str(HELD_ORDER), str(BEFORE)):
        assert note_of_others(ended, noted) == ended
    for noted in (ended, later, "damaged"):
        assert note_of_others(ended, noted) is None
    assert note_of_others(later, ended) == later


def test_a_node_that_is_away_or_has_no_replica_running_is_not_waited_for() -> None:
    states = (NodeState.ONLINE, NodeState.OFFLINE)
    for seen in (
        cluster(HOLDS.in_state(COPYING), sites=(SITE,), states=states),
        cluster(HOLDS.in_state(COPYING), sites=(SITE,), runs_on=("n1",)),
    ):
        assert isinstance(step(without_state(seen, "n2")), CopyFromSite)


@pytest.mark.parametrize("silent", ["n1", "n2"])
@pytest.mark.parametrize("order", [HELD_ORDER, HELD_ORDER.in_state(DONE)])
def test_no_host_is_let_in_while_a_node_does_not_say_what_it_has_noted(
    order: RestoreOrder, silent: str
) -> None:
    seen = without_state(as_ordered(order), silent)
    if order.is_open:
        with pytest.raises(Refused, match="SAN-REST-019"):
            hold_release.plan_released(seen, SPEC.name)
    # Its note may be newer than those that are known, and than the order that would be given.
    seen = without_state(as_ordered(order, n1=NEXT, n2=NEXT), silent)
    with pytest.raises(Refused, match="SAN-REST-019"):
        hold_release.plan_released(seen, SPEC.name, None, ("SAN-REST-015", "SAN-REST-017"))


@pytest.mark.parametrize("order", [HOLDS, HOLDS.in_state(COPYING), HELD_ORDER, NEXT])
def test_a_choice_of_a_replica_carries_out_nothing_of_an_older_cib(order: RestoreOrder) -> None:
    """Its token made the order newer than the notes: what hosts wrote since was overwritten."""
    noted = order._replace(given_s=9000).in_state(DONE)
    seen = as_ordered(order, n1=noted, n2=noted)
    changes = restore_distrust.plan_distrusted(seen, seen.cib.devices[0])
    new = ordered(changes)
    # Nothing is said of what is on the device, and no node takes it for an older one.
    assert new.state == ORDERED and new.is_unsure and new.base is None and new.copy == order.copy
    assert RestoreOrder.parse(str(new)) == new and new.token != order.token and new.holds
    assert next_note(str(new), str(noted)) == str(new)
    # It waits until what is there is kept, which the next order of an operator does.
    late_s = ORDER_LIFE_S + 1.0
    there = as_ordered(new)
    assert isinstance(step(there, now_s=9001.0, waited_s=1.0), restoring.Wait)
    assert isinstance(step(there, now_s=9000 + late_s, waited_s=late_s), Stuck)
    assert restore_changes.plan_given_up(there, "web", new) == ()
    for copy in (new.copy, THIRD):
        assert copy is not None
        again = ordered(restore_request.plan_restore(there, request(copy), {}, NOW_S))
        assert again.kept_token == "8" * 16 and again.copy == copy and again.is_unsure
    # One that goes on is read as a whole, as ever.
    same = order.in_state(COPYING)
    seen = as_ordered(order, n2=same)
    if order.state == ORDERED:
        assert not ordered(restore_distrust.plan_distrusted(seen, seen.cib.devices[0])).is_unsure
    ended = as_ordered(order.in_state(DONE), n2=noted)
    assert restore_distrust.plan_distrusted(ended, ended.cib.devices[0]) == ()


def test_how_far_the_turn_is_stays_through_a_choice_of_a_replica() -> None:
    turned = HELD_ORDER._replace(turn=TURNED)
    seen = as_ordered(turned, n2=NEXT._replace(given_s=9000))
    new = ordered(restore_distrust.plan_distrusted(seen, seen.cib.devices[0]))
    assert new.turn == TURNED and RestoreOrder.parse(str(new)) == new
    point = RestoreOrder("1" * 16, "good", GOOD.token, KEPT.token, 1000, COPYING)
    seen = as_ordered(point, n2=NEXT._replace(given_s=9000))
    new = ordered(restore_distrust.plan_distrusted(seen, seen.cib.devices[0]))
    assert new.point_token == GOOD.token and not new.holds and new.is_unsure


def test_a_device_that_was_created_from_a_backup_is_not_filled_with_it_once_more() -> None:
    """The CIB is of before it was whole; hosts have written since, and then it was held."""
    order = RestoreOrder.from_backup("1" * 16, "far", "b", HOLDS.given_s - 1)
    for noted in (HELD_ORDER, HELD_ORDER.in_state(DONE)):
        found = step(as_ordered(order, n1=noted))
        assert isinstance(found, Stuck) and found.problem.code == "SAN-REST-015"
    assert isinstance(step(as_ordered(order)), restoring.CopyBackup)
