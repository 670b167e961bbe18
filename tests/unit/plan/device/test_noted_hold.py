# SPDX-License-Identifier: GPL-2.0-or-later
"""What a node makes of the order that it has noted beside a device's data, and of an older CIB."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import ReplicaState
from sanctl.model.device_restore import (
    COPYING,
    DONE,
    GIVEN_UP,
    HELD,
    OLDER_KEY,
    RestoreOrder,
    packed,
)
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.device import restore_refusals, restore_request
from sanctl.plan.device.noted_hold import closes_older, is_older, may_be_base, next_note
from sanctl.plan.health.restore_health import restore_findings
from sanctl.plan.site import hold_release
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
from tests.unit.plan.device.test_restoring import COPY, FROM_SITE, SPEC, cluster

#: What an older CIB may have, or a newer one, by when the order was given.
BEFORE = FROM_SITE._replace(token="e" * 16, given_s=HOLDS.given_s - 1, state=DONE)
AFTER = FROM_SITE._replace(token="1" * 16, given_s=HOLDS.given_s + 1, state=DONE)
ENDED = HELD_ORDER.in_state(DONE)


@pytest.mark.parametrize(
    ("order", "is_before"),
    [
        ("", True),
        ("as no release writes it", True),
        (str(BEFORE), True),
        (str(AFTER), False),
        (str(ENDED), False),
        (str(HELD_ORDER.distrusted.in_state(DONE)), False),
        (str(AFTER._replace(given_s=HOLDS.given_s, token="0" * 16)), True),
    ],
)
def test_a_cib_is_older_by_its_order(order: str, is_before: bool) -> None:
    assert is_older(order, str(HELD_ORDER)) is is_before
    assert closes_older(order, str(HELD_ORDER)) is is_before
    # What has ended here lets hosts in, whatever an older CIB does not say of it.
    assert not closes_older(order, str(ENDED)) and not closes_older(order, "")
    assert is_older(order, "damaged") and closes_older(order, "damaged")


def test_only_a_hold_is_noted_and_what_follows_it() -> None:
    for order in (HOLDS, HELD_ORDER, NEXT, NEXT._replace(holds=False)):
        assert next_note(str(order), "") == str(order)
        assert next_note(str(order), "damaged") == str(order)
        assert next_note(str(order), str(order)) is None
    for text in ("", "as no release writes it", str(FROM_SITE), str(ENDED)):
        assert next_note(text, "") is None and next_note(text, "damaged") is None
    # Each of these is known after the one before.
    chain = [HOLDS, HOLDS.in_state(COPYING), HELD_ORDER, NEXT, NEXT.in_state(COPYING)]
    chain += [NEXT.in_state(COPYING).in_state(HELD), NEXT.in_state(DONE)]
    chain += [FROM_SITE._replace(token="9" * 16, given_s=3000, state=COPYING)]
    for known, order in itertools.pairwise(chain):
        assert next_note(str(order), str(known)) == str(order)
    # A node that was away meanwhile.
    held = NEXT.in_state(HELD)
    for known in (HOLDS, HOLDS.in_state(COPYING), ENDED):
        assert next_note(str(held), str(known)) == str(held)
    assert next_note(str(HELD_ORDER), str(NEXT)) is None, "of an older CIB"


def test_a_hold_that_has_ended_here_is_not_begun_again() -> None:
    """A CIB of before the end says that the device is the copy; hosts have written to it since."""
    for order in (HELD_ORDER, NEXT):
        assert next_note(str(order), str(ENDED)) is None
    # Nor by an order to fill it which that CIB has: the end would be forgotten here.
    for order in (HOLDS, HOLDS.in_state(COPYING), BEFORE.in_state(COPYING)):
        for noted in (ENDED, ENDED._replace(given_s=9000)):
            assert next_note(str(order), str(noted)) is None
    assert may_be_base(HOLDS, str(ENDED)), "it says nothing of what the device is"
    assert not may_be_base(NEXT, str(ENDED))
    # Once all is read it is another hold.
    begun = NEXT.in_state(COPYING)
    assert next_note(str(begun), str(ENDED)) == str(begun)


def test_what_a_device_was_held_as_is_compared_with_the_note() -> None:
    for noted in ("", str(HELD_ORDER), str(NEXT)):
        assert may_be_base(NEXT, noted)
    # Another order of the same base may have begun where this node did not see it.
    other = NEXT._replace(token="8" * 16)
    for order in (NEXT, NEXT._replace(given_s=NEXT.given_s + 1)):
        assert not may_be_base(order, str(other)) and next_note(str(order), str(other)) is None
    # It was half of another copy when its node lost its power.
    for known in (HOLDS, HOLDS.in_state(COPYING), HELD_ORDER._replace(point=str(LATER))):
        assert not may_be_base(NEXT, str(known)) and next_note(str(NEXT), str(known)) is None
    assert not may_be_base(NEXT, "damaged")


def with_notes(seen: Cluster, **orders: RestoreOrder | None) -> Cluster:
    """Return a cluster in which nodes say that the CIB is older than what they have noted."""
    replicas = dict(seen.cib.replicas)
    for node, order in orders.items():
        known = replicas.get(("web", node), ReplicaState())
        replicas["web", node] = replace(known, is_cib_older=True, noted_hold=order)
    return replace(seen, cib=replace(seen.cib, replicas=replicas))


def test_what_is_published_is_read() -> None:
    found = parse_replica_state(f"disk=UpToDate {OLDER_KEY}={packed(str(NEXT))} role=Primary")
    assert found.is_cib_older and found.noted_hold == NEXT and found.role == "Primary"
    found = parse_replica_state(f"{OLDER_KEY}=damaged")
    assert found.is_cib_older and found.noted_hold is None
    assert not parse_replica_state("disk=UpToDate").is_cib_older


def test_the_finding_names_the_node_and_the_way_out() -> None:
    seen = cluster(BEFORE)
    device = seen.cib.devices[0]
    assert list(restore_findings(seen, device)) == []
    for order, said in (
        (HELD_ORDER, f"is copy {COPY.name}"),
        (NEXT, f"is copy {COPY.name}, and was to be copy {LATER.name}"),
        (HOLDS.in_state(COPYING), f"was being filled from copy {COPY.name}"),
        (None, "n2 has a note that cannot be read"),
    ):
        (finding,) = restore_findings(with_notes(seen, n2=order), device)
        assert finding.code == "SAN-HLT-170" and said in finding.what and "n2" in finding.what
        assert "failback web --release" in finding.do and "the newer CIB" in finding.do
        assert "--copy COPY --hold" in finding.do, "beside no other device"
        assert ("--accept SAN-REST-015" in finding.do) is (order is not None)
        assert ("device restore web --to POINT" in finding.do) is (order is None)
    # What it is held as by the CIB it may not be.
    held = needing(HELD_ORDER)
    for noted, said in ((NEXT, "was to be"), (ENDED._replace(given_s=5000), "is held no more")):
        (finding,) = restore_findings(with_notes(held, n2=noted), held.cib.devices[0])
        assert finding.code == "SAN-HLT-170" and said in finding.what
    filled = needing(HOLDS.in_state(COPYING))
    for noted, code in ((HELD_ORDER, "SAN-HLT-110"), (NEXT, "SAN-HLT-170")):
        (finding,) = restore_findings(with_notes(filled, n2=noted), filled.cib.devices[0])
        assert finding.code == code


def test_what_cannot_be_noted_is_a_finding() -> None:
    """Also where hosts are let in: an older CIB would say that the device is the copy still."""
    for order, codes, said in (
        (HELD_ORDER, ["SAN-HLT-175", "SAN-HLT-167"], "by which order it is held"),
        (ENDED, ["SAN-HLT-175"], "that it is held no more"),
        # Of a device that was never held, as where the disk gives an error.
        (
            FROM_SITE,
            ["SAN-HLT-175", "SAN-HLT-110"],
            "its restore, which is noted where it was held before",
        ),
    ):
        seen = needing(order)
        state = replace(seen.cib.replicas["web", "n2"], is_hold_unnoted=True)
        replicas = {**seen.cib.replicas, ("web", "n2"): state}
        seen = replace(seen, cib=replace(seen.cib, replicas=replicas))
        found = list(restore_findings(seen, seen.cib.devices[0]))
        assert [each.code for each in found] == codes
        assert found[0].what == f"n2 cannot note beside its data {said}"


def test_the_finding_says_where_hosts_are_let_in() -> None:
    """A standby alone may have the note, as where the node that serves was away then."""
    seen = cluster(BEFORE)
    for notes, said in (
        ({"n1": HELD_ORDER}, "no host is let in: "),
        ({"n1": HELD_ORDER, "n2": NEXT}, "no host is let in: "),
        ({"n2": NEXT}, "on n2 no host is let in; n1 serves it, and lets hosts in: "),
    ):
        (finding,) = restore_findings(with_notes(seen, **notes), seen.cib.devices[0])
        assert finding.what.startswith(said), finding.what


def test_hosts_are_let_in_only_where_that_is_accepted() -> None:
    seen = with_notes(cluster(BEFORE), n1=HELD_ORDER, n2=NEXT)
    with pytest.raises(Refused, match="SAN-REST-015") as refused:
        hold_release.plan_released(seen, SPEC.name)
    assert "--accept SAN-REST-015" in refused.value.problems[0].hint
    accepted = (restore_refusals.OLDER_CIB,)
    changes = hold_release.plan_released(seen, SPEC.name, None, accepted)
    order = ordered(changes)
    # Which no node takes for an older one, and which says nothing of what is on the device.
    assert order == NEXT._replace(given_s=NEXT.given_s + 1).in_state(GIVEN_UP)
    assert order.held_copy is None
    for noted in (HELD_ORDER, NEXT):
        assert not closes_older(str(order), str(noted))
        assert next_note(str(order), str(noted)) == str(order)
    # Where one cannot be read no order is known to be newer.
    seen = with_notes(seen, n1=None)
    with pytest.raises(Refused, match="cannot be read") as refused:
        hold_release.plan_released(seen, SPEC.name, None, accepted)
    assert "--release" in refused.value.problems[0].hint
    assert "device restore web --to POINT" in refused.value.problems[0].hint
    assert "--accept" not in refused.value.problems[0].hint, "it would not let them in"
    assert hold_release.plan_released(cluster(BEFORE), SPEC.name, None, accepted) == ()


def test_an_order_is_newer_than_each_before_whatever_the_clocks_say() -> None:
    slow_s = 5.0
    seen = cluster(FROM_SITE._replace(state=DONE, given_s=7000), points=())
    for noted, least in ((None, 7001), (HELD_ORDER._replace(given_s=9000), 9001)):
        found = with_notes(seen, n2=noted) if noted else seen
        changes = restore_request.plan_restore(found, request(), SESSIONS, slow_s)
        assert ordered(changes).given_s == least
    changes = restore_request.plan_restore(needing(HELD_ORDER), request(), SESSIONS, slow_s)
    assert ordered(changes).given_s == HELD_ORDER.given_s + 1
    assert any(isinstance(each, SetParameter) for each in changes)
