# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that is held as a copy: what the order says of it in each state, and what ends that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.device import OutdatedMark
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
    closes,
)
from sanctl.model.findings import Severity
from sanctl.model.names import DeviceName
from sanctl.model.release_needs import HELD_COPIES
from sanctl.model.site_copy import SiteCopy
from sanctl.model.site_takeover import Successor, Takeover
from sanctl.plan.device import restore_changes, restore_progress, restore_refusals, restore_request
from sanctl.plan.device.restore_distrust import plan_distrusted
from sanctl.plan.device.restoring import Begin, Copy, CopyFromSite, GiveUp, NothingToDo, Wait
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.health.site_health import site_findings
from sanctl.plan.site import hold_release
from sanctl.plan.site.choosing import copies_in_use
from sanctl.plan.site.takeover import copy_taken, plan_turn
from tests.unit.model.test_site import SITE
from tests.unit.plan.device.test_restoring import (
    CLOSED,
    COPY,
    FROM_SITE,
    GOOD,
    KEPT,
    NODES,
    OPEN,
    SPEC,
    asked,
    cluster,
    step,
)

LATER = COPY._replace(point="later", token="5" * 16, digest="d" * 64)
HOLDS = FROM_SITE._replace(holds=True)
HELD_ORDER = HOLDS.in_state(HELD)
#: To be `later`, and still `COPY`.
NEXT = HOLDS._replace(
    token="7" * 16, point=str(LATER), point_token="7" * 16, given_s=2000, base=COPY
)
SESSIONS: dict[str, tuple[Any, ...]] = {"n1": (), "n2": ()}


def needing(order: RestoreOrder) -> Cluster:
    """Return the cluster with an order, and what it has a release know."""
    seen = cluster(order, sites=(SITE,))
    device = replace(seen.cib.devices[0], needs=(HELD_COPIES,) if order.is_of_holds else ())
    return replace(seen, cib=replace(seen.cib, devices=(device,)))


def without_roles(seen: Cluster) -> Cluster:
    """Return a cluster as Pacemaker shows it while it reloads the device."""
    instances = tuple(replace(each, role=Role.UNPROMOTED) for each in seen.mon.instances)
    return replace(seen, mon=replace(seen.mon, instances=instances))


def ordered(changes: tuple[Change, ...]) -> RestoreOrder:
    """Return the order that a change gives."""
    values = [
        each.value
        for each in changes
        if isinstance(each, SetParameter) and each.parameter == "restore"
    ]
    order = RestoreOrder.parse(values[0])
    assert order is not None
    return order


def request(copy: SiteCopy = LATER, *, holds: bool = True) -> restore_request.RestoreRequest:
    return replace(asked(copy=copy), holds=holds)


def test_an_order_is_read_as_it_was_written_and_as_nothing_else() -> None:
    for order in (HOLDS, HOLDS.in_state(COPYING), HELD_ORDER, NEXT, NEXT._replace(holds=False)):
        assert RestoreOrder.parse(str(order)) == order and closes(str(order))
        # A release that does not know these words reads six, or seven with another one.
        words = str(order).split(" ")
        assert len(words) > 6 and words[6] != "kept-on-few"
    for order in (
        FROM_SITE._replace(state=HELD),
        HELD_ORDER._replace(point="good"),
        HELD_ORDER._replace(base=LATER),
        NEXT._replace(state=COPYING),
        NEXT._replace(state=DONE),
    ):
        assert RestoreOrder.parse(str(order)) is None and closes(str(order))
    for text in (f"{HOLDS} hold", f"{HOLDS} base=x", f"{NEXT} hold", f"{HELD_ORDER} more"):
        assert RestoreOrder.parse(text) is None and closes(text)


