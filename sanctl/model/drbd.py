# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD says about one resource of this node.

NamedTuples, not dataclasses: the agents import this on every monitor, and `dataclasses` would be
the largest part of what they import.
"""

from __future__ import annotations

from typing import NamedTuple


def has_majority(copies: int) -> bool:
    """Whether so many copies can have a majority that some of them are missing in.

    Then DRBD 9 counts them (its quorum). Of two the majority is both.
    """
    return copies > 2


class PeerState(NamedTuple):
    """One peer of a resource, as this node sees it.

    Attributes:
        name: the connection's name; 8.4 may call every peer `peer`.
        connection: Connected, Connecting, StandAlone, … `Unknown` where DRBD did not say.
        role: the peer's role, `Unknown` while not connected.
        replication: Established, SyncSource, SyncTarget, VerifyS, … or Off.
        disk: state of the peer's replica, `DUnknown` while not connected.
        out_of_sync_kib: KiB that differ as far as this node's bitmap knows; None if not told.
        held: why a resync waits: `no`, or of `user`, `peer` and `dependency` those that hold it.
        received_kib: KiB of data that came from it since the connection began; None if not told.
        node_id: the number DRBD 9 knows the peer by; 8.4 says 0 of each.
    """

    name: str
    connection: str
    role: str
    replication: str
    disk: str
    out_of_sync_kib: int | None
    held: str = "no"
    received_kib: int | None = None
    node_id: int | None = None

    @property
    def is_target(self) -> bool:
        """Whether this node's replica is being brought into line with it."""
        return self.replication in {"SyncTarget", "PausedSyncT"}

    @property
    def is_verifying(self) -> bool:
        """Whether the replicas are being compared."""
        return self.replication in {"VerifyS", "VerifyT"}

    @property
    def is_in_contact(self) -> bool:
        """Whether this peer is connected."""
        return self.connection == "Connected"

    @property
    def is_in_sync(self) -> bool:
        """Whether this peer is known to be the same as an up-to-date replica, right now."""
        return self.is_in_contact and self.disk == "UpToDate" and self.replication == "Established"


class OldRequest(NamedTuple):
    """A host's request that DRBD has had for longest.

    Attributes:
        age_s: how long it has been waiting.
        is_held: it is kept back because I/O is suspended, or was when its last step ended.
        local: what is known of the local disk's part: pending, completed, ok, …; empty where the
            disk has not been asked yet.
        net: what is known of the peers' part; empty where they are not asked.
    """

    age_s: float
    is_held: bool
    local: frozenset[str]
    net: frozenset[str]

    @property
    def waits_for_disk(self) -> bool:
        """Whether it is the local disk, or the activity log on it, that does not answer."""
        return not self.is_held and ("pending" in self.local or not (self.local or self.net))

    @property
    def waits_for_nothing(self) -> bool:
        """Whether it is held back, and nothing that could still be answered is missing."""
        return self.is_held and "pending" not in self.local | self.net


class ResourceState(NamedTuple):
    """One resource with its only volume.

    Attributes:
        name: the resource's name.
        role: Primary or Secondary, `Unknown` where DRBD did not say.
        suspended: why I/O is frozen (`no` while it is not, else `user`, `fencing`, `quorum`, …).
        disk: state of the local replica; `Diskless` without one.
        size_kib: size of the DRBD device in KiB; None if not told.
        peers: the peers, in the order of their names.
        minor: the number of its device; None if not told.
        has_quorum: whether DRBD 9 sees enough of the replicas; where it is not to care it says
            yes. None with 8.4, which does not know.
        write_ordering: how writes that depend on each other are kept in order; empty if not told.
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

    def beside(self, peer: str) -> ResourceState:
        """Return the same resource as if that peer were the only one; maybe there is none such.

        8.4 has one peer at most, and does not know its name.
        """
        if self.has_quorum is None:
            return self
        return self._replace(peers=tuple(each for each in self.peers if each.name == peer))

    @property
    def is_primary(self) -> bool:
        """Whether this node is Primary."""
        return self.role == "Primary"

    @property
    def is_attached(self) -> bool:
        """Whether DRBD has a disk here."""
        return self.disk not in {"Diskless", "Failed", "Detaching", "Attaching"}

    @property
    def is_in_contact(self) -> bool:
        """Whether every peer is connected."""
        return bool(self.peers) and all(peer.is_in_contact for peer in self.peers)

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica and every peer's are known to be the same, right now."""
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
