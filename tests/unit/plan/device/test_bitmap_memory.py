# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-NODE-012: no replica is made, and none grows, for whose bitmap a node has no memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, NodeState, Role
from sanctl.model.names import ByteSize, DeviceName, NodeName, PoolName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.parse.published_state import parse_pool_usage, parse_replica_state
from sanctl.plan.device.alteration import plan_resize
from sanctl.plan.device.bitmap_memory import bitmap_bytes, memory_problem, size_on_node_bytes
from sanctl.plan.device.creation import plan_creations
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.plan.device.node_eligibility import node_problems
from sanctl.plan.device.placement_preview import preview_placement
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology, wide_topology

GIB, TIB = 1 << 30, 1 << 40
MAIN = PoolName.parse("main")
N1, N2, N3 = (NodeName.parse(f"n{number}") for number in (1, 2, 3))
IN_SYNC = parse_replica_state(
    "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate out-of-sync=0"
)
ROOM = f"total={1 << 50} free={1 << 50} allocated=0"


def cluster_of(*sizes: int, **published: str) -> Cluster:
    """A cluster with devices of these sizes on n1 and n2, whose pools have room for a PiB.

    `published` is what a node says beside its room; the others are of an older release.
    """
    fake = FakePacemaker(golden="one-device")
    fake.make_storage("n3")
    for node in ("n1", "n2", "n3"):
        fake.attribute(node, "sanctl-pool-main", f"{ROOM} {published.get(node, '')}")
    cib = parse_cib(parse_document(fake.query()))
    (one,) = cib.devices
    devices = tuple(
        replace(one, name=DeviceName.parse(f"big{number}"), size=ByteSize(bytes=size))
        for number, size in enumerate(sizes)
    )
    return Cluster(cib=replace(cib, devices=devices), mon=parse_crm_mon(fake.monitor()))


def codes(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.code for problem in problems]


def test_a_tebibyte_takes_32_mib_and_with_drbd_9_three_times_that() -> None:
    assert bitmap_bytes(TIB, bitmaps=1) == 32 << 20
    assert bitmap_bytes(2 * TIB, bitmaps=3) == 3 * 64 << 20
    assert bitmap_bytes(0, bitmaps=3) == 0


def test_the_replicas_of_a_node_are_counted_whatever_their_pool() -> None:
    cluster = cluster_of(TIB, 2 * TIB)
    (first, second) = cluster.cib.devices
    elsewhere = replace(second, pool=PoolName.parse("fast"))
    cluster = replace(cluster, cib=replace(cluster.cib, devices=(first, elsewhere)))
    assert size_on_node_bytes(cluster, N1) == size_on_node_bytes(cluster, "n2") == 3 * TIB
    assert size_on_node_bytes(cluster, N3) == 0


@pytest.mark.parametrize(
    ("published", "more_bytes", "is_refused"),
    [
        (f"memory={2 * GIB} bitmaps=1", 31 * TIB, False),
        (f"memory={2 * GIB} bitmaps=1", 31 * TIB + (1 << 20), True),
        (f"memory={6 * GIB} bitmaps=3", 31 * TIB, False),
        (f"memory={6 * GIB} bitmaps=3", 31 * TIB + (1 << 20), True),
        ("", 60 * TIB, False),
        (f"memory={2 * GIB}", 60 * TIB, False),
        ("bitmaps=3", 60 * TIB, False),
        ("memory=0 bitmaps=1", 60 * TIB, False),
        (f"memory={2 * GIB} bitmaps=0", 60 * TIB, False),
        ("memory=-4096 bitmaps=1", 60 * TIB, False),
        (f"memory={2 * GIB} bitmaps=many", 60 * TIB, False),
    ],
    ids=str,
)
def test_more_than_half_of_the_memory_is_refused_and_what_is_unknown_is_not(
    published: str, more_bytes: int, *, is_refused: bool
) -> None:
    cluster = cluster_of(TIB, n1=published)
    assert codes(node_problems(cluster, MAIN, N1, more_bytes)) == ["SAN-NODE-012"] * is_refused


@pytest.mark.parametrize(
    ("more_bytes", "accepted", "is_refused", "is_offered"),
    [
        (31 * TIB, (), False, False),
        (47 * TIB, (), True, True),
        (47 * TIB, ("SAN-RISK-004",), True, True),
        (47 * TIB, ("SAN-NODE-012",), False, False),
        (47 * TIB + (1 << 20), ("SAN-NODE-012",), True, False),
        # A command that takes no --accept names none.
        (47 * TIB, None, True, False),
    ],
    ids=str,
)
def test_an_operator_accepts_up_to_three_quarters_for_a_replica(
    more_bytes: int, accepted: tuple[str, ...] | None, *, is_refused: bool, is_offered: bool
) -> None:
    cluster = cluster_of(TIB, n1=f"memory={2 * GIB} bitmaps=1")
    found = node_problems(cluster, MAIN, N1, more_bytes, accepted=accepted)
    assert codes(found) == ["SAN-NODE-012"] * is_refused
    assert any("--accept SAN-NODE-012" in each.hint for each in found) == is_offered


