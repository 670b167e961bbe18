# SPDX-License-Identifier: GPL-2.0-or-later
"""The specification of a laboratory: nodes, roles, addresses, sizes and their limits. Pure."""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any

from sanctl.errors import Problem, UsageError

DEFAULT_NAME = "default"
DEFAULT_MEMORY_MIB = 768
DEFAULT_DISK_MIB = 4096
# The time a server's firmware takes before it begins to boot. Without it a fenced node would be
# back before the survivor has finished taking over, which no rack does.
DEFAULT_POST_DELAY_S = 10.0
RELEASES = ("trixie", "bookworm")
#: Of the data disks: what this machine makes. A node makes XFS on a blank disk.
EXT4, XFS = "ext4", "xfs"
FILESYSTEMS = (XFS, EXT4)
#: Of a laboratory that is made now: restore points, clones, backups and copies need it.
DEFAULT_FILESYSTEM = XFS
MAX_CLUSTER_NODES = 32
MAX_INITIATORS = 8
_FIRST_INITIATOR_ID = 101
_QNETD_ID = 100
_MIN_MEMORY_MIB = 384
_MIN_DISK_MIB = 256
#: mkfs.xfs refuses less than 300 MiB.
_MIN_XFS_MIB = 320
_MIN_FLASH_MIB = 64
_MAX_DISKS = 8
_NAME = re.compile(r"[a-z][a-z0-9-]{0,15}")
_SIZE = re.compile(r"([0-9]+)([MGT])(iB)?", re.IGNORECASE)
_MIB = {"M": 1, "G": 1024, "T": 1024 * 1024}

HOST_ADDRESS = "10.77.3.254"
PREFIX_LENGTH = 24


class Network(StrEnum):
    """The three networks of a laboratory."""

    ISCSI = "iscsi"
    SYNC = "sync"
    HEARTBEAT = "hb"

    @property
    def subnet(self) -> str:
        """The first three octets of the network's addresses."""
        return {"iscsi": "10.77.1", "sync": "10.77.2", "hb": "10.77.3"}[self.value]

    @property
    def nic(self) -> str:
        """The interface's name inside a node."""
        return f"{self.value}0"


class Role(StrEnum):
    """The role of a node."""

    STORAGE = "storage"
    WITNESS = "witness"
    QNETD = "qnetd"
    INITIATOR = "initiator"


class Witness(StrEnum):
    """The source of the vote that breaks a tie between an even number of storage nodes."""

    NODE = "node"
    QNETD = "qnetd"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """One node: its addresses, MACs and networks follow from name, number and role."""

    name: str
    id: int
    role: Role

    @property
    def networks(self) -> tuple[Network, ...]:
        """The networks the node is plugged into, in the order of its NICs."""
        match self.role:
            case Role.INITIATOR:
                return (Network.ISCSI, Network.HEARTBEAT)
            case Role.QNETD:
                return (Network.HEARTBEAT,)
        return (Network.ISCSI, Network.SYNC, Network.HEARTBEAT)

    @property
    def has_bmc(self) -> bool:
        """Whether the node has a virtual BMC: only cluster members are fenced."""
        return self.role in {Role.STORAGE, Role.WITNESS}

    @property
    def bmc_address(self) -> str:
        """The address of the node's BMC."""
        if not self.has_bmc:
            raise ValueError(f"{self.name} has no BMC")
        return f"{Network.HEARTBEAT.subnet}.{200 + self.id}"

    @property
    def initiator_iqn(self) -> str:
        """The node's iSCSI initiator name."""
        return f"iqn.2026-11.net.example:{self.name}"

    def address(self, network: Network) -> str:
        """The node's address on one of its networks."""
        if network not in self.networks:
            raise ValueError(f"{self.name} is not on network {network}")
        return f"{network.subnet}.{self.id}"

    def mac(self, network: Network) -> str:
        """The node's MAC on a network. Set: all guests' kernels would draw the same random one."""
        number = list(Network).index(network) + 1
        return f"02:77:00:00:{number:02x}:{self.id:02x}"

    def tap(self, network: Network) -> str:
        """The name of the tap that is this machine's end of the node's NIC."""
        return f"{self.name}-{network}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabSpec:
    """The specification of a laboratory."""

    name: str = DEFAULT_NAME
    nodes: int = 3
    initiators: int = 1
    release: str = RELEASES[0]
    memory_mib: int = DEFAULT_MEMORY_MIB
    disk_mib: int = DEFAULT_DISK_MIB
    disks: int = 1
    flash_mib: int = 0
    """Size of one more disk, the flash in front of the first; 0: no flash, no cache."""
    shared_mib: int = 0
    """Size of one disk that all cluster nodes see, such as SBD's; 0: there is none."""
    post_delay_s: float = DEFAULT_POST_DELAY_S
    witness: str = ""
    """A Witness; empty: a node if the count of nodes is odd, none if it is even."""
    filesystem: str = EXT4
    """Of each data disk but the one behind flash, which the rollout formats; one of FILESYSTEMS."""
    racks: int = 0
    """Number of racks that the inventory spreads the storage nodes over; 0: it names no rack."""

    own_hosts: bool = False
    """Whether the storage nodes are hosts of their own devices, too."""

    @property
    def has_flash(self) -> bool:
        """Whether the first data disk has a flash disk in front."""
        return self.flash_mib > 0

    @property
    def all_disks(self) -> int:
        """The number of disks of a storage node besides its root; the flash is the last one."""
        return self.disks + (1 if self.has_flash else 0)

    def sees_shared_disk(self, node: NodeSpec) -> bool:
        """Whether a node has the disk that all cluster nodes share."""
        return self.shared_mib > 0 and node.role in {Role.STORAGE, Role.WITNESS}

    @property
    def witness_kind(self) -> Witness:
        """The source of the third vote."""
        if self.witness:
            return Witness(self.witness)
        return Witness.NODE if self.nodes % 2 and self.nodes > 1 else Witness.NONE

    @property
    def cluster_nodes(self) -> tuple[NodeSpec, ...]:
        """The cluster's members; a witness node is the last one: it votes and holds no data."""
        witness = self.nodes if self.witness_kind is Witness.NODE else 0
        return tuple(
            NodeSpec(name=f"n{k}", id=k, role=Role.WITNESS if k == witness else Role.STORAGE)
            for k in range(1, self.nodes + 1)
        )

    def rack(self, node: NodeSpec) -> str:
        """The rack of a storage node in the inventory, with as many nodes in each; empty: none.

        Neighbours share a rack, so that a choice by name alone would not spread replicas.
        """
        storage = [each for each in self.cluster_nodes if each.role is Role.STORAGE]
        if not self.racks or node not in storage:
            return ""
        return f"r{storage.index(node) * self.racks // len(storage) + 1}"

    @property
    def hosts(self) -> tuple[NodeSpec, ...]:
        """The initiators."""
        return tuple(
            NodeSpec(name=f"i{k}", id=_FIRST_INITIATOR_ID + k - 1, role=Role.INITIATOR)
            for k in range(1, self.initiators + 1)
        )

    @property
    def qnetd(self) -> NodeSpec | None:
        """The machine that only votes, through corosync-qnetd, and is no member."""
        if self.witness_kind is not Witness.QNETD:
            return None
        return NodeSpec(name="q1", id=_QNETD_ID, role=Role.QNETD)

    @property
    def machines(self) -> tuple[NodeSpec, ...]:
        """All machines, cluster nodes first."""
        return self.cluster_nodes + ((self.qnetd,) if self.qnetd else ()) + self.hosts

    def node(self, name: str) -> NodeSpec:
        """Return the node of that name.

        Raises:
            UsageError: there is none.
        """
        for node in self.machines:
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.machines)
        raise UsageError(
            Problem("SAN-LAB-002", f"lab {self.name} has no node {name!r}", f"it has {known}")
        )

    def as_json(self) -> dict[str, Any]:
        """Return the specification as lab.json has it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> LabSpec:
        """Read the form of `as_json`, ignoring fields that a later version may have added."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in data.items() if key in known})


