# SPDX-License-Identifier: GPL-2.0-or-later
"""Which monitors wait for a turn, how many have one, and for how long it is not free."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.device import monitor_turn
from sanctl.plan.device.monitor_turn import LONGEST_S, Turn

IN_SYNC = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
AWAY = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 8)
NO_DISK = IN_SYNC._replace(disk="Diskless")


def state(role: str, disk: str, *peers: PeerState) -> ResourceState:
    return ResourceState("vol1", role, "no", disk, 1024, peers, minor=3)


BLANK = IN_SYNC._replace(disk="Inconsistent")


@pytest.mark.parametrize(
    ("seen", "age_s", "when"),
    [
        (state("Primary", "UpToDate", IN_SYNC), 10.0, Turn.NOW),
        (state("Primary", "UpToDate", AWAY), 10.0, Turn.NEXT),
        (state("Primary", "UpToDate", AWAY), LONGEST_S, Turn.NOW),
        (state("Primary", "UpToDate", AWAY), -1.0, Turn.NOW),
        (state("Primary", "UpToDate", AWAY), None, Turn.NOW),
        (state("Primary", "UpToDate", NO_DISK), 10.0, Turn.NOW),
        (state("Primary", "Diskless", IN_SYNC), 10.0, Turn.NOW),
        (state("Secondary", "Outdated", AWAY), 10.0, Turn.NEXT),
        (state("Secondary", "Diskless", AWAY), 10.0, Turn.NEXT),
        (state("Secondary", "Inconsistent", BLANK), 10.0, Turn.LATER),
        (state("Secondary", "Inconsistent", BLANK), LONGEST_S, Turn.NOW),
        (state("Secondary", "Inconsistent", IN_SYNC), 10.0, Turn.NEXT),
    ],
)
def test_when(seen: ResourceState, age_s: float | None, when: Turn) -> None:
    assert monitor_turn.turn(seen, replicas=2, done_age_s=age_s) is when


@pytest.mark.parametrize(("processors", "turns"), [(0, 2), (1, 2), (16, 17)])
def test_one_more_than_processors(processors: int, turns: int) -> None:
    assert monitor_turn.at_a_time(processors) == turns


@pytest.mark.parametrize(("worked_s", "free_s"), [(0.5, 101.0), (30.0, 105.0), (-1.0, 100.0)])
def test_a_turn_pauses_twice_as_long_as_it_worked(worked_s: float, free_s: float) -> None:
    assert monitor_turn.free_at_s(100.0, worked_s) == free_s


@pytest.mark.parametrize(
    ("noted", "is_free"),
    [("", True), ("x", True), ("99.5", True), ("100.0", True), ("104.9", False), ("999", True)],
)
def test_what_the_last_holder_has_noted(noted: str, is_free: bool) -> None:
    assert monitor_turn.is_free(noted, 100.0) is is_free
