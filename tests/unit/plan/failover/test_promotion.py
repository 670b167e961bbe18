# SPDX-License-Identifier: GPL-2.0-or-later
"""The promotion score, to the last branch."""

from __future__ import annotations

import itertools

import pytest

from sanctl.model import promotion_score as scores
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover.promotion import (
    FirstStep,
    are_all_blank,
    first_step,
    has_met_a_disk,
    may_lack_writes,
    promotion_score,
)

_PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
_DISKS = (
    "UpToDate",
    "Consistent",
    "Outdated",
    "Inconsistent",
    "Failed",
    "Diskless",
    "Attaching",
    "Negotiating",
    "DUnknown",
)


def _state(
    disk: str = "UpToDate", role: str = "Secondary", peers: tuple[PeerState, ...] = (_PEER,)
) -> ResourceState:
    return ResourceState("r0", role, "no", disk, 1024, peers)


def test_down_is_no_candidate() -> None:
    assert promotion_score(None, is_new=False) is None
    assert promotion_score(None, is_new=True) is None


def test_the_primary_outranks_the_standby() -> None:
    primary = promotion_score(_state(role="Primary"), is_new=False)
    standby = promotion_score(_state(), is_new=False)
    assert (primary, standby) == (scores.PRIMARY, scores.UP_TO_DATE)
    assert (
        scores.PRIMARY
        > scores.UP_TO_DATE
        > scores.DISCONNECTED
        > scores.CONSISTENT
        > scores.NEW
        > 0
    )


def test_alone_is_less_than_in_contact() -> None:
    lost = _PEER._replace(connection="Connecting", disk="DUnknown")
    assert promotion_score(_state(peers=(lost,)), is_new=False) == scores.DISCONNECTED
    assert promotion_score(_state(peers=()), is_new=False) == scores.DISCONNECTED


def test_consistent_may_be_cleared_by_the_handler() -> None:
    assert promotion_score(_state("Consistent"), is_new=False) == scores.CONSISTENT


@pytest.mark.parametrize(
    "disk", [disk for disk in _DISKS if disk not in {"UpToDate", "Consistent"}]
)
@pytest.mark.parametrize("peer_disk", ["UpToDate", "Inconsistent", "DUnknown"])
def test_a_replica_that_is_behind_is_no_candidate(disk: str, peer_disk: str) -> None:
    peer = _PEER._replace(disk=peer_disk, replication="SyncTarget")
    assert promotion_score(_state(disk, peers=(peer,)), is_new=False) is None


def test_a_primary_that_lost_its_disk_keeps_serving_until_another_takes_over() -> None:
    score = promotion_score(_state("Diskless", role="Primary"), is_new=False)
    assert score is not None
    assert score < scores.DISCONNECTED
    gone = _PEER._replace(disk="DUnknown")
    assert promotion_score(_state("Diskless", "Primary", (gone,)), is_new=False) is None


@pytest.mark.parametrize("peers", [(), (_PEER._replace(disk="DUnknown", connection="Connecting"),)])
def test_an_empty_replica_of_a_device_that_was_active_is_none_alone(
    peers: tuple[PeerState, ...],
) -> None:
    """A server that was replaced by another of the same name: its pool is empty."""
    blank = _state("Inconsistent", peers=peers)
    assert promotion_score(blank, is_new=False, is_first=True, replicas=1 + len(peers)) is None


@pytest.mark.parametrize("disk", _DISKS)
def test_without_a_majority_no_replica_is_a_candidate(disk: str) -> None:
    assert promotion_score(_state(disk)._replace(has_quorum=False), is_new=True) is None
    frozen = _state(role="Primary")._replace(has_quorum=False)
    assert promotion_score(frozen, is_new=False) == scores.PRIMARY
    counted = _state()._replace(has_quorum=True)
    assert promotion_score(counted, is_new=False) == scores.UP_TO_DATE


def test_new_and_blank_replicas_are_candidates() -> None:
    blank = _PEER._replace(disk="Inconsistent")
    pair = _state("Inconsistent", peers=(blank,))
    assert promotion_score(pair, is_new=True) == scores.NEW
    assert promotion_score(pair, is_new=True, is_first=True) == scores.NEW + 1
    # Two reinitialized replicas of a device that was active before: its data is not here.
    assert promotion_score(pair, is_new=False) is None


@pytest.mark.parametrize(
    "peer",
    [
        _PEER,
        _PEER._replace(disk="Inconsistent", connection="Connecting"),
        _PEER._replace(disk="Inconsistent", replication="SyncTarget"),
    ],
)
def test_replicas_that_are_not_all_blank(peer: PeerState) -> None:
    assert not are_all_blank(_state("Inconsistent", peers=(peer,)), replicas=2)
    assert not are_all_blank(_state("Inconsistent", peers=()), replicas=2)
    assert not are_all_blank(_state("UpToDate", peers=(peer,)), replicas=2)


_PLACEHOLDER = _PEER._replace(connection="StandAlone", disk="DUnknown", replication="Off")


@pytest.mark.parametrize("peers", [(), (_PLACEHOLDER,)], ids=["none", "as 8.4 shows it"])
def test_the_only_replica_is_blank_by_itself(peers: tuple[PeerState, ...]) -> None:
    state = _state("Inconsistent", peers=peers)
    assert are_all_blank(state, replicas=1)
    assert promotion_score(state, is_new=True, replicas=1) == scores.NEW
    # A device that was active before and is empty has lost its data.
    assert promotion_score(state, is_new=False, replicas=1) is None
    # And one of two that has given up its peer is not the only one.
    assert not are_all_blank(state, replicas=2)
    assert promotion_score(state, is_new=True, replicas=2) is None


