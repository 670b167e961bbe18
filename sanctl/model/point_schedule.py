# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's schedule of restore points as the CIB has it, and the slot that a point is for.

NamedTuples, not dataclasses: the agents read them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from sanctl.errors import Problem, UsageError
from sanctl.model.point_hook import PointHook

#: The beginning of the name and the id of the property with a device's schedule, in the set of the
#: restore points.
SCHEDULE_PREFIX = "sanctl-schedule."
#: The beginning of the names of restore points that a schedule has made.
NAME_PREFIX = "auto-"

_UNITS = {"w": 604800, "d": 86400, "h": 3600, "m": 60}
_RULE = re.compile(r"(?:\*/)?([0-9]{1,6})([a-z]) +keep +([0-9]{1,6})")
_WRITTEN = re.compile(r"([0-9]{1,6})([mhdw])=([0-9]{1,6})")
_SLOT = re.compile(r"([0-9]{1,12})/([0-9]{1,6}[mhdw](?:,[0-9]{1,6}[mhdw])*)")
#: 1970-01-05, a Monday, 00:00 UTC: a slot of a week begins on Mondays.
_MONDAY_S = 4 * 86400
_LONGEST_S = 52 * 604800
_GROUP = "group="


def interval_text(every_s: int) -> str:
    """Return an interval with the largest unit that fits: 15m, 1h, 1d, 1w."""
    unit = next(unit for unit, seconds in _UNITS.items() if every_s % seconds == 0)
    return f"{every_s // _UNITS[unit]}{unit}"


class Rule(NamedTuple):
    """How often a restore point is made, and how many of those are kept.

    Attributes:
        every_s: the interval in seconds: whole minutes.
        keep: how many, at least one.
    """

    every_s: int
    keep: int

    @property
    def interval(self) -> str:
        """The interval, such as 15m: what the points of this rule carry."""
        return interval_text(self.every_s)

    def slot_of(self, moment_s: float) -> int:
        """Return when the slot began in which a moment lies, in seconds since 1970.

        In UTC, so that all nodes mean the same slot, and none is left out or comes twice when
        summer time begins or ends.
        """
        return _MONDAY_S + (int(moment_s) - _MONDAY_S) // self.every_s * self.every_s

    def __str__(self) -> str:
        return f"{self.interval} keep {self.keep}"


class PointSchedule(NamedTuple):
    """When restore points of a device are made by themselves.

    Attributes:
        set_s: since when it has these rules, in seconds since 1970.
        rules: at least one, the shortest interval first.
        hook: what makes the application's data consistent in each of its points; None: nothing.
        group: the devices that have this schedule together, this one among them, sorted: their
            points are of the same moments, with one run of the hook; empty: this device alone.
    """

    set_s: int
    rules: tuple[Rule, ...]
    hook: PointHook | None = None
    group: tuple[str, ...] = ()

    @property
    def value(self) -> str:
        """The value of its property."""
        # A release without hooks, without groups, or without both together, does not read such a
        # schedule, and so makes no point without its hook, or of a moment of its own.
        hook = (str(self.hook),) if self.hook else ()
        group = (f"{_GROUP}{','.join(self.group)}",) if self.group else ()
        rules = (f"{rule.interval}={rule.keep}" for rule in self.rules)
        return " ".join((str(self.set_s), *rules, *hook, *group))

    @classmethod
    def parse(cls, value: str) -> PointSchedule | None:
        """Read a property; None for one that is no schedule as this release writes them."""
        first, *words = value.split(" ")
        group: tuple[str, ...] = ()
        if words and words[-1].startswith(_GROUP):
            group = tuple(words.pop().removeprefix(_GROUP).split(","))
        hook = PointHook.parse(words[-1]) if words else None
        words = words[:-1] if hook else words
        found = [_WRITTEN.fullmatch(word) for word in words]
        if not first.isdecimal() or not words:
            return None
        rules = [Rule(int(each[1]) * _UNITS[each[2]], int(each[3])) for each in found if each]
        is_whole = len(rules) == len(words) and all(rule.every_s and rule.keep for rule in rules)
        return cls(int(first), tuple(sorted(rules)), hook, group) if is_whole else None

    @property
    def keeps(self) -> int:
        """The most restore points that it keeps."""
        return sum(rule.keep for rule in self.rules)

    def __str__(self) -> str:
        return ", ".join(map(str, self.rules))


def schedule_id(device: str) -> str:
    """Return the id and the name of the property with a device's schedule."""
    return f"{SCHEDULE_PREFIX}{device}"


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Read rules as operators write them: `*/15m keep 8, 1h keep 24, 1d keep 7`.

    Raises:
        UsageError: they are none; all that is wrong is listed.
    """
    problems: list[Problem] = []
    rules: list[Rule] = []
    for part in text.split(","):
        found = _RULE.fullmatch(part.strip())
        if found is None or found[2] not in _UNITS:
            problems.append(
                Problem(
                    "SAN-SCHED-001",
                    f"{part.strip()!r} is no rule for restore points",
                    "an interval in m, h, d or w, and how many to keep: '15m keep 8, 1h keep 24, "
                    "1d keep 7'; or off",
                )
            )
            continue
        rule = Rule(int(found[1]) * _UNITS[found[2]], int(found[3]))
        if not _UNITS["m"] <= rule.every_s <= _LONGEST_S or not rule.keep:
            problems.append(
                Problem(
                    "SAN-SCHED-002",
                    f"{part.strip()!r} cannot be kept",
                    "an interval is 1 minute to 52 weeks, and at least one restore point is kept",
                )
            )
        elif any(rule.every_s == other.every_s for other in rules):
            problems.append(
                Problem(
                    "SAN-SCHED-002",
                    f"there are two rules for an interval of {rule.interval}",
                    "one rule for each interval",
                )
            )
        else:
            rules.append(rule)
    if problems:
        raise UsageError(*problems)
    return tuple(sorted(rules))


class ScheduledSlot(NamedTuple):
    """What a schedule made a restore point for.

    Attributes:
        begin_s: when the slot of the shortest of its rules began, in seconds since 1970.
        intervals: the intervals of the rules that it was made for.
    """

    begin_s: int
    intervals: tuple[str, ...]

    @classmethod
    def of(cls, rules: Iterable[Rule], now_s: float) -> ScheduledSlot:
        """Return the slot of rules, of which there is at least one, at a moment."""
        in_order = sorted(rules)
        return cls(in_order[0].slot_of(now_s), tuple(rule.interval for rule in in_order))

    @classmethod
    def parse(cls, text: str) -> ScheduledSlot | None:
        """Read what `str` wrote; None for anything else."""
        found = _SLOT.fullmatch(text)
        return cls(int(found[1]), tuple(found[2].split(","))) if found else None

    def __str__(self) -> str:
        return f"{self.begin_s}/{','.join(self.intervals)}"
