# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from sanctl.plan.drbd import state_line


@pytest.mark.parametrize(
    ("line", "is_connecting"),
    [
        ("cs:WFConnection ro:Secondary/Unknown ds:Inconsistent/DUnknown", True),
        ("cs:WFReportParams ro:Secondary/Unknown ds:UpToDate/DUnknown", True),
        ("cs:Unconnected ro:Secondary/Unknown ds:UpToDate/Outdated", True),
        ("cs:Connected ro:Secondary/Secondary ds:Inconsistent/DUnknown", True),
        ("cs:Connected ro:Secondary/Secondary ds:Inconsistent/Inconsistent", False),
        ("cs:SyncTarget ro:Secondary/Primary ds:Inconsistent/UpToDate", False),
        ("cs:WFBitMapT ro:Secondary/Primary ds:Outdated/UpToDate", False),
        # It has given its peer up: that is all there will be.
        ("cs:StandAlone ro:Secondary/Unknown ds:UpToDate/DUnknown", False),
        ("cs:Unconfigured", False),
        ("", False),
    ],
)
def test_what_is_worth_waiting_for(line: str, is_connecting: bool) -> None:
    assert state_line.is_connecting(line) == is_connecting


@pytest.mark.parametrize(
    ("line", "is_without"),
    [
        ("cs:Connected ro:Secondary/Secondary ds:Inconsistent/Inconsistent", True),
        ("cs:Connected ro:Secondary/Secondary ds:UpToDate/UpToDate", True),
        ("cs:Connected ro:Secondary/Primary ds:UpToDate/UpToDate", False),
        ("cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate", False),
        ("cs:WFConnection ro:Secondary/Unknown ds:Inconsistent/DUnknown", False),
        ("cs:SyncTarget ro:Secondary/Secondary ds:Inconsistent/UpToDate", False),
        ("", False),
    ],
)
def test_whether_a_primary_is_still_to_come(line: str, is_without: bool) -> None:
    assert state_line.is_without_primary(line) == is_without
