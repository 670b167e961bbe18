# SPDX-License-Identifier: GPL-2.0-or-later
"""libiscsi's iscsi-test-cu against a device: all results are as tests/lab/conformance.tsv has them.

The tool is an initiator of its own, without the kernel's. Each of its tests is a process with a
deadline. A standby lets none begin.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.scenario import Scenario
from tests.support import conformance

NAME = "conform0"
WHOLE_S = 1800.0
#: A test or two of each kind that hosts depend on; the rest is in the whole run.
QUICK = (
    "CompareAndWrite.InvalidDataOutSize",
    "CompareAndWrite.MiscompareSense",
    "ExtendedCopy.Simple",
    "Inquiry.BlockLimits",
    "Inquiry.MandatoryVPDSBC",
    "Inquiry.SupportedVPD",
    "Mandatory.MandatorySBC",
    "ModeSense6.AllPages",
    "Read10.ReadProtect",
    "ReadCapacity16.Simple",
    "ReceiveCopyResults.OpParams",
    "ReportSupportedOpcodes.Simple",
    "TestUnitReady.Simple",
    "Unmap.VPD",
    "Unmap.ZeroBlocks",
    "Verify10.VerifyProtect",
    "Write10.ZeroBlocks",
)


@pytest.fixture(scope="module")
def target(scenario: Scenario) -> Iterator[str]:
    scenario.sanctl(
        "device", "create", NAME, "--size", "128M", "--prefer", "n1",
        "--initiator", conformance.FIRST, "--initiator", conformance.SECOND,
        timeout_s=300,
    )  # fmt: skip
    yield f"{scenario.iqn_prefix()}.{NAME}"
    scenario.delete(NAME)


def portal(scenario: Scenario, *, of_active: bool) -> str:
    active = collect.active_node(scenario.bed, NAME)
    others = [node.name for node in scenario.bed.storage if node.name != active]
    return scenario.portals([active] if of_active else others[:1])[0]


@pytest.mark.quick
def test_some_of_each_kind(scenario: Scenario, target: str) -> None:
    found = conformance.run(
        scenario.host, portal(scenario, of_active=True), target, QUICK, timeout_s=300
    )
    assert conformance.differences(found, QUICK) == []


def test_a_standby_runs_none(scenario: Scenario, target: str) -> None:
    """It is asked first whether it is ready, and says that it is a standby: not one test begins."""
    found = conformance.run(
        scenario.host, portal(scenario, of_active=False), target, QUICK[:4], timeout_s=300
    )
    assert {each["result"] for each in found.values()} == {"not begun"}, found


@pytest.mark.faults
@pytest.mark.timeout(2100)
def test_the_whole(scenario: Scenario, target: str) -> None:
    found = conformance.run(
        scenario.host, portal(scenario, of_active=True), target, timeout_s=WHOLE_S
    )
    assert len(found) >= 230
    assert conformance.differences(found) == []
