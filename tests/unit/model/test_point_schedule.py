# SPDX-License-Identifier: GPL-2.0-or-later
"""Schedules of restore points as operators write them, and as the CIB has them."""

from __future__ import annotations

import calendar

import pytest

from sanctl.errors import UsageError
from sanctl.model.point_schedule import PointSchedule, Rule, ScheduledSlot, parse_rules

TEXT = "15m keep 8, 1h keep 24, 1d keep 7"


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    return calendar.timegm((year, month, day, hour, minute, 0))


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("*/15m keep 8, 1h keep 24, 1d keep 7", TEXT),
        ("1d keep 7,60m keep 24 ,  15m  keep 8", TEXT),
        ("7d keep 2", "1w keep 2"),
        ("90m keep 1", "90m keep 1"),
        ("1m keep 3", "1m keep 3"),
        ("52w keep 1", "52w keep 1"),
    ],
)
def test_rules(text: str, written: str) -> None:
    schedule = PointSchedule(1764033300, parse_rules(text))
    assert str(schedule) == written
    assert PointSchedule.parse(schedule.value) == schedule
    assert parse_rules(str(schedule)) == schedule.rules
    assert schedule.keeps == sum(rule.keep for rule in schedule.rules)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "SAN-SCHED-001"),
        ("15m", "SAN-SCHED-001"),
        ("15 keep 8", "SAN-SCHED-001"),
        ("15s keep 8", "SAN-SCHED-001"),
        ("-15m keep 8", "SAN-SCHED-001"),
        ("1.5h keep 8", "SAN-SCHED-001"),
        ("\u0661h keep 8", "SAN-SCHED-001"),
        ("15m keep 8,", "SAN-SCHED-001"),
        ("15m keep 8; rm -rf /", "SAN-SCHED-001"),
        ("0m keep 8", "SAN-SCHED-002"),
        ("15m keep 0", "SAN-SCHED-002"),
        ("53w keep 1", "SAN-SCHED-002"),
        ("1h keep 8, 60m keep 9", "SAN-SCHED-002"),
    ],
)
def test_rules_that_are_none(text: str, code: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_rules(text)
    assert {problem.code for problem in refused.value.problems} == {code}


def test_all_that_is_wrong_is_listed() -> None:
    with pytest.raises(UsageError) as refused:
        parse_rules("often, 15m keep 0, 1h keep 2, 1h keep 3")
    codes = [problem.code for problem in refused.value.problems]
    assert codes == ["SAN-SCHED-001", "SAN-SCHED-002", "SAN-SCHED-002"]


@pytest.mark.parametrize(
    "value", ["", "1", "x 15m=8", "1 15m", "1 15m=8 later=x", "1 0m=8", "1 15m=0", "1  15m=8"]
)
def test_a_property_that_is_no_schedule(value: str) -> None:
    assert PointSchedule.parse(value) is None


def test_slots_are_in_utc_and_weeks_begin_on_mondays() -> None:
    quarter, day, week = Rule(900, 1), Rule(86400, 1), Rule(604800, 1)
    moment = at(2026, 11, 25, 0, 44)
    assert quarter.slot_of(moment) == at(2026, 11, 25, 0, 30)
    assert quarter.slot_of(at(2026, 11, 25)) == at(2026, 11, 25)
    assert day.slot_of(moment) == at(2026, 11, 25)
    assert week.slot_of(moment) == at(2026, 11, 23)


def test_slots_do_not_depend_on_summer_time(monkeypatch: pytest.MonkeyPatch) -> None:
    import time  # noqa: PLC0415

    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    hour, begin = Rule(3600, 1), at(2026, 10, 24, 22)
    slots = [hour.slot_of(begin + minutes * 60) for minutes in range(0, 8 * 60, 15)]
    assert len(set(slots)) == 8
    monkeypatch.undo()
    time.tzset()


def test_a_slot_is_read_as_it_was_written() -> None:
    slot = ScheduledSlot.of((Rule(3600, 1), Rule(900, 2)), at(2026, 11, 25, 1, 3))
    assert slot == ScheduledSlot(at(2026, 11, 25, 1), ("15m", "1h"))
    assert ScheduledSlot.parse(str(slot)) == slot
    for wrong in ("", "5", "5/", "x/15m", "5/15", "5/15m,", "5/15m 1h"):
        assert ScheduledSlot.parse(wrong) is None
