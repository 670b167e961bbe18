# SPDX-License-Identifier: GPL-2.0-or-later
"""When a verify starts, and when its differences are repaired."""

from __future__ import annotations

import time

import pytest

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.sync_policy import Schedule
from sanctl.model.verify_result import (
    DIFFERS,
    INTERRUPTED,
    REPAIRED,
    REPAIRING,
    RUNNING,
    SAME,
    VerifyRequest,
    VerifyResult,
)
from sanctl.plan.drbd.verify_schedule import (
    WAITS_AT_MOST_S,
    differing_kib,
    has_peer_found_differences,
    is_due,
    is_log_whole,
    is_order_open,
    looks_within_s,
    may_repair,
    may_start_verify,
    needs_completion,
)

NOW = 1_800_000_000
PEER = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 8)
STANDBY = ResourceState("vm1", "Secondary", "no", "UpToDate", 1024, (PEER,))
ACTIVE = STANDBY._replace(
    role="Primary", peers=(PEER._replace(role="Secondary", out_of_sync_kib=0),)
)


def test_the_primary_verifies() -> None:
    assert may_start_verify(ACTIVE)
    assert not may_start_verify(STANDBY)
    assert not may_start_verify(ACTIVE._replace(peers=()))
    behind = ACTIVE.peers[0]._replace(disk="Inconsistent")
    assert not may_start_verify(ACTIVE._replace(peers=(behind,)))


@pytest.mark.parametrize(
    ("order", "latest", "now", "expected"),
    [
        (None, None, NOW, False),
        (VerifyRequest(NOW, False), None, NOW + 5, True),
        (VerifyRequest(NOW, False), VerifyResult(NOW - 9, SAME, 1), NOW + 5, True),
        (VerifyRequest(NOW, False), VerifyResult(NOW, SAME, 1), NOW + 5, False),
        (VerifyRequest(NOW, False), VerifyResult(NOW + 1, SAME, 1), NOW + 5, False),
        (VerifyRequest(NOW, False), None, NOW + 24 * 3600, False),
        # Begun while the clock was ahead: the order was never open.
        (VerifyRequest(NOW, False), VerifyResult(NOW + 9999, SAME, 1), NOW + 5, True),
        (VerifyRequest(NOW + 9999, False), VerifyResult(NOW + 9999, SAME, 1), NOW + 5, False),
    ],
)
def test_an_order_is_carried_out_once_or_never(
    order: VerifyRequest | None, latest: VerifyResult | None, now: int, expected: bool
) -> None:
    assert is_order_open(order, latest, now) == expected


def test_a_scheduled_verify_starts_once_in_its_hour() -> None:
    sunday = time.strptime("2026-11-22 03:20:10", "%Y-%m-%d %H:%M:%S")
    schedule = Schedule(day=6, hour=3)
    began = int(time.mktime(sunday))
    assert is_due(schedule, None, sunday, waits_since_s=None)
    assert is_due(schedule, VerifyResult(1, SAME, began - 7 * 86400), sunday, waits_since_s=None)
    assert is_due(schedule, VerifyResult(1, SAME, began - 1211), sunday, waits_since_s=None)
    assert not is_due(schedule, VerifyResult(1, SAME, began - 1209), sunday, waits_since_s=None)
    # The clock was ahead, and put back since: none would begin until that moment.
    assert is_due(schedule, VerifyResult(1, SAME, began + 86400), sunday, waits_since_s=None)
    assert not is_due(Schedule(day=5, hour=3), None, sunday, waits_since_s=None)
    assert not is_due(Schedule(day=6, hour=4), None, sunday, waits_since_s=None)
    assert is_due(Schedule(day=None, hour=3), None, sunday, waits_since_s=None)


