# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's latest resync (kind, reason, KiB), and the progress of resyncs on a node, as text."""

from __future__ import annotations

from typing import NamedTuple, Self

#: The private node attribute with a node's running resyncs and verifies; never in the CIB.
RUNNING_ATTRIBUTE = "sanctl.sync"

FAST = "fast"
FULL = "full"

#: The resync runs, or waits for its turn or its peer.
RUNNING = "running"
#: The replica is being marked as out of sync as a whole, before all of it is sent.
INVALIDATING = "widening"
DONE = "done"


class ResyncRecord(NamedTuple):
    """The latest resync of a replica, as the node of the sync target recorded it.

    Attributes:
        kind: `fast`, only blocks that differed; `full`, all blocks in one sequence.
        why: the reason for the kind, in words.
        stage: `running`, `widening` (INVALIDATING) or `done`.
        began_s: start time, in seconds since 1970.
        ended_s: end time; 0 while it has not ended.
        changed_kib: KiB marked as out of sync when it began.
        received_kib: KiB received over the connection meanwhile, hosts' writes included.
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
        """Read the text of `str`, None where it is malformed."""
        parts = text.strip().split(",")
        if len(parts) != len(cls._fields) or not all(part.isdecimal() for part in parts[3:]):
            return None
        return cls(parts[0], parts[1].replace("+", " "), parts[2], *map(int, parts[3:]))

    def __str__(self) -> str:
        """Return the record as one word."""
        return ",".join(str(value).replace(" ", "+") for value in self)


class RunningSync(NamedTuple):
    """A resync or a verify that runs on a node, as that node publishes it.

    Attributes:
        device: the device.
        kind: `fast`, `full` or `verify`.
        waits: what the resync waits for, in words; empty while it runs.
        left_kib: KiB left to do.
        total_kib: KiB to do when it began.
        rate_kib_s: KiB done in a second.
        began_s: start time, in seconds since 1970.
    """

    device: str
    kind: str
    waits: str
    left_kib: int
    total_kib: int
    rate_kib_s: int
    began_s: int

    @property
    def left_s(self) -> int | None:
        """The seconds that are left at this rate, None when not known."""
        return None if self.waits or not self.rate_kib_s else -(-self.left_kib // self.rate_kib_s)

    @property
    def brief(self) -> str:
        """Describe the progress in a few words."""
        if self.waits:
            return f"{self.device} waits {self.waits}"
        left = "" if self.left_s is None else f", {self.left_s} s left"
        return f"{self.device} {self.kind} {self.done_percent:.0f}%{left}"

    @property
    def done_percent(self) -> float:
        """The share that is done."""
        if self.total_kib <= 0:
            return 100.0
        return max(0.0, min(100.0, 100.0 * (1 - self.left_kib / self.total_kib)))


def format_running(entries: tuple[RunningSync, ...]) -> str:
    """Return the value of a node's RUNNING_ATTRIBUTE."""
    return ";".join(",".join(str(value).replace(" ", "+") for value in entry) for entry in entries)


def parse_running(text: str) -> tuple[RunningSync, ...]:
    """Read the text of `format_running`; malformed entries are left out."""
    found = []
    for entry in text.split(";"):
        parts = entry.split(",")
        if len(parts) == len(RunningSync._fields) and all(p.isdecimal() for p in parts[3:]):
            waits = parts[2].replace("+", " ")
            found.append(RunningSync(parts[0], parts[1], waits, *map(int, parts[3:])))
    return tuple(found)
