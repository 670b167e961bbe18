# SPDX-License-Identifier: GPL-2.0-or-later
"""Which peers one of four replicas connects to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.drbd.connection_limit import (
    ALL_PEERS,
    ConnectionLimit,
    initial_limit,
    is_isolated,
    is_limit_applied,
    next_limit,
)

FOUR = ("n1", "n2", "n3", "n4")
HERE = "n3"


def peer(
    name: str, *, connection: str = "Connected", replication: str = "Established"
) -> PeerState:
    role = "Primary" if name == "n1" else "Secondary"
    return PeerState(name, connection, role, replication, "UpToDate", 0)


def state(*peers: PeerState, disk: str = "UpToDate", role: str = "Secondary") -> ResourceState:
    return ResourceState("vol", role, "no", disk, 1024, peers, has_quorum=True)


FILLED = state(peer("n1", replication="SyncTarget"), disk="Inconsistent")
IN_SYNC = state(peer("n1"))
ISOLATED = state(*(peer(name, connection="Connecting") for name in ("n1", "n2", "n4")))
WITH_N1 = ConnectionLimit("n1")

states = st.sampled_from(
    (
        FILLED,
        IN_SYNC,
        ISOLATED,
        state(peer("n1"), peer("n2"), peer("n4")),
        state(disk="Outdated"),
        state(peer("n1", connection="StandAlone"), disk="Consistent"),
        state(peer("n2"), role="Primary"),
    )
)


def test_a_starting_replica_connects_to_the_primary_alone() -> None:
    assert initial_limit(FOUR, HERE, "n1") == WITH_N1


@pytest.mark.parametrize(
    ("nodes", "serving"), [(FOUR, ""), (FOUR, HERE), (FOUR, "n9"), (FOUR[:3], "n1")]
)
def test_without_a_reason_it_connects_to_all_peers(nodes: tuple[str, ...], serving: str) -> None:
    assert initial_limit(nodes, HERE, serving) == ALL_PEERS
    lost = state(peer("n1", connection="Connecting"), disk="Inconsistent")
    assert next_limit(nodes, HERE, serving, lost, WITH_N1) == ALL_PEERS


def test_the_limit_stays_while_the_device_moves() -> None:
    """No node serves for a moment, and the former Primary still resyncs it."""
    assert next_limit(FOUR, HERE, "", FILLED, WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "", IN_SYNC, WITH_N1) == ALL_PEERS
    moved = next_limit(FOUR, HERE, "n4", FILLED, WITH_N1)
    assert moved == ConnectionLimit("n4", must_reinitialize=True)


def test_the_limit_stays_until_the_replica_is_in_sync() -> None:
    assert next_limit(FOUR, HERE, "n1", FILLED, WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "n1", IN_SYNC._replace(disk="Outdated"), WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "n1", ISOLATED, WITH_N1) == WITH_N1  # and made so
    assert next_limit(FOUR, HERE, "n1", IN_SYNC, WITH_N1) == ALL_PEERS


@pytest.mark.parametrize(
    ("disk", "anew"), [("Inconsistent", True), ("Outdated", False), ("UpToDate", False)]
)
def test_a_partly_resynced_replica_is_reinitialized_for_another_source(
    disk: str, anew: bool
) -> None:
    seen = state(peer("n1", connection="Connecting"), disk=disk)
    assert next_limit(FOUR, HERE, "n4", seen, WITH_N1) == ConnectionLimit(
        "n4", must_reinitialize=anew
    )


def test_an_isolated_replica_reconnects_to_the_primary_alone() -> None:
    assert next_limit(FOUR, HERE, "n1", ISOLATED, ALL_PEERS) == WITH_N1
    some = state(peer("n2"), peer("n1", connection="Connecting"), peer("n4"))
    assert next_limit(FOUR, HERE, "n1", some, ALL_PEERS) == ALL_PEERS
    refused = state(*(peer(name, connection="StandAlone") for name in ("n1", "n2", "n4")))
    assert (
        not is_isolated(refused) and next_limit(FOUR, HERE, "n1", refused, ALL_PEERS) == ALL_PEERS
    )


@given(
    states,
    st.sampled_from(("", *FOUR)),
    st.sampled_from((ALL_PEERS, WITH_N1, ConnectionLimit("n4"))),
)
def test_a_stale_replica_connects_to_no_peer_but_the_primary(
    seen: ResourceState, serving: str, now: ConnectionLimit
) -> None:
    told = next_limit(FOUR, HERE, serving, seen, now)
    assert told.only in {"", serving} or (serving in {"", HERE} and told == now)
    assert told.only != HERE
    if now.only and told == ALL_PEERS and serving not in {"", HERE} and not seen.is_primary:
        assert seen.with_only_peer(serving).is_in_sync and now.only == serving
    # It rests where it has come to.
    again = next_limit(FOUR, HERE, serving, seen, ConnectionLimit(told.only))
    assert again.only == told.only or seen.with_only_peer(serving).is_in_sync


def test_a_limit_is_applied_when_drbd_has_just_its_connections() -> None:
    assert is_limit_applied(WITH_N1, FOUR, HERE, FILLED)
    assert not is_limit_applied(ALL_PEERS, FOUR, HERE, FILLED)
    assert is_limit_applied(ALL_PEERS, FOUR, HERE, ISOLATED)
