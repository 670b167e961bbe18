# SPDX-License-Identifier: GPL-2.0-or-later
"""Which of the long laboratory tests a run of `make test` has: the oldest, while time is left.

Pure: the order follows from the tests, from the record of green runs and from the commit, so that
the same tree has the same order everywhere. How far a run comes in it is for the run to see: it
measures how fast this machine is, and what a record says of another machine is an estimate only.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.support.last_green import Record

#: What `make test` may take on two processors; CI ends it at twice that.
LIMIT_S = 45 * 60
#: Where the tests that always run would end later than this, on a slow machine, the quick cases of
#: long families are left out, too: a run that is ended has shown nothing.
LATE_S = 55 * 60
#: To boot a laboratory of another shape and to roll out to it.
BOOT_S = 150
#: Of a test that was never recorded: of one that runs always, and of a long one.
ASSUMED_S = {False: 20, True: 100}
#: So much is prepared for a run: a machine that is faster than the record comes further.
PREPARED_S = 2 * LIMIT_S
#: Of a pace that was measured: less says little.
_MEASURED_S = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class LabTest:
    """What the choice needs to know of a test."""

    name: str
    """Its node id."""
    module: str
    is_long: bool
    """Whether it is left out of a run that does not choose it."""
    is_quick: bool = False
    """Whether it stands for a family of long tests in every run."""
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
    module: str
    shape: str
    seconds: int
    number: int
    """The number of the commit at which all of them had run green; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """The long tests that a run may have, in the order in which it comes to them.

    Those of a module follow one another, as they share what it has made.
    """

    units: tuple[Unit, ...]
    all_s: int
    """The seconds of all long tests, with their laboratories."""

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests in their order; what concludes a module is the last of it."""
        # A test that several units end with stays where the last of them has it.
        names = [test for unit in self.units for test in unit.tests]
        return tuple(reversed(dict.fromkeys(reversed(names))))


def seconds_of(test: LabTest, record: Record) -> int:
    """Return how long a test took when it last ran, or what one of its kind takes."""
    last = record.last(test.name)
    return last.seconds if last else ASSUMED_S[test.is_long]


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


def choose(tests: Sequence[LabTest], record: Record, commit: str) -> Slice:
    """Return the slice: what has not run green for longest, by modules.

    Of modules as old as each other the commit says which is first: where nobody commits what a run
    has recorded, the next commit's run has others nevertheless.
    """

    def age(unit: Unit) -> tuple[int, int]:
        return unit.number, zlib.crc32(f"{commit} {unit.module}".encode())

    left = PREPARED_S
    named = {test.name: test for test in tests}
    booted: set[str] = set()
    taken: set[str] = set()
    chosen: list[Unit] = []
    for unit in sorted(units(tests, record), key=age):  # stable: then by file
        # What concludes a module is done once for all of them.
        again_s = sum(seconds_of(named[name], record) for name in unit.tests if name in taken)
        boot_s = BOOT_S if unit.shape and unit.shape not in booted else 0
        seconds = unit.seconds - again_s + boot_s
        if seconds > left:
            continue
        left -= seconds
        booted.add(unit.shape)
        taken.update(unit.tests)
        chosen.append(unit)
    oldest = {unit.module: place for place, unit in reversed([*enumerate(chosen)])}
    place_of = {test.name: place for place, test in enumerate(tests)}
    chosen.sort(key=lambda unit: (oldest[unit.module], place_of[unit.tests[0]]))
    long = [test for test in tests if test.is_long]
    return Slice(
        units=tuple(chosen),
        all_s=sum(seconds_of(test, record) for test in long)
        + BOOT_S * len({test.shape for test in long if test.shape}),
    )


def pace(measured_s: Mapping[str, float], expected_s: Mapping[str, int]) -> float:
    """Return how many times as long as expected the tests that have run took; 1: as expected.

    Of few tests little is believed: one that met a busy moment says nothing of the machine.
    """
    known = measured_s.keys() & expected_s.keys()
    took = sum(measured_s[name] for name in known)
    expected = sum(expected_s[name] for name in known)
    return (took + _MEASURED_S) / (expected + _MEASURED_S)


def has_time(seconds: float, *, taken_s: float, pace: float, until_s: int = LIMIT_S) -> bool:
    """Return whether what takes so many seconds by the record ends in time, at this pace."""
    return taken_s + seconds * pace <= until_s


def _unit(tests: Sequence[LabTest], record: Record) -> Unit:
    """Return tests as one unit; its age is that of the oldest of them."""
    # What concludes and what always runs is as young as what ran last: it says nothing.
    own = [test for test in tests if test.is_long and not test.concludes] or list(tests)
    lasts = [record.last(test.name) for test in own]
    return Unit(
        tests=tuple(test.name for test in tests),
        module=tests[0].module,
        shape=tests[0].shape,
        seconds=sum(seconds_of(test, record) for test in tests),
        number=min(last.number if last else 0 for last in lasts),
    )
