# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster.toml of three nodes (two storage, one witness), parsed for unit tests."""

from __future__ import annotations

from sanctl.config import parse
from sanctl.model.topology import Topology

CLUSTER_TOML = """
schema = 1
[cluster]
name = "lab"
iqn_prefix = "iqn.2026-11.net.example:lab"
strategy = "node-majority"
[networks.iscsi]
cidr = "10.77.1.0/24"
[networks.sync]
cidr = "10.77.2.0/24"
[networks.heartbeat]
cidr = "10.77.3.0/24"
[nodes.n1]
id = 1
role = "storage"
iscsi = ["10.77.1.1"]
sync = "10.77.2.1"
heartbeat = "10.77.3.1"
[nodes.n2]
id = 2
role = "storage"
iscsi = ["10.77.1.2"]
sync = "10.77.2.2"
heartbeat = "10.77.3.2"
[nodes.n3]
id = 3
role = "witness"
sync = "10.77.2.3"
heartbeat = "10.77.3.3"
[pools.main]
path = "/srv/sanctl/main"
uuid = "5d4c3b2a-1f0e-4d3c-8b2a-1f0e4d3c8b2a"
nodes = ["n1", "n2"]
"""


def topology() -> Topology:
    """Return that topology, parsed."""
    return parse(CLUSTER_TOML)


def wide_topology() -> Topology:
    """Return it with a third storage node in place of the witness."""
    text = CLUSTER_TOML.replace(
        'role = "witness"', 'role = "storage"\niscsi = ["10.77.1.3"]'
    ).replace('nodes = ["n1", "n2"]', 'nodes = ["n1", "n2", "n3"]')
    return parse(text)


def topology_of_five() -> Topology:
    """Return it with five storage nodes."""
    nodes = "".join(
        f"""
[nodes.n{number}]
id = {number}
role = "storage"
iscsi = ["10.77.1.{number}"]
sync = "10.77.2.{number}"
heartbeat = "10.77.3.{number}"
"""
        for number in (4, 5)
    )
    text = CLUSTER_TOML.replace(
        'role = "witness"', 'role = "storage"\niscsi = ["10.77.1.3"]'
    ).replace('nodes = ["n1", "n2"]', 'nodes = ["n1", "n2", "n3", "n4", "n5"]')
    return parse(text.replace("[pools.main]", f"{nodes}[pools.main]"))
