# SPDX-License-Identifier: GPL-2.0-or-later
"""The record of each laboratory test's last green run: its lines, its page, what is stale. Pure.

One line for a test and a release of Debian, sorted, so that two branches that ran different tests
merge without a conflict; of two lines for the same the later run counts (.gitattributes: union).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tests.support.test_families import FAMILIES, family_of

FILE = "tests/last-green.tsv"
PAGE = "docs/reference/test-runs.md"
RELEASES = ("trixie", "bookworm")
#: Ten landings or so, each of about fifteen commits.
STALE_AFTER_COMMITS = 150
_NEVER = "never"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class GreenRun:
    """A test's last run that passed, on one release."""

    test: str
    release: str
    number: int
    """How many commits the history has up to the one that ran: a rebase changes its name."""
    date: str
    commit: str
    seconds: int
    """How long it takes: see `known_seconds`."""

    @property
    def line(self) -> str:
        """The run as FILE has it."""
        return "\t".join(
            (self.test, self.release, self.date, self.commit, str(self.number), str(self.seconds))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All tests, and the last green run of each that has one, by test and release."""

    tests: frozenset[str] = frozenset()
    runs: Mapping[tuple[str, str], GreenRun]

    @property
    def newest_number(self) -> int:
        """The number of the newest commit of which a run is recorded."""
        return max((run.number for run in self.runs.values()), default=0)

    def last(self, test: str) -> GreenRun | None:
        """Return a test's last green run, on whatever release."""
        found = [run for release in RELEASES if (run := self.runs.get((test, release)))]
        return max(found, key=lambda run: (run.number, run.date), default=None)


def parse(text: str) -> Record:
    """Read the record's file.

    Raises:
        ValueError: a line is neither a run nor `never`, such as a conflict's.
    """
    tests, runs = set(), dict[tuple[str, str], GreenRun]()
    for number, line in enumerate(text.splitlines(), start=1):
        match line.split("\t"):
            case [test, "never"]:
                tests.add(test)
            case [test, release, date, commit, height, seconds]:
                tests.add(test)
                run = GreenRun(
                    test=test, release=release, date=date, commit=commit,
                    number=int(height), seconds=int(seconds),
                )  # fmt: skip
                add(runs, run)
            case _:
                raise ValueError(f"{FILE}:{number}: {line!r} is no line of it")
    return Record(tests=frozenset(tests), runs=runs)


def add(runs: dict[tuple[str, str], GreenRun], run: GreenRun) -> None:
    """Add a run, unless there is a later one of the same test and release."""
    old = runs.get((run.test, run.release))
    if old is None or (old.date, old.number) <= (run.date, run.number):
        runs[run.test, run.release] = run


def known_seconds(before: GreenRun | None, measured_s: float) -> int:
    """Return how long a test takes, by its run before and by this one.

    A machine that does other things too takes several times as long: one run raises what is known
    by a quarter at most. A shorter one counts at once.
    """
    most_s = measured_s if before is None else before.seconds * 1.25 + 1
    return round(min(measured_s, most_s))


def render(record: Record) -> str:
    """Return the text of the record's file."""
    lines = []
    for test in sorted(record.tests):
        runs = [run for release in RELEASES if (run := record.runs.get((test, release)))]
        lines += [run.line for run in runs] or [f"{test}\t{_NEVER}"]
    return "".join(f"{line}\n" for line in lines)


def merge(record: Record, other: Iterable[GreenRun]) -> Record:
    """Return a record with runs of another one, of tests that it knows, where they are later."""
    runs = dict(record.runs)
    for run in other:
        if run.test in record.tests:
            add(runs, run)
    return Record(tests=record.tests, runs=runs)


def of_tests(record: Record, tests: Iterable[str]) -> Record:
    """Return a record of exactly these tests: new ones never ran, those that are gone are gone."""
    wanted = frozenset(tests)
    return Record(
        tests=wanted, runs={key: run for key, run in record.runs.items() if key[0] in wanted}
    )


def stale(record: Record, number: int) -> list[str]:
    """Return a line for each family or release with nothing green lately, and one for the tests.

    Args:
        record: the runs.
        number: how many commits the history has now.
    """
    oldest = number - STALE_AFTER_COMMITS
    is_stale = {
        test: (last := record.last(test)) is None or last.number < oldest for test in record.tests
    }
    families = defaultdict[str, list[bool]](list)
    for test, is_old in is_stale.items():
        families[family_of(test)].append(is_old)
    lines = [
        f"{family}: none of its {len(tests)} laboratory tests has a green run"
        for family, tests in sorted(families.items())
        if all(tests)
    ]
    if count := sum(is_stale.values()):
        lines.append(f"{count} of {len(is_stale)} laboratory tests have none")
    lines += [
        f"{release}: no laboratory test has a green run"
        for release in RELEASES
        if not any(run.release == release and run.number >= oldest for run in record.runs.values())
    ]
    return [f"{line} in the last {STALE_AFTER_COMMITS} commits: {PAGE}" for line in lines]


_HEAD = """\
# Test runs

<!-- Made by `python -m tests.support.test_runs`: do not edit. -->

The last green run of each test that needs the laboratory, written by the runs themselves into
[{file}](../../{file}). A skipped test is not green, and a tree with changes records nothing.
*Behind* is how many commits lie between the commit that ran and the newest one of which a run is
recorded, number {newest}. A commit that was rebased since has another name now.

Of {all} tests {green} have run green on Debian 13 (trixie), {old} on Debian 12 (bookworm), and
{never} on neither.
"""


def page(record: Record) -> str:
    """Return the page docs/reference/test-runs.md."""
    lasts = {test: record.last(test) for test in record.tests}
    count = {release: sum(key[1] == release for key in record.runs) for release in RELEASES}
    parts = [
        _HEAD.format(
            file=FILE, newest=record.newest_number, all=len(record.tests),
            green=count["trixie"], old=count["bookworm"],
            never=sum(last is None for last in lasts.values()),
        )
    ]  # fmt: skip
    for family in sorted(FAMILIES):
        tests = sorted(test for test in record.tests if family_of(test) == family)
        if not tests:
            continue
        parts.append(
            f"\n## {family}\n\n| test | Debian | date | commit | behind | seconds |\n"
            "| --- | --- | --- | --- | --- | --- |\n"
        )
        for test in tests:
            name = test.rpartition("/")[2].replace(".py::", " ").replace("|", "\\|")
            runs = [run for release in RELEASES if (run := record.runs.get((test, release)))]
            for run in runs:
                behind = record.newest_number - run.number
                parts.append(
                    f"| `{name}` | {run.release} | {run.date} | {run.commit} | {behind} |"
                    f" {run.seconds} |\n"
                )
            if not runs:
                parts.append(f"| `{name}` | | {_NEVER} | | | |\n")
    return "".join(parts)
