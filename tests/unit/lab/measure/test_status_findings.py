# SPDX-License-Identifier: GPL-2.0-or-later
"""A cluster has recovered although status tells what a fault has left for a day."""

from __future__ import annotations

import pytest

from sanctl.lab.measure.status_findings import has_recovered

DROPPED = "  warning: device vol: DRBD dropped its disk on n1 2 times (SAN-HLT-160)\n"
FAILED = "  warning: device vol: monitor failed on n1 (SAN-HLT-040)\n"


@pytest.mark.parametrize(
    ("status", "text", "known", "expected"),
    [
        (0, "", (), True),
        (1, DROPPED, (), True),
        (1, FAILED, (), False),
        (1, FAILED + DROPPED, ("SAN-HLT-040",), True),
        (1, FAILED + DROPPED, (), False),
        (1, "no answer", (), False),
        (2, DROPPED, (), False),
    ],
)
def test_what_faults_leave_is_no_problem(
    status: int, text: str, known: tuple[str, ...], expected: bool
) -> None:
    assert has_recovered(status, text, known=known) is expected