def test_a_device_is_held_at_the_end_and_let_in_by_a_command_alone() -> None:
    seen = needing(HOLDS)
    begun = ordered(restore_changes.plan_begun(seen, "web", HOLDS))
    assert begun == HOLDS.in_state(COPYING) and begun.holds
    held = ordered(restore_changes.plan_done(needing(begun), "web", begun, "n1"))
    assert held == HELD_ORDER and held.held_copy == COPY and held.is_open
    for is_closed in (True, False):
        assert step(needing(held), now_s=1e9, is_closed=is_closed) == NothingToDo()
    released = hold_release.plan_released(needing(held), SPEC.name)
    assert released == (
        ClearParameter(name=SPEC.name, parameter="needs"),
        SetParameter(name=SPEC.name, parameter="restore", value=str(FROM_SITE.in_state(DONE))),
    )
    # Which each release can read.
    assert len(str(ordered(released)).split(" ")) == 6


def test_what_a_release_has_to_know_comes_and_goes_with_the_order() -> None:
    given = restore_request.plan_restore(
        cluster(FROM_SITE._replace(state=DONE), points=()), request(), SESSIONS, 2000.0
    )
    need = SetParameter(name=SPEC.name, parameter="needs", value=HELD_COPIES)
    assert need in given and ordered(given).holds and ordered(given).base is None
    without = restore_request.plan_restore(
        cluster(FROM_SITE._replace(state=DONE), points=()), request(holds=False), SESSIONS, 2000.0
    )
    assert need not in without and not ordered(without).holds
    # Of one that is to let hosts in the base alone has to be known, and that goes with the begin.
    last = NEXT._replace(holds=False)
    gone = ClearParameter(name=SPEC.name, parameter="needs")
    assert gone in restore_changes.plan_begun(needing(last), "web", last)
    assert gone not in restore_changes.plan_begun(needing(NEXT), "web", NEXT)


def test_a_later_copy_of_a_device_that_is_held() -> None:
    changes = restore_request.plan_restore(needing(HELD_ORDER), request(), {}, 2000.0)
    assert changes == (SetParameter(name=SPEC.name, parameter="restore", value=str(NEXT)),)
    # Nothing is kept again: also where the point that was kept is gone.
    seen = replace(needing(NEXT), cib=replace(needing(NEXT).cib, points=(GOOD,)))
    wanted = CopyFromSite(site=SITE, copy=LATER, base=COPY)
    assert step(seen, now_s=2010.0) == Begin(goal=wanted)
    assert step(seen, is_closed=False) == Wait(why="n1 still lets hosts in")
    assert step(cluster(NEXT, sites=(SITE,), access=(CLOSED, OPEN))) == Wait(
        why="n2 still lets hosts in"
    )
    # From the begin on nothing says that the device is the earlier copy.
    begun = ordered(restore_changes.plan_begun(seen, "web", NEXT))
    assert begun.state == COPYING and begun.base is None and begun.holds and not begun.is_held
    assert step(needing(begun)) == CopyFromSite(site=SITE, copy=LATER)
    assert ordered(restore_changes.plan_done(needing(begun), "web", begun, "n1")).copy == LATER
    last = NEXT._replace(holds=False).in_state(COPYING)
    assert ordered(restore_changes.plan_done(needing(last), "web", last, "n1")).state == DONE


def test_what_stays_ordered_is_held_as_before() -> None:
    back = NEXT._replace(point=str(COPY), base=None, state=HELD)
    for order in (NEXT, NEXT._replace(holds=False)):
        assert ordered(restore_changes.plan_cancelled(needing(order), SPEC.name)) == back
        assert ordered(restore_changes.plan_given_up(needing(order), "web", order)) == back
    assert ordered(restore_changes.plan_cancelled(needing(HOLDS), SPEC.name)).state == GIVEN_UP
    assert not HOLDS.withdrawn.is_open and not HOLDS.withdrawn.is_of_holds
    # As where it cannot begin for too long, or the site is not known any more.
    found = step(cluster(NEXT, sites=(SITE,), access=(CLOSED, OPEN)), waited_s=ORDER_LIFE_S + 1.0)
    assert isinstance(found, GiveUp) and "n2 still lets hosts in" in found.problem.text
    assert isinstance(step(cluster(NEXT)), GiveUp)


