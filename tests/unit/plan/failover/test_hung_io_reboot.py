# SPDX-License-Identifier: GPL-2.0-or-later
"""When a request that waits ends the node, and when it does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.plan.failover.hung_io_reboot import (
    FORGOTTEN_AFTER_S,
    HANGING_AFTER_S,
    HungIoAction,
    choose_action,
)

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
        (forgotten(), GOOD, False, HungIoAction.END),
        (forgotten(), GONE, True, HungIoAction.END),
        (forgotten(), GONE, False, HungIoAction.WAIT),
        (forgotten(FORGOTTEN_AFTER_S - 0.1), GOOD, True, HungIoAction.FINE),
        (hanging(), GOOD, False, HungIoAction.END),
        (hanging(), GONE, True, HungIoAction.WAIT),
        (hanging(HANGING_AFTER_S - 0.1), GOOD, True, HungIoAction.FINE),
        # DRBD drops a peer that does not answer (ko-count).
        (awaited(), GOOD, True, HungIoAction.FINE),
    ],
)
def test_who_ends_the_node(
    request_: OldRequest, peer: PeerState, is_silent: bool, verdict: HungIoAction
) -> None:
    found, reason = choose_action([awaited(), request_], resource(peer), is_silent=is_silent)
    assert found is verdict
    assert bool(reason) is (verdict is not HungIoAction.FINE)


ages = st.floats(0, 1e6)
requests = st.lists(st.one_of(ages.map(forgotten), ages.map(hanging), ages.map(awaited)))


@given(requests, st.booleans(), st.sampled_from([GOOD, GONE]))
def test_a_freeze_and_a_standby_are_no_concern_of_this(
    those: list[OldRequest], is_silent: bool, peer: PeerState
) -> None:
    for state in (resource(peer, suspended="fencing"), resource(peer, role="Secondary")):
        assert choose_action(those, state, is_silent=is_silent) == (HungIoAction.FINE, "")


@given(requests, st.booleans())
def test_without_a_good_peer_a_disk_never_ends_the_node(
    those: list[OldRequest], is_silent: bool
) -> None:
    only = [request for request in those if not request.waits_for_nothing]
    assert choose_action(only, resource(GONE), is_silent=is_silent)[0] is not HungIoAction.END
