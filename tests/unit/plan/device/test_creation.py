# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.device import MINORS, PoolUsage
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.device.creation import creation_problems, plan_creation
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.plan.drbd.version_limits import drbd_version_problem
from sanctl.render import drbd
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

GOOD = DeviceArguments(name="vm2", size="1G", replicas="2")


def observe(fake: FakePacemaker) -> Cluster:
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def complaints(request: DeviceArguments, cluster: Cluster) -> list[str]:
    wish = parse_device_request(request)
    found = creation_problems(wish, cluster, topology(), drbd_version="8.4.11")
    return [problem.code for problem in (*wish.malformed, *found)]


@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({}, []),
        ({"name": "vm1"}, ["SAN-DEV-001"]),
        ({"name": "fence-n1"}, ["SAN-NAME-002"]),
        ({"name": "sanctl"}, ["SAN-NAME-002"]),
        ({"name": "reached"}, ["SAN-NAME-002"]),
        ({"size": "10"}, ["SAN-NAME-006"]),
        ({"size": "1T"}, ["SAN-POOL-012", "SAN-POOL-012"]),
        ({"size": "1T", "nodes": ("n1", "n2")}, ["SAN-POOL-012", "SAN-POOL-012"]),
        ({"replicas": "0"}, ["SAN-DEV-003"]),
        ({"replicas": "two"}, ["SAN-DEV-003"]),
        ({"replicas": "1"}, []),
        ({"replicas": "1", "nodes": ("n2",)}, []),
        ({"replicas": "3"}, ["SAN-DEV-004", "SAN-DEV-005"]),
        ({"replicas": "4"}, ["SAN-DEV-004", "SAN-DEV-005"]),
        ({"pool": "other"}, ["SAN-POOL-011"]),
        ({"pool": "Other"}, ["SAN-NAME-004"]),
        ({"nodes": ("n1",)}, ["SAN-DEV-006"]),
        ({"nodes": ("n1", "n1")}, ["SAN-DEV-007"]),
        ({"nodes": ("n1", "n3")}, ["SAN-NODE-002"]),
        ({"nodes": ("n1", "n9")}, ["SAN-NODE-001"]),
        ({"nodes": ("n1", "N9")}, ["SAN-NAME-003"]),
        ({"prefer": "n3"}, ["SAN-NODE-002"]),
        ({"prefer": "n9"}, ["SAN-NODE-001"]),
        ({"prefer": "n9", "nodes": ("n1", "n2")}, ["SAN-DEV-008", "SAN-NODE-001"]),
        ({"initiators": ("iqn.2026-11.net.example:a", "x")}, ["SAN-NAME-005"]),
        (
            {"name": "vm1", "size": "-1", "replicas": "9", "pool": "p", "nodes": ("n7", "")},
            [
                "SAN-NAME-006",
                "SAN-DEV-003",
                "SAN-NAME-003",
                "SAN-DEV-001",
                "SAN-POOL-011",
                "SAN-NODE-001",
            ],
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_every_complaint_at_once(change: dict[str, str], codes: list[str]) -> None:
    cluster = observe(FakePacemaker(golden="one-device"))
    # The golden's device is promised, so the fake's pools have little to give.
    assert complaints(replace(GOOD, **change), cluster) == codes  # type: ignore[arg-type]


def test_a_problem_says_what_was_found_and_what_is_needed() -> None:
    cluster = observe(FakePacemaker())
    wish = parse_device_request(replace(GOOD, replicas="3"))
    (first, _) = creation_problems(wish, cluster, topology(), drbd_version=None)
    assert first.text == "3 replicas need DRBD 9; what is loaded here: none"
    assert first.hint.startswith("install the DRBD 9 kernel module")
    assert (
        creation_problems(wish, cluster, topology(), drbd_version="9.3.3")[0].code == "SAN-DEV-005"
    )


@pytest.mark.parametrize(
    ("replicas", "version", "is_fine"),
    [
        (2, None, True),
        (2, "8.4.11", True),
        (3, "8.4.11", False),
        (3, "9.3.3", True),
        (4, "9.2.16", True),
        (4, "10.0.1", True),
        (4, "odd", False),
        (1, None, True),
        (1, "9.3.3", True),
    ],
)
def test_how_many_replicas_each_drbd_version_keeps(
    replicas: int, version: str | None, is_fine: bool
) -> None:
    assert (drbd_version_problem(replicas, version) is None) == is_fine


@pytest.mark.parametrize("state", ["offline", "unclean", "standby", "pending"])
def test_a_node_out_of_service_holds_no_new_replica(state: str) -> None:
    fake = FakePacemaker()
    fake.states["n2"] = state
    assert complaints(GOOD, observe(fake)) == ["SAN-NODE-003"]


def test_an_unusable_pool() -> None:
    fake = FakePacemaker()
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-001")
    assert complaints(GOOD, observe(fake)) == ["SAN-POOL-013"]
    fake.attribute("n2", "sanctl-pool-main", None)
    assert complaints(GOOD, observe(fake)) == ["SAN-POOL-013"]


def test_room_is_what_is_free_and_not_promised() -> None:
    """Device files are sparse: the pool looks empty while all of it is promised."""
    cluster = observe(FakePacemaker(golden="one-device"))
    request = replace(GOOD, size="2700M")
    assert complaints(request, cluster) == ["SAN-POOL-012", "SAN-POOL-012"]
    written = {
        key: PoolUsage(
            total_bytes=usage.total_bytes, free_bytes=usage.free_bytes, allocated_bytes=1 << 31
        )
        for key, usage in cluster.cib.pools.items()
    }
    # Once the first device is written in full, nothing more is held back for it.
    full = replace(cluster, cib=replace(cluster.cib, pools=written))
    assert complaints(request, full) == []


def test_an_id_in_use_is_refused() -> None:
    fake = FakePacemaker()
    wish = parse_device_request(replace(GOOD, name="cib-bootstrap-options"))
    codes = [p.code for p in creation_problems(wish, observe(fake), topology(), drbd_version=None)]
    assert codes == ["SAN-DEV-009"]
    constraint = fake.root.find(".//rsc_location")
    assert constraint is not None
    constraint.set("id", "sanctl-vm2-prefer")
    drafted = plan_creation(
        parse_device_request(replace(GOOD, prefer="n1")), observe(fake), topology(), uuid="0" * 32
    )
    assert isinstance(drafted, Problem) and drafted.code == "SAN-DEV-009"


def test_a_minor_number_in_use_is_skipped() -> None:
    fake = FakePacemaker()
    constraint = fake.root.find(".//rsc_location")
    assert constraint is not None
    constraint.set("id", "sanctl-minor-1")
    drafted = plan_creation(parse_device_request(GOOD), observe(fake), topology(), uuid="0" * 32)
    assert not isinstance(drafted, Problem)
    assert drafted.minor == 2


def test_minors_fit_into_what_is_numbered_by_them() -> None:
    """Ports and LIO's relative target port ids have 16 bits; some ports are others'."""
    assert all(0 < drbd.port_of(minor) < 1 << 16 for minor in MINORS)
    assert all(minor * 32 + 32 < 1 << 16 for minor in MINORS)
    assert not {8080, 9090, 9100} & {drbd.port_of(minor) for minor in MINORS}
    assert MINORS[:3] == (1, 2, 3)
    assert len(set(MINORS)) == len(MINORS) > 2000


@pytest.mark.parametrize("text", ["9" * 5000, "\u0661", " 1", "1 ", "01", "+1", "1.0", "5", "nan"])
def test_numbers_of_replicas(text: str) -> None:
    assert complaints(replace(GOOD, replicas=text), observe(FakePacemaker())) == ["SAN-DEV-003"]