def test_one_replica_of_two_is_not_taken_for_the_only_one() -> None:
    """The cluster says one replica, and DRBD still sees the other."""
    blank = _PEER._replace(disk="Inconsistent")
    assert not are_all_blank(_state("Inconsistent", peers=(blank,)), replicas=1)
    assert are_all_blank(_state("Inconsistent", peers=(blank, blank)), replicas=3)
    assert not are_all_blank(_state("Inconsistent", peers=(blank,)), replicas=3)


def test_only_good_data_scores_whatever_the_rest() -> None:
    for disk, role, connection, peer_disk in itertools.product(
        _DISKS, ("Primary", "Secondary"), ("Connected", "Connecting", "StandAlone"), _DISKS
    ):
        peer = _PEER._replace(connection=connection, disk=peer_disk)
        score = promotion_score(_state(disk, role, (peer,)), is_new=False)
        if score is not None and role == "Secondary":
            assert disk in {"UpToDate", "Consistent"}


@pytest.mark.parametrize(
    ("disk", "peer_disk", "bitmap", "lacks"),
    [
        ("UpToDate", "Diskless", 0, True),
        ("Consistent", "Diskless", 0, True),
        ("UpToDate", "Failed", 0, True),
        # It knows that it went on without the peer.
        ("UpToDate", "Diskless", 0x1234, False),
        ("UpToDate", "UpToDate", 0, False),
        ("UpToDate", "Inconsistent", 0, False),
        ("Diskless", "Diskless", 0, False),
    ],
)
def test_a_disk_that_came_back_beside_a_peer_without_one(
    disk: str, peer_disk: str, bitmap: int, lacks: bool
) -> None:
    state = _state(disk=disk, peers=(_PEER._replace(disk=peer_disk),))
    assert may_lack_writes(state, bitmap_generation=bitmap) is lacks
    serving = state._replace(role="Primary")
    assert not may_lack_writes(serving, bitmap_generation=bitmap)


def test_a_peer_that_is_not_connected_says_nothing_here() -> None:
    """Marks and fencing decide about such a peer."""
    gone = _PEER._replace(connection="Connecting", disk="DUnknown")
    assert not may_lack_writes(_state(peers=(gone,)), bitmap_generation=0)
    assert not may_lack_writes(_state(peers=()), bitmap_generation=0)


def test_of_several_peers_one_with_a_disk_is_enough() -> None:
    peers = (_PEER._replace(name="a", disk="Diskless"), _PEER._replace(name="b"))
    assert not may_lack_writes(_state(peers=peers), bitmap_generation=0)
    assert has_met_a_disk(_state(peers=peers))


@pytest.mark.parametrize("disk", _DISKS)
def test_what_counts_as_met(disk: str) -> None:
    met = {"UpToDate", "Consistent", "Outdated", "Inconsistent"}
    assert has_met_a_disk(_state(peers=(_PEER._replace(disk=disk),))) is (disk in met)
    # While its own disk is being attached nothing has been compared yet.
    assert has_met_a_disk(_state(disk=disk)) is (disk in met)
    lost = _PEER._replace(connection="Connecting")
    assert not has_met_a_disk(_state(disk=disk, peers=(lost,)))


@pytest.mark.parametrize(
    ("here", "nodes", "copied_on", "step"),
    [
        # All are new files of zeros.
        ("n1", ("n1", "n2"), None, FirstStep.DECLARE_EQUAL),
        ("n1", ("n1", "n2"), ("n1", "n2"), FirstStep.DECLARE_EQUAL),
        ("n1", ("n1", "n2"), ("n1", "n2", "n3"), FirstStep.DECLARE_EQUAL),
        # One is no copy of the restore point: it is filled, and never begins.
        ("n1", ("n1", "n2"), ("n1",), FirstStep.DECLARE_OWN),
        ("n2", ("n1", "n2"), ("n1",), FirstStep.NONE),
        ("n1", ("n1", "n2"), ("n3",), FirstStep.NONE),
        # An origin that cannot be read names no node.
        ("n1", ("n1", "n2"), (), FirstStep.NONE),
    ],
)
def test_which_new_replicas_are_declared_good(
    here: str, nodes: tuple[str, ...], copied_on: tuple[str, ...] | None, step: FirstStep
) -> None:
    blank = _state("Inconsistent", peers=(_PEER._replace(disk="Inconsistent"),))
    assert first_step(blank, here=here, nodes=nodes, copied_on=copied_on) is step
    assert first_step(_state(), here=here, nodes=nodes, copied_on=copied_on) is FirstStep.NONE


def test_an_only_replica_that_is_no_copy_is_not_declared_good() -> None:
    """The one with the restore point was dropped before the device was ever served."""
    alone = _state("Inconsistent", peers=())
    found = {
        first_step(alone, here="n2", nodes=("n2",), copied_on=copied_on)
        for copied_on in (("n1",), ())
    }
    assert found == {FirstStep.NONE}
    assert first_step(alone, here="n1", nodes=("n1",), copied_on=("n1",)) is FirstStep.DECLARE_EQUAL
