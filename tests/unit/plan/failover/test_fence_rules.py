# SPDX-License-Identifier: GPL-2.0-or-later
"""Which peers are certain, which node may mark, and which mark has to outrank the peer's CIB."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover import fence_rules


def _state(role: str, connection: str) -> ResourceState:
    peer = PeerState("peer", connection, "Unknown", "Off", "DUnknown", None)
    return ResourceState("vol1", role, "no", "UpToDate", None, (peer,))


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (_state("Primary", "Connecting"), True),
        (_state("Primary", "Connected"), False),
        (_state("Secondary", "Connecting"), False),
        (None, False),
    ],
)
def test_only_a_primary_without_its_peer_marks_it(state: ResourceState | None, may: bool) -> None:
    assert fence_rules.may_mark(state, is_promoting=False) == may
    assert fence_rules.may_mark(state, is_promoting=True)


@pytest.mark.parametrize(
    ("peer", "is_certain", "outranks", "may_begin_resync"),
    [
        ("member", True, False, True),
        ("fenced", True, True, False),
        ("unknown", False, False, False),
        ("alone", False, False, False),
    ],
)
def test_only_a_fenced_peer_may_have_a_cib_of_its_own(
    peer: str, is_certain: bool, outranks: bool, may_begin_resync: bool
) -> None:
    assert fence_rules.is_certain(peer) == is_certain
    assert fence_rules.must_outrank_peer_cib(peer) == outranks
    assert fence_rules.may_begin_resync(peer) == may_begin_resync


@pytest.mark.parametrize(
    ("others", "marked", "peer"),
    [
        (("n2",), {"n1", "n2"}, "n2"),
        (("n3", "n2"), {"n1", "n2", "n3"}, "n2"),
        (("n2", "n3"), {"n1", "n2"}, None),
        (("n2",), {"n2"}, None),
        (("n2",), {"n1"}, None),
        ((), {"n1"}, None),
    ],
)
def test_a_mark_contradicts_nothing_only_where_every_replica_has_one(
    others: tuple[str, ...], marked: set[str], peer: str | None
) -> None:
    assert fence_rules.peer_to_unmark(here="n1", others=others, marked=marked) == peer


_GOOD = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
_DISKLESS = ResourceState("vol1", "Primary", "no", "Diskless", None, (_GOOD,))


@pytest.mark.parametrize(
    ("state", "is_served_from_peer"),
    [
        (_DISKLESS, True),
        (_DISKLESS._replace(disk="Failed"), True),
        (_DISKLESS._replace(disk="UpToDate"), False),
        (_DISKLESS._replace(disk="Inconsistent"), False),
        (_DISKLESS._replace(role="Secondary"), False),
        # DRBD 9 with quorum off, as with two replicas: drbdsetup says that there is quorum.
        (_DISKLESS._replace(has_quorum=True), True),
        (_DISKLESS._replace(peers=()), False),
        (_DISKLESS._replace(peers=(_GOOD._replace(disk="Diskless"),)), False),
        (_DISKLESS._replace(peers=(_GOOD._replace(connection="Connecting"),)), False),
    ],
)
def test_a_primary_without_a_disk_marks_itself_while_its_peer_has_every_write(
    state: ResourceState, is_served_from_peer: bool
) -> None:
    def may(*marked: str, is_quorate: bool = True) -> bool:
        return fence_rules.may_mark_own(
            state, replicas=2, is_quorate=is_quorate, nodes=("n1", "n2"), marked=marked
        )

    assert fence_rules.serves_from_peer(state, replicas=2) is is_served_from_peer
    assert may() is may("n9") is is_served_from_peer
    assert not may("n1") and not may("n2") and not may(is_quorate=False)
    assert fence_rules.may_clear(state) is (state.disk == "UpToDate")


def test_nor_one_that_is_not_up() -> None:
    assert not fence_rules.may_mark_own(None, replicas=2, is_quorate=True, nodes=("n1",), marked=())
    assert not fence_rules.may_clear(None)


_BESIDE_NO_DISK = _DISKLESS._replace(
    disk="UpToDate", peers=(_GOOD._replace(disk="Diskless"),), has_quorum=True
)


@pytest.mark.parametrize(
    ("state", "is_behind"),
    [
        (_BESIDE_NO_DISK, True),
        # DRBD 8.4 says nothing of a quorum.
        (_BESIDE_NO_DISK._replace(has_quorum=None), True),
        (_BESIDE_NO_DISK._replace(role="Secondary"), False),
        (_BESIDE_NO_DISK._replace(disk="Diskless"), False),
        (_BESIDE_NO_DISK._replace(peers=()), False),
        (_BESIDE_NO_DISK._replace(peers=(_GOOD,)), False),
        (
            _BESIDE_NO_DISK._replace(
                peers=(_GOOD._replace(connection="Connecting", disk="Diskless"),)
            ),
            False,
        ),
        (None, False),
    ],
)
def test_a_primary_marks_a_peer_whose_disk_it_goes_on_without(
    state: ResourceState | None, is_behind: bool
) -> None:
    """DRBD 9 calls no handler for it either, and nothing on a disk that fails can say it."""
    assert fence_rules.may_mark_without_disk(state, replicas=2) is is_behind


@pytest.mark.parametrize("has_quorum", [True, False])
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_only_from_three_replicas_on_does_drbds_own_quorum_decide(
    replicas: int, has_quorum: bool
) -> None:
    """What drbdsetup says of a quorum that is off decides nothing."""
    is_due = replicas == 2
    lost = _DISKLESS._replace(has_quorum=has_quorum)
    assert fence_rules.serves_from_peer(lost, replicas=replicas) is is_due
    assert (
        fence_rules.may_mark_own(
            lost, replicas=replicas, is_quorate=True, nodes=("n1", "n2"), marked=()
        )
        is is_due
    )
    beside = _BESIDE_NO_DISK._replace(has_quorum=has_quorum)
    assert fence_rules.may_mark_without_disk(beside, replicas=replicas) is is_due
