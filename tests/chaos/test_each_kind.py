# SPDX-License-Identifier: GPL-2.0-or-later
"""The fault bench on real kernels: one fault of each kind, in every test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.lab.chaos.commands import run_faults
from sanctl.lab.chaos.fault_choice import each_kind
from sanctl.lab.chaos.fault_runner import nodes_by_role
from sanctl.lab.harness.lab_session import LabSession

REPORT = Path("test-report/chaos")
# Named after none of the other tests' devices.
DEVICES = ("kind1", "kind2")


@pytest.mark.timeout(1800)
def test_a_fault_of_each_kind_leaves_a_healthy_cluster(bed: LabSession) -> None:
    faults = each_kind(nodes_by_role(bed))
    results, acknowledged = run_faults(
        bed,
        list(enumerate(faults, start=1)),
        title="Fault bench: each-kind",
        repeat="sanctl chaos run --scenario each-kind",
        folder=REPORT / "each-kind",
        keep_going=False,
        print_line=print,
        devices=DEVICES,
    )
    problems = {result.number: result.problems for result in results if result.problems}
    assert problems == {}
    assert len(results) == len(faults)
    assert acknowledged > 500