def test_the_same_copy_and_other_requests() -> None:
    for holds in (True, False):
        same = replace(request(COPY, holds=holds), accepted=("SAN-REST-016",))
        assert restore_request.plan_restore(needing(HELD_ORDER), same, {}, 2000.0) == ()
        assert restore_request.plan_restore(needing(HOLDS), same, {}, 2000.0) == ()
    for order in (HELD_ORDER, HOLDS, HOLDS.in_state(COPYING)):
        for copy in (COPY, LATER):
            with pytest.raises(Refused, match="SAN-REST-016"):
                wanted = request(copy, holds=False)
                restore_request.plan_restore(needing(order), wanted, {}, 2000.0)
    # One that lets hosts in by itself is not taken for one that does not.
    with pytest.raises(Refused, match="SAN-REST-005"):
        restore_request.plan_restore(needing(FROM_SITE), request(COPY), {}, 2000.0)
    with pytest.raises(Refused, match="SAN-REST-005"):
        restore_request.plan_restore(needing(NEXT), request(COPY), {}, 2000.0)
    # The way back to what was kept, by which the device is held no more.
    back = replace(asked(), point="kept")
    order = ordered(restore_request.plan_restore(needing(HELD_ORDER), back, {}, 2000.0))
    assert order.state == ORDERED and order.base == COPY and not order.holds
    assert step(needing(order)) == Begin(goal=Copy(point=KEPT))
    assert order.withdrawn.state == HELD and order.withdrawn.copy == COPY
    # What is neither state is overwritten as a whole.
    copying = HOLDS.in_state(COPYING)
    for holds in (True, False):
        wanted = replace(request(holds=holds), accepted=("SAN-REST-016",))
        order = ordered(restore_request.plan_restore(needing(copying), wanted, {}, 2000.0))
        assert order.state == COPYING and order.base is None and order.holds is holds


@pytest.mark.parametrize(
    ("order", "copy", "code"),
    [
        (HELD_ORDER, LATER, "SAN-REST-014"),
        (HOLDS, None, "SAN-REST-005"),
        (HOLDS.in_state(COPYING), None, "SAN-REST-005"),
        (NEXT, COPY, "SAN-REST-005"),
        (None, None, "SAN-REST-010"),
    ],
)
def test_what_is_not_released(order: RestoreOrder | None, copy: SiteCopy | None, code: str) -> None:
    with pytest.raises(Refused, match=code):
        hold_release.plan_released(cluster(order), SPEC.name, copy)


def test_what_is_released_already_or_may_not_change() -> None:
    assert hold_release.plan_released(cluster(FROM_SITE._replace(state=DONE)), SPEC.name) == ()
    assert ordered(hold_release.plan_released(needing(HELD_ORDER), SPEC.name, COPY)).state == DONE
    with pytest.raises(Refused, match="SAN-CLU-001"):
        hold_release.plan_released(cluster(HELD_ORDER, has_quorum=False), SPEC.name)
    with pytest.raises(Refused, match="SAN-REST-014"):
        restore_changes.plan_cancelled(needing(HELD_ORDER), SPEC.name)


def test_what_would_change_the_device_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        seen = needing(HELD_ORDER)
        restore_refusals.refuse_while_restoring(seen, seen.cib.devices[0])
    (problem,) = refused.value.problems
    assert problem.code == "SAN-REST-014" and "failback web --release" in problem.hint
    assert "device restore web" in problem.hint
    nothing = HELD_ORDER._replace(kept_token="")
    problem = restore_refusals.held_problem(SPEC, nothing)
    assert "device restore" not in problem.hint
    # The point that was kept is the way back.
    with pytest.raises(Refused, match="SAN-REST-014"):
        restore_refusals.refuse_deletion_of(needing(HELD_ORDER), KEPT)


def distrusted(seen: Cluster) -> tuple[Change, ...]:
    return plan_distrusted(seen, seen.cib.devices[0])


