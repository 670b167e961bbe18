# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that stayed below its size after a resize is a warning."""

from __future__ import annotations

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

STATE = (
    "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate out-of-sync=0 "
    "role={role} size={size} acl=e3b0c442"
)
WHOLE, LESS = 1 << 30, (1 << 30) - 4096


def found(n1: str, n2: str | None) -> list[Finding]:
    """Return what is said of sizes where the replicas of a device of 1 GiB publish these."""
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    for node, role, size in (("n1", "Primary", n1), ("n2", "Secondary", n2)):
        text = None if size is None else STATE.format(role=role, size=size)
        fake.attribute(node, "sanctl-vm1", text)
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code == "SAN-HLT-130"]


@pytest.mark.parametrize(
    ("n1", "n2"),
    [
        (f"{WHOLE}", f"{WHOLE}"),
        # Not known: nothing is said of it here.
        (f"{WHOLE}", "?"),
        (f"{WHOLE}", None),
        # The resize is taken back, and DRBD does not shrink.
        (f"{WHOLE + 4096}", f"{WHOLE}"),
    ],
)
def test_a_device_of_its_size(n1: str, n2: str | None) -> None:
    assert found(n1, n2) == []


def test_a_device_whose_files_could_not_grow() -> None:
    (finding,) = found(f"{LESS} file={LESS}", f"{LESS} file={LESS}")
    assert finding.severity is Severity.WARNING and finding.subject == "device vm1"
    assert "to have 1 GiB, and on n1 it has 1023.9 MiB (4096 bytes less), on n2" in finding.what
    assert finding.why is not None and "its file on n1 and n2 has not grown" in finding.why
    assert "sanctl device resize vm1" in finding.do


def test_one_file_keeps_all_replicas_small() -> None:
    (finding,) = found(f"{LESS} file={WHOLE}", f"{LESS} file={LESS}")
    assert finding.why is not None and "its file on n2 has not grown" in finding.why
    assert "on n2 says why" in finding.do


def test_a_replica_whose_lun_stayed_small() -> None:
    (finding,) = found(f"{WHOLE}", f"{LESS} file={WHOLE}")
    assert "on n2 it has" in finding.what and "on n1" not in finding.what
    assert finding.why is not None and "all replicas have to be connected" in finding.why
