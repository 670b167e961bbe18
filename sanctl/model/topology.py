# SPDX-License-Identifier: GPL-2.0-or-later
"""The content of cluster.toml as values: strategy, networks, nodes with addresses, pools.

Light imports: values only. Reading the file and checking it is in `sanctl.config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePosixPath

from sanctl.model.cache_policy import CacheMode
from sanctl.model.names import DeviceName, Iqn, NodeName, PoolName
from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class NodeRole(StrEnum):
    """The role of a node in the cluster."""

    STORAGE = "storage"
    WITNESS = "witness"
    """A third vote, so that one of two storage nodes has a majority; holds no data."""


class Strategy(StrEnum):
    """Which nodes may go on when nodes cannot see each other."""

    NODE_MAJORITY = "node-majority"
    """The part with more than half of all votes; a witness or a quorum device makes them odd."""
    HEARTBEAT = "heartbeat"
    """Two nodes, several links: while one link works they agree; without any, fencing decides."""


#: The networks of Corosync's links, by their number in corosync.conf.
LINK_NAMES = {0: "heartbeat", 1: "sync"}

#: The heartbeat strategy without fencing: with all links lost, each node takes the other for dead.
RISK_NO_FENCING = "SAN-RISK-001"
#: SBD with softdog: a node whose kernel hangs may go on writing while another node takes over.
RISK_SOFTDOG = "SAN-CONF-042"


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """The three networks, which must not share a cable."""

    iscsi: Network
    sync: Network
    heartbeat: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One server of the cluster."""

    name: NodeName
    id: int
    """Corosync node id, and tag of the node's target port group, ALUA group and relative port."""
    role: NodeRole
    iscsi: tuple[Address, ...]
    """Portals; a witness has none."""
    sync: Address
    heartbeat: Address
    site: str = ""
    """The node's building, which fails as a whole; empty: not stated."""
    rack: str = ""
    """The rack within the site; empty: not stated."""
    is_power_protected: bool = False
    """A battery keeps the node's disks' own write caches over a power cut."""


class PoolFilesystem(StrEnum):
    """A filesystem that sanctl makes for a pool."""

    XFS = "xfs"
    EXT4 = "ext4"
    """Without restore points: its files cannot share blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCache:
    """The flash cache of a pool's slow disk, with the same paths on all of the pool's nodes."""

    origin: PurePosixPath
    """The slow disk, which holds the filesystem behind 8 KiB of bcache's superblock."""
    flash: PurePosixPath
    mode: CacheMode = CacheMode.WRITE_THROUGH
    """The mode until `sanctl pool cache` sets another."""
    filesystem: PoolFilesystem = PoolFilesystem.XFS
    """What is made on the empty disk. A pool that is there keeps its own, whatever this says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A directory on a mounted filesystem, with the same name and path on all of its nodes."""

    name: PoolName
    path: PurePosixPath
    uuid: str
    """The content of the marker file in the directory, 36 characters in lower case."""
    nodes: tuple[NodeName, ...]
    cache: PoolCache | None = None
    """Flash below the filesystem; sanctl then mounts the directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """All of cluster.toml. Nodes are in the order of their ids, pools in that of their names."""

    cluster: str
    iqn_prefix: Iqn
    strategy: Strategy
    networks: Networks
    nodes: tuple[Node, ...]
    pools: tuple[Pool, ...]
    qdevice: Address | None = None
    """The address of corosync-qnetd."""
    accepted_risks: tuple[str, ...] = ()

    @property
    def vote_mode(self) -> VoteMode:
        """How Corosync counts votes under this strategy."""
        if self.strategy is Strategy.HEARTBEAT:
            return VoteMode(votes=Votes.TWO_NODE)
        # One more vote is enough to make the number odd: a witness has it already.
        has_witness = any(node.role is NodeRole.WITNESS for node in self.nodes)
        if self.qdevice is None or has_witness:
            return MAJORITY_OF_NODES
        return VoteMode(votes=Votes.QDEVICE, host=str(self.qdevice))

    def node(self, name: NodeName | str) -> Node | None:
        """Return the node of that name."""
        return next((node for node in self.nodes if node.name.value == str(name)), None)

    def pool(self, name: PoolName | str) -> Pool | None:
        """Return the pool of that name."""
        return next((pool for pool in self.pools if pool.name.value == str(name)), None)

    @property
    def storage_nodes(self) -> tuple[Node, ...]:
        """The nodes that hold data and serve it."""
        return tuple(node for node in self.nodes if node.role is NodeRole.STORAGE)

    def target_iqn(self, device: DeviceName) -> Iqn:
        """Return the name of the device's target, the same on every node."""
        return Iqn.parse(f"{self.iqn_prefix}.{device}")
