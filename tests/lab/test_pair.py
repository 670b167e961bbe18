# SPDX-License-Identifier: GPL-2.0-or-later
"""Two nodes without a witness: with all links cut, exactly one node is fenced."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.lab.chaos.commands import run_faults
from sanctl.lab.chaos.fault_choice import fencing_races
from sanctl.lab.chaos.fault_runner import nodes_by_role
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines import lab_state
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import laboratory

pytestmark = pytest.mark.faults

OWN_LAB = os.environ.get("SANCTL_TEST_LAB", "")
# Active on different nodes: what each serves says nothing about who is to win.
DEVICES = ("race1", "race2")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """In place of the session's laboratory, which has three nodes."""
    found = lab_state.find(OWN_LAB) if OWN_LAB else None
    is_own = found is not None and found.spec.witness_kind is Witness.NONE
    spec = LabSpec(name=OWN_LAB if is_own else "testduo", nodes=2, witness=Witness.NONE.value)
    yield from laboratory(request, spec, is_own=is_own)


@pytest.mark.timeout(2400)
def test_a_fencing_race_kills_exactly_one_of_them(bed: LabSession) -> None:
    faults = list(enumerate(fencing_races(nodes_by_role(bed)), start=1))
    results, acknowledged = run_faults(
        bed,
        faults,
        title="Fencing races",
        repeat="sanctl chaos run --scenario races",
        folder=Path("test-report/races"),
        keep_going=False,
        print_line=print,
        devices=DEVICES,
    )
    assert {result.number: result.problems for result in results if result.problems} == {}
    assert [len(result.restarted) for result in results] == [1] * len(faults)
    assert acknowledged > 200
