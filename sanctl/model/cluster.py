# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster at one moment: questions about the CIB and crm_mon's status.

Unknown is a value here. The replicas of an absent node are unknown, not gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from sanctl.model.cib import Cib
from sanctl.model.cib_names import POOL_RESOURCE
from sanctl.model.crm_mon import MEMBER_STATES, Mon, NodeState, Role
from sanctl.model.device import DeviceSpec, PoolUsage, ReplicaState
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.model.pacemaker_boolean import is_true
from sanctl.model.vote_mode import VOTES_ATTRIBUTE, NodeVotes, WantedVotes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The CIB and Pacemaker's view together."""

    cib: Cib
    mon: Mon

    @property
    def is_maintenance(self) -> bool:
        """Whether the whole cluster is in maintenance mode: Pacemaker manages no resource."""
        return is_true(self.cib.properties.get("maintenance-mode", "false"))

    @property
    def is_all_stopped(self) -> bool:
        """Whether Pacemaker is told to stop every resource: `stop-all-resources`."""
        return is_true(self.cib.properties.get("stop-all-resources", "false"))

    @classmethod
    def seen(cls, cib: Cib, mon: Mon) -> Self:
        """Combine both views.

        Pacemaker promotes an instance that serves once more when its parameters have changed, and
        shows Promoting meanwhile. Where its node has published Primary, the instance goes on
        serving and counts as promoted. Not on the target of a running move: the state that this
        node has published may be older than the move.
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
        """Return the published state of a node's replica; all unknown while the node is absent.

        All unknown, too, while Pacemaker shows no instance of the device there: an agent that stops
        takes back what its own release has published; what another release has may stay
        (docs/adr/0067).
        """
        is_there = any(each.node == node.value for each in self.mon.instances_of(name))
        if not is_there or self.mon.state(node) not in MEMBER_STATES:
            return ReplicaState()
        return self.cib.replicas.get((name.value, node.value), ReplicaState())

    def is_in_sync(self, device: DeviceSpec, node: NodeName) -> bool:
        """Whether a node's replica is known to be UpToDate and in sync with all others."""
        replica = self.replica(device.name, node)
        if len(device.nodes) == 1:
            return replica.is_up_to_date
        return replica.is_in_sync_with(set(device.nodes) - {node})

    def is_marked(self, device: DeviceSpec, node: NodeName) -> bool:
        """Whether a node's replica has the outdated mark, so that it is never promoted."""
        return self.cib.is_marked(device, node)

    def replica_brief(self, device: DeviceSpec, node: NodeName) -> str:
        """Return a replica's condition in a few words, with its outdated mark.

        DRBD may call a replica UpToDate that is marked: it is not to serve all the same.
        """
        mark = ", marked as outdated" if self.is_marked(device, node) else ""
        return self.replica(device.name, node).brief() + mark

    def pool(self, name: PoolName, node: NodeName) -> PoolUsage | None:
        """Return the published state of a pool on a node; None is unknown."""
        if self.mon.state(node) not in MEMBER_STATES:
            return None
        return self.cib.pools.get((name.value, node.value))

    def votes_of(self, node: NodeName | str) -> NodeVotes:
        """Return how a node counts votes; all unknown while the node is absent."""
        if self.mon.state(node) not in MEMBER_STATES:
            return NodeVotes()
        return self.cib.node_votes.get(str(node), NodeVotes())

    def wanted_votes(self, node: NodeName | str) -> WantedVotes | None:
        """Return how a node is to count votes, None where no command has ever set that."""
        for entry in self.cib.nodes:
            if entry.name.value == str(node):
                return WantedVotes.parse(entry.attributes.get(VOTES_ATTRIBUTE, ""))
        return None

    def is_pool_agent_running(self, node: NodeName | str) -> bool:
        """Whether the pool agent runs on a node, so that deleted data is removed there."""
        return self.mon.state(node) is NodeState.ONLINE and self.mon.role(POOL_RESOURCE, node) in {
            Role.STARTED,
            Role.UNPROMOTED,
            Role.PROMOTED,
        }

    def active_node(self, name: DeviceName) -> str | None:
        """Return the one node that serves a device; None where no node does, or several do."""
        nodes = self.mon.active_nodes(name)
        return nodes[0] if len(nodes) == 1 else None

    def serving_node(self, name: DeviceName | str) -> str | None:
        """Return `active_node`; where Pacemaker shows none, the node whose replica says so itself.

        Pacemaker records a reload as a start, and learns by the monitor after it that the replica
        is Promoted; in maintenance it learns that at the end (docs/adr/0087). What a replica has
        published is as old as its latest monitor. For what only has to spare the node that serves,
        or wait for it: None where several say so, or without quorum.
        """
        active = self.mon.active_nodes(name)
        if active or not self.mon.has_quorum:
            return active[0] if len(active) == 1 else None
        found = [
            each.node
            for each in self.mon.instances_of(name)
            if each.role is Role.UNPROMOTED
            and self.mon.state(each.node) in MEMBER_STATES
            and (state := self.cib.replicas.get((str(name), each.node))) is not None
            and state.role == "Primary"
        ]
        return found[0] if len(found) == 1 else None

    def serves(self, name: DeviceName | str, node: NodeName) -> bool:
        """Whether a node serves a device, as Pacemaker or its replica says (`serving_node`)."""
        return node.value in {*self.mon.active_nodes(name), self.serving_node(name)}

    def active_count(self, node: NodeName | str) -> int:
        """Return how many devices a node serves, or is about to serve.

        A device that no node serves yet counts for its first node, which is to serve it first: so
        devices that are created at the same time do not all go to one node. One that is being
        deleted counts only where it is served still.
        """
        wanted = str(node)
        return sum(
            1
            for device in self.cib.devices
            if wanted
            in (
                self.mon.active_nodes(device.name)
                or (() if device.is_stopping else (str(device.nodes[0]),))
            )
        )
