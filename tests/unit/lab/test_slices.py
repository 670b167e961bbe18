# SPDX-License-Identifier: GPL-2.0-or-later
"""The slice of long tests in a run of `make test`: the oldest first, in time, all in turn."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import last_green, rotation, slices, test_runs, turns
from tests.support.last_green import GreenRun, Record
from tests.support.slices import BOOT_S, LATE_S, LIMIT_S, PREPARED_S, LabTest

COMMIT = "0123456789"


def long(name: str, module: str = "test_heal", **more: object) -> LabTest:
    made = LabTest(name=f"tests/lab/{module}.py::{name}", module=module, is_long=True)
    return dataclasses.replace(made, **more)  # type: ignore[arg-type]


def record(*ran: tuple[LabTest, int, int]) -> Record:
    """A record of tests, each with its seconds and the number of its commit."""
    runs = {
        (test.name, "trixie"): GreenRun(
            test=test.name, release="trixie", number=number, date="2026-11-23",
            commit="0123456789", seconds=seconds,
        )
        for test, seconds, number in ran
    }  # fmt: skip
    return Record(tests=frozenset(test for test, _ in runs), runs=runs)


def choose(*ran: tuple[LabTest, int, int]) -> list[str]:
    """The slice's order; commit 0: the test never ran, and its seconds are not known."""
    known = record(*(each for each in ran if each[2]))
    chosen = slices.choose([each[0] for each in ran], known, COMMIT)
    return [name.partition("::")[2] for name in chosen.tests]


A, B, C = (long(f"test_{name}", f"test_{name}") for name in "abc")


def test_the_oldest_runs_first() -> None:
    assert choose((A, 300, 502), (B, 300, 500), (C, 300, 501)) == ["test_b", "test_c", "test_a"]


def test_what_never_ran_is_the_oldest() -> None:
    assert choose((A, 300, 500), (B, 300, 499), (C, 0, 0)) == ["test_c", "test_b", "test_a"]


def test_no_more_is_prepared_than_a_fast_machine_could_run() -> None:
    rest = PREPARED_S - 600
    assert choose((A, 600, 500), (B, rest, 501), (C, 1, 502)) == ["test_a", "test_b"]
    assert choose((A, 601, 500), (B, rest, 501), (C, 1, 502)) == ["test_a", "test_c"]


