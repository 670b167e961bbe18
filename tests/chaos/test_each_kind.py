# SPDX-License-Identifier: GPL-2.0-or-later
"""One fault of each kind on real kernels: the bench's short run, in every test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.lab.chaos.commands import inflict_all
from sanctl.lab.chaos.fault_choice import each_kind
from sanctl.lab.chaos.run import shape_of
from sanctl.lab.harness.lab_session import Bed

REPORT = Path("test-report/chaos")
# Named after none of the other tests' devices.
DEVICES = ("kind1", "kind2")


@pytest.mark.timeout(1800)
def test_a_fault_of_each_kind_leaves_a_whole_cluster(bed: Bed) -> None:
    faults = each_kind(shape_of(bed))
    steps, acknowledged = inflict_all(
        bed,
        list(enumerate(faults, start=1)),
        title="Fault bench: each-kind",
        repeat="sanctl chaos run --scenario each-kind",
        folder=REPORT / "each-kind",
        keep_going=False,
        tell=print,
        devices=DEVICES,
    )
    problems = {step.number: step.problems for step in steps if step.problems}
    assert problems == {}
    assert len(steps) == len(faults)
    assert acknowledged > 500
