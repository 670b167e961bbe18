# SPDX-License-Identifier: GPL-2.0-or-later
"""Which monitors wait for a turn, how many have one, and for how long it is not free."""

from __future__ import annotations

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.device import monitor_turn
from sanctl.plan.device.monitor_turn import LONGEST_S, Seen, Turn

IN_SYNC = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
AWAY = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 8)
NO_DISK = IN_SYNC._replace(disk="Diskless")


def state(role: str, disk: str, *peers: PeerState) -> ResourceState:
    return ResourceState("vol1", role, "no", disk, 1024, peers, minor=3)


BLANK = IN_SYNC._replace(disk="Inconsistent")
SERVES = IN_SYNC._replace(role="Primary")
REFUSED = AWAY._replace(connection="StandAlone")
SEEN = Seen(replicas=2, has_order=False, score="9000", waits_to_connect=False, done_age_s=10.0)
WAITS = SEEN._replace(waits_to_connect=True)
NO_CANDIDATE = SEEN._replace(score="None")
WITHHELD = NO_CANDIDATE._replace(is_withheld=True)
CRASHED = NO_CANDIDATE._replace(is_crashed=True)
KEPT = SEEN._replace(is_kept=True)


@pytest.mark.parametrize(
    ("drbd", "seen", "when"),
    [
        (state("Primary", "UpToDate", IN_SYNC), SEEN, Turn.NOW),
        (state("Primary", "UpToDate", AWAY), SEEN, Turn.NEXT),
        (state("Primary", "UpToDate", AWAY), SEEN._replace(done_age_s=LONGEST_S), Turn.NOW),
        (state("Primary", "UpToDate", AWAY), SEEN._replace(done_age_s=-1.0), Turn.NOW),
        (state("Primary", "UpToDate", AWAY), SEEN._replace(done_age_s=None), Turn.NOW),
        (state("Primary", "UpToDate", AWAY), SEEN._replace(has_order=True), Turn.NOW),
        (state("Primary", "UpToDate", AWAY), SEEN._replace(score=None), Turn.NOW),
        (state("Primary", "UpToDate", BLANK), SEEN, Turn.NEXT),
        (state("Primary", "UpToDate", NO_DISK), SEEN, Turn.NOW),
        (state("Primary", "UpToDate", IN_SYNC._replace(disk="Failed")), SEEN, Turn.NOW),
        (state("Primary", "UpToDate", IN_SYNC._replace(disk="Negotiating")), SEEN, Turn.NOW),
        (state("Primary", "Diskless", IN_SYNC), SEEN, Turn.NOW),
        (state("Primary", "UpToDate", REFUSED), SEEN, Turn.NOW),
        (state("Primary", "UpToDate", REFUSED), WAITS, Turn.NEXT),
        (state("Primary", "UpToDate"), SEEN, Turn.NOW),
        (state("Secondary", "UpToDate", AWAY), SEEN, Turn.FREE),
        (state("Secondary", "Outdated", AWAY), NO_CANDIDATE, Turn.NOW),
        (state("Secondary", "Consistent", AWAY), WITHHELD, Turn.FREE),
        (state("Secondary", "Consistent"), CRASHED, Turn.FREE),
        (state("Secondary", "Consistent"), CRASHED._replace(done_age_s=20.0), Turn.NOW),
        (state("Secondary", "UpToDate", AWAY), KEPT, Turn.FREE),
        (state("Secondary", "UpToDate", AWAY), KEPT._replace(done_age_s=20.0), Turn.NOW),
        (state("Secondary", "UpToDate", BLANK), WITHHELD, Turn.NOW),
        (state("Secondary", "Outdated", REFUSED), NO_CANDIDATE, Turn.NOW),
        (
            state("Secondary", "Outdated", REFUSED),
            NO_CANDIDATE._replace(waits_to_connect=True),
            Turn.FREE,
        ),
        (state("Secondary", "Inconsistent", SERVES), NO_CANDIDATE, Turn.NEXT),
        (state("Secondary", "Inconsistent", IN_SYNC), NO_CANDIDATE, Turn.NOW),
        (state("Secondary", "UpToDate", BLANK), SEEN, Turn.NOW),
        (state("Secondary", "Inconsistent", BLANK), SEEN._replace(score="2001"), Turn.LATER),
        (state("Secondary", "Inconsistent", BLANK), NO_CANDIDATE, Turn.NOW),
        (state("Secondary", "Inconsistent", BLANK), SEEN._replace(score=None), Turn.NOW),
    ],
)
def test_when(drbd: ResourceState, seen: Seen, when: Turn) -> None:
    assert monitor_turn.turn(drbd, seen) is when


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
