# SPDX-License-Identifier: GPL-2.0-or-later
"""A dropped disk is attached beside good data, or where no replica has a disk and none is Primary.

The other cases are tried through the agent: tests/unit/agents/recovery/test_reattach_disk.py.
"""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover.dropped_disk import are_all_lost, has_good_peer, has_good_primary

GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
BARE = GOOD._replace(role="Secondary", disk="Diskless")
DISKLESS = ResourceState("vol", "Secondary", "no", "Diskless", 1024, (GOOD,))
ALL_LOST = DISKLESS._replace(peers=(BARE,))
OF_9 = ALL_LOST._replace(has_quorum=True)
CONSISTENT = GOOD._replace(disk="Consistent")
STALE = OF_9._replace(peers=(CONSISTENT, CONSISTENT._replace(name="other", role="Secondary")))


@pytest.mark.parametrize(
    ("state", "is_good"),
    [
        (DISKLESS, True),
        (DISKLESS._replace(role="Primary", peers=(GOOD._replace(role="Secondary"),)), True),
        # Nobody serves: the peer is marked where it had lost its disk, too.
        (DISKLESS._replace(peers=(GOOD._replace(role="Secondary"),)), True),
        (DISKLESS._replace(disk="UpToDate"), False),
        (DISKLESS._replace(peers=(GOOD._replace(connection="Connecting"),)), False),
        (ALL_LOST, False),
        (STALE, False),
    ],
)
def test_beside_good_data(state: ResourceState, is_good: bool) -> None:
    assert has_good_peer(state) is is_good


@pytest.mark.parametrize(
    ("state", "peers", "is_good"),
    [
        # DRBD 9 with three replicas may call the Primary's disk that for good.
        (STALE, 2, True),
        # With two its quorum is off; it may list a replica that was dropped.
        (STALE, 1, False),
        (STALE._replace(disk="UpToDate"), 2, False),
        (STALE._replace(has_quorum=False), 2, False),
        (STALE._replace(has_quorum=None), 2, False),
        (STALE._replace(peers=STALE.peers[1:] * 2), 2, False),
        (STALE._replace(peers=(CONSISTENT._replace(connection="Connecting"),)), 2, False),
        (STALE._replace(peers=(CONSISTENT._replace(disk="Outdated"),)), 2, False),
    ],
)
def test_beside_a_primary_with_quorum(state: ResourceState, peers: int, is_good: bool) -> None:
    assert has_good_primary(state, peers=peers) is is_good


@pytest.mark.parametrize(
    ("state", "peers", "are_lost"),
    [
        (ALL_LOST, 1, True),
        (DISKLESS, 1, False),
        (ALL_LOST._replace(disk="UpToDate"), 1, False),
        (ALL_LOST, 2, False),
        (ALL_LOST, 0, False),
        (ALL_LOST._replace(role="Primary"), 1, False),
        # DRBD 9: with two replicas its quorum is off, and drbdsetup says yes.
        (ALL_LOST._replace(has_quorum=True), 1, True),
        # It does not call the first disk that is back good before it has met the other one.
        (OF_9._replace(peers=(BARE._replace(disk="Consistent"),)), 1, True),
        (OF_9._replace(peers=(BARE._replace(disk="Outdated"),)), 1, True),
        (OF_9._replace(peers=(BARE._replace(disk="Inconsistent"),)), 1, False),
        (OF_9._replace(peers=(BARE._replace(disk="Consistent", role="Primary"),)), 1, False),
        # With three its quorum decides.
        (OF_9._replace(peers=(BARE, BARE._replace(name="other"))), 2, False),
        (ALL_LOST._replace(peers=(BARE._replace(disk="Outdated"),)), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(role="Primary"),)), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(disk="Inconsistent"),)), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(connection="Connecting"),)), 1, False),
    ],
)
def test_where_nothing_can_be_served_that_a_disk_lacks(
    state: ResourceState, peers: int, are_lost: bool
) -> None:
    assert are_all_lost(state, peers=peers) is are_lost