@pytest.mark.parametrize(
    ("waited_s", "latest_s", "expected"),
    [
        (WAITS_AT_MOST_S - 1, None, True),
        (WAITS_AT_MOST_S, None, False),
        (-1, None, False),
        (7200, 7201, True),
        (7200, 7200, False),
        (7200, 3600, False),
    ],
)
def test_one_that_waits_for_its_turn_starts_after_its_hour(
    waited_s: int, latest_s: int | None, expected: bool
) -> None:
    """Unless one began since: `latest_s` is how long ago that was."""
    now = time.strptime("2026-11-22 05:20:10", "%Y-%m-%d %H:%M:%S")
    now_s = int(time.mktime(now))
    latest = None if latest_s is None else VerifyResult(1, SAME, now_s - latest_s)
    found = is_due(Schedule(day=6, hour=3), latest, now, waits_since_s=now_s - waited_s)
    assert found is expected


@pytest.mark.parametrize(
    ("text", "day", "waits_since_s", "expected"),
    [
        # In its hour, until one has begun; and for as long as it waits for its turn.
        ("2026-11-22 03:20:10", 6, None, 55.0),
        ("2026-11-22 03:20:10", None, None, 55.0),
        ("2026-11-22 05:20:10", 6, 1, 55.0),
        # Before its hour, and the day before.
        ("2026-11-22 02:59:50", 6, None, 10.0 + 9.0),
        ("2026-11-22 02:00:00", None, None, 3600.0 + 9.0),
        ("2026-11-22 02:59:50", 5, None, None),
        ("2026-11-22 01:59:50", 6, None, None),
        ("2026-11-22 04:00:00", 6, None, None),
    ],
)
def test_a_verify_is_looked_for_within_a_minute_of_its_hour(
    text: str, day: int | None, waits_since_s: int | None, expected: float | None
) -> None:
    now = time.strptime(text, "%Y-%m-%d %H:%M:%S")
    found = looks_within_s(
        Schedule(day, 3), None, now, waits_since_s=waits_since_s, every_s=55.0, after_s=9.0
    )
    assert found == expected


def test_one_that_has_begun_is_not_looked_for_before_its_next_hour() -> None:
    now = time.strptime("2026-11-22 03:20:10", "%Y-%m-%d %H:%M:%S")
    latest = VerifyResult(1, SAME, int(time.mktime(now)) - 60)
    assert (
        looks_within_s(Schedule(6, 3), latest, now, waits_since_s=None, every_s=55.0, after_s=9.0)
        is None
    )


def test_a_schedule_at_midnight_is_looked_for_on_the_next_day() -> None:
    now = time.strptime("2026-11-21 23:59:00", "%Y-%m-%d %H:%M:%S")
    for day, expected in ((6, 60.0), (5, None)):
        found = looks_within_s(
            Schedule(day, 0), None, now, waits_since_s=None, every_s=55.0, after_s=0.0
        )
        assert found == expected


def test_only_a_standby_in_contact_repairs_and_only_what_is_marked() -> None:
    order = VerifyRequest(NOW, True)
    assert may_repair(order, None, STANDBY, NOW + 9)
    assert may_repair(order, VerifyResult(NOW - 5, REPAIRED, 1), STANDBY, NOW + 9)
    assert not may_repair(None, None, STANDBY, NOW + 9)
    assert not may_repair(VerifyRequest(NOW, False), None, STANDBY, NOW + 9)
    assert not may_repair(order, None, STANDBY, NOW + 24 * 3600)
    assert not may_repair(order, VerifyResult(NOW, REPAIRED, 1), STANDBY, NOW + 9)
    assert not may_repair(order, None, STANDBY._replace(role="Primary"), NOW + 9)
    for change in (
        {"role": "Secondary"},
        {"out_of_sync_kib": 0},
        {"replication": "VerifyT"},
        {"disk": "Inconsistent"},
        {"connection": "Connecting"},
    ):
        peer = PEER._replace(**change)
        assert not may_repair(order, None, STANDBY._replace(peers=(peer,)), NOW + 9), change


