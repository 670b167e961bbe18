# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import Unreachable
from sanctl.model.cluster import Cluster, NodeState, Role
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.parse.cib import (
    parse_cib,
    parse_document,
    parse_pool_usage,
    parse_replica_state,
)
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
def test_a_node_away_is_unknown_not_absent(version: str) -> None:
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


def test_an_entry_that_does_not_read_is_reported() -> None:
    text = (GOLDEN / "3.0.0" / "one-device.cib.xml").read_text()
    broken = parse_cib(parse_document(text.replace('value="1073741824"', 'value="many"')))
    assert broken.devices == ()
    assert [identifier for identifier, _ in broken.unreadable] == ["vm1"]


@pytest.mark.parametrize("text", ["", "<", "<a/>", "<cib/>"])
def test_what_is_no_cib(text: str) -> None:
    with pytest.raises(Unreachable):
        parse_document(text)


@pytest.mark.parametrize("text", ["", "<", "<a/>"])
def test_what_is_no_status(text: str) -> None:
    with pytest.raises(Unreachable):
        parse_crm_mon(text)


def test_replica_attribute() -> None:
    state = parse_replica_state(
        "disk=Inconsistent connection=Connected replication=SyncTarget peer-disk=UpToDate "
        "out-of-sync=2048 role=Secondary size=? acl=e3b0c442 new-word=1"
    )
    assert state.brief() == "Inconsistent SyncTarget 2 MiB to sync"
    assert state.size_bytes is None and state.access == "e3b0c442"
    assert not state.is_in_sync and state.is_connected
    assert parse_replica_state("disk=? connection=Unknown").brief() == "? ?"


def test_replica_attribute_of_several_peers() -> None:
    state = parse_replica_state(
        "disk=UpToDate connection=Connected,Connected,Connecting "
        "replication=Established,SyncSource,Off peer-disk=UpToDate,Inconsistent,DUnknown "
        "out-of-sync=0 role=Primary size=8 suspended=no peers=n2,n3,n4"
    )
    n2, n3, n4 = (NodeName.parse(f"n{number}") for number in (2, 3, 4))
    assert (state.connection, state.peer_disk) == ("Connecting", None)
    assert state.brief() == "UpToDate n3 SyncSource, n4 Connecting"
    assert state.is_in_sync_with([n2]) and not state.is_in_sync_with([n2, n3])
    assert state.is_connected_with([n2, n3]) and not state.is_connected_with([n4])
    whole = parse_replica_state(
        "disk=UpToDate connection=Connected,Connected replication=Established,Established "
        "peer-disk=UpToDate,UpToDate out-of-sync=0 peers=n2,n3"
    )
    assert whole.is_in_sync and whole.link is None and whole.brief() == "UpToDate"
    # Cut short, by whatever: what is not told is unknown.
    assert not parse_replica_state("disk=UpToDate connection=Connected peers=n2,n3").is_connected


@given(st.text())
def test_odd_attributes_are_unknown_not_errors(text: str) -> None:
    parse_replica_state(text)
    parse_pool_usage(text)


def test_pool_attribute() -> None:
    assert parse_pool_usage("error=SAN-POOL-001").error == "SAN-POOL-001"
    assert parse_pool_usage("total=10 free=5").allocated_bytes is None
    assert parse_pool_usage("total=10 free=5 allocated=2").allocated_bytes == 2
    assert parse_pool_usage("total=x").error is not None


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