def test_a_choice_of_a_replica_has_all_read() -> None:
    """The one that is kept may lack the copy, or a part of it."""
    found = ordered(distrusted(needing(HELD_ORDER)))
    assert found.state == COPYING and found.copy == COPY and found.holds
    # A process that began before ends nothing.
    assert found.token != HELD_ORDER.token and found.point_token == found.token
    found = ordered(distrusted(needing(NEXT)))
    assert found.state == COPYING and found.copy == LATER and found.base is None
    for order in (HOLDS, HOLDS.in_state(COPYING)):
        found = ordered(distrusted(needing(order)))
        assert found.state == order.state and found.token != order.token
    back = NEXT._replace(point="kept", point_token=KEPT.token, holds=False)
    found = ordered(distrusted(needing(back)))
    assert found.point_token == KEPT.token and found.state == COPYING
    # So it is of one that is not to be held: what was filled so far may be on the other replica.
    to_point = RestoreOrder("1" * 16, "good", GOOD.token, KEPT.token, 1000, COPYING)
    backup = RestoreOrder.from_backup("1" * 16, "far", "b", 1000)
    for order in (FROM_SITE.in_state(COPYING), to_point, backup):
        found = ordered(distrusted(cluster(order)))
        assert found.state == COPYING and found.token != order.token and not found.holds
        assert found.point == order.point and found.kept_token == order.kept_token
        assert found.point_token == (GOOD.token if order is to_point else found.token)
    for other in (FROM_SITE, FROM_SITE.in_state(DONE), None):
        assert distrusted(cluster(other)) == ()
    assert HELD_ORDER._replace(token="f" * 16).distrusted.token == "0" * 16


@pytest.mark.parametrize("order", [HOLDS.in_state(COPYING), FROM_SITE.in_state(COPYING)])
def test_a_replica_that_is_marked_is_not_said_to_be_the_copy(order: RestoreOrder) -> None:
    """Of the node that has filled it, also where Pacemaker shows no role."""
    mark = OutdatedMark(device="web", node=NODES[0], uuid=SPEC.uuid)
    for seen in (needing(order), without_roles(needing(order))):
        marked = replace(seen, cib=replace(seen.cib, outdated=(mark,)))
        with pytest.raises(CommandError, match="n1 is marked as outdated"):
            restore_changes.plan_done(marked, "web", order, "n1")
        other = replace(seen, cib=replace(seen.cib, outdated=(replace(mark, node=NODES[1]),)))
        assert restore_changes.plan_done(other, "web", order, "n1")
    with pytest.raises(CommandError, match="n1 serves web, and not n2"):
        restore_changes.plan_done(needing(order), "web", order, "n2")


def test_what_is_said_of_it() -> None:
    seen = needing(HELD_ORDER)
    device = seen.cib.devices[0]
    assert restore_progress.progress_text(seen, device) == "held: it is that copy"
    assert restore_progress.stuck_problem(cluster(HELD_ORDER), device) is None, "no site is needed"
    (finding,) = restore_findings(seen, device)
    assert finding.code == "SAN-HLT-167" and "web.eeeeeeee@to-far" in finding.what
    assert "failback web --release" in finding.do
    (finding,) = restore_findings(needing(NEXT), needing(NEXT).cib.devices[0])
    assert finding.code == "SAN-HLT-110"


