# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's sync policy: resync rates, hours and priority, checksums, verify schedule; as text.

NamedTuples, not dataclasses: the agents import this on every monitor (see sanctl/model/drbd.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self

from sanctl.errors import Problem, UsageError

_HOURS = re.compile(r"([01][0-9]|2[0-3])-([01][0-9]|2[0-3])")
_SCHEDULE = re.compile(r"(daily|mon|tue|wed|thu|fri|sat|sun)@([01][0-9]|2[0-3])")
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_ALWAYS = "always"
_OFF = "off"

DEFAULT_PRIORITY = 50
#: Redundancy has to come back under load too: with 4 MiB/s a busy gigabyte took minutes.
DEFAULT_RATE_MIN_KIB_S = 32 * 1024
# DRBD's bounds of c-max-rate (drbd_limits.h), which are the narrower ones.
_RATE_LOWEST_KIB = 250
_RATE_HIGHEST_KIB = 4 << 20


class Window(NamedTuple):
    """Hours of the day, on the node's own clock: from `first_hour` until before `end_hour`.

    An end before the beginning is on the next day.
    """

    first_hour: int
    end_hour: int

    def is_open(self, hour: int) -> bool:
        """Whether an hour of the day (0-23) lies in the window."""
        if self.first_hour < self.end_hour:
            return self.first_hour <= hour < self.end_hour
        return hour >= self.first_hour or hour < self.end_hour

    def __str__(self) -> str:
        return f"{self.first_hour:02}-{self.end_hour:02}"


class Schedule(NamedTuple):
    """When a device is verified without an operator's request.

    Attributes:
        day: 0-6 from Monday on, as `time.struct_time` counts; None for every day.
        hour: the hour of the day at which the verify may begin.
    """

    day: int | None
    hour: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `sun@03` or `daily@03`.

        Raises:
            UsageError: the text is neither.
        """
        found = _SCHEDULE.fullmatch(text)
        if found is None:
            raise UsageError(
                Problem(
                    "SAN-SYNC-001",
                    f"{text!r} is no schedule",
                    "a day and an hour: sun@03, daily@03; or off",
                )
            )
        day, hour = found.groups()
        return cls(day=None if day == "daily" else _DAYS.index(day), hour=int(hour))

    def __str__(self) -> str:
        return f"{'daily' if self.day is None else _DAYS[self.day]}@{self.hour:02}"


class SyncPolicy(NamedTuple):
    """How a device is synced.

    Attributes:
        full_above_percent: if more than this share differs, all blocks are sent in one sequence;
            None: only blocks that differ, however many.
        csums: compare checksums before a block is sent, always; without it only after a crash of
            the Primary, when most marked blocks have the same data.
        rate_min_kib_s: the rate of a resync while hosts read and write.
        rate_max_kib_s: the highest rate of a resync; None: the speed of the sync network.
        window: when a resync may run; None: always.
        priority: 0-100, the higher one first when several devices wait.
        verify: when the replicas are compared; None: only at an operator's request.
    """

    full_above_percent: int | None = None
    csums: bool = False
    rate_min_kib_s: int = DEFAULT_RATE_MIN_KIB_S
    rate_max_kib_s: int | None = None
    window: Window | None = None
    priority: int = DEFAULT_PRIORITY
    verify: Schedule | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of the device's attribute `sync`; a key that is missing has its default.

        Raises:
            UsageError: a word is unknown, or has no valid value; all such words are listed.
        """
        problems: list[Problem] = []
        values: dict[str, str] = {}
        for word in text.split():
            key, sign, value = word.partition("=")
            if not sign or key not in _READERS:
                problems.append(
                    Problem("SAN-SYNC-002", f"{word!r} is no part of a sync policy", _KNOWN)
                )
            else:
                values[key] = value
        return cls().changed(values, problems)

    def changed(self, values: Mapping[str, str], problems: list[Problem] | None = None) -> Self:
        """Return this policy with other values, given as text.

        `problems` were found before.

        Raises:
            UsageError: a value is invalid, or contradicts another; all problems are listed.
        """
        found = list(problems or ())
        given: list[Any] = list(self)
        for key, value in values.items():
            try:
                given[list(_READERS).index(key)] = _READERS[key](value)
            except UsageError as error:
                found.extend(error.problems)
        result = type(self)(*given)
        if result.rate_max_kib_s is not None and result.rate_max_kib_s < result.rate_min_kib_s:
            found.append(
                Problem(
                    "SAN-SYNC-004",
                    f"a rate of at least {result.rate_min_kib_s} KiB/s and at most"
                    f" {result.rate_max_kib_s} KiB/s contradict each other",
                    "--rate-max must not be less than --rate-min",
                )
            )
        if found:
            raise UsageError(*found)
        return result

    def __str__(self) -> str:
        """Return the text that `parse` reads: only values that are not the default."""
        return " ".join(
            f"{key}={_written(value)}"
            for key, value, default in zip(_READERS, self, DEFAULT_SYNC_POLICY, strict=True)
            if value != default
        )


#: The policy of a device for which no option was given.
DEFAULT_SYNC_POLICY = SyncPolicy()


def _written(value: object) -> str:
    if value is True or value is False:
        return "on" if value else _OFF
    return str(value)


def _percent(text: str) -> int | None:
    if text == "never":
        return None
    return _whole(text, "SAN-SYNC-003", 1, 99, "--full-above takes 1 to 99 percent, or never")


def _switch(text: str) -> bool:
    if text not in {"on", _OFF}:
        raise UsageError(Problem("SAN-SYNC-003", f"{text!r} is neither on nor off"))
    return text == "on"


def _rate(text: str) -> int:
    bounds = f"a rate is {_RATE_LOWEST_KIB}K to 4G a second: 500K, 32M, 1G"
    unit = {"K": 0, "M": 10, "G": 20}.get(text[-1:].upper())
    if unit is None:
        # As it is stored: KiB.
        return _whole(text, "SAN-SYNC-003", _RATE_LOWEST_KIB, _RATE_HIGHEST_KIB, bounds)
    count = _whole(text[:-1], "SAN-SYNC-003", 1, _RATE_HIGHEST_KIB, bounds) << unit
    return _whole(str(count), "SAN-SYNC-003", _RATE_LOWEST_KIB, _RATE_HIGHEST_KIB, bounds)


def _ceiling(text: str) -> int | None:
    return None if text == "network" else _rate(text)


def _window(text: str) -> Window | None:
    if text == _ALWAYS:
        return None
    found = _HOURS.fullmatch(text)
    if found is None or found[1] == found[2]:
        raise UsageError(
            Problem(
                "SAN-SYNC-003",
                f"{text!r} are no hours",
                "two hours of the day: 22-06; or always",
            )
        )
    return Window(int(found[1]), int(found[2]))


def _priority(text: str) -> int:
    return _whole(text, "SAN-SYNC-003", 0, 100, "--priority takes 0 to 100")


def _schedule(text: str) -> Schedule | None:
    return None if text == _OFF else Schedule.parse(text)


def _whole(text: str, code: str, lowest: int, highest: int, hint: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(Problem(code, f"{text!r} is not a whole number", hint))
    if not lowest <= int(text) <= highest:
        raise UsageError(Problem(code, f"{text} is out of bounds", hint))
    return int(text)


# In the order of SyncPolicy's fields.
_READERS: dict[str, Callable[[str], object]] = {
    "full-above": _percent,
    "csums": _switch,
    "rate-min": _rate,
    "rate-max": _ceiling,
    "window": _window,
    "priority": _priority,
    "verify": _schedule,
}
_KNOWN = f"known are {', '.join(_READERS)}; an older sanctl may know less than the newest"
