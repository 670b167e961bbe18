# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: why a node that Pacemaker counts as a standby is one, which says how that ends."""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName


class StandbyReason(StrEnum):
    """Why no resource may run on a node that is a member."""

    SHUTDOWN = "shutdown"
    """Its Pacemaker is being stopped."""
    ORDERED = "ordered"
    """By an attribute of the node, which stays until it is taken away."""
    UNTIL_REBOOT = "until-reboot"
    """By a transient attribute, which ends with the node's membership."""
    FAILURE = "failure"
    """An action failed there whose `on-fail` is `standby`."""


_TEXTS = {
    StandbyReason.SHUTDOWN: "shutting down",
    StandbyReason.ORDERED: "standby",
    StandbyReason.UNTIL_REBOOT: "standby until its reboot",
    StandbyReason.FAILURE: "standby since an action failed there",
}


def standby_reason(cluster: Cluster, name: NodeName) -> StandbyReason | None:
    """Return why a node is in standby; None: it is not."""
    node = next((each for each in cluster.mon.nodes if each.name == name.value), None)
    if node is None or node.state is not NodeState.STANDBY:
        return None
    if node.is_shutting_down:
        return StandbyReason.SHUTDOWN
    if any(each.name == name and each.wants_standby for each in cluster.cib.nodes):
        return StandbyReason.ORDERED
    if name.value in cluster.cib.standby_until_reboot:
        return StandbyReason.UNTIL_REBOOT
    return StandbyReason.FAILURE if node.is_standby_on_fail else StandbyReason.ORDERED


def node_state_text(cluster: Cluster, name: NodeName) -> str:
    """Return a node's state in words: that of a standby with its reason."""
    reason = standby_reason(cluster, name)
    if reason is not None:
        return _TEXTS[reason]
    state = cluster.mon.state(name)
    return "in maintenance" if state is NodeState.MAINTENANCE else state.value
