# SPDX-License-Identifier: GPL-2.0-or-later
"""Whom one of four copies meets."""

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
IN_STEP = state(peer("n1"))
LONELY = state(*(peer(name, connection="Connecting") for name in ("n1", "n2", "n4")))
WITH_N1 = ConnectionLimit("n1")

states = st.sampled_from(
    (
        FILLED,
        IN_STEP,
        LONELY,
        state(peer("n1"), peer("n2"), peer("n4")),
        state(disk="Outdated"),
        state(peer("n1", connection="StandAlone"), disk="Consistent"),
        state(peer("n2"), role="Primary"),
    )
)


def test_a_copy_that_starts_meets_the_node_that_serves_alone() -> None:
    assert initial_limit(FOUR, HERE, "n1") == WITH_N1


@pytest.mark.parametrize(
    ("nodes", "serving"), [(FOUR, ""), (FOUR, HERE), (FOUR, "n9"), (FOUR[:3], "n1")]
)
def test_else_it_meets_all(nodes: tuple[str, ...], serving: str) -> None:
    assert initial_limit(nodes, HERE, serving) == ALL_PEERS
    lost = state(peer("n1", connection="Connecting"), disk="Inconsistent")
    assert next_limit(nodes, HERE, serving, lost, WITH_N1) == ALL_PEERS


def test_it_stays_while_the_device_moves() -> None:
    """Nobody serves for a moment, and who did still fills it."""
    assert next_limit(FOUR, HERE, "", FILLED, WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "", IN_STEP, WITH_N1) == ALL_PEERS
    moved = next_limit(FOUR, HERE, "n4", FILLED, WITH_N1)
    assert moved == ConnectionLimit("n4", must_reinitialize=True)


def test_it_stays_with_that_one_until_it_is_in_step() -> None:
    assert next_limit(FOUR, HERE, "n1", FILLED, WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "n1", IN_STEP._replace(disk="Outdated"), WITH_N1) == WITH_N1
    assert next_limit(FOUR, HERE, "n1", LONELY, WITH_N1) == WITH_N1  # and made so
    assert next_limit(FOUR, HERE, "n1", IN_STEP, WITH_N1) == ALL_PEERS


@pytest.mark.parametrize(
    ("disk", "anew"), [("Inconsistent", True), ("Outdated", False), ("UpToDate", False)]
)
def test_who_has_a_part_of_what_one_sent_begins_anew_with_another(disk: str, anew: bool) -> None:
    seen = state(peer("n1", connection="Connecting"), disk=disk)
    assert next_limit(FOUR, HERE, "n4", seen, WITH_N1) == ConnectionLimit(
        "n4", must_reinitialize=anew
    )


def test_who_has_lost_all_contact_comes_back_to_the_node_that_serves() -> None:
    assert next_limit(FOUR, HERE, "n1", LONELY, ALL_PEERS) == WITH_N1
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
def test_nobody_but_the_node_that_serves_is_met_by_who_is_behind(
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


def test_what_is_met_is_what_drbd_connects_to() -> None:
    assert is_limit_applied(WITH_N1, FOUR, HERE, FILLED)
    assert not is_limit_applied(ALL_PEERS, FOUR, HERE, FILLED)
    assert is_limit_applied(ALL_PEERS, FOUR, HERE, LONELY)
