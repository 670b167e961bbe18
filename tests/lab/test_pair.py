# SPDX-License-Identifier: GPL-2.0-or-later
"""Two nodes and nothing else: when all links are cut, one of them is fenced, and never both."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.lab.chaos.commands import inflict_all
from sanctl.lab.chaos.fault_choice import races
from sanctl.lab.chaos.run import shape_of
from sanctl.lab.harness.lab_session import Bed
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import laboratory

pytestmark = pytest.mark.faults

OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
# Active on different nodes: what each serves says nothing about who is to win.
DEVICES = ("race1", "race2")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    """In place of the session's laboratory, which has three nodes."""
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and found.spec.witness_kind is Witness.NONE
    spec = LabSpec(name=OWN_LAB if is_own else "testduo", nodes=2, witness=Witness.NONE.value)
    yield from laboratory(request, spec, is_own=is_own)


@pytest.mark.timeout(2400)
def test_a_fencing_race_kills_exactly_one_of_them(bed: Bed) -> None:
    faults = list(enumerate(races(shape_of(bed)), start=1))
    steps, acknowledged = inflict_all(
        bed,
        faults,
        title="Fencing races",
        repeat="sanctl chaos run --scenario races",
        folder=Path("test-report/races"),
        keep_going=False,
        tell=print,
        devices=DEVICES,
    )
    assert {step.number: step.problems for step in steps if step.problems} == {}
    assert [len(step.restarted) for step in steps] == [1] * len(faults)
    assert acknowledged > 200
