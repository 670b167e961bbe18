# SPDX-License-Identifier: GPL-2.0-or-later
"""Which laboratory tests take turns in the runs of `make test`: the oldest, while time is left.

Every run has the quick case of each family; all other tests of the laboratory take turns.

Pure: the order follows from the tests, from the record of green runs and from the commit, so that
the same tree has the same order everywhere. How far a run comes in it is for the run to see: it
measures how fast this machine is, and what a record says of another machine is an estimate only.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from tests.support.last_green import Record

#: When the tests of `make test` are to end, on two processors: the linters have run before them,
#: and a laboratory is destroyed after them. CI ends it at twice that.
LIMIT_S = 42 * 60
#: Where the quick cases would end later than this, on a slow machine, they are left out, too: a run
#: that is ended has shown nothing.
LATE_S = 55 * 60
#: A module in order that takes longer may end so late, too, where it is the oldest.
LONG_UNIT_S = 15 * 60
#: The shape of the laboratory with pools of XFS, which several modules share.
XFS = "xfs"
#: What is up when the first test needs it: it boots while the unit tests run.
BOOTED = frozenset(("", XFS))
#: To boot a laboratory of another shape and to roll out to it.
BOOT_S = 100
#: Of a test that was never recorded, where there is no record of its kind either.
ASSUMED_S = 60
#: What a run takes before its first test in the laboratory: that of the unit tests.
BEFORE_S = 180
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
    """Whether it takes turns; else it stands for its family in every run."""
    is_together: bool = False
    """Whether it runs in one run with the others of its module that are so: short ones, of which
    each may count on what the one before it left."""
    shape: str = ""
    """The laboratory that it needs; empty: the one that most share."""
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


def expected_s(tests: Sequence[LabTest], record: Record) -> dict[str, int]:
    """Return how long each test takes: what it took when it last ran.

    Of what was never recorded: the mean of its module's tests that were, then of all of its kind.
    """
    known = {test.name: last.seconds for test in tests if (last := record.last(test.name))}
    of_kind = defaultdict[str, list[int]](list)
    for test in tests:
        if test.name in known:
            for kind in _kinds(test):
                of_kind[kind].append(known[test.name])

    def assumed(test: LabTest) -> int:
        found = [of_kind[kind] for kind in _kinds(test) if kind in of_kind] or [[ASSUMED_S]]
        return round(sum(found[0]) / len(found[0]))

    return {test.name: known[test.name] if test.name in known else assumed(test) for test in tests}


def _kinds(test: LabTest) -> tuple[str, ...]:
    """Return of what a test is one, the nearest first."""
    return ("short",) if test.is_together or not test.is_long else (test.module, "long")


def units(tests: Sequence[LabTest], record: Record) -> list[Unit]:
    """Group the long tests into what can run alone; in the order of the files."""
    found = []
    seconds_of = expected_s(tests, record)
    for _, grouped in groupby(tests, key=lambda test: test.module):
        module = list(grouped)
        long = [test for test in module if test.is_long]
        if not long:
            continue
        if long[0].needs_order:
            # Those of them that always run, too: they leave what the next ones need.
            found.append(_unit(module, record, seconds_of))
            continue
        together = [test for test in long if test.is_together]
        ends = [test for test in module if test.concludes]
        single = [test for test in long if not test.concludes and not test.is_together]
        found += [_unit(together, record, seconds_of)] if together else []
        found += [_unit([test, *ends], record, seconds_of) for test in single]
    return found


def choose(tests: Sequence[LabTest], record: Record, commit: str) -> Slice:
    """Return the slice: what has not run green for longest, by modules.

    Of modules as old as each other the commit says which is first: where nobody commits what a run
    has recorded, the next commit's run has others nevertheless.
    """

    def age(unit: Unit) -> tuple[int, int]:
        return unit.number, zlib.crc32(f"{commit} {unit.module}".encode())

    left = PREPARED_S
    seconds_of = expected_s(tests, record)
    booted = {*BOOTED}
    taken: set[str] = set()
    chosen: list[Unit] = []
    for unit in sorted(units(tests, record), key=age):  # stable: then by file
        # What concludes a module is done once for all of them.
        again_s = sum(seconds_of[name] for name in unit.tests if name in taken)
        boot_s = BOOT_S if unit.shape not in booted else 0
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
        all_s=sum(seconds_of[test.name] for test in long)
        + BOOT_S * len({test.shape for test in long} - BOOTED),
    )


def order_of_shapes(shapes: Iterable[str]) -> dict[str, int]:
    """Return the order in which a run comes to laboratories: the one that is up, then by turns.

    What several modules share comes last: the slice goes on with it.
    """
    in_order = sorted(dict.fromkeys(shapes), key=lambda shape: (bool(shape), shape == XFS))
    return {shape: place for place, shape in enumerate(in_order)}


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


def _unit(tests: Sequence[LabTest], record: Record, seconds_of: Mapping[str, int]) -> Unit:
    """Return tests as one unit; its age is that of the oldest of them."""
    # What concludes and what always runs is as young as what ran last: it says nothing.
    own = [test for test in tests if test.is_long and not test.concludes] or list(tests)
    lasts = [record.last(test.name) for test in own]
    return Unit(
        tests=tuple(test.name for test in tests),
        module=tests[0].module,
        shape=tests[0].shape,
        seconds=sum(seconds_of[test.name] for test in tests),
        number=min(last.number if last else 0 for last in lasts),
    )
