# SPDX-License-Identifier: GPL-2.0-or-later
"""How many dropped connections are made again at a time."""

from __future__ import annotations

import pytest

from sanctl.plan.drbd.reconnect_pace import WAITS_S, may_connect, may_reconnect


@pytest.mark.parametrize(
    ("connections", "dropped_for_s", "may"),
    [
        ([], 1.0, True),
        (["StandAlone", "Connected", "SyncSource", "WFBitMapS"], 1.0, True),
        (["WFBitMapS", "WFReportParams"], 0.0, False),
        (["WFBitMapS", "WFBitMapS"], WAITS_S - 1, False),
        (["WFBitMapS", "WFBitMapS"], WAITS_S, True),
        (["WFBitMapS", "WFBitMapS"], None, True),
        (["WFBitMapS", "WFBitMapS"], -5.0, True),
    ],
)
def test_few_at_a_time_and_nobody_waits_for_ever(
    connections: list[str], dropped_for_s: float | None, may: bool
) -> None:
    assert may_reconnect(connections, dropped_for_s=dropped_for_s) is may


@pytest.mark.parametrize("state", ["WFReportParams", "WFBitMapS", "WFBitMapT", "WFSyncUUID"])
def test_a_resync_that_is_about_to_begin_counts_at_both_ends(state: str) -> None:
    assert may_connect([state, "SyncTarget", "Connected", "WFConnection"])
    assert not may_connect([state, state])