def check(spec: LabSpec) -> list[Problem]:
    """Return every limit that a specification breaks."""
    problems = []

    def wrong(text: str, hint: str) -> None:
        problems.append(Problem("SAN-LAB-001", text, hint))

    if not _NAME.fullmatch(spec.name):
        wrong(
            f"{spec.name!r} is no name for a lab", "a letter, then letters, digits or -, up to 16"
        )
    if not 1 <= spec.nodes <= MAX_CLUSTER_NODES:
        wrong(f"{spec.nodes} cluster nodes", f"from 1 to {MAX_CLUSTER_NODES}")
    if spec.witness_kind is Witness.QNETD and spec.nodes % 2:
        wrong(f"{spec.nodes} storage nodes and qnetd", "its vote makes an even count an odd one")
    if spec.witness_kind is Witness.NODE and spec.nodes < 2:
        wrong("a witness for no storage node", "--nodes counts the witness, too")
    if not 0 <= spec.initiators <= MAX_INITIATORS:
        wrong(f"{spec.initiators} initiators", f"from 0 to {MAX_INITIATORS}")
    if spec.release not in RELEASES:
        wrong(f"release {spec.release!r}", "one of " + ", ".join(RELEASES))
    if spec.memory_mib < _MIN_MEMORY_MIB:
        wrong(f"{spec.memory_mib} MiB of memory per node", f"at least {_MIN_MEMORY_MIB}")
    least_mib = _MIN_XFS_MIB if spec.filesystem == XFS else _MIN_DISK_MIB
    if spec.disk_mib < least_mib:
        wrong(f"data disks of {spec.disk_mib} MiB", f"at least {least_mib}M")
    if not 0 <= spec.disks <= _MAX_DISKS:
        wrong(f"{spec.disks} data disks per storage node", f"from 0 to {_MAX_DISKS}")
    if spec.filesystem not in FILESYSTEMS:
        wrong(f"filesystem {spec.filesystem!r}", "one of " + ", ".join(FILESYSTEMS))
    if not 0 <= spec.racks <= spec.nodes:
        wrong(f"{spec.racks} racks for {spec.nodes} nodes", "no more racks than nodes")
    if spec.flash_mib and (spec.flash_mib < _MIN_FLASH_MIB or not spec.disks):
        wrong(
            f"flash of {spec.flash_mib} MiB before {spec.disks} data disks",
            f"at least {_MIN_FLASH_MIB}M, before at least one",
        )
    if spec.shared_mib < 0:
        wrong(f"a shared disk of {spec.shared_mib} MiB", "a size such as 8M")
    if not 0 <= spec.post_delay_s <= 600:
        wrong(f"a POST delay of {spec.post_delay_s:g} s", "from 0 to 600")
    return problems


def parse_size_mib(text: str) -> int:
    """Turn `4G` or `512M` into MiB.

    Raises:
        UsageError: it is no size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(
            Problem("SAN-LAB-001", f"{text!r} is no size", "a number and M, G or T, such as 4G")
        )
    return int(match[1]) * _MIB[match[2].upper()]


def digest(*parts: str) -> str:
    """Return a short digest of exactly these inputs, in this order."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(f"{len(part)}:".encode() + part.encode())
    return whole.hexdigest()[:12]
