# SPDX-License-Identifier: GPL-2.0-or-later
"""What the CIB holds of a device, as values: settings, published states, tombstones, marks."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from sanctl.model.access import access_word
from sanctl.model.answered_monitors import AnsweredMonitors
from sanctl.model.cache_policy import NO_CACHE, CachePolicy
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.device_restore import COPYING, RestoreOrder
from sanctl.model.disk_drops import DiskDrops
from sanctl.model.drbd import PORT_BASE
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.hung_io import HungIo
from sanctl.model.meta_attribute import MetaAttribute
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName, format_bytes
from sanctl.model.pool_cache import CacheState
from sanctl.model.restore_point import PointOrder
from sanctl.model.resync_record import ResyncRecord
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, SyncPolicy

#: LIO's relative target port id is minor * 32 + node id (1 to 32), of 16 bits (drivers/lio.py).
_MINOR_LAST = 2046
# Ports on which other programs of a storage node or its administrators' tools often listen.
_PORTS_OF_OTHERS = frozenset(
    {
        8000, 8008, 8080, 8081, 8086, 8088, 8443, 8888,  # HTTP beside port 80 and 443
        9000,
        9090, 9091, 9093, 9094,  # Cockpit; Prometheus and what belongs to it
        9100, 9104, 9115, 9116, 9187, 9256, 9290, 9558, 9633, 9664,  # its exporters
        9200, 9300,
    }
)  # fmt: skip
#: The minor numbers that new devices get, the lowest free one first.
MINORS = tuple(
    minor for minor in range(1, _MINOR_LAST + 1) if PORT_BASE + minor not in _PORTS_OF_OTHERS
)
REPLICAS_RANGE = range(1, 5)

UP_TO_DATE = "UpToDate"
CONNECTED = "Connected"
# States while two replicas exchange blocks. DRBD 8.4 calls the connection SyncSource; DRBD 9 calls
# the connection Connected and the replication on it SyncSource.
SYNCING_CONNECTIONS = frozenset(
    {"SyncSource", "SyncTarget", "PausedSyncS", "PausedSyncT", "VerifyS", "VerifyT"}
)
CONNECTED_STATES = SYNCING_CONNECTIONS | {CONNECTED, "Established"}


def access_digest(words: Iterable[str]) -> str:
    """Return the short digest by which agents report the access list that is in force.

    Args:
        words: its entries (access_word in model/host.py).
    """
    from hashlib import sha256  # noqa: PLC0415 - loads OpenSSL, and few commands need it

    text = " ".join(sorted(words))
    return sha256(text.encode()).hexdigest()[:8]


def deletion_id(name: DeviceName | str) -> str:
    """The id of the `target-role` by which a deletion stops a device.

    That of another tool ends in `target-role` (crm_resource and pcs name it by its set and its
    name), and a tool that starts the device again takes the attribute away with its id. So neither
    `pcs resource disable` nor what is left of a deletion that was undone looks like a deletion.
    """
    return f"sanctl-{name}-meta-deletion"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """One device as the CIB wants it."""

    name: DeviceName
    uuid: str
    size: ByteSize
    pool: PoolName
    replicas: int
    """The wanted number of replicas; while a change is under way `nodes` are more or fewer."""
    nodes: tuple[NodeName, ...]
    minor: int
    initiators: tuple[Iqn, ...]
    """Initiators that may log in by their IQN alone."""
    prefer: NodeName | None = None
    sync: SyncPolicy = DEFAULT_SYNC_POLICY
    is_stopping: bool = False
    """Pacemaker is told to stop it everywhere: by a deletion, or by somebody (`target-role`)."""
    is_deleting: bool = False
    """It is stopped by a deletion that has begun. Implies `is_stopping`."""
    unmanaged_by: tuple[MetaAttribute, ...] = ()
    """The meta attributes by which Pacemaker does not manage it."""
    unpromoted_by: tuple[MetaAttribute, ...] = ()
    """The meta attributes by which Pacemaker promotes no replica: `target-role=Unpromoted`."""
    is_new: bool = False
    cache: CachePolicy = NO_CACHE
    hosts: tuple[Host, ...] = ()
    """Hosts that may use it, sorted: the same as Cib.hosts has under their names.

    Those that have it by themselves and those that have it through a group.
    """
    host_groups: tuple[HostGroupName, ...] = ()
    """The host groups that it is given to, sorted; agents do not read them."""
    point_order: PointOrder | None = None
    """The latest order to make a restore point; it may have been carried out, or be too old."""
    restore: RestoreOrder | None = None
    """The latest order to go back to a restore point; None also where it cannot be read."""
    is_restoring: bool = False
    """No host is let in, as the device goes back to a restore point."""
    origin: CloneOrigin | None = None
    """The restore point that it was made from; None: it began with zeros."""
    awaits: tuple[str, ...] = ()
    """Sites that have to say that it was not taken over, before hosts are let in after the whole
    cluster was started anew; sorted."""
    released: tuple[str, ...] = ()
    """Runs of the cluster software in which hosts are let in by an order; sorted."""
    reservations: bool = False
    """Hosts may make persistent reservations."""
    clear_reservations: str = ""
    """The latest order to clear the reservations, a token; it may have been carried out."""
    needs: tuple[str, ...] = ()
    """What a release has to know to serve it, words of this release or a later one; sorted."""

    @property
    def is_managed(self) -> bool:
        """Whether Pacemaker manages it, as far as the CIB's meta attributes say."""
        return not self.unmanaged_by

    def host(self, name: HostName) -> Host | None:
        """Return the host of that name, if it may use the device."""
        return next((host for host in self.hosts if host.name == name), None)

    @property
    def is_half_restored(self) -> bool:
        """Whether it may hold parts of two states now: a restore point of that were neither."""
        return self.is_restoring and (self.restore is None or self.restore.state == COPYING)

    @property
    def access(self) -> frozenset[str]:
        """The entries of the access list that is to be in force."""
        if self.is_restoring:
            return frozenset()
        return frozenset(
            {
                *(iqn.value for iqn in self.initiators),
                *(
                    access_word(iqn.value, host.chap_user, is_mutual=host.is_mutual)
                    for host in self.hosts
                    for iqn in host.iqns
                ),
            }
        )

    @property
    def serial(self) -> str:
        """The unit serial number hosts see."""
        return self.uuid

    @property
    def wwid(self) -> str:
        """The WWID that multipath shows: 3, then the NAA that LIO builds from the unit serial.

        LIO puts the OpenFabrics company id 001405 after NAA type 6, and then the first 25 hex
        digits of the serial.
        """
        return f"36001405{self.uuid[:25].lower()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLink:
    """One replica's view of one of several peers; None is unknown."""

    node: str
    connection: str | None
    replication: str | None
    disk: str | None

    @property
    def is_connected(self) -> bool:
        """Whether the two replicas are known to be connected."""
        return self.connection in CONNECTED_STATES

    @property
    def is_in_sync(self) -> bool:
        """Whether the peer is known to be connected and UpToDate."""
        return self.is_connected and self.disk == UP_TO_DATE

    @property
    def word(self) -> str:
        """The state between the two replicas: the resync if one runs, else the connection."""
        if self.is_connected and self.replication not in {None, "Off", "Established"}:
            return f"{self.node} {self.replication}"
        return f"{self.node} {self.connection or '?'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """The state of a replica that the agent on its node last published; None is unknown.

    Where there are several peers, `connection`, `replication` and `peer_disk` are those of the
    peer in the worst state.
    """

    disk: str | None = None
    connection: str | None = None
    replication: str | None = None
    peer_disk: str | None = None
    out_of_sync_kib: int | None = None
    role: str | None = None
    size_bytes: int | None = None
    """The smaller one of DRBD's size and of what hosts reach on the node."""
    file_bytes: int | None = None
    """The length of its data file; published only while the replica is smaller than it is to be."""
    access: str | None = None
    suspended: str | None = None
    policy: str | None = None
    """The sync policy in force on the node, as text."""
    resync: ResyncRecord | None = None
    """The replica's latest resync."""
    disconnected_since_s: int | None = None
    """Since when the replica is known to be disconnected, in seconds since 1970."""
    generations: str | None = None
    """DRBD's generation identifiers of its data, published only while disconnected."""
    bitmaps: tuple[tuple[str, str], ...] = ()
    """Of several peers: each one's name, and the generation from which DRBD 9 counts what that peer
    lacks; published with `generations`, whose own says nothing then."""
    peers: tuple[PeerLink, ...] = ()
    """Each of several peers; empty with one peer, which the fields above describe."""
    cache: str | None = None
    """The cache mode in force (model/cache_policy.py)."""
    cache_reason: str | None = None
    """Why that is not the wanted mode (plan/cache)."""
    dirty_bytes: int | None = None
    """How much data is in RAM alone, in write-back."""
    dirty_limit_bytes: int | None = None
    """The limit of that, as the node has last read the policy."""
    dirty_node_limit_bytes: int | None = None
    """The node's limit for all its devices together; published where they want more."""
    flush_s: int | None = None
    """The kernel's estimate of the time that a flush takes."""
    read_bytes: int | None = None
    """The size of the read cache in RAM; published only by the Primary, where one is wanted."""
    read_reason: str | None = None
    """Why that is not the wanted size (plan/cache)."""
    read_held_bytes: int | None = None
    """How much data the read cache holds."""
    read_hit_percent: int | None = None
    """The share of reads that the read cache has answered since it exists."""
    was_last_primary: bool = False
    """The node was Primary when the resource was last up; published only while disconnected."""
    hosts_without_secret: tuple[str, ...] = ()
    """Hosts with CHAP that are not let in on the node, as their secret is missing there."""
    secrets_digest: str = ""
    """What nodes compare the CHAP secrets of the device's hosts by; empty: the node does not say,
    or lacks one."""
    is_suspect: bool = False
    """The replica has lost writes that it had acknowledged."""
    is_settling: bool = False
    """What a resync wrote there is not known to be on stable storage yet."""
    is_unflushed_resync: bool = False
    """Suspect since what a resync had written there may not have been stable."""
    is_unflushed_cache: bool = False
    """Suspect since acknowledged writes were in RAM; a release that does not say why says so."""
    is_withheld: bool | None = None
    """It is no candidate until a peer has joined Pacemaker; None: its agent does not say so."""
    is_let_in: bool = False
    """Its node says that hosts are let in; published only of a device that awaits sites."""
    held_run: str | None = None
    """No host is let in on its node before sites have answered: the node's run of the cluster
    software; empty: not known. None: it does not say so."""
    held_why: str | None = None
    """The code of what keeps the sites from answering, or what they have said; None: not held."""
    lacks: tuple[str, ...] = ()
    """What the device needs and the release there does not know: that node does not take it over.
    A release that does not know of needs says nothing."""
    is_cib_older: bool = False
    """The CIB was written before the device was held, as is noted beside its data there: no host is
    let in by that node."""
    is_hold_unnoted: bool = False
    """The order of a hold could not be noted beside the data there, as in a pool that is full."""
    noted_hold: RestoreOrder | None = None
    """The order that is noted so; None also where it cannot be read."""
    hung: HungIo | None = None
    """Requests that hang there; published only by a Primary that is not rebooted for them."""
    answered: AnsweredMonitors | None = None
    """Its monitors that had no answer in time, and were answered for."""
    drops: DiskDrops | None = None
    """Drops of its disk that was attached again after each; published for a day."""
    change_waits_for: str = ""
    """The node that a change to two replicas waits for there: it is lost, and not yet fenced."""
    waits_for_standby: str = ""
    """The node whose replica is to be promoted first: this one crashed as Primary."""
    waits_to_connect_since_s: int | None = None
    """Since when its connection waits for its turn (plan/drbd/reconnect_pace.py), in seconds since
    1970; published only while DRBD makes no connection."""

    @property
    def is_frozen(self) -> bool:
        """Whether the Primary's I/O is known to be suspended.

        A standby has no I/O: DRBD 9 calls a standby suspended that sees no majority of replicas.
        """
        return self.suspended not in {None, "no"} and self.role != "Secondary"

    @property
    def is_up_to_date(self) -> bool:
        """Whether this replica is known to be UpToDate."""
        return self.disk == UP_TO_DATE

    @property
    def is_connected(self) -> bool:
        """Whether this replica is known to be connected to its peer."""
        return self.connection in CONNECTED_STATES

    @property
    def is_in_sync(self) -> bool:
        """Whether both replicas are known to be UpToDate and connected."""
        return self.is_up_to_date and self.is_connected and self.peer_disk == UP_TO_DATE

    def is_in_sync_with(self, nodes: Collection[NodeName]) -> bool:
        """Whether this replica and those on these nodes are known to be UpToDate and connected."""
        if not self.peers:
            return self.is_in_sync
        names = {node.value for node in nodes}
        seen = {link.node for link in self.peers if link.is_in_sync}
        return self.is_up_to_date and names <= seen

    def is_connected_with(self, nodes: Collection[NodeName]) -> bool:
        """Whether this replica is known to be connected to the replicas on these nodes."""
        if not self.peers:
            return self.is_connected
        return {node.value for node in nodes} <= {
            link.node for link in self.peers if link.is_connected
        }

    @property
    def is_only(self) -> bool:
        """Whether DRBD on the node has no peer configured."""
        return self.connection == "None"

    def brief(self) -> str:
        """Describe the state in a few words, with '?' for unknown."""
        words = [self.disk or "?"]
        if not self.is_in_sync and not self.is_only:
            words.append(self.link or "?")
            if self.out_of_sync_kib:
                words.append(f"{format_bytes(self.out_of_sync_kib * 1024)} to sync")
        return " ".join(words)

    @property
    def link(self) -> str | None:
        """The state between the replicas: the resync if one runs, else the connection."""
        if self.peers:
            return ", ".join(link.word for link in self.peers if not link.is_in_sync) or None
        if self.is_connected and self.replication not in {None, "Off", "Established"}:
            return self.replication
        return self.connection


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolUsage:
    """The usage of a pool on one node, as its agent last published it."""

    total_bytes: int = 0
    free_bytes: int = 0
    allocated_bytes: int | None = None
    daily_growth_bytes: int | None = None
    """How much more was in use than a day before; None: not known yet."""
    error: str | None = None
    makes_clones: bool = False
    """Whether the release of sanctl there makes replicas from restore points."""
    holds_run: str | None = None
    """The run of the cluster software there, in which the node keeps hosts out of a device that
    awaits sites; empty: the node does not know it. None: its release keeps no hosts out."""
    keeps_reservations: bool = False
    """Whether the release of sanctl there keeps persistent reservations over a failover."""
    follows_guests: bool = False
    """Whether the release of sanctl there gives a replica that is disconnected a promotion score
    below what a guest may add."""
    cache: CacheState | None = None
    """The pool's flash cache; None: it has none, or the agent has not published it."""
    release: str | None = None
    """The release of sanctl there, as its folder is called; None: it does not say, or an error is
    published instead."""
    sbd: str | None = None
    """How SBD runs on the node, a word of sanctl.model.sbd_mode; None: not known."""
    memory_bytes: int | None = None
    """The node's memory; None: its release publishes none, or it has no DRBD."""
    bitmaps: int | None = None
    """How many bitmaps of each replica the node's DRBD keeps in memory; None as above."""
    largest_file_bytes: int | None = None
    """The largest file that the pool's filesystem can have; None: not known, or of no matter."""
    is_cib_unwritten: bool = False
    """Whether Pacemaker has stopped writing the CIB to the node's own disk."""
    own_disk_free_bytes: int | None = None
    """What the node's own disk has free, where that is little; None: enough, or not known."""
    run_free_bytes: int | None = None
    """The same of the filesystem of /run."""
    topology_digest: str = ""
    """What nodes compare cluster.toml by; empty: the node does not say."""
    secret_digest: str = ""
    """The same of DRBD's secret."""
    is_reservations_service_down: bool = False
    """Whether sanctl-reservations.service does not listen there, which only devices need that have
    reservations."""
    lost_links: frozenset[tuple[int, int]] = frozenset()
    """Corosync's links that are down beside one that works: number, and id of the other node."""
    clock_offsets: tuple[tuple[int, int], ...] = ()
    """Nodes whose clocks are off from that node's: id, and by how many seconds theirs is ahead."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Tombstone:
    """A deleted device's data on one node, waiting for that node's pool agent to remove it."""

    device: str
    node: NodeName
    value: str


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class OutdatedMark:
    """The mark that a node's replica misses writes and must not be promoted.

    Attributes:
        device: the device's name.
        node: the node.
        uuid: of the device that was marked.
        constraint: the constraint's id; empty for a mark of a release before 0.1.0, an attribute.
    """

    device: str
    node: NodeName
    uuid: str
    constraint: str = ""
