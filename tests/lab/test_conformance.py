# SPDX-License-Identifier: GPL-2.0-or-later
"""libiscsi's iscsi-test-cu against a device: all results are as tests/lab/conformance.tsv has them.

The tool is an initiator of its own, without the kernel's. Each of its tests is a process with a
deadline. A standby lets none begin. Tests of reservations run once more where these are switched
on, as tests/lab/conformance-reservations.tsv has them, and a sample on the other node.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from tests.support import conformance

NAME, RESERVED = "conform0", "conform1"
#: One of each kind, and those of two hosts: what is asked once more after a move.
SAMPLE = (
    "PrinReadKeys.Simple",
    "PrinReportCapabilities.Simple",
    "PrinServiceactionRange.Range",
    "ProutClear.Simple",
    "ProutPreempt.RemoveRegistration",
    "ProutRegister.Simple",
    "ProutReserve.AccessWERO",
    "ProutReserve.OwnershipWERO",
)
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


@pytest.fixture(scope="module")
def reserved(scenario: Scenario) -> Iterator[str]:
    """The target of a device with reservations on; n1 serves it at first."""
    await_members_online(scenario.bed)
    scenario.sanctl(
        "device", "create", RESERVED, "--size", "128M", "--nodes", "n1,n2", "--prefer", "n1",
        "--reservations", "on",
        "--initiator", conformance.FIRST, "--initiator", conformance.SECOND,
        timeout_s=300,
    )  # fmt: skip
    yield f"{scenario.iqn_prefix()}.{RESERVED}"
    scenario.delete(RESERVED)


def portal(scenario: Scenario, *, of_active: bool, device: str = NAME) -> str:
    active = collect.active_node(scenario.bed, device)
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


def compare_reservations(scenario: Scenario, target: str, tests: tuple[str, ...]) -> None:
    """Run tests at the node that serves; print the table's lines for what came out."""
    found = conformance.run(
        scenario.host,
        portal(scenario, of_active=True, device=RESERVED),
        target,
        tests,
        timeout_s=WHOLE_S,
    )
    differ = conformance.differences(found, tests, table=conformance.WITH_RESERVATIONS)
    names = {each.partition(":")[0] for each in differ}
    told = conformance.lines({name: found[name] for name in names & found.keys()})
    assert differ == [], f"lines for {conformance.WITH_RESERVATIONS.name}:\n{told}"


@pytest.mark.timeout(2100)
def test_reservations_switched_on(scenario: Scenario, reserved: str) -> None:
    """Persistent ones, and RESERVE(6), which LIO takes with the same switch."""
    tests = tuple(conformance.expected(conformance.WITH_RESERVATIONS))
    compare_reservations(scenario, reserved, tests)


@pytest.mark.timeout(2100)
def test_reservations_on_the_other_node(scenario: Scenario, reserved: str) -> None:
    """After a move of the device the results are the same."""
    before = collect.active_node(scenario.bed, RESERVED)
    after = "n2" if before == "n1" else "n1"
    scenario.sanctl("device", "move", RESERVED, "--to", after, timeout_s=120)
    wait_for(
        f"{after} to serve",
        lambda: collect.active_node(scenario.bed, RESERVED) == after,
        within_s=120,
    )
    compare_reservations(scenario, reserved, SAMPLE)
