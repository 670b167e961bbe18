# SPDX-License-Identifier: GPL-2.0-or-later
"""In how many runs of `make test` every laboratory test has had its turn, by the record. Pure.

Each run is gone through as a real one would go: what it may have, in its order, until its time is
gone. What it had counts as green, fifteen commits later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.support import last_green, parts, rotation, slices
from tests.support.last_green import GreenRun, Record
from tests.support.slices import LabTest

_COMMITS_OF_A_RUN = 15
_MOST_RUNS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run had."""

    tests: tuple[str, ...]
    quick_s: float
    """When its quick cases were through, from its begin."""
    seconds: float


def one_run(tests: Sequence[LabTest], record: Record, commit: str, *, pace: float = 1.0) -> Run:
    """Return what a run of `make test` has that takes `pace` times as long as recorded."""
    now_s = slices.BEFORE_S * pace
    progress = rotation.Progress(began_s=0.0, clock=lambda: now_s)
    chosen = rotation.begin(progress, tests, record, commit)
    in_slice = {*chosen.tests}
    quick = [test for test in tests if not test.is_long and test.name not in in_slice]
    place = slices.order_of_shapes(test.shape for test in tests)
    quick.sort(key=lambda test: place[test.shape])
    named = {test.name: test for test in tests}
    ran, quick_s, module_before = [], now_s, ""
    for test in (*quick, *(named[name] for name in chosen.tests)):
        if progress.has_time_for(test.name, pace):
            if test.shape not in slices.BOOTED and test.module != module_before:
                now_s += slices.BOOT_S * pace
            module_before = test.module
            now_s += progress.expected_s[test.name] * pace
            ran.append(test.name)
        if test.name not in in_slice:
            quick_s = now_s
    return Run(tests=tuple(ran), quick_s=quick_s, seconds=now_s)


def until_all_ran(tests: Sequence[LabTest], record: Record, *, pace: float = 1.0) -> list[Run]:
    """Return the runs until each test has had its turn; not more than a few dozen."""
    expected_s = slices.expected_s(tests, record)
    left = {test.name for test in tests}
    runs: list[Run] = []
    while left and len(runs) < _MOST_RUNS:
        run = one_run(tests, record, f"{len(runs):010x}", pace=pace)
        runs.append(run)
        left -= {*run.tests}
        number = record.newest_number + _COMMITS_OF_A_RUN
        record = last_green.merge(
            Record(tests=record.tests | {*run.tests}, runs=record.runs),
            (
                GreenRun(
                    test=name, release="trixie", number=number, date="9999-12-31",
                    commit="", seconds=expected_s[name],
                )
                for name in run.tests
            ),
        )  # fmt: skip
    return runs


def describe(tests: Sequence[LabTest], record: Record, *, pace: float = 1.0) -> str:
    """Return in one line how long a run takes, and after how many all have had their turn.

    A run is as long as the longer of its parts, which go side by side.
    """
    tests_of = {
        part: [test for test in tests if parts.part_of(test.shape) == part] for part in parts.PARTS
    }
    of_parts = [until_all_ran(part, record, pace=pace) for part in tests_of.values()]
    runs = max(of_parts, key=len)
    seen = {name for part in of_parts for run in part for name in run.tests}
    left = sum(test.name not in seen for test in tests)
    quick_s = max(run.quick_s for part in of_parts for run in part)
    seconds = max(run.seconds for part in of_parts for run in part)
    end = f"{left} tests never have theirs" if left else f"all have theirs in {len(runs)} runs"
    return (
        f"at {pace:g} times the recorded durations: the quick cases end after"
        f" {quick_s / 60:.0f} minutes, a run after {seconds / 60:.0f}; {end}"
    )