def test_a_repair_whose_connection_never_ended_is_begun_again() -> None:
    order = VerifyRequest(NOW, True)
    own = VerifyResult(NOW, REPAIRING, NOW + 9)
    assert not may_repair(order, own, STANDBY, NOW + 9)
    assert not may_repair(order, own, STANDBY, NOW + 38)
    assert may_repair(order, own, STANDBY, NOW + 39)
    # The clock was set back.
    assert may_repair(order, own, STANDBY, NOW + 8)
    sent = STANDBY._replace(peers=(PEER._replace(out_of_sync_kib=0),))
    assert not may_repair(order, own, sent, NOW + 39)
    assert may_repair(order, own._replace(result=INTERRUPTED), STANDBY, NOW + 9)


def test_an_agent_completes_a_verify_that_it_has_not_observed() -> None:
    order = VerifyRequest(NOW, True)
    alone = STANDBY._replace(peers=(PEER._replace(connection="Connecting"),))
    assert needs_completion(order, None, STANDBY, NOW + 9)
    assert needs_completion(order, VerifyResult(NOW, REPAIRING, NOW + 9), STANDBY, NOW + 10)
    assert not needs_completion(order, VerifyResult(NOW, REPAIRING, NOW + 9), alone, NOW + 10)
    assert needs_completion(None, VerifyResult(NOW, RUNNING, NOW), alone, NOW + 10)
    assert needs_completion(None, VerifyResult(NOW, RUNNING, NOW), ACTIVE, NOW + 10)
    assert not needs_completion(order, VerifyResult(NOW, REPAIRED, NOW), STANDBY, NOW + 10)
    assert not needs_completion(order, VerifyResult(NOW, DIFFERS, NOW), ACTIVE, NOW + 10)
    assert not needs_completion(VerifyRequest(NOW, False), None, STANDBY, NOW + 9)
    assert not needs_completion(None, None, STANDBY, NOW + 9)


def test_the_result_of_another_verify_does_not_count() -> None:
    order = VerifyRequest(NOW, True)
    assert has_peer_found_differences(order, VerifyResult(NOW, DIFFERS, 1))
    assert not has_peer_found_differences(order, VerifyResult(NOW, SAME, 1))
    assert not has_peer_found_differences(order, VerifyResult(NOW - 1, DIFFERS, 1))
    assert not has_peer_found_differences(order, None)


def test_a_result_ahead_keeps_no_repair_from_beginning() -> None:
    behind = PEER._replace(out_of_sync_kib=8)
    order, ahead = VerifyRequest(NOW, True), VerifyResult(NOW + 9999, REPAIRED, NOW + 9999)
    assert may_repair(order, ahead, STANDBY._replace(peers=(behind,)), NOW + 5)
    late = ahead._replace(order=NOW + 5)
    assert not may_repair(order, late, STANDBY._replace(peers=(behind,)), NOW + 5)


@pytest.mark.parametrize(
    ("marked", "logged", "whole", "kib"),
    [
        (156, 156, True, 156),
        (156, 4, True, 156),
        (156, 156, False, 156),
        (156, 0, False, 156),
        (156, 0, True, 0),
        (0, 8, True, None),
        (0, 8, False, None),
        (0, 0, True, 0),
        (0, 0, False, 0),
    ],
)
def test_what_is_marked_differs_unless_drbd_has_compared_it_as_equal(
    marked: int, logged: int, whole: bool, kib: int | None
) -> None:
    assert differing_kib(marked, logged_kib=logged, is_log_whole=whole) == kib


@pytest.mark.parametrize(
    ("numbers", "since", "is_whole"),
    [
        ([1, 2, 3, 4], 2, True),
        ([3, 4], 2, True),
        ([1, 2], 2, True),
        ([4, 5], 2, False),
        ([1, 2, 3, 5], 2, False),
        ([], 2, True),
        ([1, 2], -1, False),
    ],
)
def test_a_log_with_a_gap_is_not_whole(numbers: list[int], since: int, is_whole: bool) -> None:
    assert is_log_whole(numbers, since) is is_whole
