# SPDX-License-Identifier: GPL-2.0-or-later
"""What iscsi-test-cu is expected to say of a device, and what it says in the laboratory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sanctl.lab.harness.initiator import Initiator
from tests.support import conformance_runner

#: Names of initiators that a device lets in for the tool; it needs two.
FIRST, SECOND = (f"iqn.2026-11.net.example:conformance{number}" for number in (1, 2))
#: Each test that does not pass, with the result and the reason; all others are expected to pass.
EXPECTED = Path(__file__).parent.parent / "lab" / "conformance.tsv"
#: Each test of reservations with its result where they are switched on, also those that pass.
WITH_RESERVATIONS = EXPECTED.with_name("conformance-reservations.tsv")
#: What takes longer hangs: a loop of 256 unmaps took 60 s, beside other laboratories.
DEADLINE_S = 300
#: Tests that only the libiscsi of Debian 13 has, 1.20; that of Debian 12 is 1.19.
NEWER = frozenset({"CompareAndWrite.MiscompareSense"})
_RUNNER = Path(conformance_runner.__file__)


def expected(table: Path = EXPECTED) -> dict[str, str]:
    """Return the results in a table: by default of all tests that are not expected to pass."""
    rows = [line.split("\t") for line in table.read_text().splitlines()[1:]]
    assert all(len(row) == 3 and row[2] for row in rows), "a test without a reason"
    found = {test: result for test, result, _ in rows}
    assert len(found) == len(rows) and list(found) == sorted(found)
    return found


def run(
    host: Initiator, portal: str, target: str, tests: Sequence[str] = (), *, timeout_s: float
) -> dict[str, dict[str, object]]:
    """Run tests of the tool on a host, or all; return each test's outcome by its name."""
    out = host.bed.sh(
        host.name,
        f"python3 - iscsi://{portal}/{target}/0 {FIRST} {SECOND} {DEADLINE_S} {' '.join(tests)}",
        stdin=_RUNNER.read_text(),
        timeout_s=timeout_s,
    ).stdout
    outcomes = [json.loads(line) for line in out.splitlines()]
    return {str(each["test"]): each for each in outcomes}


def differences(
    outcomes: Mapping[str, Mapping[str, object]],
    wanted: Iterable[str] | None = None,
    *,
    table: Path = EXPECTED,
) -> list[str]:
    """Return what differs from what is expected: worse and better, missing and new."""
    results = expected(table)
    names = sorted({*outcomes, *(results if wanted is None else wanted)})
    return [
        f"{name}: {found}, expected {results.get(name, 'passed')}: {outcome.get('said')}"
        for name in names
        for outcome in (outcomes.get(name, {}),)
        for found in (outcome.get("result", "not run"),)
        if found != results.get(name, "passed") and not (found == "absent" and name in NEWER)
    ]


def lines(outcomes: Mapping[str, Mapping[str, object]]) -> str:
    """Return the lines of a table that say what came out, with what the tool said as the reason."""
    return "".join(
        f"{name}\t{each.get('result')}\t{each.get('said') or 'say why'}\n"
        for name, each in sorted(outcomes.items())
    )
