# SPDX-License-Identifier: GPL-2.0-or-later
"""The static shape of a cluster: networks, nodes and pools, as cluster.toml states them.

Light on purpose: values only. What may stand in the file, and what is wrong with one that holds
something else, is known to `sanctl.config`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import PurePosixPath

from sanctl.model.cache_policy import Mode
from sanctl.model.names import DeviceName, Iqn, NodeName, PoolName
from sanctl.model.vote_mode import PLAIN, Tally, Votes

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Role(StrEnum):
    """What a node does for the cluster."""

    STORAGE = "storage"
    WITNESS = "witness"
    """Votes, so that two storage nodes can tell a dead peer from a cut link; holds no data."""


class Strategy(StrEnum):
    """Who may go on when nodes cannot see each other."""

    NODE_MAJORITY = "node-majority"
    """Whoever has more than half of all votes; a witness or a quorum device makes them odd."""
    HEARTBEAT = "heartbeat"
    """Two nodes, several links: while one is left they agree, without any fencing decides."""


#: The heartbeat strategy without fencing: with all links lost, each node takes the other as gone.
RISK_NO_FENCING = "SAN-RISK-001"
#: SBD with the kernel's own watchdog: a kernel that hangs may write on while another takes over.
RISK_SOFTDOG = "SAN-CONF-042"


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """The three networks, which must not share a wire."""

    iscsi: Network
    sync: Network
    heartbeat: Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One server of the cluster."""

    name: NodeName
    id: int
    """Corosync node id, and tag of the node's target port group, ALUA group and relative port."""
    role: Role
    iscsi: tuple[Address, ...]
    """Portals; a witness has none."""
    sync: Address
    heartbeat: Address
    site: str = ""
    """The building it stands in, which fails as a whole; empty: not told."""
    rack: str = ""
    """The rack within the site; empty: not told."""
    is_power_protected: bool = False
    """A battery keeps its disks' own write caches over a power cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCache:
    """Flash before a pool's slow disk, of the same names on each of the pool's nodes."""

    origin: PurePosixPath
    """The slow disk, which holds the filesystem behind 8 KiB of the cache's own."""
    flash: PurePosixPath
    mode: Mode = Mode.WRITE_THROUGH
    """How it is used until `sanctl pool cache` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A directory on a mounted filesystem, of the same name and path on each of its nodes."""

    name: PoolName
    path: PurePosixPath
    uuid: str
    """What the marker file in the directory must say, 36 characters in lower case."""
    nodes: tuple[NodeName, ...]
    cache: PoolCache | None = None
    """Flash below the filesystem; the directory's mount is then sanctl's."""


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
    """Where corosync-qnetd answers."""
    accepted_risks: tuple[str, ...] = ()

    @property
    def tally(self) -> Tally:
        """How votes are counted under this strategy."""
        if self.strategy is Strategy.HEARTBEAT:
            return Tally(votes=Votes.TWO_NODE)
        # One odd vote is enough: a witness has it already.
        has_witness = any(node.role is Role.WITNESS for node in self.nodes)
        if self.qdevice is None or has_witness:
            return PLAIN
        return Tally(votes=Votes.QDEVICE, host=str(self.qdevice))

    def node(self, name: NodeName | str) -> Node | None:
        """Return the node of that name."""
        return next((node for node in self.nodes if node.name.value == str(name)), None)

    def pool(self, name: PoolName | str) -> Pool | None:
        """Return the pool of that name."""
        return next((pool for pool in self.pools if pool.name.value == str(name)), None)

    @property
    def storage_nodes(self) -> tuple[Node, ...]:
        """The nodes that hold data and serve it."""
        return tuple(node for node in self.nodes if node.role is Role.STORAGE)

    def target_iqn(self, device: DeviceName) -> Iqn:
        """Return the name of the device's target, the same on every node."""
        return Iqn.parse(f"{self.iqn_prefix}.{device}")