def test_a_laboratory_of_another_shape_takes_its_boot_once() -> None:
    own = [long(f"test_{nr}", "test_three_nodes", shape="test_three_nodes") for nr in range(3)]
    runs = [(test, (PREPARED_S - BOOT_S) // 3, 500) for test in own]
    assert choose(*runs) == ["test_0", "test_1", "test_2"]
    more = [(test, (PREPARED_S - BOOT_S) // 3 + 1, 500) for test in own]
    assert choose(*more) == ["test_0", "test_1"]


def test_tests_of_a_module_follow_one_another() -> None:
    """Each change of the module would make anew what its fixtures share."""
    young = long("test_young", "test_b")
    assert choose((A, 60, 501), (young, 60, 509), (B, 60, 500)) == [
        "test_young",
        "test_b",
        "test_a",
    ]


def test_a_module_in_order_runs_whole_and_is_as_old_as_its_oldest() -> None:
    module = [long(name, "test_strategy", needs_order=True) for name in ("test_x", "test_y")]
    quick = dataclasses.replace(module[0], name="tests/lab/test_strategy.py::test_w", is_long=False)
    ran = [(quick, 0, 509), (module[0], 200, 499), (module[1], 200, 510), (A, 300, 500)]
    assert choose(*ran) == ["test_w", "test_x", "test_y", "test_a"]


def test_what_concludes_a_module_runs_once_and_last() -> None:
    end = long("test_end", concludes=True)
    first, second = long("test_1"), long("test_2")
    assert choose((first, 300, 500), (second, 200, 501), (end, 100, 400)) == [
        "test_1",
        "test_2",
        "test_end",
    ]
    half = (PREPARED_S - 100) // 2
    assert len(choose((first, half, 500), (second, half, 501), (end, 100, 400))) == 3
    assert len(choose((first, half, 500), (second, half + 1, 501), (end, 100, 400))) == 2


def test_of_modules_as_old_as_each_other_the_commit_says_which_is_first() -> None:
    """Where the records of runs are not committed, the next run has others nevertheless."""
    tests = [long("test_it", f"test_{nr:02}") for nr in range(50)]
    known = record()
    firsts = {slices.choose(tests, known, f"{nr:010}").tests[0] for nr in range(100)}
    assert len(firsts) > 30
    assert slices.choose(tests, known, COMMIT) == slices.choose(tests, known, COMMIT)


def test_every_long_test_has_its_turn() -> None:
    """A hundred tests, ten in each run, and each run recorded."""
    tests = [long(f"test_{nr:02}", f"test_{nr // 10}") for nr in range(100)]
    known = record(*((test, 60, 400) for test in tests))
    seen: set[str] = set()
    for landing in range(10):
        run = slices.choose(tests, known, f"{landing:010}").tests[:10]
        seen |= {*run}
        ran = record(*((test, 60, 501 + landing) for test in tests if test.name in run))
        known = last_green.merge(known, ran.runs.values())
    assert len(seen) == 100


def test_a_run_on_another_release_counts_too() -> None:
    known = record((A, 300, 500), (B, 301, 501))
    other = [dataclasses.replace(run, release="bookworm", number=502) for run in
             record((A, 300, 500)).runs.values()]  # fmt: skip
    chosen = slices.choose([A, B], last_green.merge(known, other), COMMIT)
    assert chosen.tests == (B.name, A.name)


def test_the_pace_is_measured_and_little_is_believed_of_few_tests() -> None:
    expected = {"a": 600, "b": 600, "c": 1}
    assert slices.pace({}, expected) == 1
    assert slices.pace({"of another run": 9000.0}, expected) == 1
    assert slices.pace({"a": 1200.0, "b": 1200.0}, expected) == pytest.approx(1.9, abs=0.02)
    assert slices.pace({"c": 10.0}, expected) < 1.1
    assert slices.pace({"a": 300.0, "b": 300.0}, expected) < 0.6


def run(
    tests: list[LabTest], *, seconds: int, taken_s: float, pace: float = 1.0
) -> tuple[list[str], rotation.Progress]:
    """Which tests a run comes to that has taken so long before, each as long as the record says."""
    chosen = slices.choose(tests, record(*((test, seconds, 500) for test in tests)), COMMIT)
    always = [test for test in tests if test.name not in chosen.tests]
    order = [*(test.name for test in always), *chosen.tests]
    progress = rotation.Progress(
        began_s=time.monotonic() - taken_s,
        tests={test.name: test for test in tests},
        expected_s={test.name: seconds for test in tests},
        slice=chosen,
    )
    ran = []
    for name in order:
        if progress.has_time_for(name, pace):
            progress.began_s -= seconds * pace
            ran.append(name.partition("::")[2])
    return ran, progress


def always(name: str, module: str = "test_failover", **more: object) -> LabTest:
    return dataclasses.replace(long(name, module, **more), is_long=False)


SLICE = [long(f"test_{nr}", f"test_{nr}") for nr in range(10)]


@pytest.mark.parametrize(
    ("taken_s", "pace", "count"),
    [
        (0, 1.0, 10),
        (LIMIT_S - 1001, 1.0, 10),
        (LIMIT_S - 1001, 2.0, 5),
        (LIMIT_S - 1001, 4.0, 2),
        (LIMIT_S - 301, 0.5, 6),
        (LIMIT_S - 99, 1.0, 0),
        (LIMIT_S * 2, 1.0, 0),
    ],
)
def test_a_slow_run_comes_less_far(taken_s: float, pace: float, count: int) -> None:
    assert len(run(SLICE, seconds=100, taken_s=taken_s, pace=pace)[0]) == count


def test_a_quick_case_is_left_out_before_a_slow_run_is_ended() -> None:
    tests = [always("test_a"), always("test_b"), always("test_c")]
    assert len(run(tests, seconds=100, taken_s=LATE_S - 301)[0]) == 3
    assert run(tests, seconds=100, taken_s=LATE_S - 299)[0] == ["test_a", "test_b"]
    assert run(tests, seconds=100, taken_s=LATE_S * 2)[0] == []


def test_a_slice_leaves_time_for_the_quick_cases_that_run_after_it() -> None:
    module = [long(f"test_{nr}", "test_stops", needs_order=True) for nr in range(2)]
    quick = always("test_quick", "test_stops", needs_order=True)
    tests = [SLICE[0], *module, quick]
    assert len(run(tests, seconds=100, taken_s=LIMIT_S - 401)[0]) == 4
    # No time for the module as a whole: what every run has of it runs nevertheless.
    ran, progress = run(tests, seconds=100, taken_s=LIMIT_S - 201)
    assert ran == ["test_0", "test_quick"]
    assert len(progress.left_out) == 2


def test_short_tests_of_a_module_run_together() -> None:
    """Each may count on what the one before it left, though no mark says so."""
    short = [long(f"test_{nr}", "test_discovery", is_together=True) for nr in range(3)]
    single = long("test_down", "test_discovery")
    tests = [*short, single, SLICE[0]]
    known = record(*((test, 100, 500) for test in tests), (short[1], 100, 490))
    units = slices.units(tests, known)
    assert [len(unit.tests) for unit in units] == [3, 1, 1]
    assert units[0].number == 490
    assert len(run(tests, seconds=100, taken_s=LIMIT_S - 501)[0]) == 5
    assert "test_0" not in run(short, seconds=100, taken_s=LIMIT_S - 299)[0]


def test_modules_that_share_a_laboratory_wait_for_no_boot() -> None:
    tests = [long(f"test_{nr}", f"test_{nr}", shape=slices.XFS) for nr in range(2)]
    own = [dataclasses.replace(test, shape=test.module) for test in tests]
    assert len(run(tests, seconds=100, taken_s=LIMIT_S - BOOT_S - 101)[0]) == 2
    assert len(run(own, seconds=100, taken_s=LIMIT_S - BOOT_S - 101)[0]) == 1
    chosen = slices.choose(tests, record(*((test, 100, 500) for test in tests)), COMMIT)
    assert chosen.all_s == 200


def test_what_several_modules_share_comes_after_the_laboratories_of_one() -> None:
    order = slices.order_of_shapes(["", slices.XFS, "test_sbd", "", "test_witness"])
    assert sorted(order, key=order.__getitem__) == ["", "test_sbd", "test_witness", slices.XFS]


def test_what_was_never_recorded_takes_what_its_kind_takes() -> None:
    quick = always("test_quick")
    first, second, third = (long(f"test_{nr}") for nr in range(3))
    other = long("test_other", "test_sbd")
    short = long("test_short", is_together=True)
    tests = [quick, first, second, third, other, short]
    known = record((quick, 4, 500), (first, 50, 500), (second, 70, 500), (A, 99, 500))
    assert slices.expected_s(tests, known) == {
        quick.name: 4, first.name: 50, second.name: 70, third.name: 60, other.name: 60,
        short.name: 4,
    }  # fmt: skip
    assert slices.expected_s([other], record()) == {other.name: slices.ASSUMED_S}


def test_nothing_of_a_module_in_order_runs_after_what_was_left_out() -> None:
    module = [long(f"test_{nr}", "test_stops", needs_order=True) for nr in range(3)]
    assert run(module, seconds=100, taken_s=LIMIT_S - 299)[0] == []
    assert len(run(module, seconds=100, taken_s=LIMIT_S - 301)[0]) == 3


def test_a_long_module_in_order_has_its_turn_where_it_has_waited_longest() -> None:
    module = [long(f"test_{nr}", "test_stops", needs_order=True) for nr in range(3)]
    assert len(run(module, seconds=600, taken_s=LATE_S - 1801)[0]) == 3
    assert run(module, seconds=600, taken_s=LATE_S - 1799)[0] == []
    assert run(module, seconds=300, taken_s=LIMIT_S - 899)[0] == [], "it fits in an earlier run"


def test_a_laboratory_is_booted_only_where_there_is_time_for_it() -> None:
    own = [long(f"test_{nr}", "test_sbd", shape="test_sbd") for nr in range(2)]
    assert len(run(own, seconds=100, taken_s=LIMIT_S - BOOT_S - 201)[0]) == 2
    assert len(run(own, seconds=100, taken_s=LIMIT_S - BOOT_S - 99)[0]) == 0


def test_what_concludes_runs_if_anything_of_its_module_did() -> None:
    end = long("test_end", concludes=True)
    tests = [long("test_1"), end]
    assert run(tests, seconds=100, taken_s=LIMIT_S - 201)[0] == ["test_1", "test_end"]
    assert run(tests, seconds=100, taken_s=LIMIT_S - 199)[0] == []


class Item:
    """A test of pytest that fails in one phase."""

    def __init__(self, progress: rotation.Progress, name: str) -> None:
        self.nodeid = name
        self.config = SimpleNamespace(stash={rotation._PROGRESS: progress})

    def report(self, outcome: str) -> Any:
        made: Any = SimpleNamespace(
            outcome=outcome, failed=outcome == "failed", longreprtext="assert 1 == 2"
        )
        hook: Any = rotation.pytest_runtest_makereport(self)  # type: ignore[arg-type]
        next(hook)
        with pytest.raises(StopIteration) as ended:
            hook.send(made)
        assert ended.value.value is made
        return made


def test_what_has_never_run_green_fails_without_the_run_and_ends_the_slice_there() -> None:
    own = long("test_it", "test_sbd", shape="test_sbd")
    tests = [*SLICE, own, always("test_quick", "test_stops")]
    progress = rotation.Progress(
        began_s=time.monotonic(),
        tests={test.name: test for test in tests},
        expected_s={test.name: 100 for test in tests},
        slice=slices.choose(tests, record((SLICE[1], 100, 500)), COMMIT),
        never_green={SLICE[0].name},
    )
    assert Item(progress, SLICE[0].name).report("passed").outcome == "passed"
    assert Item(progress, SLICE[1].name).report("failed").outcome == "failed"
    assert not progress.failed
    assert progress.has_time_for(SLICE[2].name, 1.0)
    assert Item(progress, SLICE[0].name).report("failed").outcome == "skipped"
    assert progress.failed == {SLICE[0].name: "assert 1 == 2"}
    assert not progress.has_time_for(SLICE[3].name, 1.0)
    assert progress.has_time_for(own.name, 1.0)


def test_a_failure_in_a_shared_laboratory_spoils_no_other_module() -> None:
    """It is made anew between modules; the session's laboratory is not."""
    ones = [long("test_it", f"test_{nr}", shape=slices.XFS) for nr in range(2)]
    same = long("test_more", "test_0", shape=slices.XFS)
    progress = rotation.Progress(began_s=time.monotonic())
    rotation.begin(progress, [*ones, same], record(), COMMIT)
    assert Item(progress, ones[0].name).report("failed").outcome == "skipped"
    assert not progress.has_time_for(same.name, 1.0)
    assert progress.has_time_for(ones[1].name, 1.0)


def test_the_turns_of_all_are_counted() -> None:
    quick = always("test_quick")
    tests = [quick, *(long(f"test_{nr:02}", f"test_{nr:02}") for nr in range(40))]
    known = record(*((test, 300, 500) for test in tests))
    runs = turns.until_all_ran(tests, known)
    # 300 seconds of the quick case, and what comes before the first test.
    each = (LIMIT_S - slices.BEFORE_S - 300) // 300
    assert [len(run.tests) for run in runs] == [each + 1] * len(runs)
    assert len(runs) == -(-40 // each)
    assert all(run.tests[0] == quick.name and run.seconds <= LIMIT_S for run in runs)
    assert f"all have theirs in {len(runs)} runs" in turns.describe(tests, known)
    endless = long("test_endless", "test_endless")
    told = turns.describe([*tests, endless], record((endless, LATE_S, 1)))
    assert "1 tests never have theirs" in told


def test_turns_count_a_boot_where_a_run_would_have_one() -> None:
    own = [long(f"test_{nr}", "test_sbd", shape="test_sbd") for nr in range(2)]
    shared = [long("test_it", f"test_xfs_{nr}", shape=slices.XFS) for nr in range(2)]
    tests = [*own, *shared]
    ran = turns.one_run(tests, record(*((test, 10, 500) for test in tests)), COMMIT)
    assert ran.seconds == slices.BEFORE_S + 40 + BOOT_S


def test_pytest_runs_the_slice_last_and_nothing_that_needs_another_kernel() -> None:
    marks = test_runs.collected()
    chosen = [test for test in marks if "slice" in marks[test]]
    assert len(chosen) > 10
    assert [*marks][len(marks) - len(chosen) :] == chosen
    assert not [test for test in chosen if {"drbd9", "by_hand"} & {*marks[test]}]
