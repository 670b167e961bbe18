# SPDX-License-Identifier: GPL-2.0-or-later
"""What crm_mon shows at one moment: nodes, instances of resources, failures and fencings.

Unknown is a value here. What a node does that is no member is unknown, not nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sanctl.model.names import DeviceName, NodeName


class NodeState(StrEnum):
    """Pacemaker's view of a node."""

    ONLINE = "online"
    STANDBY = "standby"
    MAINTENANCE = "maintenance"
    PENDING = "pending"
    OFFLINE = "offline"
    UNCLEAN = "unclean"
    UNKNOWN = "unknown"


# Nodes in these states are members: the attributes they have published are current.
MEMBER_STATES = frozenset({NodeState.ONLINE, NodeState.STANDBY, NodeState.MAINTENANCE})


class Role(StrEnum):
    """The role of a resource instance on a node, as crm_mon shows it."""

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
    """One instance of a resource on a node that runs, starts or stops."""

    resource: str
    node: str
    role: Role
    is_managed: bool = True
    is_orphaned: bool = False
    is_failed: bool = False
    """Whether its last action has failed, and Pacemaker has not recovered from that yet."""


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class Failure:
    """A failed action of a resource, which Pacemaker remembers until it is cleaned up."""

    resource: str
    node: str
    action: str
    status: str
    reason: str
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fencing:
    """One entry of the fencing history: a fencing that has ended, or one under way.

    Attributes:
        target: the fenced node.
        status: `success`, `failed` or `pending`.
        completed: the time of its end, as Pacemaker writes times; empty while it is under way.
        reason: why it failed, where Pacemaker says so.
    """

    target: str
    status: str
    completed: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonNode:
    """A node as `crm_mon` shows it.

    Attributes:
        name: its name.
        state: `STANDBY`, too, of a node whose Pacemaker stops: nothing may run there either.
        is_shutting_down: whether its Pacemaker stops.
        is_standby_on_fail: whether a failed action has put it into standby.
    """

    name: str
    state: NodeState
    is_shutting_down: bool = False
    is_standby_on_fail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mon:
    """The content of one `crm_mon`."""

    has_quorum: bool
    has_dc: bool
    nodes: tuple[MonNode, ...]
    instances: tuple[Instance, ...]
    failures: tuple[Failure, ...]
    fencings: tuple[Fencing, ...] = ()
    """The newest first."""
    _by_resource: dict[str, tuple[Instance, ...]] = field(
        init=False, repr=False, compare=False, hash=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        # `status` asks a thousand times for the instances of one of five hundred devices.
        for instance in self.instances:
            before = self._by_resource.get(instance.resource, ())
            self._by_resource[instance.resource] = (*before, instance)

    def last_fencing(self, node: NodeName | str) -> Fencing | None:
        """Return the latest fencing of a node that has ended, None where the history has none."""
        ended = [f for f in self.fencings if f.target == str(node) and f.completed]
        return max(ended, key=lambda fencing: fencing.completed, default=None)

    def is_being_fenced(self, node: NodeName | str) -> bool:
        """Whether a fencing of a node is under way."""
        return any(f.target == str(node) and f.status == "pending" for f in self.fencings)

    def state(self, node: NodeName | str) -> NodeState:
        """Return Pacemaker's view of a node."""
        wanted = str(node)
        for entry in self.nodes:
            if entry.name == wanted:
                return entry.state
        return NodeState.UNKNOWN

    def instances_of(self, resource: DeviceName | str) -> tuple[Instance, ...]:
        """Return the instances of a resource that run, or may still run, somewhere."""
        return self._by_resource.get(str(resource), ())

    def role(self, resource: DeviceName | str, node: NodeName | str) -> Role:
        """Return the role of a resource on a node.

        On a node that is not in the cluster the role is unknown, unless Pacemaker shows one.
        """
        for instance in self.instances_of(resource):
            if instance.node == str(node):
                return instance.role
        if self.state(node) in {NodeState.OFFLINE, NodeState.ONLINE, NodeState.STANDBY}:
            return Role.STOPPED
        return Role.UNKNOWN

    def active_nodes(self, resource: DeviceName | str) -> tuple[str, ...]:
        """Return the nodes that are known to serve a device.

        Pacemaker goes on showing a role on a node that is lost, until the node is fenced. What such
        a node does is not known, so it does not count.
        """
        return tuple(
            i.node
            for i in self.instances_of(resource)
            if i.role is Role.PROMOTED and self.state(i.node) in MEMBER_STATES
        )

    def failures_of(self, resource: DeviceName | str) -> tuple[Failure, ...]:
        """Return the remembered failures of a resource."""
        wanted = str(resource)
        return tuple(failure for failure in self.failures if failure.resource == wanted)