def test_a_node_that_is_away_or_has_published_nothing_is_not_judged() -> None:
    cluster = cluster_of(n1=f"memory={GIB} bitmaps=1")
    assert memory_problem(cluster, MAIN, N1, 60 * TIB) is not None
    assert memory_problem(cluster, PoolName.parse("fast"), N1, 60 * TIB) is None
    away = tuple(replace(node, state=NodeState.OFFLINE) for node in cluster.mon.nodes)
    gone = replace(cluster, mon=replace(cluster.mon, nodes=away))
    assert memory_problem(gone, MAIN, N1, 60 * TIB) is None
    broken = replace(
        cluster, cib=replace(cluster.cib, pools={("main", "n1"): parse_pool_usage("error=x")})
    )
    assert memory_problem(broken, MAIN, N1, 60 * TIB) is None


def test_the_refusal_has_the_figures() -> None:
    cluster = cluster_of(TIB, n2=f"memory={4 * GIB} bitmaps=3")
    (problem,) = node_problems(cluster, MAIN, N2, 60 * TIB)
    assert problem.text == (
        "DRBD's bitmaps on n2 would take 5.7 GiB of its 4 GiB memory, 5.6 GiB of them for this"
    )
    assert problem.hint.startswith("at most half of a node's memory is for them: give the node")


def test_room_and_memory_are_both_named() -> None:
    cluster = cluster_of(n1=f"memory={GIB} bitmaps=1")
    found = node_problems(cluster, MAIN, N1, 1 << 52)
    assert codes(found) == ["SAN-POOL-012", "SAN-NODE-012"]


def requests(count: int, size: str) -> list[DeviceArguments]:
    return [DeviceArguments(name=f"new{n}", size=size, replicas="2") for n in range(count)]


def create(cluster: Cluster, wanted: list[DeviceArguments]) -> list[str]:
    """Return the codes of the refusal, none where the devices can be created."""
    pairs = [(parse_device_request(one), f"{n:032x}") for n, one in enumerate(wanted)]
    try:
        plan_creations(pairs, cluster, topology(), drbd_version="8.4.11")
    except Refused as error:
        return sorted({f"{each.text.split(':')[0]} {each.code}" for each in error.problems})
    return []


def test_of_several_devices_those_before_are_counted() -> None:
    """Of 2 GiB a half is for 32 TiB."""
    cluster = cluster_of(TIB, n1=f"memory={2 * GIB} bitmaps=1", n2=f"memory={2 * GIB} bitmaps=1")
    assert create(cluster, requests(31, "1T")) == []
    assert create(cluster, requests(32, "1T")) == ["new31 SAN-NODE-012"]
    assert create(cluster, requests(1, "60T")) == [
        "DRBD's bitmaps on n1 would take 1.9 GiB of its 2 GiB memory, 1.8 GiB of them for this "
        "SAN-NODE-012",
        "DRBD's bitmaps on n2 would take 1.9 GiB of its 2 GiB memory, 1.8 GiB of them for this "
        "SAN-NODE-012",
    ]
    assert create(cluster_of(TIB), requests(50, "1T")) == []


def test_a_node_without_the_memory_is_passed_over_and_the_preview_says_why() -> None:
    cluster = cluster_of(n1=f"memory={GIB} bitmaps=3", n3=f"memory={64 * GIB} bitmaps=3")
    (wanted,) = requests(1, "10T")
    pairs = [(parse_device_request(wanted), "0" * 32)]
    (device,) = plan_creations(pairs, cluster, wide_topology(), drbd_version="9.3.3")
    assert set(device.nodes) == {N2, N3}
    seen = preview_placement(pairs[0][0], cluster, wide_topology(), drbd_version="9.3.3")
    reasons = {each.node: each.reason for each in seen if not each.is_chosen}
    assert reasons == {
        N1: "DRBD's bitmaps on n1 would take 960 MiB of its 1 GiB memory, 960 MiB of them for this"
    }
    named = replace(wanted, nodes=("n1", "n2"))
    asked = preview_placement(
        parse_device_request(named), cluster, wide_topology(), drbd_version="9.3.3"
    )
    assert not any(each.is_chosen for each in asked)


@pytest.mark.parametrize(
    ("size", "is_refused"), [("31T", False), ("32T", False), ("33T", True)], ids=str
)
def test_a_device_grows_within_the_memory_of_each_of_its_nodes(
    size: str, *, is_refused: bool
) -> None:
    """A replica that is there already is not counted twice."""
    cluster = cluster_of(20 * TIB, n2=f"memory={2 * GIB} bitmaps=1")
    (device,) = cluster.cib.devices
    name, nodes = device.name.value, [node.value for node in device.nodes]
    cluster = replace(
        cluster,
        cib=replace(cluster.cib, replicas={(name, node): IN_SYNC for node in nodes}),
        mon=replace(
            cluster.mon,
            instances=tuple(
                Instance(resource=name, node=node, role=Role.UNPROMOTED) for node in nodes
            ),
        ),
    )
    try:
        plan_resize(cluster, device.name, ByteSize.parse(size))
        found: list[str] = []
    except Refused as error:
        found = [f"{each.code} {each.text}" for each in error.problems]
    assert found == (
        [
            "SAN-NODE-012 DRBD's bitmaps on n2 would take 1 GiB of its 2 GiB memory, "
            "416 MiB of them for this"
        ]
        * is_refused
    )
