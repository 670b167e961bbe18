# SPDX-License-Identifier: GPL-2.0-or-later
"""The fault bench on real kernels: one fault of each kind; two power cuts in a row take turns."""

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
IDLE = ("kind3",)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        pytest.param(0, 4, marks=pytest.mark.faults),
        pytest.param(4, 8, marks=pytest.mark.faults),
        pytest.param(8, 11, marks=pytest.mark.faults),
        # A divided membership, a second fault during a resync.
        pytest.param(11, -1, marks=pytest.mark.faults),
        # Two power cuts in a row.
        (-1, None),
    ],
)
def test_a_fault_of_each_kind_leaves_a_healthy_cluster(
    bed: LabSession, first: int, last: int | None
) -> None:
    faults = each_kind(nodes_by_role(bed))[first:last]
    results, acknowledged = run_faults(
        bed,
        list(enumerate(faults, start=1)),
        title="Fault bench: each-kind",
        repeat="sanctl chaos run --scenario each-kind",
        folder=REPORT / f"each-kind-{first}",
        keep_going=False,
        print_line=print,
        devices=DEVICES,
        idle=IDLE,
    )
    problems = {result.number: result.problems for result in results if result.problems}
    assert problems == {}
    assert len(results) == len(faults)
    assert [each for each in results if each.need_operator] == []
    assert acknowledged > 100
