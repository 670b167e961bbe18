# SPDX-License-Identifier: GPL-2.0-or-later
"""How many connections a node makes at a time."""

from __future__ import annotations

import pytest

from sanctl.plan.drbd.reconnect_pace import (
    ALONE_S,
    APART_S,
    ASKED_EVERY_S,
    TAKEN_S,
    WAITED_APART_S,
    WAITS_S,
    being_made,
    longest_wait_s,
    may_connect,
)


@pytest.mark.parametrize(
    ("connections", "waited_s", "last_s", "may"),
    [
        ([], 1.0, None, True),
        ([], 1.0, APART_S, True),
        ([], 1.0, APART_S / 2, False),
        ([], 1.0, -3.0, True),
        (["StandAlone", "Connected", "SyncSource", "WFBitMapS"], 1.0, None, True),
        (["WFBitMapS", "WFReportParams"], 0.0, None, False),
        (["WFBitMapS", "WFBitMapS"], WAITS_S - 1, None, False),
        (["WFBitMapS", "WFBitMapS"], WAITS_S, None, True),
        (["WFBitMapS", "WFBitMapS"], WAITS_S, WAITED_APART_S, True),
        (["WFBitMapS", "WFBitMapS"], WAITS_S, WAITED_APART_S - 1, False),
        (["WFBitMapS"], WAITS_S, WAITED_APART_S - 1, True),
        ([], WAITS_S, APART_S / 2, False),
        (["WFBitMapS", "WFBitMapS"], None, None, True),
        (["WFBitMapS", "WFBitMapS"], -5.0, None, True),
    ],
)
def test_few_at_a_time_and_none_waits_for_ever(
    connections: list[str], waited_s: float | None, last_s: float | None, may: bool
) -> None:
    assert may_connect(connections, waited_s=waited_s, last_s=last_s) is may


@pytest.mark.parametrize("state", ["WFReportParams", "WFBitMapS", "WFBitMapT", "WFSyncUUID"])
def test_a_resync_that_is_about_to_begin_counts_at_both_ends(state: str) -> None:
    rest = ["SyncTarget", "Connected", "WFConnection"]
    assert may_connect([state, *rest], waited_s=1.0, last_s=None)
    assert not may_connect([state, state, *rest], waited_s=1.0, last_s=None)


def test_the_longest_wait_ends_after_the_turns_of_all_others() -> None:
    """Each connection is made where it was never few that began: one after the other, if late."""
    now_s, last_s, left = WAITS_S, None, 12
    while left:
        apart_s = None if last_s is None else now_s - last_s
        if may_connect(["WFBitMapS"] * 9, waited_s=now_s, last_s=apart_s):
            left, last_s = left - 1, now_s
        now_s += ASKED_EVERY_S  # The monitors of all those that wait come together, say.
    assert now_s - ASKED_EVERY_S <= longest_wait_s(12)


@pytest.mark.parametrize(
    ("state", "age_s", "counts"),
    [
        (None, 0.0, True),
        ("Unconnected", 1.0, True),
        ("Unconnected", TAKEN_S - 1, True),
        ("Unconnected", TAKEN_S, False),
        ("WFConnection", ALONE_S - 1, True),
        ("WFConnection", ALONE_S, False),
        ("WFConnection", -1.0, False),
        ("StandAlone", 1.0, True),
        ("Connected", 1.0, False),
        ("SyncTarget", 1.0, False),
        ("WFBitMapT", 1.0, False),
    ],
)
def test_a_turn_counts_once(state: str | None, age_s: float, counts: bool) -> None:
    """Before its connection is there, or as the connection itself; not when the peer is away."""
    connections = {1: "SyncSource", **({7: state} if state else {})}
    found = being_made(connections, {7: age_s})
    assert found == (*connections.values(), *(("taken",) if counts else ()))
    assert may_connect((*found, "WFBitMapS"), waited_s=1.0, last_s=None) is not (
        counts or state == "WFBitMapT"
    )
