# SPDX-License-Identifier: GPL-2.0-or-later
"""The tables of expected results of libiscsi's tests (tests/lab/conformance*.tsv)."""

from __future__ import annotations

from tests.support import conformance


def test_both_tables_of_conformance_have_reasons() -> None:
    """Those of reservations are all in the second one; without a reason a table is not read."""
    skipped = conformance.expected()
    reserved = conformance.expected(conformance.WITH_RESERVATIONS)
    assert set(reserved) == {
        name for name in skipped if name.startswith(("Prin", "Prout", "Reserve6."))
    } | {"Sanitize.Reservations"}
    outcome = {"ProutClear.Simple": {"result": "failed", "said": ["[FAILED] x"]}}
    assert conformance.differences(outcome, outcome, table=conformance.WITH_RESERVATIONS) == [
        "ProutClear.Simple: failed, expected passed: ['[FAILED] x']"
    ]
    assert conformance.lines(outcome) == "ProutClear.Simple\tfailed\t['[FAILED] x']\n"
