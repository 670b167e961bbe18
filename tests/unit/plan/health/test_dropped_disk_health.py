# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-HLT-160: a disk that DRBD dropped, and that is attached again."""

from __future__ import annotations

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

NOW = 1_790_086_400
GOOD = (
    "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate role=Secondary "
    "out-of-sync=0 "
)


def found(word: str, *, state: str = "online", value: str = GOOD) -> list[Finding]:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.attribute("n2", "sanctl-vm1", f"{value}disk-drops={word}")
    fake.states["n2"] = state
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    return list(all_findings(cluster, topology(), now_s=NOW))


def of_drops(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if each.code == "SAN-HLT-160"]


def test_a_disk_that_is_dropped_again_and_again_is_to_be_replaced() -> None:
    """Between its read errors the device was ok, and nothing was said."""
    (one,) = of_drops(found(f"3:{NOW - 80000}:{NOW - 60}"))
    assert (one.severity, one.subject) == (Severity.WARNING, "device vm1")
    assert "its disk on n2 3 times since 2026-09-21 16:00:00 UTC" in one.what
    assert "last at 2026-09-22 14:12:20 UTC" in one.what
    assert "replace a disk that fails" in one.do
    assert "sanctl node standby n2" in one.do


def test_one_drop_is_a_note() -> None:
    (one,) = of_drops(found(f"1:{NOW - 60}:{NOW - 60}"))
    assert one.severity is Severity.NOTE
    assert "replace" not in one.do


@pytest.mark.parametrize("last_s", [NOW - 86400, NOW + 86400])
def test_old_ones_are_not_told(last_s: int) -> None:
    assert of_drops(found(f"3:{last_s}:{last_s}")) == []


def test_of_a_node_that_is_away_only_that_is_said() -> None:
    assert of_drops(found(f"3:{NOW}:{NOW}", state="offline")) == []


def test_a_disk_that_waits_says_how_long_and_what_tries_it_at_once() -> None:
    value = "disk=Diskless connection=Connected replication=Established role=Secondary "
    told = {each.code: each for each in found(f"2:{NOW}:{NOW}", value=value)}
    assert "an hour at most" in told["SAN-HLT-035"].do
    assert "an hour at most" in told["SAN-HLT-035"].do
    assert "SAN-HLT-160" in told
