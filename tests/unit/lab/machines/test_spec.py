# SPDX-License-Identifier: GPL-2.0-or-later
"""The specification of a laboratory: defaults, addresses, limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import UsageError
from sanctl.lab.machines.spec import LabSpec, Network, NodeSpec, Role, check, digest, parse_size_mib


def roles(spec: LabSpec) -> list[str]:
    return [f"{node.name}={node.role}" for node in spec.machines]


@pytest.mark.parametrize(
    ("nodes", "initiators", "expected"),
    [
        (1, 0, ["n1=storage"]),
        (2, 1, ["n1=storage", "n2=storage", "i1=initiator"]),
        (3, 1, ["n1=storage", "n2=storage", "n3=witness", "i1=initiator"]),
        (4, 0, ["n1=storage", "n2=storage", "n3=storage", "n4=storage"]),
        (3, 2, ["n1=storage", "n2=storage", "n3=witness", "i1=initiator", "i2=initiator"]),
    ],
)
def test_odd_clusters_end_with_a_witness(nodes: int, initiators: int, expected: list[str]) -> None:
    assert roles(LabSpec(nodes=nodes, initiators=initiators)) == expected


def test_the_odd_vote_can_come_from_elsewhere() -> None:
    pair = LabSpec(nodes=2, initiators=0)
    assert roles(pair) == ["n1=storage", "n2=storage"]
    assert roles(replace(pair, witness="qnetd")) == ["n1=storage", "n2=storage", "q1=qnetd"]
    assert roles(replace(pair, nodes=3, witness="none")) == [f"n{k}=storage" for k in (1, 2, 3)]
    assert roles(replace(pair, nodes=4, witness="node"))[-1] == "n4=witness"
    voter = replace(pair, witness="qnetd").node("q1")
    assert voter.networks == (Network.HEARTBEAT,)
    assert not voter.has_bmc
    assert not check(replace(pair, witness="qnetd"))
    # Its vote would make three an even number; and a witness alone decides about nothing.
    assert check(replace(pair, nodes=3, witness="qnetd"))
    assert check(replace(pair, nodes=1, witness="node"))


def test_neighbours_share_a_rack() -> None:
    spec = LabSpec(nodes=4, witness="node", racks=2, initiators=1)
    assert [spec.rack(node) for node in spec.machines] == ["r1", "r1", "r2", "", ""]
    assert not any(LabSpec().rack(node) for node in LabSpec().machines)
    assert check(replace(spec, racks=5))


def test_a_node_has_one_address_on_each_of_its_networks() -> None:
    node = LabSpec().node("n2")
    addresses = [node.address(network) for network in node.networks]
    assert addresses == ["10.77.1.2", "10.77.2.2", "10.77.3.2"]
    assert node.bmc_address == "10.77.3.202"


def test_an_initiator_is_not_on_the_sync_network_and_is_not_fenced() -> None:
    host = LabSpec().node("i1")
    assert host.networks == (Network.ISCSI, Network.HEARTBEAT)
    assert host.address(Network.ISCSI) == "10.77.1.101"
    assert not host.has_bmc
    with pytest.raises(ValueError, match="not on network sync"):
        host.address(Network.SYNC)
    with pytest.raises(ValueError, match="no BMC"):
        _ = host.bmc_address


def test_nothing_collides_in_the_largest_lab() -> None:
    spec = LabSpec(nodes=32, initiators=8)
    macs = [node.mac(network) for node in spec.machines for network in node.networks]
    taps = [node.tap(network) for node in spec.machines for network in node.networks]
    management = [node.address(Network.HEARTBEAT) for node in spec.machines]
    management += [node.bmc_address for node in spec.machines if node.has_bmc]
    for values in (macs, taps, management):
        assert len(values) == len(set(values))
    # The kernel's limit for interface names.
    assert max(map(len, taps)) <= 15


def test_an_unknown_node_is_named_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match=r"no node 'n9'.*n1, n2, n3, i1"):
        LabSpec().node("n9")


def test_all_problems_are_reported_at_once() -> None:
    spec = LabSpec(
        name="Bad name",
        nodes=0,
        initiators=99,
        release="sarge",
        memory_mib=16,
        disk_mib=1,
        disks=20,
        post_delay_s=-1,
    )
    assert len(check(spec)) == 8
    assert check(LabSpec()) == []


@pytest.mark.parametrize("name", ["", "-a", "a/b", "../x", "a b", "ä", "a" * 17, "a\n", "1a"])
def test_hostile_lab_names_are_refused(name: str) -> None:
    assert [problem.code for problem in check(LabSpec(name=name))] == ["SAN-LAB-001"]


@pytest.mark.parametrize(
    ("text", "mib"), [("512M", 512), ("4G", 4096), ("4GiB", 4096), ("1t", 1048576), (" 2g ", 2048)]
)
def test_sizes(text: str, mib: int) -> None:
    assert parse_size_mib(text) == mib


@pytest.mark.parametrize("text", ["", "4", "G", "-4G", "4.5G", "4X", "4G4", "٤G x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size_mib(text)


def test_the_specification_survives_being_kept() -> None:
    spec = LabSpec(name="x", nodes=5, disks=2, post_delay_s=0.5)
    assert LabSpec.from_json(spec.as_json() | {"of_a_later_version": 1}) == spec


def test_a_digest_tells_apart_what_concatenation_would_not() -> None:
    assert digest("ab", "c") != digest("a", "bc")
    assert digest("ab", "c") == digest("ab", "c")


def test_mac_addresses_are_local_and_unicast() -> None:
    mac = NodeSpec(name="n1", id=1, role=Role.STORAGE).mac(Network.ISCSI)
    assert int(mac.split(":")[0], 16) & 0b11 == 0b10
