# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin behind `--slice`: adds a slice of the laboratory tests that take turns, last.

All but the quick cases of the families do. What may run is marked `slice`, for `-m`; how much of it
does is seen while the run goes on, by the time that is left and by how fast this machine is.

A long test that has never run green says nothing of the change at hand when it fails: the run
reports it, and does not fail. Once it has been green it counts, for good.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from tests.support import parts, run_recorder, slices
from tests.support.laboratory import shape_of
from tests.support.last_green import Record
from tests.support.slices import LabTest, Slice
from tests.support.test_families import module_of

_FOLDERS = ("tests/lab/", "tests/chaos/")
_IN_NO_SLICE = ("drbd9", "by_hand")


@dataclass(slots=True, kw_only=True)
class Progress:
    """What a run has, what of it has begun, and what it has no time for."""

    began_s: float
    clock: Callable[[], float] = time.monotonic
    tests: dict[str, LabTest] = field(default_factory=dict)
    """The laboratory tests that this run may have."""
    expected_s: dict[str, int] = field(default_factory=dict)
    """The seconds of each, by the record."""
    slice: Slice | None = None
    begun: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    never_green: set[str] = field(default_factory=set)
    """The long tests of which no green run is recorded."""
    failed: dict[str, str] = field(default_factory=dict)
    """Those of them that failed, and how."""
    spoilt: set[str] = field(default_factory=set)
    """Where they did: the shared laboratory (empty), or a module. A later test there would meet
    what they left; between modules any other laboratory is checked, or made anew."""

    @property
    def taken_s(self) -> float:
        """The seconds that the run has taken."""
        return self.clock() - self.began_s

    def has_time_for(self, name: str, pace: float) -> bool:
        """Return whether a test is run, and note it: units of a slice whole or not at all."""
        test = self.tests[name]
        module = [each for each in self.tests.values() if each.module == test.module]
        if spoils(test) in self.spoilt:
            is_run = False
        elif test.concludes:
            is_run = any(each.name in self.begun for each in module)
        elif not test.is_long:
            is_run = self._has_time({name}, module, pace, slices.LATE_S)
        elif test.needs_order and any(each.name in self.left_out for each in module):
            is_run = False
        else:
            unit = self._unit_of(name)
            is_run = self._has_time(unit, module, pace, slices.LIMIT_S) or (
                self._is_first_and_long(name) and self._has_time(unit, module, pace, slices.LATE_S)
            )
        (self.begun if is_run else self.left_out).add(name)
        return is_run

    def _has_time(self, names: set[str], module: list[LabTest], pace: float, until_s: int) -> bool:
        if any(self.tests[name].is_long for name in names):  # leaves time for the quick cases
            names |= {each.name for each in self.tests.values() if not each.is_long}
        seconds = sum(self.expected_s[name] for name in names if name not in self.begun)
        shape = module[0].shape
        if shape not in slices.BOOTED | {self.tests[name].shape for name in self.begun}:
            seconds += slices.BOOT_S
        return slices.has_time(seconds, taken_s=self.taken_s, pace=pace, until_s=until_s)

    def _is_first_and_long(self, name: str) -> bool:
        """Return whether a test is of a long module in order that has waited longest of all.

        What is longer than the time that a run has left for its slice would never have its turn.
        """
        if self.slice is None:
            return False
        first = self.slice.units[0]
        return first.seconds > slices.LONG_UNIT_S and name in first.tests

    def _unit_of(self, name: str) -> set[str]:
        units = self.slice.units if self.slice else ()
        return {each for unit in units if name in unit.tests for each in unit.tests}


def spoils(test: LabTest) -> str:
    """Return what a failure of a test makes unfit for others: see `Progress.spoilt`."""
    return test.module if test.shape else ""


