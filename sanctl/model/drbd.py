"""What DRBD says about one resource of this node.

NamedTuples, not dataclasses: the agents import this on every monitor, and `dataclasses` would be
the largest part of what they import.
"""

from __future__ import annotations

from typing import NamedTuple


class PeerState(NamedTuple):
    """One peer of a resource, as this node sees it.

    Attributes:
        name: the connection's name; 8.4 may call every peer `peer`.
        connection: Connected, Connecting, StandAlone, … `Unknown` where DRBD did not say.
        role: the peer's role, `Unknown` while not connected.
        replication: Established, SyncSource, SyncTarget, VerifyS, … or Off.
        disk: state of the peer's replica, `DUnknown` while not connected.
        out_of_sync_kib: KiB that differ as far as this node's bitmap knows; None if not told.
    """

    name: str
    connection: str
    role: str
    replication: str
    disk: str
    out_of_sync_kib: int | None


class ResourceState(NamedTuple):
    """One resource with its only volume.

    Attributes:
        name: the resource's name.
        role: Primary or Secondary, `Unknown` where DRBD did not say.
        suspended: why I/O is frozen (`no` while it is not, else `user`, `fencing`, `quorum`, …).
        disk: state of the local replica; `Diskless` without one.
        size_kib: size of the DRBD device in KiB; None if not told.
        peers: the peers, in the order of their names.
        write_ordering: how writes that depend on each other are kept in order; empty if not told.
    """

    name: str
    role: str
    suspended: str
    disk: str
    size_kib: int | None
    peers: tuple[PeerState, ...]
    write_ordering: str = ""

    @property
    def is_primary(self) -> bool:
        """Whether this node is Primary."""
        return self.role == "Primary"

    @property
    def is_in_contact(self) -> bool:
        """Whether every peer is connected."""
        return bool(self.peers) and all(peer.connection == "Connected" for peer in self.peers)

    @property
    def is_in_sync(self) -> bool:
        """Whether this replica and every peer's are known to be the same, right now."""
        return (
            self.disk == "UpToDate"
            and bool(self.peers)
            and all(
                peer.connection == "Connected"
                and peer.disk == "UpToDate"
                and peer.replication == "Established"
                for peer in self.peers
            )
        )

    @property
    def out_of_sync_kib(self) -> int | None:
        """The largest known difference to a peer in KiB, or None when none is known."""
        known = [peer.out_of_sync_kib for peer in self.peers if peer.out_of_sync_kib is not None]
        return max(known, default=None)
