# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.errors import Unreachable
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState, Role
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon

GOLDEN = Path(__file__).parents[2] / "golden" / "pacemaker"
VERSIONS = [path.name for path in sorted(GOLDEN.iterdir()) if path.is_dir()]
VM1, N1, N2 = DeviceName.parse("vm1"), NodeName.parse("n1"), NodeName.parse("n2")


def load(version: str, name: str) -> Cluster:
    return Cluster(
        cib=parse_cib(parse_document((GOLDEN / version / f"{name}.cib.xml").read_text())),
        mon=parse_crm_mon((GOLDEN / version / f"{name}.mon.xml").read_text()),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_healthy_device(version: str) -> None:
    cluster = load(version, "one-device")
    device = cluster.cib.device(VM1)
    assert device is not None
    assert device.size.bytes == 1 << 30
    assert device.nodes == (N1, N2)
    assert device.prefer == N1
    assert device.minor == 1
    assert device.wwid == "36001405" + ("5d4c" * 8)[:25]
    assert cluster.active_node(VM1) == "n1"
    assert cluster.mon.role(VM1, N2) is Role.UNPROMOTED
    assert cluster.replica(VM1, N2).is_in_sync
    assert cluster.mon.has_quorum and cluster.mon.has_dc
    usage = cluster.pool(PoolName.parse("main"), N1)
    assert usage is not None and usage.free_bytes == 3_800_000_000
    assert cluster.is_pool_agent_running(N1) and not cluster.is_pool_agent_running("n3")
    assert [fence.targets for fence in cluster.cib.fencing] == [("n1",), ("n2",), ("n3",)]
    assert "sanctl-minor-1" in cluster.cib.ids


@pytest.mark.parametrize("version", VERSIONS)
def test_replicas_of_an_absent_node_are_unknown(version: str) -> None:
    cluster = load(version, "n1-offline")
    assert cluster.mon.state(N1) is NodeState.OFFLINE
    assert cluster.replica(VM1, N1).disk is None
    assert cluster.pool(PoolName.parse("main"), N1) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unclean_node_serves_nothing_that_is_known(version: str) -> None:
    cluster = load(version, "n1-unclean")
    assert cluster.mon.state(N1) is NodeState.UNCLEAN
    assert cluster.active_node(VM1) is None
    assert {i.node for i in cluster.mon.instances_of(VM1)} == {"n1", "n2"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_failed_start_has_its_reason(version: str) -> None:
    (failure,) = load(version, "failed-start").mon.failures_of(VM1)
    assert (failure.node, failure.action) == ("n2", "start")
    assert failure.reason == "pool main: no space left"


def test_an_unreadable_device_is_reported() -> None:
    text = (GOLDEN / "3.0.0" / "one-device.cib.xml").read_text()
    broken = parse_cib(parse_document(text.replace('value="1073741824"', 'value="many"')))
    assert broken.devices == ()
    assert [identifier for identifier, _ in broken.unreadable] == ["vm1"]


@pytest.mark.parametrize("text", ["", "<", "<a/>", "<cib/>"])
def test_text_that_is_no_cib(text: str) -> None:
    with pytest.raises(Unreachable):
        parse_document(text)


@pytest.mark.parametrize("text", ["", "<", "<a/>"])
def test_text_that_is_no_crm_mon_status(text: str) -> None:
    with pytest.raises(Unreachable):
        parse_crm_mon(text)


def test_a_crash_captured_alive() -> None:
    """n1 was switched off two seconds before; fencing was still under way."""
    cluster = load("3.0.0", "live-unclean")
    assert cluster.mon.state(N1) is NodeState.UNCLEAN
    assert [str(device.name) for device in cluster.cib.devices] == ["an1", "an2", "an3"]
    for device in cluster.cib.devices:
        assert cluster.active_node(device.name) is None
        assert cluster.replica(device.name, N2).disk == "UpToDate"
        assert cluster.replica(device.name, N1).disk is None


def test_a_failed_start_captured_alive() -> None:
    cluster = load("3.0.0", "live-degraded")
    (failure,) = cluster.mon.failures
    assert (failure.resource, failure.node, failure.action) == ("an2", "n1", "start")
    assert "conflicting use of disk" in failure.reason
    assert [(mark.device, str(mark.node)) for mark in cluster.cib.outdated] == [("an2", "n1")]
