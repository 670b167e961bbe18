# SPDX-License-Identifier: GPL-2.0-or-later
"""Of two replicas that are attached, an Outdated one is filled by the better one (DRBD 9)."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import behind_standby as plan

BEHIND = PeerState("n2", "Connected", "Secondary", "Established", "Outdated", 16384, node_id=1)
GOOD = ResourceState("vol", "Secondary", "no", "UpToDate", 1024, (BEHIND,), has_quorum=True)
AHEAD = BEHIND._replace(disk="UpToDate", out_of_sync_kib=0)
OUTDATED = GOOD._replace(disk="Outdated", peers=(AHEAD,))
FILLED = GOOD._replace(
    disk="Consistent", peers=(BEHIND._replace(disk="Consistent", out_of_sync_kib=0),)
)


@pytest.mark.parametrize("out_of_sync_kib", [0, 16384, None])
@pytest.mark.parametrize("disk", ["UpToDate", "Consistent"])
def test_the_good_standby_fills_an_outdated_one(disk: str, out_of_sync_kib: int | None) -> None:
    """Whatever the bitmap here says: the other one may name more."""
    peer = BEHIND._replace(out_of_sync_kib=out_of_sync_kib)
    assert plan.peer_to_fill(GOOD._replace(disk=disk, peers=(peer,)), peers=1) is peer
    ahead = AHEAD._replace(disk=disk, out_of_sync_kib=out_of_sync_kib)
    assert plan.peer_to_be_filled_by(OUTDATED._replace(peers=(ahead,)), peers=1) is ahead


def test_a_primary_fills_an_outdated_standby_if_its_own_disk_is_good() -> None:
    assert plan.peer_to_fill(GOOD._replace(role="Primary"), peers=1) == BEHIND
    serving = AHEAD._replace(role="Primary")
    assert plan.peer_to_be_filled_by(OUTDATED._replace(peers=(serving,)), peers=1) == serving
    unsure = GOOD._replace(role="Primary", disk="Consistent")
    assert plan.peer_to_fill(unsure, peers=1) is None
    other = OUTDATED._replace(peers=(serving._replace(disk="Consistent"),))
    assert plan.peer_to_be_filled_by(other, peers=1) is None


@pytest.mark.parametrize("disk", ["Outdated", "Inconsistent", "Diskless", "Negotiating", "Failed"])
def test_a_replica_that_is_not_good_fills_nothing(disk: str) -> None:
    assert plan.peer_to_fill(GOOD._replace(disk=disk), peers=1) is None
    other = OUTDATED._replace(peers=(AHEAD._replace(disk=disk),))
    assert plan.peer_to_be_filled_by(other, peers=1) is None


@pytest.mark.parametrize("disk", ["UpToDate", "Inconsistent", "Diskless", "Negotiating"])
def test_only_an_outdated_replica_is_filled(disk: str) -> None:
    """A Primary on its peer's disk is none."""
    assert plan.peer_to_fill(GOOD._replace(peers=(BEHIND._replace(disk=disk),)), peers=1) is None
    assert plan.peer_to_be_filled_by(OUTDATED._replace(disk=disk), peers=1) is None
    assert plan.peer_to_be_filled_by(OUTDATED._replace(role="Primary"), peers=1) is None


@pytest.mark.parametrize(
    ("changes", "peers"),
    [
        ({"replication": "WFBitMapS"}, 1),
        ({"replication": "SyncSource"}, 1),
        ({"replication": "VerifyS"}, 1),
        ({"replication": "Off", "connection": "Connecting"}, 1),
        ({"connection": "StandAlone"}, 1),
        ({"node_id": None}, 1),
        ({}, 0),
        ({}, 2),
    ],
)
def test_nothing_is_begun_where_something_is_under_way_or_a_peer_is_missing(
    changes: dict[str, str | None], peers: int
) -> None:
    for state in (GOOD, OUTDATED, FILLED):
        altered = state._replace(peers=(state.peers[0]._replace(**changes),))  # type: ignore[arg-type]
        assert plan.peer_to_fill(altered, peers=peers) is None
        assert plan.peer_to_be_filled_by(altered, peers=peers) is None
        assert not plan.is_filled_but_unsure(altered, peers=peers)


def test_with_three_replicas_and_with_8_4_drbd_decides() -> None:
    third = AHEAD._replace(name="n3", node_id=2)
    for state in (GOOD, OUTDATED, FILLED):
        three = state._replace(peers=(*state.peers, third))
        old = state._replace(has_quorum=None)
        for altered, peers in ((three, 2), (old, 1)):
            assert plan.peer_to_fill(altered, peers=peers) is None
            assert plan.peer_to_be_filled_by(altered, peers=peers) is None
            assert not plan.is_filled_but_unsure(altered, peers=peers)


def test_two_consistent_standbys_without_a_difference_are_unsure() -> None:
    assert plan.is_filled_but_unsure(FILLED, peers=1)
    (peer,) = FILLED.peers
    for altered in (
        FILLED._replace(role="Primary"),
        FILLED._replace(disk="UpToDate"),
        FILLED._replace(peers=(peer._replace(role="Primary"),)),
        FILLED._replace(peers=(peer._replace(disk="UpToDate"),)),
        FILLED._replace(peers=(peer._replace(out_of_sync_kib=4),)),
        FILLED._replace(peers=(peer._replace(out_of_sync_kib=None),)),
    ):
        assert not plan.is_filled_but_unsure(altered, peers=1)


def test_only_one_side_of_a_pair_is_the_source() -> None:
    """However the two sides see each other."""
    for disk in ("UpToDate", "Consistent", "Outdated", "Inconsistent"):
        for other in ("UpToDate", "Consistent", "Outdated", "Inconsistent"):
            state = GOOD._replace(disk=disk, peers=(BEHIND._replace(disk=other),))
            assert not (
                plan.peer_to_fill(state, peers=1) and plan.peer_to_be_filled_by(state, peers=1)
            )