def test_the_finding_says_whether_the_roles_have_turned() -> None:
    """The hosts of neither device have it once they have: that is no time to wait for a copy."""
    takeover = Takeover("web", "far", SPEC.uuid, Successor("web", COPY.uuid, "to-far", 7))
    for turn, severity, said, do in (
        ("", Severity.WARNING, "the roles have not turned", "COPY --takeover'"),
        (ASKED, Severity.CRITICAL, "whether site far has noted", "'sanctl replicate takeover web'"),
        (TURNED, Severity.CRITICAL, "it goes on instead of web.eeeeeeee", "web --release'"),
    ):
        order = HELD_ORDER._replace(turn=turn)
        assert RestoreOrder.parse(str(order)) == order
        seen = needing(order)
        (finding,) = restore_findings(seen, seen.cib.devices[0])
        assert (finding.code, finding.severity) == ("SAN-HLT-167", severity)
        assert said in finding.what and do in finding.do and "web --release'" in finding.do
        assert ("--copy COPY" in finding.do) is (not turn)
        taken = replace(seen, cib=replace(seen.cib, takeovers=(takeover,)))
        (finding,) = restore_findings(taken, seen.cib.devices[0])
        assert ("since 1970-01-01" in finding.what) is (turn != ASKED)
        # It says nothing of what comes after.
        for state in (DONE, GIVEN_UP):
            assert order.in_state(state).turn == ""
        for state in (DONE, GIVEN_UP, ORDERED):
            assert turn == "" or RestoreOrder.parse(str(order._replace(state=state))) is None
    assert RestoreOrder.parse(str(HELD_ORDER._replace(turn="other"))) is None
    text = restore_progress.progress_text(seen, seen.cib.devices[0])
    assert text == "held: it is that copy, and the roles have turned"
    own = needing(HELD_ORDER._replace(point=str(COPY._replace(uuid=SPEC.uuid))))
    (finding,) = restore_findings(own, own.cib.devices[0])
    assert "of the device itself" in finding.what and "--takeover" not in finding.do


def test_the_turn_outlives_what_ends_before_hosts_are_let_in() -> None:
    """A later copy that is withdrawn, and a choice of a replica: the roles are as they were."""
    for turn in (ASKED, TURNED):
        held = HELD_ORDER._replace(turn=turn)
        later = ordered(restore_request.plan_restore(needing(held), request(), {}, 2000.0))
        assert later.base == COPY and later.turn == turn
        assert RestoreOrder.parse(str(later)) == later
        back = later.withdrawn
        assert back.state == HELD and back.copy == COPY and back.turn == turn
        for order in (held.distrusted, later.distrusted, later.in_state(COPYING)):
            assert RestoreOrder.parse(str(order)) == order and order.state == COPYING
            assert order.turn == turn and order.in_state(HELD).turn == turn
            assert order.in_state(DONE).turn == ""
            third = request(LATER._replace(point="third", token="3" * 16))
            again = ordered(restore_request.plan_restore(needing(order), third, {}, 2000.0))
            assert again.state == COPYING and again.turn == turn
        # Of another device the roles have not turned; nor does it say so where hosts are let in.
        other = LATER._replace(uuid="9" * 32)
        assert later._replace(point=str(other)).in_state(COPYING).turn == ""
        assert later._replace(holds=False).in_state(COPYING).turn == ""
        to_point = later._replace(point="kept", point_token=KEPT.token, holds=False)
        assert to_point.in_state(COPYING).turn == "" and to_point.withdrawn.turn == turn
        assert RestoreOrder.parse(str(later.in_state(COPYING)._replace(holds=False))) is None


def test_hosts_are_not_let_in_to_a_device_that_was_taken_over() -> None:
    """The finding does not say so either: both would have hosts that write."""
    takeover = Takeover("web", "far", SPEC.uuid, Successor("web", COPY.uuid, "to-far", 7))
    for turn in ("", ASKED, TURNED):
        seen = needing(HELD_ORDER._replace(turn=turn))
        taken = replace(seen, cib=replace(seen.cib, takeovers=(takeover,)))
        with pytest.raises(Refused, match="SAN-REST-017") as refused:
            hold_release.plan_released(taken, SPEC.name)
        assert "replicate giveback web --at far" in refused.value.problems[0].hint
        accepted = (hold_release.GOES_ON_ELSEWHERE,)
        changes = hold_release.plan_released(taken, SPEC.name, None, accepted)
        assert ordered(changes).state == DONE
        (finding,) = restore_findings(taken, taken.cib.devices[0])
        has_word = "giveback web --at far" if turn != ASKED else "replicate takeover web"
        assert finding.do.index(has_word) < finding.do.index("--release")
        if turn == TURNED:
            assert finding.severity is Severity.CRITICAL and "and yet device web" in finding.what
        # Of an earlier device of the name.
        gone = replace(seen, cib=replace(seen.cib, takeovers=(takeover._replace(uuid="9" * 32),)))
        if turn != ASKED:
            assert hold_release.plan_released(gone, SPEC.name)
    with pytest.raises(Refused, match="whether site far has noted"):
        hold_release.plan_released(needing(HELD_ORDER._replace(turn=ASKED)), SPEC.name)


