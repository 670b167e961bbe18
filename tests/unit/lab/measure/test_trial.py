# SPDX-License-Identifier: GPL-2.0-or-later
"""The verdict: pauses judged by their median, everything else by the worst run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sanctl.lab.demo import report
from sanctl.lab.measure import latency_chart
from sanctl.lab.measure.ledger_latency import Pause, Write
from sanctl.lab.measure.timeline import Event, Milestone, Stage
from sanctl.lab.measure.trial import Claim, Resync, Sessions, Trial, TrialKind, judge

MIB = 2**20
CHECK: dict[str, Any] = {"acknowledged": 1000, "lost": 0, "errors": 0}


def trial(kind: TrialKind = TrialKind.CRASH, pause_s: float = 6.0, **changes: Any) -> Trial:
    made = Trial(
        kind=kind,
        device="vol0",
        from_node="n1",
        to_node="n2",
        began_s=100.0,
        ended_s=160.0,
        pause=Pause(
            longest_gap_s=pause_s, gap_began_wall_s=99.9, longest_write_s=pause_s, errors=0
        ),
        stages=(
            Stage(mark=Milestone.POWER_CUT, node="n1", after_s=0.0, took_s=0.0, spent_in=""),
            Stage(
                mark=Milestone.FIRST_WRITE, node="i1", after_s=pause_s, took_s=pause_s, spent_in="x"
            ),
        ),
        agent_steps=(("n2", "promote: primary", 0.2),),
        events=(
            Event(mark=Milestone.POWER_CUT, at_s=100.0, node="n1"),
            Event(mark=Milestone.FIRST_WRITE, at_s=100.0 + pause_s, node="i1"),
        ),
        sessions=Sessions(
            ids_before={"10.0.0.1": "1"},
            ids_after={"10.0.0.1": "1"},
            survivor_logins_before=3,
            survivor_logins_after=3,
        ),
        is_fenced=True if kind is TrialKind.CRASH else None,
        resync=Resync(
            copied_bytes=MIB,
            written_bytes=MIB,
            activity_log_bytes=MIB,
            device_bytes=100 * MIB,
            seconds=1.0,
        )
        if kind is TrialKind.CRASH
        else None,
    )
    return replace(made, **changes)


def broken(trials: list[Trial], check: dict[str, Any] = CHECK) -> list[str]:
    return [claim.text for claim in judge(trials, [check]) if not claim.is_held]


def test_good_runs_hold_everything() -> None:
    assert broken([trial(), trial(TrialKind.MOVE, 1.0)]) == []


def test_the_pause_is_judged_by_its_median() -> None:
    assert broken([trial(pause_s=seconds) for seconds in (5, 6, 40)]) == []
    assert broken([trial(pause_s=seconds) for seconds in (5, 13, 14)]) == [
        "crash: pause at most 12 s"
    ]
    assert broken([trial(TrialKind.MOVE, 3.1)]) == ["planned move: pause at most 3 s"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"is_fenced": False}, "fenced"),
        ({"violations": ("vol0: Primary on n1 and n2",)}, "two nodes"),
        ({"resync": None}, "resync"),
        (
            {
                "resync": Resync(
                    copied_bytes=3 * MIB,
                    written_bytes=MIB,
                    activity_log_bytes=MIB,
                    device_bytes=100 * MIB,
                    seconds=1.0,
                )
            },
            "resync",
        ),
        (
            {
                "sessions": Sessions(
                    ids_before={"a": "1"},
                    ids_after={"a": "2"},
                    survivor_logins_before=1,
                    survivor_logins_after=1,
                )
            },
            "sessions",
        ),
        (
            {
                "sessions": Sessions(
                    ids_before={"a": "1"},
                    ids_after={"a": "1"},
                    survivor_logins_before=1,
                    survivor_logins_after=2,
                )
            },
            "new login",
        ),
    ],
)
def test_one_bad_run_of_three_breaks_the_claim(changes: dict[str, Any], text: str) -> None:
    (claim,) = broken([trial(), trial(**changes), trial()])
    assert text in claim


@pytest.mark.parametrize(
    ("check", "text"),
    [
        ({**CHECK, "lost": 1}, "0 acknowledged writes lost"),
        ({**CHECK, "errors": 1}, "0 I/O errors at the host"),
        ({**CHECK, "acknowledged": 0}, "0 acknowledged writes lost"),
    ],
)
def test_what_the_ledger_found_counts(check: dict[str, Any], text: str) -> None:
    assert broken([trial()], check) == [text]


def test_no_ledger_is_no_proof() -> None:
    assert [claim for claim in judge([trial()], []) if "writes lost" in claim.text] == [
        Claim(text="0 acknowledged writes lost", measured="0 of 0", is_held=False)
    ]


def test_the_summary_shows_medians_and_what_broke() -> None:
    runs = [trial(pause_s=seconds) for seconds in (5, 6, 40)]
    text = report.summary(runs, judge(runs, [{**CHECK, "lost": 2}]))
    assert "Pause: 6.00 s by median of 3 (5.00, 6.00, 40.00)." in text
    assert "| 6.00 | 6.00 | first write | x |" in text
    assert "| **broken** | 0 acknowledged writes lost | 2 of 1000 |" in text


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    writes = [
        Write(writer=0, block=n, sequence=n, issued_wall_s=90.0 + n, latency_s=0.01, attempts=1)
        for n in range(20)
    ]
    svg, png = latency_chart.draw(writes, [trial()], tmp_path / "latency")
    assert "first write i1" in svg.read_text() or svg.stat().st_size > 1000
    assert png.read_bytes().startswith(b"\x89PNG")
