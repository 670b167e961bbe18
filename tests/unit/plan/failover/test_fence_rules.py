# SPDX-License-Identifier: GPL-2.0-or-later
"""Which peers are certain, which node may mark, and which mark has to outrank the peer's CIB."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any

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
        ("unknown", False, True, False),
        ("alone", False, False, False),
    ],
)
def test_only_a_peer_that_is_no_member_may_have_a_cib_of_its_own(
    peer: str, is_certain: bool, outranks: bool, may_begin_resync: bool
) -> None:
    assert fence_rules.is_certain(peer) == is_certain
    assert (fence_rules.admin_epoch_rise(peer) > 0) == outranks
    assert fence_rules.may_begin_resync(peer) == may_begin_resync


@pytest.mark.parametrize(
    ("is_quorate", "is_member", "has_joined", "is_fenced", "expected"),
    [
        (False, True, True, True, "alone"),
        (True, True, True, True, "member"),
        # A CIB of its own, until it has joined Pacemaker.
        (True, True, False, False, "unknown"),
        (True, True, False, True, "fenced"),
        (True, False, True, False, "unknown"),
        (True, False, True, True, "fenced"),
    ],
)
def test_a_member_is_one_once_it_has_joined(
    is_quorate: bool, is_member: bool, has_joined: bool, is_fenced: bool, expected: str
) -> None:
    said = fence_rules.peer_membership(
        is_quorate=is_quorate,
        is_member=is_member,
        has_joined=lambda: has_joined,
        is_fenced=lambda: is_fenced,
    )
    assert said == expected


@pytest.mark.parametrize("membership", ["member", "fenced", "unknown", "alone"])
def test_a_primary_that_is_marked_itself_does_not_go_on(membership: str) -> None:
    """What broke: its peer had been promoted beside it, and had marked it."""
    marked: dict[str, Any] = {"is_own_marked": True, "is_promoting": False, "replicas": 2}
    said = fence_rules.apply_own_mark(membership, **marked)
    is_open = membership in {"member", "fenced"}
    assert said == (fence_rules.PRIMARY_MARKED if is_open else membership)
    assert not fence_rules.is_certain(said)
    # A promotion is told why; of three replicas DRBD has a majority.
    for other in ({"is_own_marked": False}, {"is_promoting": True}, {"replicas": 3}):
        assert fence_rules.apply_own_mark(membership, **marked | other) == membership


def test_the_mark_of_a_fenced_node_outranks_what_that_node_marked_as_it_was_cut_off() -> None:
    """It has raised its own CIB's number once for each peer that it had lost before."""
    most_nodes = 16  # of Corosync with knet, as supported
    own = most_nodes * fence_rules.admin_epoch_rise("unknown")
    assert fence_rules.admin_epoch_rise("fenced") > own


def _raised(seen: int, ring: int | None, rise: int = 64) -> int:
    return fence_rules.raised_admin_epoch(seen, rise, ring=ring)


@pytest.mark.parametrize("step", [1, 4, 5])
@pytest.mark.parametrize("before", [0, 3, 512 * 40 - 70, 512 * 40, 512 * 40 + 192])
def test_a_later_membership_outranks_whatever_an_older_one_has_raised(
    before: int, step: int
) -> None:
    """What broke: a, cut off with questions answered, raised its CIB as the others did theirs."""
    own = before
    for _ in range(4):  # the handlers of all peers that a has lost, each by what it sees
        own = _raised(own, ring=40)
    others = _raised(before, ring=40 + step)
    assert others > own
    # The same number twice, by the old rule.
    assert before + 64 == fence_rules.raised_admin_epoch(before, 64, ring=None)


def test_the_mark_of_a_fenced_peer_outranks_one_from_before_that_in_the_same_membership() -> None:
    """Two halves of a cluster have the same number, and a device's vote may go to the other."""
    ahead = _raised(3, ring=44, rise=1)
    assert ahead == 44 * 512 + 1 < _raised(3, ring=44)
    assert _raised(ahead, ring=44) > _raised(3, ring=44)


def test_retries_in_one_membership_stay_below_the_next_one() -> None:
    number = 3
    for _ in range(1000):
        before, number = number, _raised(number, ring=44)
        assert number >= before
    assert number == 45 * 512 - 1
    assert _raised(number, ring=45) == 45 * 512 + 64
    assert _raised(7, ring=44, rise=0) == 7


@pytest.mark.parametrize("ring", [None, 0, 1])
def test_a_number_that_memberships_do_not_reach_rises_as_before(ring: int | None) -> None:
    """Not known, or counted anew beside an old CIB."""
    assert _raised(5000, ring) == 5064
    assert _raised(5064, ring, rise=1) == 5065


def test_the_highest_number_leaves_room_for_marks() -> None:
    """Pacemaker reads a C int."""
    highest = max(_raised(3, ring) for ring in range(2**21 - 2**10, 2**22, 4))
    assert 2**29 < highest < 2**31 - 10_000_000 * 64
    assert _raised(5000, 2**21) > _raised(5000, 2**21 - 4), "where they end nothing goes back"
    assert _raised(_raised(5000, 2**21), 2**22) == 2**30 + 128


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
        (_DISKLESS._replace(has_quorum=True, peers=(_GOOD._replace(name="n2"),)), True),
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
            state, is_quorate=is_quorate, here="n1", others=("n2",), marked=marked
        )

    assert fence_rules.serves_from_peer(state, others=("n2",)) is is_served_from_peer
    assert may() is may("n9") is is_served_from_peer
    assert not may("n1") and not may("n2") and not may(is_quorate=False)
    assert fence_rules.may_clear(state) is (state.disk == "UpToDate")


