# SPDX-License-Identifier: GPL-2.0-or-later
"""summary.md, the partition table and timeline.txt of a chaos run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sanctl.lab.chaos import partition_table, report
from sanctl.lab.chaos.fault import DaemonKilled, Fault, Partition
from sanctl.lab.chaos.fault_choice import NodesByRole
from sanctl.lab.chaos.fault_runner import FaultResult, operator_need
from sanctl.lab.chaos.report import BesideReport
from sanctl.lab.measure.attempts import Outcome, Tally
from sanctl.lab.measure.ledger_latency import Pause

SHAPE = NodesByRole(storage=("n1", "n2"), witnesses=("n3",), hosts=("i1",))


def result(
    number: int, fault: Fault, *problems: str, seconds: float = 2.0, recovered: bool = True
) -> FaultResult:
    pause = Pause(longest_gap_s=seconds, gap_began_wall_s=0.0, longest_write_s=1.0, errors=0)
    return FaultResult(
        number=number,
        fault=fault,
        began_s=100.0 * number,
        undone_s=100.0 * number + 10,
        recovered_s=100.0 * number + 40 if recovered else 0.0,
        ended_s=100.0 * number + 60,
        pauses={"i1 vol": pause},
        checks={"vol": {"lost": 0, "acknowledged": 500}},
        fenced=("n1",),
        restarted=("n1", "n3"),
        serving_before={"vol": "n1"},
        serving_after={"vol": "n2"},
        problems=list(problems),
    )


GOOD = result(1, Partition(networks=("sync", "hb"), side=("n1",)), seconds=9.3)
BAD = result(
    2, DaemonKilled(node="n1", daemon="corosync"), "vol: Primary on n1 and n2", recovered=False
)


def page() -> str:
    return report.summary([GOOD, BAD], title="T", repeat="again", wanted=3, acknowledged=500)


def test_the_page_shows_each_fault_with_each_pause() -> None:
    assert "| 1 | sync and hb: n1 cut off from all others | 9.3 s | n1 | 30 s | ok |" in page()
    assert "| 2 | kill -9 of corosync on n1 | 2.0 s | n1 | never | **problem** |" in page()


def test_the_page_shows_how_to_repeat_it_and_what_broke() -> None:
    assert "`again`" in page()
    assert "2 of 3 faults" in page() and "1 with a problem" in page()
    assert "  * vol: Primary on n1 and n2" in page()


def test_a_device_that_needs_an_operator_is_a_problem_of_its_own_kind() -> None:
    assert "* devices that need an operator: 0\n" in page()
    dead_end = result(3, DaemonKilled(node="n1", daemon="corosync"), "not recovered")
    dead_end.need_operator["idle1"] = "no node serves it"
    text = report.summary([GOOD, dead_end], title="T", repeat="r", wanted=2, acknowledged=0)
    assert "* devices that need an operator: 1\n" in text
    assert "  * idle1 needs an operator: no node serves it\n" in text
    dead_end.problems.clear()
    assert not dead_end.is_good


@pytest.mark.parametrize(
    ("serving", "condition", "needs"),
    [
        ("n1", "sound", False),
        ("none", "sound", True),
        ("none", "waiting", True),
        ("none", None, True),
        ("n1", None, False),
        ("none", "blocked", True),
        ("n1", "diverged", True),
    ],
)
def test_an_operator_is_needed_where_none_serves_or_a_choice_is_shown(
    serving: str, condition: str | None, needs: bool
) -> None:
    answer = condition and json.dumps({"schema": 1, "data": {"condition": condition}})
    assert bool(operator_need(serving, answer)) is needs


@pytest.mark.parametrize("answer", ["", "no json", "[]", '{"data": null}'])
def test_an_answer_that_cannot_be_read_is_none(answer: str) -> None:
    assert not operator_need("n1", answer)
    assert "no answer" in operator_need("none", answer)


def test_a_page_of_nothing_says_so() -> None:
    assert "0 of 3 faults" in report.summary([], title="T", repeat="r", wanted=3, acknowledged=0)


def test_the_folder_can_be_read_back(tmp_path: Path) -> None:
    report.write(tmp_path / "run", [GOOD, BAD], page())
    results = json.loads((tmp_path / "run" / "steps.json").read_text())
    assert [each["fault"]["kind"] for each in results] == ["Partition", "DaemonKilled"]
    lines = (tmp_path / "run" / "timeline.txt").read_text().splitlines()
    assert [line for line in lines if "PROBLEM" in line] == [lines[-1]]


def test_the_table_of_partitions_has_a_row_for_each() -> None:
    everything = result(3, Partition(networks=("iscsi", "sync", "hb"), side=("n3",)))
    text = partition_table.table([GOOD, BAD, everything], roles=SHAPE, strategy="node-majority")
    rows = [line for line in text.splitlines() if line.startswith(("| n1", "| n3"))]
    assert rows[0].startswith(
        "| n1 | sync and heartbeat | n1 | n2 | n1 | n1 n3 | 9.3 s | 0 | 0 | 30 s |"
    )
    assert rows[1].startswith("| n3 | all |")
    assert "`node-majority`, 2 storage nodes and 1 witness" in text
    assert "3 partitions" not in text  # the kill is none of them


def test_the_page_and_its_json_say_what_was_made_beside_the_faults(tmp_path: Path) -> None:
    points, copies = Tally(judged=1, wrong=["chaos-1: differs"]), Tally()
    points.count(Outcome(code=""), "create")
    for code in ("SAN-SNAP-007", "SAN-SNAP-005", "SAN-SNAP-007"):
        points.count(Outcome(code=code), "create")
    copies.count(Outcome(code="no answer"), "run")
    told = BesideReport(points=points, copies=copies, worst_age_s=83.2)
    text = report.summary([GOOD], title="T", repeat="r", wanted=1, acknowledged=0, beside=told)
    assert (
        "* restore points made: 1, not made: SAN-SNAP-007 2, SAN-SNAP-005 1; judged: 1, wrong: 1\n"
        in text
    )
    assert (
        "* copies proven: 0, failed: no answer 1; judged: 0, wrong: 0;"
        " the newest one was 83 s old at most\n" in text
    )
    report.write(tmp_path, [GOOD], text, told)
    assert json.loads((tmp_path / "beside.json").read_text()) == {
        "points": {
            "made": 1,
            "refused": {"SAN-SNAP-007": 2, "SAN-SNAP-005": 1},
            "judged": 1,
            "wrong": ["chaos-1: differs"],
        },
        "copies": {
            "proven": 0,
            "failed": {"no answer": 1},
            "judged": 0,
            "wrong": [],
            "worst_age_s": 83.2,
        },
    }


def test_a_run_with_nothing_beside_says_nothing_of_it(tmp_path: Path) -> None:
    assert "restore points" not in page() and "copies" not in page()
    report.write(tmp_path, [GOOD], page())
    assert not (tmp_path / "beside.json").exists()
