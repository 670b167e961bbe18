# SPDX-License-Identifier: GPL-2.0-or-later
"""Which portals of other nodes discovery names: those of the device's replica nodes, no others."""

from __future__ import annotations

from sanctl.config import parse
from sanctl.plan.device.discovery import listed_portals
from tests.fakes.topology import CLUSTER_TOML, topology, wide_topology


def test_the_other_replica_nodes_are_listed_by_their_tags() -> None:
    assert listed_portals(topology(), ("n1", "n2"), "n1") == {2: ("10.77.1.2:3260",)}
    assert listed_portals(topology(), ("n1", "n2"), "n2") == {1: ("10.77.1.1:3260",)}
    assert listed_portals(wide_topology(), ("n3", "n1", "n2"), "n1") == {
        2: ("10.77.1.2:3260",),
        3: ("10.77.1.3:3260",),
    }


def test_a_node_without_a_replica_is_not_listed() -> None:
    assert listed_portals(wide_topology(), ("n1", "n3"), "n1") == {3: ("10.77.1.3:3260",)}
    assert listed_portals(wide_topology(), ("n1",), "n1") == {}
    assert listed_portals(topology(), ("n1", "gone"), "n1") == {}


def test_each_of_several_portals_is_listed_and_ipv6_in_brackets() -> None:
    text = CLUSTER_TOML.replace('iscsi = ["10.77.1.2"]', 'iscsi = ["10.77.1.2", "10.77.1.12"]')
    assert listed_portals(parse(text), ("n1", "n2"), "n1") == {
        2: ("10.77.1.2:3260", "10.77.1.12:3260")
    }
    text = (
        CLUSTER_TOML.replace('cidr = "10.77.1.0/24"', 'cidr = "fd00:77::/64"')
        .replace('"10.77.1.1"', '"fd00:77::1"')
        .replace('"10.77.1.2"', '"fd00:77::2"')
    )
    assert listed_portals(parse(text), ("n1", "n2"), "n2") == {1: ("[fd00:77::1]:3260",)}
