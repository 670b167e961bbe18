# SPDX-License-Identifier: GPL-2.0-or-later
"""A dropped disk is attached beside good data, or where no replica has a disk and none is Primary.

The other cases are tried through the agent: tests/unit/agents/recovery/test_reattach_disk.py.
"""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.failover.dropped_disk import may_attach

GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
BARE = GOOD._replace(role="Secondary", disk="Diskless")
DISKLESS = ResourceState("vol", "Secondary", "no", "Diskless", 1024, (GOOD,))
ALL_LOST = DISKLESS._replace(peers=(BARE,))


@pytest.mark.parametrize(
    ("state", "peers", "may"),
    [
        (DISKLESS, 1, True),
        (DISKLESS._replace(role="Primary", peers=(GOOD._replace(role="Secondary"),)), 1, True),
        (DISKLESS._replace(disk="UpToDate"), 1, False),
        (ALL_LOST, 1, True),
        (ALL_LOST, 2, False),
        (ALL_LOST, 0, False),
        (ALL_LOST._replace(role="Primary"), 1, False),
        (ALL_LOST._replace(has_quorum=True), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(role="Primary"),)), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(disk="Inconsistent"),)), 1, False),
        (ALL_LOST._replace(peers=(BARE._replace(connection="Connecting"),)), 1, False),
    ],
)
def test_where_nothing_can_be_served_that_a_disk_lacks(
    state: ResourceState, peers: int, may: bool
) -> None:
    assert may_attach(state, peers=peers) is may
