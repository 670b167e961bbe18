# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of one DRBD resource on this node: role, disk, peers, requests that wait.

NamedTuples, not dataclasses: the agents import this on every monitor, and `dataclasses` would be
the largest part of what they import.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

#: The replicas of a device connect on the TCP port with this number and its minor's.
PORT_BASE = 7800
#: The peers that DRBD 9's metadata has room for: with the replica's own four replicas.
PEERS_OF_DRBD_9 = 3
#: States of a connection to a peer that answers, in /proc/drbd of DRBD 8.4 (drbd.h, enum
#: drbd_conns, from C_CONNECTED on; the names are those of drbd_strings.c).
IN_CONTACT = frozenset({
    "Connected", "StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID",
    "SyncSource", "SyncTarget", "VerifyS", "VerifyT", "PausedSyncS", "PausedSyncT", "Ahead",
    "Behind",
})  # fmt: skip


def bitmaps_per_replica(kernel_generation: int) -> int:
    """Return how many bitmaps DRBD keeps in memory of each replica.

    DRBD 9 keeps one for each peer that the metadata has room for, whether or not it has that peer.
    """
    return PEERS_OF_DRBD_9 if kernel_generation >= 9 else 1


def uses_quorum(replica_count: int) -> bool:
    """Whether DRBD 9's quorum is used: some replicas may be missing from a majority.

    The majority of two replicas is both.
    """
    return replica_count > 2


class PeerState(NamedTuple):
    """One peer of a resource, as this node sees it.

    Attributes:
        name: the connection's name; 8.4 may call every peer `peer`.
        connection: Connected, Connecting, StandAlone, … `Unknown` where DRBD did not say.
        role: the peer's role, `Unknown` while not connected.
        replication: Established, SyncSource, SyncTarget, VerifyS, … or Off.
        disk: state of the peer's replica, `DUnknown` while not connected.
        out_of_sync_kib: KiB that differ by this node's bitmap; None if not known.
        resync_suspended: why a resync waits: `no`, or one or more of `user`, `peer` and
            `dependency`.
        received_kib: KiB of data received since the connection began; None if not known.
        node_id: the peer's node id in DRBD 9; 8.4 says 0 for each.
    """

    name: str
    connection: str
    role: str
    replication: str
    disk: str
    out_of_sync_kib: int | None
    resync_suspended: str = "no"
    received_kib: int | None = None
    node_id: int | None = None

    @property
    def is_sync_source(self) -> bool:
        """Whether this peer is the source of a resync of this node's replica."""
        return self.replication in {"SyncTarget", "PausedSyncT"}

    @property
    def is_verifying(self) -> bool:
        """Whether the replicas are being compared."""
        return self.replication in {"VerifyS", "VerifyT"}

    @property
    def is_connected(self) -> bool:
        """Whether this peer is connected."""
        return self.connection == "Connected"

    @property
    def is_in_sync(self) -> bool:
        """Whether this peer is known to have the same data as an UpToDate replica, right now."""
        return self.is_connected and self.disk == "UpToDate" and self.replication == "Established"


class HandlerCalls(NamedTuple):
    """The calls of the fence-peer handler that this node's kernel waits for.

    Attributes:
        threads: kernel threads that call a handler for a Primary that has lost its peer.
        resources: the resource of each `drbdadm fence-peer` that runs; one may be there twice.
    """

    threads: int
    resources: tuple[str, ...]


class OldRequest(NamedTuple):
    """One of the oldest requests of hosts that DRBD has not completed.

    Attributes:
        age_s: how long the request has been waiting.
        is_suspended: the request waits because I/O is suspended, or was when its last step ended.
        local: flags of the local disk's part: pending, completed, ok, …; empty where the request
            has not been sent to the disk yet.
        net: flags of the peers' part; empty where the request is not sent to them.
    """

    age_s: float
    is_suspended: bool
    local: frozenset[str]
    net: frozenset[str]

    @property
    def waits_for_disk(self) -> bool:
        """Whether the request waits for the local disk, or for the activity log on that disk."""
        return not self.is_suspended and ("pending" in self.local or not (self.local or self.net))

    @property
    def waits_for_nothing(self) -> bool:
        """Whether the request is suspended, and no answer of a disk or a peer is missing."""
        return self.is_suspended and "pending" not in self.local | self.net


class ResourceState(NamedTuple):
    """One resource with its only volume.

    Attributes:
        name: the resource's name.
        role: Primary or Secondary, `Unknown` where DRBD did not say.
        suspended: why I/O is frozen (`no` while it is not, else `user`, `fencing`, `quorum`, …).
        disk: state of the local replica; `Diskless` without one.
        size_kib: size of the DRBD device in KiB; None if not known.
        peers: the peers, in the order of their names.
        minor: the number of its device; None if not known.
        has_quorum: whether DRBD 9 has quorum; yes where quorum is off. None with 8.4, which has
            no quorum. Whether DRBD's quorum decides anything says `uses_quorum`: with two replicas
            it does not, with either DRBD.
        write_ordering: how writes that depend on each other are kept in order; empty if not known.
    """

    name: str
    role: str
    suspended: str
    disk: str
    size_kib: int | None
    peers: tuple[PeerState, ...]
    minor: int | None = None
    has_quorum: bool | None = None
    write_ordering: str = ""

    def with_only_peer(self, peer: str) -> ResourceState:
        """Return the same resource with this peer alone; without peers where it has no such one.

        8.4 has one peer at most, and does not know its name.
        """
        return self.with_only_peers((peer,))

    def with_only_peers(self, peers: Collection[str]) -> ResourceState:
        """Return the same resource with those peers alone, as with 8.4 (`with_only_peer`).

        For the nodes of the device's other replicas: DRBD 9 may list one that has been dropped.
        """
        if self.has_quorum is None:
            return self
        return self._replace(peers=tuple(each for each in self.peers if each.name in peers))

    @property
    def is_primary(self) -> bool:
        """Whether this node is Primary."""
        return self.role == "Primary"

    @property
    def is_attached(self) -> bool:
        """Whether the resource has a disk on this node."""
        return self.disk not in {"Diskless", "Failed", "Detaching", "Attaching"}

    @property
    def is_connected(self) -> bool:
        """Whether every peer is connected."""
        return bool(self.peers) and all(peer.is_connected for peer in self.peers)

    @property
    def has_primary_peer(self) -> bool:
        """Whether a connected peer is Primary."""
        return any(peer.is_connected and peer.role == "Primary" for peer in self.peers)

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica and all peers' are known to have the same data, right now."""
        return (
            self.disk == "UpToDate"
            and bool(self.peers)
            and all(peer.is_in_sync for peer in self.peers)
        )

    @property
    def out_of_sync_kib(self) -> int | None:
        """The largest known difference to a peer in KiB, or None when none is known."""
        known = [peer.out_of_sync_kib for peer in self.peers if peer.out_of_sync_kib is not None]
        return max(known, default=None)
