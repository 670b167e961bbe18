# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON data and text of what a change of a device's replicas did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.cli.output import UNKNOWN
from sanctl.cli.views.device import device_data
from sanctl.ops.device_replicas import ReplicasOutcome

if TYPE_CHECKING:
    from sanctl.cli.documents import device as device_documents
    from sanctl.model.topology import Topology


def replica_change_data(
    outcome: ReplicasOutcome, topology: Topology
) -> device_documents.ReplicasChanged:
    """Return what a change of replicas did for the JSON output."""
    return {
        "changed": bool(outcome.steps),
        "duration_s": round(outcome.duration_s, 3),
        "steps": list(outcome.steps),
        "away": [node.value for node in outcome.away],
        "added": [node.value for node in outcome.added],
        **device_data(outcome.cluster, outcome.device, topology),
    }


def print_replica_change(outcome: ReplicasOutcome, topology: Topology) -> None:
    """Print where the replicas are now, and what is left to do for hosts and absent nodes."""
    made = outcome.device
    where = ", ".join(map(str, made.nodes))
    after = f", after {outcome.duration_s:.1f} s" if outcome.steps else ": nothing to do"
    print(f"device {made.name} has its copies on {where}{after}")
    for added in outcome.added:
        node = topology.node(added)
        portals = ", ".join(map(str, node.iscsi)) if node is not None else UNKNOWN
        print(
            f"hosts have to log in to {added} ({portals}): until then they cannot follow it there"
        )
    for away in outcome.away:
        print(f"node {away} is away: it removes its copy when it is back")