def test_what_is_said_of_a_takeover_while_it_is_held() -> None:
    takeover = Takeover("web", "far", SPEC.uuid, Successor("web", COPY.uuid, "to-far", 7))
    other = takeover._replace(successor=takeover.successor._replace(uuid="9" * 32))
    for order, seen_takeover, is_said in (
        (HELD_ORDER, takeover, True),
        (HELD_ORDER, other, False),
        (NEXT, takeover, False),
        (None, takeover, False),
    ):
        seen = needing(order) if order is not None else cluster(None)
        seen = replace(seen, cib=replace(seen.cib, takeovers=(seen_takeover,)))
        (finding,) = site_findings(seen, now_s=0.0)
        assert finding.code == "SAN-HLT-116" and ("SAN-HLT-167" in finding.do) is is_said


def test_how_far_the_turn_is_is_said_of_held_devices_alone() -> None:
    seen = needing(HELD_ORDER)
    (change,) = plan_turn(seen, [SPEC.name], ASKED)
    assert isinstance(change, SetParameter)
    order = RestoreOrder.parse(change.value)
    assert order == HELD_ORDER._replace(turn=ASKED)
    assert plan_turn(needing(order), [SPEC.name], ASKED) == ()
    for other in (HOLDS, NEXT.in_state(COPYING), FROM_SITE.in_state(DONE)):
        assert plan_turn(needing(other), [SPEC.name], ASKED) == ()
    assert plan_turn(cluster(None), [SPEC.name, DeviceName.parse("none")], ASKED) == ()


def test_the_copies_that_it_needs_stay_at_the_site() -> None:
    assert copies_in_use(needing(HELD_ORDER), "far") == {COPY.token}
    assert copies_in_use(needing(NEXT), "far") == {COPY.token, LATER.token}


def test_a_device_that_is_held_takes_over() -> None:
    assert copy_taken(needing(HELD_ORDER).cib.devices[0]) == COPY
    for order in (NEXT, HOLDS.in_state(COPYING)):
        with pytest.raises(Refused, match="SAN-SITE-022"):
            copy_taken(needing(order).cib.devices[0])


def prefixes() -> Iterator[tuple[str, RestoreOrder]]:
    """Yield what the CIB has after each step of two failbacks, and what is on the device then."""
    yield "before", HOLDS
    yield "mixed", HOLDS.in_state(COPYING)
    yield "first", HELD_ORDER
    yield "first", NEXT
    yield "mixed", NEXT.in_state(COPYING)
    yield "later", NEXT.in_state(HELD)
    yield "later", NEXT.in_state(DONE)


def test_whatever_dies_nothing_is_taken_for_a_copy_that_it_is_not() -> None:
    """What is left for the next process by each state, if the one before died in it."""
    for content, order in prefixes():
        read = RestoreOrder.parse(str(order))
        assert read == order
        found = step(needing(order), now_s=order.given_s + 10.0)
        goal = found.goal if isinstance(found, Begin) else found
        base = goal.base if isinstance(goal, CopyFromSite) else None
        assert base is None or (content == "first" and base == COPY)
        is_claimed = order.state in {HELD, DONE}
        assert not is_claimed or content == ("first" if order.copy == COPY else "later")
        assert order.is_open is (order.state != DONE), "no host before the end"
