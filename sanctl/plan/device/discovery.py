# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which portals of which other nodes SendTargets at a node has to list for a device.

A host that asks any one node finds all paths of the device, also to nodes that are away. Imports
little: the agents' start uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sanctl.model.topology import Address, Topology

_PORT = 3260


def portal(address: Address) -> str:
    """Return an address of the iscsi network as a portal; IPv6 addresses are in brackets."""
    return f"[{address}]:{_PORT}" if address.version == 6 else f"{address}:{_PORT}"


def listed_portals(
    topology: Topology, replica_nodes: Iterable[str], here: str
) -> dict[int, tuple[str, ...]]:
    """Return the portals of a device's other replica nodes, by TPG tag, which is the node's id.

    A node that cluster.toml does not know has none.
    """
    nodes = [topology.node(name) for name in replica_nodes if name != here]
    return {node.id: tuple(map(portal, node.iscsi)) for node in nodes if node is not None}
