# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the long laboratory tests a run of `make test` has: the oldest, while time is left.

Pure: the choice follows from the tests and from the record of green runs, so that the same tree has
the same slice everywhere. What ran green is the youngest then, and the next run takes others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.support.last_green import Record

#: What `make test` may take on two processors; CI ends it at twice that.
LIMIT_S = 45 * 60
#: From here on, on a slow machine, the quick cases of long families are left out, too: a run that
#: is ended has shown nothing.
LATE_S = 55 * 60
#: The linters, the unit tests, and the boot of the shared laboratory beside these.
OVERHEAD_S = 5 * 60
#: To boot a laboratory of another shape and to roll out to it.
BOOT_S = 150
#: Of a test that was never recorded: of one that runs always, and of a long one.
ASSUMED_S = {False: 20, True: 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class LabTest:
    """What the choice needs to know of a test."""

    name: str
    """Its node id."""
    module: str
    is_long: bool
    """Whether it is left out of a run that does not choose it."""
    shape: str = ""
    """The laboratory of its own that it needs; empty: the shared one."""
    needs_order: bool = False
    """Whether each test of its module needs what the one before it left."""
    concludes: bool = False
    """Whether it checks what the others of its module have done, and runs after any of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Long tests that run together or not at all."""

    tests: tuple[str, ...]
    shape: str
    seconds: int
    number: int
    """The number of the commit at which all of them had run green; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The long tests of one run, and what all of them would take."""

    tests: frozenset[str]
    seconds: int
    budget_s: int
    all_s: int
    """The seconds of all long tests, with their laboratories."""


def seconds_of(test: LabTest, record: Record) -> int:
    """Return how long a test took when it last ran, or what one of its kind takes."""
    last = record.last(test.name)
    return last.seconds if last else ASSUMED_S[test.is_long]


def budget_s(tests: Sequence[LabTest], record: Record) -> int:
    """Return the seconds that the tests which always run leave for a slice."""
    always = [test for test in tests if not test.is_long]
    shapes = {test.shape for test in always if test.shape}
    taken = sum(seconds_of(test, record) for test in always) + BOOT_S * len(shapes)
    return max(0, LIMIT_S - OVERHEAD_S - taken)


def units(tests: Sequence[LabTest], record: Record) -> list[Unit]:
    """Group the long tests into what can run alone; in the order of the files."""
    found = []
    for _, grouped in groupby(tests, key=lambda test: test.module):
        module = list(grouped)
        long = [test for test in module if test.is_long]
        if not long:
            continue
        if long[0].needs_order:
            # Those of them that always run, too: they leave what the next ones need.
            found.append(_unit(module, record))
            continue
        ends = [test for test in module if test.concludes]
        single = [test for test in long if not test.concludes]
        found += [_unit([test, *ends], record) for test in single]
    return found


def choose(tests: Sequence[LabTest], record: Record) -> Slice:
    """Return the slice: what has not run green for longest, as far as the time goes."""
    left = budget = budget_s(tests, record)
    booted: set[str] = set()
    chosen: set[str] = set()
    names = {test.name: test for test in tests}
    all_units = units(tests, record)
    for unit in sorted(all_units, key=lambda unit: unit.number):  # stable: then by file
        boot_s = BOOT_S if unit.shape and unit.shape not in booted else 0
        # What concludes a module is done once for all of them.
        again_s = sum(seconds_of(names[name], record) for name in unit.tests if name in chosen)
        if unit.seconds - again_s + boot_s > left:
            continue
        left -= unit.seconds - again_s + boot_s
        booted.add(unit.shape)
        chosen.update(unit.tests)
    long = [test for test in tests if test.is_long]
    return Slice(
        tests=frozenset(chosen),
        seconds=budget - left,
        budget_s=budget,
        all_s=sum(seconds_of(test, record) for test in long)
        + BOOT_S * len({test.shape for test in long if test.shape}),
    )


def _unit(tests: Sequence[LabTest], record: Record) -> Unit:
    """Return tests as one unit; its age is that of the oldest of them."""
    # What concludes and what always runs is as young as what ran last: it says nothing.
    own = [test for test in tests if test.is_long and not test.concludes] or list(tests)
    lasts = [record.last(test.name) for test in own]
    return Unit(
        tests=tuple(test.name for test in tests),
        shape=tests[0].shape,
        seconds=sum(seconds_of(test, record) for test in tests),
        number=min(last.number if last else 0 for last in lasts),
    )
