# SPDX-License-Identifier: GPL-2.0-or-later
"""The pytest plugin behind `--slice`: adds a slice of the long laboratory tests, at the end.

What is chosen is marked `slice`, for `-m`.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.support import run_recorder, slices
from tests.support.slices import LabTest, Slice
from tests.support.test_families import module_of

_BEGAN_S = pytest.StashKey[float]()
_SLICE = pytest.StashKey[Slice]()
_SECONDS = pytest.StashKey[int]()
_FOLDERS = ("tests/lab/", "tests/chaos/")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --slice."""
    parser.addoption(
        "--slice",
        action="store_true",
        help="mark as `slice` the long laboratory tests that have not run green for longest, as "
        "far as the time goes, and run them last",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Note when the run began."""
    config.stash[_BEGAN_S] = time.monotonic()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the slice before `-m` deselects; it runs after all others."""
    if not config.option.slice:
        return
    record = run_recorder.read()
    tests = {
        item.nodeid: lab_test(item)
        for item in items
        if item.nodeid.startswith(_FOLDERS) and not item.get_closest_marker("drbd9")
    }
    chosen = slices.choose([*tests.values()], record)
    config.stash[_SLICE] = chosen
    for item in items:
        if item.nodeid in chosen.tests:
            item.add_marker(pytest.mark.slice)
            item.stash[_SECONDS] = slices.seconds_of(tests[item.nodeid], record)
    items.sort(key=lambda item: item.nodeid in chosen.tests)


def lab_test(item: pytest.Item) -> LabTest:
    """Return what the choice of a slice needs to know of a test."""
    module = module_of(item.nodeid)
    return LabTest(
        name=item.nodeid,
        module=module,
        is_long=bool(item.get_closest_marker("faults")) and not item.get_closest_marker("quick"),
        shape="" if _uses_shared_laboratory(item) else module,
        needs_order=item.get_closest_marker("in_order") is not None,
        concludes=item.get_closest_marker("concludes") is not None,
    )


def _uses_shared_laboratory(item: pytest.Item) -> bool:
    """Whether a test's laboratory is the session's, and not one of its module's own."""
    info: Any = getattr(item, "_fixtureinfo", None)
    defined: Any = info.name2fixturedefs.get("bed") if info else None
    return bool(defined) and defined[-1].scope == "session"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what would make the run too long: on a busy machine all takes longer."""
    taken_s = time.monotonic() - item.config.stash[_BEGAN_S]
    is_quick = item.config.option.slice and item.get_closest_marker("quick") is not None
    if _SECONDS in item.stash:
        is_late = taken_s + item.stash[_SECONDS] > slices.LIMIT_S - 60
    else:
        is_late = is_quick and taken_s > slices.LATE_S
    if is_late:
        pytest.skip(f"no time is left for it: {taken_s / 60:.0f} minutes are gone")


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say what the slice was, and in how many runs all long tests would have had their turn."""
    chosen = config.stash.get(_SLICE, None)
    if chosen is None:
        return
    runs = -(-chosen.all_s // chosen.seconds) if chosen.seconds else "?"
    terminalreporter.write_line(
        f"slice: {len(chosen.tests)} long tests, {chosen.seconds / 60:.0f} of"
        f" {chosen.budget_s / 60:.0f} minutes; all of them take {chosen.all_s / 60:.0f} minutes, or"
        f" {runs} such runs"
    )
