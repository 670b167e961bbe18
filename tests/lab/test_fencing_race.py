# SPDX-License-Identifier: GPL-2.0-or-later
"""Two nodes without a witness: with all links cut, exactly one node is fenced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sanctl.lab.chaos.commands import run_faults
from sanctl.lab.chaos.fault_choice import fencing_races
from sanctl.lab.chaos.fault_runner import nodes_by_role
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import LabSpec, Witness
from tests.support.laboratory import own_or_new_laboratory

pytestmark = pytest.mark.faults

# Active on different nodes: the winner must not depend on what a node serves.
DEVICES = ("race1", "race2")


@pytest.fixture(scope="module")
def bed(request: pytest.FixtureRequest) -> Iterator[LabSession]:
    """A laboratory of two nodes without a witness, in place of the shared one."""
    spec = LabSpec(name="testduo", nodes=2, witness=Witness.NONE.value)
    yield from own_or_new_laboratory(
        request, spec, fits=lambda own: own.witness_kind is Witness.NONE
    )


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