def test_nor_one_that_is_not_up() -> None:
    assert not fence_rules.may_mark_own(None, is_quorate=True, here="n1", others=("n2",), marked=())
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
        # The disk is back, and DRBD has not compared the two: it may lack what was written since.
        (_BESIDE_NO_DISK._replace(peers=(_GOOD._replace(disk="Negotiating"),)), True),
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
    assert fence_rules.may_mark_without_disk(state, "peer", others=("peer",)) is is_behind


# What a peer of three or four may be for a Primary: DRBD's words for the connection, for the
# replication and for the disk.
_PEERS = {
    "whole": ("Connected", "Established", "UpToDate"),
    "filled": ("Connected", "SyncSource", "Inconsistent"),
    "behind": ("Connected", "Established", "Outdated"),
    "lost disk": ("Connected", "Established", "Diskless"),
    "not compared": ("Connected", "Established", "Negotiating"),
    "away": ("Connecting", "Off", "DUnknown"),
}


def _beside(disk: str, kinds: Sequence[str], **extra: str) -> ResourceState:
    named = dict(zip(("n2", "n3", "n4"), kinds, strict=False)) | extra
    peers = tuple(
        PeerState(name, _PEERS[kind][0], "Secondary", *_PEERS[kind][1:], 0)
        for name, kind in named.items()
    )
    return ResourceState("vol1", "Primary", "no", disk, None, peers, has_quorum=True)


def _can_serve_without(node: str, whole: set[str], nodes: Sequence[str]) -> bool:
    """Whether that replica is in a majority of the replicas in which none has every write."""
    majority = len(nodes) // 2 + 1
    return any(
        node in some and not whole & {*some}
        for size in range(majority, len(nodes) + 1)
        for some in combinations(nodes, size)
    )


@pytest.mark.parametrize("own", ["UpToDate", "Diskless"])
@pytest.mark.parametrize("replicas", [3, 4])
def test_of_three_and_four_what_a_majority_could_serve_is_marked(replicas: int, own: str) -> None:
    """Whatever the other replicas are: each state is compared with every majority there can be."""
    nodes = ("n1", "n2", "n3", "n4")[:replicas]
    marks = 0
    for kinds in product(_PEERS, repeat=replicas - 1):
        state = _beside(own, kinds)
        others = dict(zip(nodes[1:], kinds, strict=True))
        whole = {name for name, kind in others.items() if kind == "whole"}
        whole |= {"n1"} if own == "UpToDate" else set()
        for name, kind in others.items():
            has_no_data = kind in {"lost disk", "not compared"}
            # Whatever the others are now: it may be away when they have changed.
            is_due = has_no_data and bool(whole)
            assert fence_rules.may_mark_without_disk(state, name, others=nodes[1:]) is is_due
            marks += is_due
        is_own_due = own == "Diskless" and bool(whole) and _can_serve_without("n1", whole, nodes)
        assert fence_rules.serves_from_peer(state, others=nodes[1:]) is is_own_due
        for marked in ((), *combinations(whole, 1)):
            unmarked = whole - {*marked}
            may = fence_rules.may_mark_own(
                state, is_quorate=True, here="n1", others=nodes[1:], marked=marked
            )
            assert may is (
                own == "Diskless" and bool(unmarked) and _can_serve_without("n1", unmarked, nodes)
            )
        assert not fence_rules.may_mark_own(
            state, is_quorate=True, here="n1", others=nodes[1:], marked=("n1",)
        )
    assert marks


def test_a_replica_that_was_dropped_does_not_count() -> None:
    """DRBD 9 lists it for as long as its connection is there."""
    dropped = {"n0": "whole"}
    three = _beside("UpToDate", ("lost disk", "filled"), **dropped)
    assert fence_rules.may_mark_without_disk(three, "n2", others=("n2", "n3"))
    two = _beside("Diskless", ("whole",), n0="away")
    assert fence_rules.serves_from_peer(two, others=("n2",))
    assert fence_rules.may_mark_own(two, is_quorate=True, here="n1", others=("n2",), marked=())
    assert not fence_rules.serves_from_peer(_beside("Diskless", (), **dropped), others=("n2",))


@pytest.mark.parametrize("has_quorum", [True, False])
def test_what_drbd_says_of_its_quorum_decides_nothing(has_quorum: bool) -> None:
    """It is off with two replicas; and a Primary that is frozen goes on as soon as it may."""
    lost = _beside("Diskless", ("whole",))._replace(has_quorum=has_quorum)
    assert fence_rules.serves_from_peer(lost, others=("n2",))
    beside = _beside("UpToDate", ("lost disk", "away"))._replace(has_quorum=has_quorum)
    assert fence_rules.may_mark_without_disk(beside, "n2", others=("n2", "n3"))
