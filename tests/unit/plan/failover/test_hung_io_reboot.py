# SPDX-License-Identifier: GPL-2.0-or-later
"""When a request that waits ends the node, and when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.plan.failover.hung_io_reboot import FORGOTTEN_AFTER_S, HANGING_AFTER_S, Verdict, judge

GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
GONE = PeerState("peer", "Connecting", "Unknown", "Off", "DUnknown", 0)


def resource(*peers: PeerState, role: str = "Primary", suspended: str = "no") -> ResourceState:
    return ResourceState("vol", role, suspended, "UpToDate", 1024, peers)


def forgotten(age_s: float = FORGOTTEN_AFTER_S) -> OldRequest:
    return OldRequest(age_s, True, frozenset({"completed", "ok"}), frozenset({"done", "ok"}))


def hanging(age_s: float = HANGING_AFTER_S) -> OldRequest:
    return OldRequest(age_s, False, frozenset({"pending"}), frozenset({"done", "ok"}))


def awaited(age_s: float = 1e6) -> OldRequest:
    return OldRequest(age_s, False, frozenset({"completed", "ok"}), frozenset({"pending", "sent"}))


@pytest.mark.parametrize(
    ("request_", "peer", "is_silent", "verdict"),
    [
        (forgotten(), GOOD, False, Verdict.END),
        (forgotten(), GONE, True, Verdict.END),
        (forgotten(), GONE, False, Verdict.WAIT),
        (forgotten(FORGOTTEN_AFTER_S - 0.1), GOOD, True, Verdict.FINE),
        (hanging(), GOOD, False, Verdict.END),
        (hanging(), GONE, True, Verdict.WAIT),
        (hanging(HANGING_AFTER_S - 0.1), GOOD, True, Verdict.FINE),
        # DRBD drops a peer that does not answer (ko-count).
        (awaited(), GOOD, True, Verdict.FINE),
    ],
)
def test_who_ends_the_node(
    request_: OldRequest, peer: PeerState, is_silent: bool, verdict: Verdict
) -> None:
    found, reason = judge([awaited(), request_], resource(peer), is_silent=is_silent)
    assert found is verdict
    assert bool(reason) is (verdict is not Verdict.FINE)


ages = st.floats(0, 1e6)
requests = st.lists(st.one_of(ages.map(forgotten), ages.map(hanging), ages.map(awaited)))


@given(requests, st.booleans(), st.sampled_from([GOOD, GONE]))
def test_a_freeze_and_a_standby_are_no_concern_of_this(
    those: list[OldRequest], is_silent: bool, peer: PeerState
) -> None:
    for state in (resource(peer, suspended="fencing"), resource(peer, role="Secondary")):
        assert judge(those, state, is_silent=is_silent) == (Verdict.FINE, "")


@given(requests, st.booleans())
def test_without_a_good_peer_a_disk_never_ends_the_node(
    those: list[OldRequest], is_silent: bool
) -> None:
    only = [request for request in those if not request.waits_for_nothing]
    assert judge(only, resource(GONE), is_silent=is_silent)[0] is not Verdict.END
