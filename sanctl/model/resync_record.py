# SPDX-License-Identifier: GPL-2.0-or-later
"""What is remembered of a resync: which kind ran, why, and what it moved. Pure, and light."""

from __future__ import annotations

from typing import NamedTuple, Self

#: The node attribute by which a node says what runs there. It never enters the CIB.
RUNNING_ATTRIBUTE = "sanctl.sync"

FAST = "fast"
FULL = "full"

#: It runs, or waits for its turn or its peer.
RUNNING = "running"
#: The replica is being called out of sync as a whole, before all of it is sent.
WIDENING = "widening"
DONE = "done"


class Resync(NamedTuple):
    """The latest resync of a replica, as its target saw it.

    Attributes:
        kind: `fast`, only what differed; `full`, everything in one sequence.
        why: the reason of that, in words.
        stage: `running`, `widening` or `done`.
        began_s: when, in seconds since 1970.
        ended_s: when it ended; 0 while it has not.
        changed_kib: what was marked as different when it began.
        received_kib: the data that came over the connection meanwhile, hosts' writes included.
    """

    kind: str
    why: str
    stage: str
    began_s: int
    ended_s: int = 0
    changed_kib: int = 0
    received_kib: int = 0

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` wrote, None where it does not read."""
        parts = text.strip().split(",")
        if len(parts) != len(cls._fields) or not all(part.isdecimal() for part in parts[3:]):
            return None
        return cls(parts[0], parts[1].replace("+", " "), parts[2], *map(int, parts[3:]))

    def __str__(self) -> str:
        """Write it as one word."""
        return ",".join(str(value).replace(" ", "+") for value in self)


class Running(NamedTuple):
    """What a node says of a resync or a verify that runs there.

    Attributes:
        device: the device.
        kind: `fast`, `full` or `verify`.
        waits: what it waits for, in words; empty while it runs.
        left_kib: what is left.
        total_kib: what there was to do.
        rate_kib: how much is done in a second.
        began_s: when it began, in seconds since 1970.
    """

    device: str
    kind: str
    waits: str
    left_kib: int
    total_kib: int
    rate_kib: int
    began_s: int

    @property
    def left_s(self) -> int | None:
        """How many seconds it will take at this rate, None when that cannot be told."""
        return None if self.waits or not self.rate_kib else -(-self.left_kib // self.rate_kib)

    @property
    def brief(self) -> str:
        """Say it in a few words."""
        if self.waits:
            return f"{self.device} waits {self.waits}"
        left = "" if self.left_s is None else f", {self.left_s} s left"
        return f"{self.device} {self.kind} {self.done_percent:.0f}%{left}"

    @property
    def done_percent(self) -> float:
        """How much of it is done."""
        if self.total_kib <= 0:
            return 100.0
        return max(0.0, min(100.0, 100.0 * (1 - self.left_kib / self.total_kib)))


def write_running(entries: tuple[Running, ...]) -> str:
    """Write what a node has to say, as one line."""
    return ";".join(",".join(str(value).replace(" ", "+") for value in entry) for entry in entries)


def parse_running(text: str) -> tuple[Running, ...]:
    """Read what `write_running` wrote; what does not read is left out."""
    found = []
    for entry in text.split(";"):
        parts = entry.split(",")
        if len(parts) == len(Running._fields) and all(p.isdecimal() for p in parts[3:]):
            waits = parts[2].replace("+", " ")
            found.append(Running(parts[0], parts[1], waits, *map(int, parts[3:])))
    return tuple(found)
