# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster at one moment: what the CIB wants, and what Pacemaker says is so.

Unknown is a value here. A node that is away tells nothing: its replicas are unknown, not gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from sanctl.model.device import DeviceSpec, OutdatedMark, PoolUsage, ReplicaState, Tombstone
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.model.verify_result import Verification
from sanctl.model.vote_mode import ATTRIBUTE, Ballot, Wish

POOLS_CLONE = "sanctl-pools"
POOL_RESOURCE = "sanctl-pool"
#: Where the watch over the iscsi network (ocf:pacemaker:ping or ethmonitor) writes what a node
#: reaches. The playbook gives the agents this name. Not `sanctl-...`, which would be a device's.
REACH_ATTRIBUTE = "iscsi-reach"
REACH_CLONE = "sanctl-reach"


#: The transient node attribute of a drained node. It ends with the node's membership, so a node
#: that has rebooted is in full service again. The playbook's constraint `drained-serves-nothing`
#: gives it its effect. Not `sanctl-…`: that is where replicas publish, by the device's name.
DRAINED = "sanctl.drained"


def clone_id(name: DeviceName | str) -> str:
    """The id of a device's promotable clone."""
    return f"sanctl-{name}"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class CibVersion:
    """The version of the CIB; any change of the configuration raises `epoch`."""

    admin_epoch: int
    epoch: int
    num_updates: int


class NodeState(StrEnum):
    """What Pacemaker makes of a node."""

    ONLINE = "online"
    STANDBY = "standby"
    MAINTENANCE = "maintenance"
    PENDING = "pending"
    OFFLINE = "offline"
    UNCLEAN = "unclean"
    UNKNOWN = "unknown"


# Nodes in these states are members: what they published is theirs, and of now.
PRESENT = frozenset({NodeState.ONLINE, NodeState.STANDBY, NodeState.MAINTENANCE})


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveConstraint:
    """A `sanctl-NAME-move` constraint: it holds only while a move runs, and expires by itself."""

    device: str
    node: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CibNode:
    """A node as the CIB's configuration knows it."""

    name: NodeName
    id: str
    wants_standby: bool
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingResource:
    """A configured fencing device.

    Attributes:
        id: its name.
        targets: the nodes it says it can fence; none named: unknown.
        banned: the nodes that may never run it.
    """

    id: str
    targets: tuple[str, ...]
    banned: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cib:
    """What one `cibadmin --query` tells."""

    version: CibVersion
    properties: Mapping[str, str]
    nodes: tuple[CibNode, ...]
    devices: tuple[DeviceSpec, ...]
    unreadable: tuple[tuple[str, str], ...]
    """Device-like resources that do not read as a device: id and why."""
    has_pools_clone: bool
    fencing: tuple[FencingResource, ...]
    fencing_levels: int
    moves: tuple[MoveConstraint, ...]
    tombstones: tuple[Tombstone, ...]
    outdated: tuple[OutdatedMark, ...]
    drained: frozenset[str]
    """Nodes that serve nothing until they have left the cluster: they are about to."""
    replicas: Mapping[tuple[str, str], ReplicaState]
    """By device and node; only what has been published."""
    pools: Mapping[tuple[str, str], PoolUsage]
    """By pool and node; only what has been published."""
    reach: Mapping[str, int]
    """By node: how many of the watched addresses of the iscsi network answer it."""
    ballots: Mapping[str, Ballot]
    """By node; only what has been published."""
    verifications: Mapping[tuple[str, str], Verification]
    """By device and node: the latest verify that the node took part in."""
    ids: frozenset[str]
    """Every id in the configuration: a new one must not be among them."""

    def device(self, name: DeviceName | str) -> DeviceSpec | None:
        """Return the device of that name, if there is one."""
        wanted = str(name)
        return next((device for device in self.devices if device.name.value == wanted), None)

    def move(self, name: DeviceName) -> MoveConstraint | None:
        """Return the device's move constraint, if one is there."""
        return next((move for move in self.moves if move.device == name.value), None)

    def tombstones_of(self, name: DeviceName) -> tuple[Tombstone, ...]:
        """Return where data of a deleted device of that name still waits to be removed."""
        return tuple(stone for stone in self.tombstones if stone.device == name.value)


