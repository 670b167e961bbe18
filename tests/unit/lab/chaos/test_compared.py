# SPDX-License-Identifier: GPL-2.0-or-later
"""After which course of a run the replicas are compared: always, if the cluster is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.lab.chaos import commands, ledgers, replica_compare, report
from sanctl.lab.chaos.fault import Reboot
from sanctl.lab.chaos.fault_runner import FaultResult
from sanctl.lab.harness.lab_session import LabSession

DIFFERS = "chaos1: its replicas were compared: 4 KiB differ"
BAD, GOOD = True, False

Run = Callable[..., list[FaultResult]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Run faults of which some end in a problem, without a laboratory."""

    def run_faults(
        problems: Sequence[bool], *, keep_going: bool = True, is_repaired: bool = True
    ) -> list[FaultResult]:
        def run_fault(number: int, fault: Reboot) -> FaultResult:
            found = ["not recovered"] if problems[number - 1] else []
            return FaultResult(number=number, fault=fault, began_s=0.0, problems=found)

        runner = SimpleNamespace(
            run_fault=run_fault,
            await_recovery=lambda: None,
            serving=lambda: {},
            devices=("chaos1",),
            injector=SimpleNamespace(heal=lambda: None),
            bed=None,
            print_line=lambda _: None,
        )

        def nothing(*_: Any, **__: Any) -> list[Any]:
            return []

        for name in ("start", "create_idle", "finish"):
            monkeypatch.setattr(ledgers, name, nothing)
        monkeypatch.setattr(report, "collect_logs", nothing)
        monkeypatch.setattr(commands, "await_members_online", nothing)
        monkeypatch.setattr(commands, "FaultRunner", lambda *_, **__: runner)
        monkeypatch.setattr(commands, "_repair", lambda *_: is_repaired)
        monkeypatch.setattr(replica_compare, "differences", lambda *_: [DIFFERS])
        bed = cast(
            "LabSession", SimpleNamespace(lab=SimpleNamespace(machines=()), storage=(), cluster=())
        )
        results, _ = commands.run_faults(
            bed,
            [(number, Reboot(node="n1")) for number in range(1, len(problems) + 1)],
            title="T",
            repeat="again",
            folder=tmp_path,
            keep_going=keep_going,
            print_line=lambda _: None,
        )
        return results

    return run_faults


@pytest.mark.parametrize("problems", [(GOOD,), (BAD, GOOD), (GOOD, BAD)])
def test_a_run_that_ends_whole(run: Run, problems: tuple[bool, ...], tmp_path: Path) -> None:
    results = run(problems)
    assert len(results) == len(problems)
    assert results[-1].problems[-1] == DIFFERS
    assert DIFFERS in (tmp_path / "summary.md").read_text()


def test_a_run_that_ends_at_its_first_problem(run: Run) -> None:
    (result,) = run((BAD, GOOD), keep_going=False)
    assert result.problems == ["not recovered"]


def test_a_run_whose_cluster_could_not_be_repaired(run: Run) -> None:
    (result,) = run((BAD, GOOD), is_repaired=False)
    assert result.problems == ["not recovered"]
