# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on one device: what is to be done about its replicas, its role and its management."""

from __future__ import annotations

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.device_health import device_findings
from tests.fakes.pacemaker import FakePacemaker

NOW = 1_800_000_000.0


def _healthy() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def _cluster(fake: FakePacemaker) -> Cluster:
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def _findings(fake: FakePacemaker) -> dict[str, Finding]:
    cluster = _cluster(fake)
    device = cluster.cib.device("vm1")
    assert device is not None
    return {each.code: each for each in device_findings(cluster, device, now_s=NOW)}


def test_a_resync_is_waited_for_and_no_replica_is_dropped_for_it() -> None:
    fake = _healthy()
    half = "disk=Inconsistent connection=Connected replication=SyncTarget out-of-sync=9"
    fake.attribute("n2", "sanctl-vm1", half)
    found = _findings(fake)["SAN-HLT-035"]
    assert "wait for the resync" in found.do
    assert "--drop" not in found.do
    assert (found.unsynced_bytes, found.what.endswith("(SyncTarget), 9 KiB to sync")) == (
        9216,
        True,
    )