class Role(StrEnum):
    """What a resource instance does on a node."""

    PROMOTED = "Promoted"
    UNPROMOTED = "Unpromoted"
    STARTED = "Started"
    STARTING = "Starting"
    STOPPING = "Stopping"
    PROMOTING = "Promoting"
    DEMOTING = "Demoting"
    STOPPED = "Stopped"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One running, or half-running, instance of a resource on a node."""

    resource: str
    node: str
    role: Role
    is_failed: bool = False
    is_managed: bool = True
    is_orphaned: bool = False
    is_blocked: bool = False


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Failure:
    """A failed action of a resource, as Pacemaker remembers it until it is cleaned up."""

    resource: str
    node: str
    action: str
    status: str
    reason: str
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """One fencing of the past, or one under way.

    Attributes:
        target: the node.
        status: `success`, `failed` or `pending`.
        completed: when it ended, as Pacemaker writes times; empty while it is under way.
        reason: why it failed, where Pacemaker says so.
        by: the node that carried it out.
    """

    target: str
    status: str
    completed: str = ""
    reason: str = ""
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonNode:
    """A node as `crm_mon` shows it."""

    name: str
    state: NodeState
    is_dc: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mon:
    """What one `crm_mon` tells."""

    has_quorum: bool
    has_dc: bool
    nodes: tuple[MonNode, ...]
    instances: tuple[Instance, ...]
    failures: tuple[Failure, ...]
    fencings: tuple[Fencing, ...] = ()
    """The newest first."""

    def last_fencing(self, node: NodeName | str) -> Fencing | None:
        """Return the latest fencing of a node that has ended, None where none is remembered."""
        ended = [f for f in self.fencings if f.target == str(node) and f.completed]
        return max(ended, key=lambda fencing: fencing.completed, default=None)

    def state(self, node: NodeName | str) -> NodeState:
        """Return what Pacemaker makes of a node."""
        wanted = str(node)
        for entry in self.nodes:
            if entry.name == wanted:
                return entry.state
        return NodeState.UNKNOWN

    def instances_of(self, resource: DeviceName | str) -> tuple[Instance, ...]:
        """Return the instances of a resource that run, or may still run, somewhere."""
        wanted = str(resource)
        return tuple(i for i in self.instances if i.resource == wanted)

    def role(self, resource: DeviceName | str, node: NodeName | str) -> Role:
        """Return the role of a resource on a node.

        On a node that is not in the cluster it is unknown, unless Pacemaker shows one.
        """
        for instance in self.instances_of(resource):
            if instance.node == str(node):
                return instance.role
        if self.state(node) in {NodeState.OFFLINE, NodeState.ONLINE, NodeState.STANDBY}:
            return Role.STOPPED
        return Role.UNKNOWN

    def active_nodes(self, resource: DeviceName | str) -> tuple[str, ...]:
        """Return the nodes that are known to serve a device.

        Pacemaker goes on showing a role on a node that has fallen silent, until it is fenced. What
        such a node does is not known, so it does not count.
        """
        return tuple(
            i.node
            for i in self.instances_of(resource)
            if i.role is Role.PROMOTED and self.state(i.node) in PRESENT
        )

    def failures_of(self, resource: DeviceName | str) -> tuple[Failure, ...]:
        """Return the remembered failures of a resource."""
        wanted = str(resource)
        return tuple(failure for failure in self.failures if failure.resource == wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The CIB and Pacemaker's view together."""

    cib: Cib
    mon: Mon

    @property
    def is_maintenance(self) -> bool:
        """Whether Pacemaker is told to leave all resources alone."""
        return self.cib.properties.get("maintenance-mode", "false").lower() in {
            "true",
            "yes",
            "on",
            "1",
            "y",
        }

    @classmethod
    def seen(cls, cib: Cib, mon: Mon) -> Self:
        """Put both views together.

        Pacemaker has an instance that serves promoted once more when its parameters have changed,
        and calls it Promoting meanwhile. Its node says that it is Primary: it goes on serving. Not
        where a device is being moved to: what that node said last may be of the time before.
        """
        goals = {(move.device, move.node) for move in cib.moves}
        serving = {
            key
            for key, replica in cib.replicas.items()
            if replica.role == "Primary" and key not in goals
        }
        instances = tuple(
            replace(each, role=Role.PROMOTED)
            if each.role is Role.PROMOTING and (each.resource, each.node) in serving
            else each
            for each in mon.instances
        )
        return cls(cib=cib, mon=replace(mon, instances=instances))

    def replica(self, name: DeviceName, node: NodeName) -> ReplicaState:
        """Return what a node says of its replica; all unknown while the node is away."""
        if self.mon.state(node) not in PRESENT:
            return ReplicaState()
        return self.cib.replicas.get((name.value, node.value), ReplicaState())

    def is_in_sync(self, device: DeviceSpec, node: NodeName) -> bool:
        """Whether a node's replica is known to be up to date, and the same as the others'."""
        replica = self.replica(device.name, node)
        if len(device.nodes) == 1:
            return replica.is_up_to_date
        return replica.is_in_sync_with(set(device.nodes) - {node})

    def is_marked(self, device: DeviceSpec, node: NodeName) -> bool:
        """Whether a node's replica is marked as behind, so that it is never promoted."""
        return any(
            mark.device == device.name.value and mark.node == node and mark.uuid == device.uuid
            for mark in self.cib.outdated
        )

    def pool(self, name: PoolName, node: NodeName) -> PoolUsage | None:
        """Return what a node says of its pool; None is unknown."""
        if self.mon.state(node) not in PRESENT:
            return None
        return self.cib.pools.get((name.value, node.value))

    def ballot(self, node: NodeName | str) -> Ballot:
        """Return how a node counts votes; all unknown while it is away."""
        if self.mon.state(node) not in PRESENT:
            return Ballot()
        return self.cib.ballots.get(str(node), Ballot())

    def wish(self, node: NodeName | str) -> Wish | None:
        """Return how a node is to count votes, if the cluster has ever asked it to."""
        for entry in self.cib.nodes:
            if entry.name.value == str(node):
                return Wish.parse(entry.attributes.get(ATTRIBUTE, ""))
        return None

    def is_pool_agent_running(self, node: NodeName | str) -> bool:
        """Whether the pool agent runs on a node, so that deleted data is removed there."""
        return self.mon.state(node) is NodeState.ONLINE and self.mon.role(POOL_RESOURCE, node) in {
            Role.STARTED,
            Role.UNPROMOTED,
            Role.PROMOTED,
        }

    def active_node(self, name: DeviceName) -> str | None:
        """Return the one node that serves a device; None when none does or more than one claims."""
        nodes = self.mon.active_nodes(name)
        return nodes[0] if len(nodes) == 1 else None

    def active_count(self, node: NodeName | str) -> int:
        """Return how many devices a node serves, or is about to.

        A device that nobody serves yet counts for its first node, which is to serve it first: so
        devices that are created at one moment do not all go to one node.
        """
        wanted = str(node)
        return sum(
            1
            for device in self.cib.devices
            if wanted in (self.mon.active_nodes(device.name) or (str(device.nodes[0]),))
        )