_PROGRESS = pytest.StashKey[Progress]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slice."""
    parser.addoption(
        "--slice",
        action="store_true",
        help="mark as `slice` the long laboratory tests that have not run green for longest, and "
        "run them last, as far as the time goes",
    )
    parser.addoption(
        "--part",
        type=int,
        choices=parts.PARTS,
        help="leave out the laboratory tests of the other part, which runs beside this one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note when the run began."""
    config.stash[_PROGRESS] = Progress(began_s=time.monotonic())


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Mark the slice before `-m` deselects; it runs after all others, in its own order.

    Ordered after pytest itself has ordered: it puts tests beside each other that share a parameter
    of a module, which would take a long test forward to one that always runs.
    """
    leave_out_other_part(config, items)
    place_of = mark_slice(config, items) if config.option.slice else {}
    yield
    if config.option.slice:
        place_of_shape = slices.order_of_shapes(map(shape_of, items))
        items.sort(key=lambda item: (place_of.get(item.nodeid, 0), place_of_shape[shape_of(item)]))


def leave_out_other_part(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the laboratory tests that the other part of the run has."""
    part = config.option.part
    if part is None:
        return
    others = [
        item
        for item in items
        if item.nodeid.startswith(_FOLDERS) and parts.part_of(shape_of(item)) != part
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = {*others}
        items[:] = [item for item in items if item not in left_out]


def mark_slice(config: pytest.Config, items: list[pytest.Item]) -> dict[str, int]:
    """Choose and mark the slice; return the place, from 1, of each test in it."""
    record = run_recorder.read()
    tests = lab_tests(items)
    chosen = begin(
        config.stash[_PROGRESS], tests, record, config.stash[run_recorder.RECORDER].commit
    )
    place_of = {name: place for place, name in enumerate(chosen.tests, start=1)}
    for item in items:
        if item.nodeid in place_of:
            item.add_marker(pytest.mark.slice)
    return place_of


def begin(progress: Progress, tests: Sequence[LabTest], record: Record, commit: str) -> Slice:
    """Choose the slice of a run, and note what the run may have."""
    chosen = slices.choose(tests, record, commit)
    in_slice = {*chosen.tests}
    seconds_of = slices.expected_s(tests, record)
    progress.slice = chosen
    progress.tests = {
        test.name: test for test in tests if not test.is_long or test.name in in_slice
    }
    progress.expected_s = {name: seconds_of[name] for name in progress.tests}
    progress.never_green = {
        test.name
        for test in tests
        if test.is_long and not test.is_together and record.last(test.name) is None
    }
    return chosen


def pytest_collection_finish(session: pytest.Session) -> None:
    """Forget what the command line leaves out: no time is kept for it."""
    progress = session.config.stash[_PROGRESS]
    selected = {item.nodeid for item in session.items}
    progress.tests = {name: test for name, test in progress.tests.items() if name in selected}


def chosen_shapes(config: pytest.Config) -> dict[str, str]:
    """Return the shape of the laboratory that each test of this run was chosen with."""
    return {name: test.shape for name, test in config.stash[_PROGRESS].tests.items()}


def lab_tests(items: Iterable[pytest.Item]) -> list[LabTest]:
    """Return what may run of these tests, in their order by file."""
    found = [
        lab_test(item)
        for item in items
        if item.nodeid.startswith(_FOLDERS)
        and not any(item.get_closest_marker(name) for name in _IN_NO_SLICE)
    ]
    place_of = {test.module: place for place, test in reversed([*enumerate(found)])}
    return sorted(found, key=lambda test: place_of[test.module])


def lab_test(item: pytest.Item) -> LabTest:
    """Return what the choice of a slice needs to know of a test."""
    module = module_of(item.nodeid)
    is_quick = item.get_closest_marker("quick") is not None
    in_order = item.get_closest_marker("in_order") is not None
    return LabTest(
        name=item.nodeid,
        module=module,
        is_long=not is_quick,
        is_together=not (is_quick or in_order or item.get_closest_marker("faults")),
        shape=shape_of(item),
        needs_order=in_order,
        concludes=item.get_closest_marker("concludes") is not None,
    )


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what would make the run too long: on a busy machine all takes longer."""
    progress = item.config.stash[_PROGRESS]
    if item.nodeid not in progress.tests:
        return
    measured_s = item.config.stash[run_recorder.RECORDER].measured_s
    pace = slices.pace(measured_s, progress.expected_s)
    if not progress.has_time_for(item.nodeid, pace):
        if spoils(progress.tests[item.nodeid]) in progress.spoilt:
            pytest.skip("a test that has never run green failed in this laboratory")
        pytest.skip(
            f"no time is left for it: {progress.taken_s / 60:.0f} minutes are gone, and tests take "
            f"{pace:.1f} times what they took"
        )


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let a test that has never run green fail without the run's failing."""
    report = yield
    progress = item.config.stash[_PROGRESS]
    if report.failed and item.nodeid in progress.never_green:
        progress.failed[item.nodeid] = report.longreprtext
        progress.spoilt.add(spoils(progress.tests[item.nodeid]))
        report.outcome = "skipped"
        report.wasxfail = "it has never run green"
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how far the run came, and in how many runs all long tests would have had their turn."""
    progress = config.stash[_PROGRESS]
    chosen = progress.slice
    if chosen is None or config.option.collectonly:
        return
    pace = slices.pace(config.stash[run_recorder.RECORDER].measured_s, progress.expected_s)
    long = [
        name for name in chosen.tests if name in progress.tests and progress.tests[name].is_long
    ]
    ran = [name for name in long if name in progress.begun]
    ran_s = sum(progress.expected_s[name] for name in ran)
    runs = -(-chosen.all_s // ran_s) if ran_s else "?"
    out = [name for name in progress.left_out if not progress.tests[name].is_long]
    terminalreporter.write_line(
        f"slice: {len(ran)} long tests of {len(long)}; tests took {pace:.1f} times what they"
        f" took before; all long tests take {chosen.all_s * pace / 60:.0f} minutes, or {runs} such"
        " runs"
    )
    for name, how in progress.failed.items():
        terminalreporter.write_sep("-", f"failed, and has never run green: {name}")
        terminalreporter.write_line(how)
    for name in sorted(out):
        terminalreporter.write_line(f"{name} was left out, which every run should have")
