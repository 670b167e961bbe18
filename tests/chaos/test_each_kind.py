"""One fault of each kind on real kernels: the bench's short run.

What costs neither a fencing nor a restart is quick, and a part of every test run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.chaos.choose import each_kind, quick
from sanctl.chaos.cli import inflict_all
from sanctl.chaos.run import shape_of
from sanctl.demo.bed import Bed

REPORT = Path("test-report/chaos")
# Named after none of the other tests' devices.
DEVICES = ("kind1", "kind2")


@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", ["quick", pytest.param("each-kind", marks=pytest.mark.faults)])
def test_a_fault_of_each_kind_leaves_a_whole_cluster(bed: Bed, scenario: str) -> None:
    """In both runs together each kind comes once."""
    shape = shape_of(bed)
    number_of_quick = len(quick(shape))
    numbered = list(enumerate(each_kind(shape), start=1))
    chosen = numbered[:number_of_quick] if scenario == "quick" else numbered[number_of_quick:]
    steps, acknowledged = inflict_all(
        bed,
        chosen,
        title=f"Fault bench: {scenario}",
        repeat=f"sanctl chaos run --scenario {scenario}",
        folder=REPORT / scenario,
        keep_going=False,
        tell=print,
        devices=DEVICES,
    )
    problems = {step.number: step.problems for step in steps if step.problems}
    assert problems == {}
    assert len(steps) == len(chosen)
    assert acknowledged > 500
