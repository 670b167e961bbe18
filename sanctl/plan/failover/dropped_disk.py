# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: when the disk that DRBD dropped at an error may be attached again.

DRBD compares the replicas' generations when a disk is attached beside a connected peer that has
one. Beside a peer without a disk there is nothing to compare with: the replica would pass for
UpToDate, however old it is. If the connection is lost before the comparison, DRBD 8.4 takes the
disk only if its generation is the one that the peer has told of last (drbd_state.c,
sanitize_state). DRBD 9 takes it by its metadata alone, with which it may be promoted; so there it
has to be marked as long as it may be behind (fence_rules.py).
"""

from __future__ import annotations

from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.plan.failover.promotion import NO_DISK

#: What DRBD 9 calls a disk that was attached while no connected peer had one: it is not known to be
#: good, or its metadata says that it is behind (9.3.3: drbd_state.c, disk_state_from_md).
_NOT_COMPARED_BY_9 = frozenset({"Consistent", "Outdated"})


def has_good_peer(state: ResourceState) -> bool:
    """Whether a replica without a disk may attach it again beside a peer with good data.

    Whether the peer serves, and whether it is marked, makes no difference. DRBD fills the older
    replica from the newer one, and takes the disk off again where both went on. A mark says that
    the peer may be behind, and then it waits for the disk here; or that nobody has got to clearing
    the mark, which a Primary does only with a disk.
    """
    return state.disk == "Diskless" and any(
        peer.is_connected and peer.disk == "UpToDate" for peer in state.peers
    )


def has_good_primary(state: ResourceState, *, peers: int) -> bool:
    """Whether a marked replica without a disk may attach it again beside a Primary with quorum.

    DRBD 9.3.3 goes on calling the disks of both its peers Consistent where they were attached and
    met each other while this replica had no disk: seen in the laboratory for ten minutes. With
    quorum a Primary has good data all the same. But the Primary marks this replica only where it
    sees good data itself, and without a mark one that is behind might be promoted.

    `peers` is how many other replicas the device has.
    """
    return (
        state.disk == "Diskless"
        and state.has_quorum is True
        and uses_quorum(peers + 1)
        and any(
            peer.is_connected and (peer.role, peer.disk) == ("Primary", "Consistent")
            for peer in state.peers
        )
    )


def are_all_lost(state: ResourceState, *, peers: int) -> bool:
    """Whether no replica has a good disk, none is Primary, and all are connected.

    None can go on then with a disk that another lacks, and nothing else would ever attach one. The
    replica is attached only once it is marked as outdated: it may be the one that lost its disk
    first, and a peer that leaves before its disk is back would leave that one to be served. Where
    both disks are back, DRBD compares them, and the marks of replicas in sync are taken off.

    DRBD 8.4 calls the first disk that is back UpToDate, and the other one is attached beside good
    data. DRBD 9 does not call it good before it has met the other one, which therefore is attached
    beside it, under its own mark, too. Not where DRBD 9's own quorum decides, which was not tried.

    `peers` is how many other replicas the device has: DRBD 8.4 forgets a peer that it gave up.
    """
    lost = NO_DISK if state.has_quorum is None else NO_DISK | _NOT_COMPARED_BY_9
    return (
        state.disk == "Diskless"
        and not uses_quorum(peers + 1)
        and not state.is_primary
        and 0 < peers == len(state.peers)
        and all(
            peer.is_connected and peer.role == "Secondary" and peer.disk in lost
            for peer in state.peers
        )
    )
