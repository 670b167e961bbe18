# SPDX-License-Identifier: GPL-2.0-or-later
"""One comparison of a device's replicas, block by block. Pure, and light."""

from __future__ import annotations

from typing import NamedTuple, Self

RUNNING = "running"
SAME = "same"
DIFFERS = "differs"
INTERRUPTED = "interrupted"
REPAIRING = "repairing"
REPAIRED = "repaired"

#: So many ranges are told to the cluster; all of them are in the node's history.
SHOWN_RANGES = 16


class Order(NamedTuple):
    """What an operator asked for.

    Attributes:
        number: when it was asked, in seconds since 1970; a later one replaces an earlier one.
        is_repair: what is found is to be sent anew from the copy that serves.
    """

    number: int
    is_repair: bool

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `1792396800` or `1792396800:repair`; None for anything else."""
        number, sign, rest = text.partition(":")
        if not (number.isascii() and number.isdecimal()) or rest != ("repair" if sign else ""):
            return None
        return cls(int(number), bool(sign))

    def __str__(self) -> str:
        return f"{self.number}:repair" if self.is_repair else str(self.number)


class Verification(NamedTuple):
    """A comparison, as one node knows it.

    Attributes:
        order: the number of the order it follows; a schedule gives its own.
        result: `running`, `same`, `differs`, `interrupted`, `repairing` or `repaired`.
        began_s: when, in seconds since 1970.
        ended_s: when it ended; 0 while it has not.
        found_kib: how much differed.
        ranges: where, as `FIRST+LENGTH` in bytes.
    """

    order: int
    result: str
    began_s: int
    ended_s: int = 0
    found_kib: int = 0
    ranges: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` wrote, None where it does not read."""
        parts = text.strip().split(",")
        numbers = [parts[0], *parts[2:5]]
        if len(parts) != len(cls._fields) or not all(number.isdecimal() for number in numbers):
            return None
        order, began, ended, found = map(int, numbers)
        return cls(order, parts[1], began, ended, found, tuple(parts[5].split()))

    def __str__(self) -> str:
        numbers = f"{self.began_s},{self.ended_s},{self.found_kib}"
        return f"{self.order},{self.result},{numbers},{' '.join(self.ranges)}"

    @property
    def shown(self) -> str:
        """The same as one word, with the first of the ranges only."""
        text = str(self._replace(ranges=self.ranges[:SHOWN_RANGES]))
        return text.replace(" ", "/")


def parse_shown(text: str) -> Verification | None:
    """Read what `Verification.shown` wrote."""
    return Verification.parse(text.replace("/", " "))
