# SPDX-License-Identifier: GPL-2.0-or-later
"""The result of a device's latest verify, and an operator's request for one, as value and text."""

from __future__ import annotations

from typing import NamedTuple, Self

RUNNING = "running"
SAME = "same"
DIFFERS = "differs"
INTERRUPTED = "interrupted"
REPAIRING = "repairing"
REPAIRED = "repaired"

#: So many differing ranges are published; all of them are in the node's history.
PUBLISHED_RANGES = 16


class VerifyRequest(NamedTuple):
    """An operator's request for a verify.

    Attributes:
        number: its time, in seconds since 1970; a later request replaces an earlier one.
        is_repair: blocks that differ are to be sent again from the Primary.
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


class VerifyResult(NamedTuple):
    """A verify, as one node has recorded it.

    Attributes:
        order: the number of the request; a schedule gives its own.
        result: `running`, `same`, `differs`, `interrupted`, `repairing` or `repaired`.
        began_s: start time, in seconds since 1970.
        ended_s: end time; 0 while it has not ended.
        found_kib: KiB that differed.
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
        """Read the text of `str`, None where it is malformed."""
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
    def has_ended(self) -> bool:
        """Whether it says something of the replicas: it came to its end, or has found differences.

        A repair that was interrupted has, too.
        """
        if self.result == INTERRUPTED:
            return self.found_kib > 0
        return self.result in {SAME, DIFFERS, REPAIRED}

    @property
    def published(self) -> str:
        """The same as one word, with the first of the ranges only."""
        text = str(self._replace(ranges=self.ranges[:PUBLISHED_RANGES]))
        return text.replace(" ", "/")


class VerifyRecord(NamedTuple):
    """What a node knows of a device's verifies beside the latest, which may not have ended.

    Attributes:
        scheduled_s: since when the device has its schedule, in seconds since 1970; 0: not known.
        ended: the newest that has ended (`VerifyResult.has_ended`), without its ranges; None:
            none has.
    """

    scheduled_s: int
    ended: VerifyResult | None

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the text of `str`, None where it is malformed."""
        since, sign, rest = text.partition("@")
        ended = VerifyResult.parse(rest) if rest else None
        if not (sign and since.isascii() and since.isdecimal()) or (rest and ended is None):
            return None
        return cls(int(since), ended)

    def __str__(self) -> str:
        return f"{self.scheduled_s}@{'' if self.ended is None else self.ended._replace(ranges=())}"


def parse_published(text: str) -> VerifyResult | None:
    """Read what `Verification.published` wrote."""
    return VerifyResult.parse(text.replace("/", " "))
