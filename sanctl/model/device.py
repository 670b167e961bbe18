# SPDX-License-Identifier: GPL-2.0-or-later
"""A device: what is wanted of it, and what its replicas say of themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sanctl.model.cache_policy import NO_CACHE, Policy
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName, format_bytes
from sanctl.model.pool_cache import CacheState
from sanctl.model.resync_record import Resync
from sanctl.model.sync_policy import DEFAULT, SyncPolicy

# Minor numbers are handed out from 1; the DRBD port of a device is 7800 + minor, and ports end.
MINOR_FIRST = 1
MINOR_LAST = 4999
REPLICAS_RANGE = range(1, 5)

UP_TO_DATE = "UpToDate"
CONNECTED = "Connected"
# What a connection is called while the two replicas exchange blocks. DRBD 8.4 says SyncSource,
# DRBD 9 says Established for the link and SyncSource for the replication on it.
SYNCING_CONNECTIONS = frozenset(
    {"SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT", "VerifyS", "VerifyT"}
)
LINKED_CONNECTIONS = SYNCING_CONNECTIONS | {CONNECTED, "Established"}


def access_digest(initiators: Iterable[Iqn]) -> str:
    """Return the short digest by which agents report the access list that is in force."""
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and few commands need it

    text = " ".join(sorted(iqn.value for iqn in initiators))
    return sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device as the CIB wants it."""

    name: DeviceName
    uuid: str
    size: ByteSize
    pool: PoolName
    replicas: int
    """How many replicas it is to have; while a change is under way `nodes` are more or fewer."""
    nodes: tuple[NodeName, ...]
    minor: int
    initiators: tuple[Iqn, ...]
    prefer: NodeName | None = None
    sync: SyncPolicy = DEFAULT
    is_stopping: bool = False
    is_managed: bool = True
    is_new: bool = False
    cache: Policy = NO_CACHE

    @property
    def serial(self) -> str:
        """The unit serial number hosts see."""
        return self.uuid

    @property
    def wwid(self) -> str:
        """The name multipath shows: 3, then the NAA that LIO builds from the unit serial.

        LIO puts the OpenFabrics company id 001405 after NAA type 6 and fills up with the first 25
        hex digits of the serial.
        """
        return f"36001405{self.uuid[:25].lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink:
    """How one replica sees another one of several; None is unknown."""

    node: str
    connection: str | None
    replication: str | None
    disk: str | None

    @property
    def is_linked(self) -> bool:
        """Whether the two are known to be in contact."""
        return self.connection in LINKED_CONNECTIONS

    @property
    def is_in_sync(self) -> bool:
        """Whether the other one is known to be in contact and up to date."""
        return self.is_linked and self.disk == UP_TO_DATE

    @property
    def word(self) -> str:
        """What goes on between the two: the resync if there is one, else the connection."""
        if self.is_linked and self.replication not in {None, "Off", "Established"}:
            return f"{self.node} {self.replication}"
        return f"{self.node} {self.connection or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """What the agent on one node last published about its replica; None is unknown.

    Where there are several peers, `connection`, `replication` and `peer_disk` are those of the one
    that is worst off.
    """

    disk: str | None = None
    connection: str | None = None
    replication: str | None = None
    peer_disk: str | None = None
    out_of_sync_kib: int | None = None
    role: str | None = None
    size_bytes: int | None = None
    access: str | None = None
    suspended: str | None = None
    policy: str | None = None
    """The sync policy that is in force there, in words."""
    resync: Resync | None = None
    """Its latest resync."""
    apart_since_s: int | None = None
    """Since when it is known to be without contact, in seconds since 1970."""
    generations: str | None = None
    """DRBD's identifiers of its data, told only while it is without contact."""
    peers: tuple[PeerLink, ...] = ()
    """Each of several peers; of an only one the fields above say all."""
    cache: str | None = None
    """The cache mode it is in (model/cache.py)."""
    cache_reason: str | None = None
    """Why that is not the wanted one (plan/caching.py)."""
    dirty_bytes: int | None = None
    """How much is in RAM alone, in write-back."""
    dirty_limit_bytes: int | None = None
    """How much that may be at most, as its node has last read the policy."""
    dirty_node_limit_bytes: int | None = None
    """What the node lets all its devices have in RAM together; told where they want more."""
    flush_s: int | None = None
    """How long the kernel reckons that takes to flush."""
    read_bytes: int | None = None
    """How large its read cache in RAM is; told only where it serves and one is wanted."""
    read_reason: str | None = None
    """Why it is not the wanted one (plan/caching.py)."""
    read_held_bytes: int | None = None
    """How much of the device that cache holds."""
    read_hit_percent: int | None = None
    """How much of what was read was in it, since it is there."""
    served_last: bool = False
    """Its node was Primary when it was last up; told only while it is without contact."""
    is_suspect: bool = False
    """It has lost writes that it had acknowledged."""

    @property
    def is_frozen(self) -> bool:
        """Whether its I/O is known to be held back until something is certain.

        A standby has none: DRBD 9 calls one suspended that sees no majority of the copies.
        """
        return self.suspended not in {None, "no"} and self.role != "Secondary"

    @property
    def is_up_to_date(self) -> bool:
        """Whether this replica is known to hold the newest data."""
        return self.disk == UP_TO_DATE

    @property
    def is_linked(self) -> bool:
        """Whether it is known to be in contact with its peer."""
        return self.connection in LINKED_CONNECTIONS

    @property
    def is_in_sync(self) -> bool:
        """Whether both ends are known to be up to date and in contact."""
        return self.is_up_to_date and self.is_linked and self.peer_disk == UP_TO_DATE

    def is_in_sync_with(self, nodes: Collection[NodeName]) -> bool:
        """Whether this replica and those on these nodes are known to be up to date, in contact."""
        if not self.peers:
            return self.is_in_sync
        names = {node.value for node in nodes}
        seen = {link.node for link in self.peers if link.is_in_sync}
        return self.is_up_to_date and names <= seen

    def is_linked_with(self, nodes: Collection[NodeName]) -> bool:
        """Whether it is known to be in contact with the replicas on these nodes."""
        if not self.peers:
            return self.is_linked
        return {node.value for node in nodes} <= {
            link.node for link in self.peers if link.is_linked
        }

    @property
    def is_only(self) -> bool:
        """Whether DRBD there knows of no other replica."""
        return self.connection == "None"

    def brief(self) -> str:
        """Say it in a few words, with '?' for what is not known."""
        words = [self.disk or "?"]
        if not self.is_in_sync and not self.is_only:
            words.append(self.link or "?")
            if self.out_of_sync_kib:
                words.append(f"{format_bytes(self.out_of_sync_kib * 1024)} to sync")
        return " ".join(words)

    @property
    def link(self) -> str | None:
        """What goes on between the replicas: the resync if there is one, else the connection."""
        if self.peers:
            return ", ".join(link.word for link in self.peers if not link.is_in_sync) or None
        if self.is_linked and self.replication not in {None, "Off", "Established"}:
            return self.replication
        return self.connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """How full a pool is on one node, as its agent last published."""

    total_bytes: int = 0
    free_bytes: int = 0
    allocated_bytes: int | None = None
    error: str | None = None
    cache: CacheState | None = None
    """Its flash; None: it has none, or has not told."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Tombstone:
    """A deleted device's data on one node, waiting for that node's pool agent to remove it."""

    device: str
    node: NodeName
    value: str


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class OutdatedMark:
    """The note that a node's replica missed writes and must not be promoted."""

    device: str
    node: NodeName
    uuid: str
