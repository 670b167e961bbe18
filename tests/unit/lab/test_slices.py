# SPDX-License-Identifier: GPL-2.0-or-later
"""The slice of long tests in a run of `make test`: the oldest first, in time, all in turn."""

from __future__ import annotations

import dataclasses
import time
from types import SimpleNamespace

import pytest

from tests.support import last_green, rotation, slices, test_runs
from tests.support.last_green import GreenRun, Record
from tests.support.slices import BOOT_S, LATE_S, LIMIT_S, OVERHEAD_S, LabTest

ROOM_S = 600


def always(seconds_left: int = ROOM_S) -> tuple[LabTest, int]:
    """A test that always runs, and its seconds: so long that this much is left for a slice."""
    test = LabTest(name="tests/lab/test_failover.py::test_a", module="test_failover", is_long=False)
    return test, LIMIT_S - OVERHEAD_S - seconds_left


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


def choose(*ran: tuple[LabTest, int, int], left_s: int = ROOM_S) -> list[str]:
    """The names of the slice; commit 0: the test never ran, and its seconds are not known."""
    test, seconds = always(left_s)
    known = record((test, seconds, 500), *(each for each in ran if each[2]))
    chosen = slices.choose([test, *(each[0] for each in ran)], known)
    assert chosen.budget_s == max(0, left_s)
    assert chosen.seconds <= chosen.budget_s
    return sorted(name.partition("::")[2] for name in chosen.tests)


A, B, C = long("test_a"), long("test_b"), long("test_c")


def test_the_oldest_run_first_as_far_as_the_time_goes() -> None:
    assert choose((A, 300, 502), (B, 300, 500), (C, 300, 501)) == ["test_b", "test_c"]


def test_what_never_ran_is_the_oldest() -> None:
    assert choose((A, 300, 500), (B, 300, 499), (C, 0, 0)) == ["test_b", "test_c"]


def test_what_does_not_fit_gives_way_to_what_does() -> None:
    assert choose((A, 601, 500), (B, 300, 501)) == ["test_b"]


def test_nothing_runs_where_no_time_is_left() -> None:
    assert choose((A, 1, 500), left_s=0) == []
    assert choose((A, 1, 500), left_s=-100) == []


def test_a_laboratory_of_another_shape_takes_its_boot_once() -> None:
    own = [long(f"test_{nr}", "test_three_nodes", shape="test_three_nodes") for nr in range(3)]
    runs = [(test, 100, 500) for test in own]
    assert choose(*runs, left_s=300 + BOOT_S) == ["test_0", "test_1", "test_2"]
    assert choose(*runs, left_s=299 + BOOT_S) == ["test_0", "test_1"]
    assert choose(*runs, left_s=99 + BOOT_S) == []


def test_a_module_in_order_runs_whole_and_is_as_old_as_its_oldest() -> None:
    module = [long(name, "test_strategy", needs_order=True) for name in ("test_x", "test_y")]
    quick = dataclasses.replace(module[0], name="tests/lab/test_strategy.py::test_w", is_long=False)
    ran = [(quick, 0, 509), (module[0], 200, 499), (module[1], 200, 510), (A, 300, 500)]
    assert choose(*ran, left_s=620) == ["test_w", "test_x", "test_y"]
    assert choose(*ran, left_s=390) == ["test_a"]


def test_what_concludes_a_module_runs_with_any_of_it_and_counts_once() -> None:
    end = long("test_end", concludes=True)
    assert choose((A, 300, 500), (B, 200, 501), (end, 100, 400)) == [
        "test_a",
        "test_b",
        "test_end",
    ]
    assert choose((A, 300, 500), (B, 201, 501), (end, 100, 400)) == ["test_a", "test_end"]


def test_every_long_test_has_its_turn() -> None:
    """A hundred tests of a minute each, ten in each run, and each run recorded."""
    tests = [long(f"test_{nr:02}", f"test_{nr // 10}") for nr in range(100)]
    first, seconds = always()
    known = record((first, seconds, 500), *((test, 60, 400) for test in tests))
    seen: set[str] = set()
    for landing in range(10):
        chosen = slices.choose([first, *tests], known).tests
        assert len(chosen) == 10
        seen |= chosen
        ran = record(*((test, 60, 501 + landing) for test in tests if test.name in chosen))
        known = last_green.merge(known, ran.runs.values())
    assert len(seen) == 100


def test_a_run_on_another_release_counts_too() -> None:
    test, seconds = always()
    known = record((test, seconds, 500), (A, 300, 500), (B, 301, 501))
    other = [dataclasses.replace(run, release="bookworm", number=502) for run in
             record((A, 300, 500)).runs.values()]  # fmt: skip
    chosen = slices.choose([test, A, B], last_green.merge(known, other))
    assert chosen.tests == {B.name}


def test_pytest_runs_the_slice_last_and_nothing_that_needs_another_kernel() -> None:
    marks = test_runs.collected()
    chosen = [test for test in marks if "slice" in marks[test]]
    assert [*marks][len(marks) - len(chosen) :] == chosen
    assert not [test for test in chosen if "drbd9" in marks[test]]


@pytest.mark.parametrize(
    ("kind", "taken_s", "is_left_out"),
    [
        ("slice", 0, False),
        ("slice", LIMIT_S - 100, True),
        ("quick", LATE_S - 100, False),
        ("quick", LATE_S + 1, True),
        ("always", LATE_S + 1, False),
    ],
)
def test_on_a_busy_machine_the_rest_is_left_out(kind: str, taken_s: int, is_left_out: bool) -> None:
    config = SimpleNamespace(
        stash={rotation._BEGAN_S: time.monotonic() - taken_s}, option=SimpleNamespace(slice=True)
    )
    item = SimpleNamespace(
        stash={rotation._SECONDS: 60} if kind == "slice" else {},
        config=config,
        get_closest_marker=lambda name: object() if name == kind else None,
    )
    try:
        rotation.pytest_runtest_setup(item)  # type: ignore[arg-type]
    except pytest.skip.Exception:
        assert is_left_out
    else:
        assert not is_left_out
