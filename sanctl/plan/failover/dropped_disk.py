# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: when the disk that DRBD dropped at an error may be attached again.

DRBD compares the replicas' generations when a disk is attached beside a connected peer that has
one. Beside a peer without a disk there is nothing to compare with: the replica would pass for
UpToDate, however old it is.
"""

from __future__ import annotations

from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.promotion import NO_DISK


def may_attach(state: ResourceState, *, peers: int) -> bool:
    """Whether a replica without a disk may attach it again.

    Beside a peer with good data; or where no replica has its disk, none is Primary and all are
    connected, so that none can go on with a disk that another lacks: nothing else would ever attach
    one. The replica that is attached first is no candidate before it has met another's disk, unless
    it is known to be ahead (`promotion.may_lack_writes`), and the next one is compared with it.

    Not so with DRBD 9, of which `may_lack_writes` says nothing: the first one would be served.

    `peers` is how many other replicas the device has: DRBD 8.4 forgets a peer that it gave up.
    """
    if state.disk != "Diskless":
        return False
    if any(peer.is_connected and peer.disk == "UpToDate" for peer in state.peers):
        return True
    return (
        state.has_quorum is None
        and not state.is_primary
        and 0 < peers == len(state.peers)
        and all(
            peer.is_connected and peer.role == "Secondary" and peer.disk in NO_DISK
            for peer in state.peers
        )
    )
