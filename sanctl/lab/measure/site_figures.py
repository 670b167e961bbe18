# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of a failover to a copy at a second site, and of the way home. Pure."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.ledger_writer import Record, RecordKind

#: From the command that makes a device of a chosen point until a host can write to it.
FAILOVER_GOAL_S = 60.0
#: From the last write answered there until the first one answered at home.
TURN_GOAL_S = 10.0
#: What may at most come home for a byte that differs.
CAME_GOAL = 1.1
#: What the node that fills a device notes once it has the copy's digest.
_CAME = re.compile(r"(\d+) bytes came")


class Stage(NamedTuple):
    """A part of a time that was measured: what was done, and for how many seconds."""

    name: str
    seconds: float


class Return(NamedTuple):
    """A failback: in how many bytes both sites differed, and how many came over the line."""

    changed_bytes: int
    came_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRound:
    """A failover to a chosen point, and the way home.

    Attributes:
        failover_s: from the command until a write to the device made of the point was answered.
        failover_stages: what that time was of.
        turn_s: from the last write answered there until the first one answered at home.
        turn_stages: what that time was of.
        running_s: how long the copy and the failback took before, while the host wrote on there.
        running_pause: the longest time that the host had no answer meanwhile.
        running: what came home meanwhile.
        last: what came home while the roles turned.
        codes: why commands were given again, as of a restore point that was not made in time.
        acknowledged: writes answered there and at home after it.
        lost: of the blocks written, how many do not hold at home what was answered.
        errors: requests of the host that failed, before the loss, there, and at home.
        faults: what the copy, the device made of it and the one at home have against being the
            same.
    """

    failover_s: float
    failover_stages: tuple[Stage, ...]
    turn_s: float
    turn_stages: tuple[Stage, ...]
    running_s: float
    running_pause: Pause
    running: Return
    last: Return
    codes: tuple[str, ...]
    acknowledged: int
    lost: int
    errors: int
    faults: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """What came home by what differed, in both failbacks together."""
        changed = self.running.changed_bytes + self.last.changed_bytes
        return (self.running.came_bytes + self.last.came_bytes) / max(1, changed)

    @property
    def is_sound(self) -> bool:
        """Whether all was the same, nothing was lost, and no request failed."""
        return not (self.faults or self.lost or self.errors)

    @property
    def is_good(self) -> bool:
        """Whether it is sound, and each goal was held."""
        return (
            self.is_sound
            and self.failover_s <= FAILOVER_GOAL_S
            and self.turn_s <= TURN_GOAL_S
            and self.ratio <= CAME_GOAL
        )


def first_answer(records: Sequence[Record]) -> Record:
    """Return the first acknowledgement of a log.

    Raises:
        ValueError: there is none.
    """
    return min(_answers(records), key=lambda record: record.mono_ns)


def last_answer(records: Sequence[Record]) -> Record:
    """Return the last acknowledgement of a log.

    Raises:
        ValueError: there is none.
    """
    return max(_answers(records), key=lambda record: record.mono_ns)


def _answers(records: Sequence[Record]) -> list[Record]:
    found = [record for record in records if record.kind is RecordKind.ACK]
    if not found:
        raise ValueError("no write was acknowledged")
    return found


def turn_s(there: Sequence[Record], home: Sequence[Record]) -> float:
    """Return how long the host had no answer between two ledgers, by its clock that is not set.

    Raises:
        ValueError: one of them has no acknowledgement.
    """
    return (first_answer(home).mono_ns - last_answer(there).mono_ns) / 1e9


def count_errors(logs: Collection[Sequence[Record]]) -> int:
    """Return how many requests failed, of several ledgers."""
    return sum(record.kind is RecordKind.ERROR for records in logs for record in records)


def stages(names: Sequence[str], moments_s: Sequence[float]) -> tuple[Stage, ...]:
    """Return what was done between moments, of which there is one more than of names.

    A moment of the host's log may seem to be a little before the one before, by the clock here.
    """
    return tuple(
        Stage(name, max(0.0, end - begin))
        for name, (begin, end) in zip(names, itertools.pairwise(moments_s), strict=True)
    )


def came_bytes(journal: str, point: str) -> int | None:
    """Return how many bytes came for a device that was filled from a copy; None: it says nothing.

    Args:
        journal: what a node has noted of the device's restores.
        point: the name of the copy's restore point.
    """
    found = [
        match for line in journal.splitlines() if point in line and (match := _CAME.search(line))
    ]
    return int(found[-1][1]) if found else None


def find_faults(*, digests: Collection[str], made_bytes: int, home_bytes: int) -> list[str]:
    """Return what is not the same as it has to be.

    Args:
        digests: of the restore point on its node, and of the copy of it at the site.
        made_bytes: in how many bytes the device that was made of the copy differs from it, beside
            the blocks that the host has written since.
        home_bytes: the same of the device at home and the last copy of the other one.
    """
    faults = []
    if len({*digests}) != 1:
        faults.append("the copy at the site differs from its restore point")
    if made_bytes:
        faults.append(f"the device made of the copy differs from it in {made_bytes} bytes")
    if home_bytes:
        faults.append(f"the device at home differs from what was there in {home_bytes} bytes")
    return faults


def is_good(rounds: Sequence[SiteRound]) -> bool:
    """Whether there are rounds, and each is good."""
    return bool(rounds) and all(each.is_good for each in rounds)


COLUMNS = (
    "ROUND", "FAILOVER", "OF THAT", "TURN", "OF THAT", "DIFFERED", "CAME", "RATIO",
    "PAUSE BEFORE", "LOST", "ERRORS", "FAULTS",
)  # fmt: skip


def rows(rounds: Sequence[SiteRound]) -> list[tuple[str, ...]]:
    """Return the table's rows, one for each round."""
    return [
        (
            str(number),
            f"{each.failover_s:.1f} s",
            _stages_text(each.failover_stages),
            f"{each.turn_s:.1f} s",
            _stages_text(each.turn_stages),
            _mib(each.running.changed_bytes, each.last.changed_bytes),
            _mib(each.running.came_bytes, each.last.came_bytes),
            f"{each.ratio:.3f}",
            f"{each.running_pause.seconds * 1000:.0f} ms",
            str(each.lost),
            str(each.errors),
            str(len(each.faults)),
        )
        for number, each in enumerate(rounds, 1)
    ]


def _stages_text(found: Sequence[Stage]) -> str:
    return ", ".join(f"{each.name} {each.seconds:.1f}" for each in found)


def _mib(running: int, last: int) -> str:
    return f"{running / 2**20:.2f} + {last / 2**20:.2f} MiB"


def judgement(rounds: Sequence[SiteRound]) -> str:
    """Say whether the goals were held; there is a round at least."""
    failovers = [each.failover_s for each in rounds]
    turns = [each.turn_s for each in rounds]
    ratio = max(each.ratio for each in rounds)
    return "\n".join(
        [
            _judged("failover to a chosen point", failovers, FAILOVER_GOAL_S),
            _judged("pause while the roles turn", turns, TURN_GOAL_S),
            f"came home by differed: {ratio:.3f} at worst, goal {CAME_GOAL:g}: "
            f"{_held(ratio <= CAME_GOAL)}",
        ]
    )


def _judged(what: str, seconds: Sequence[float], goal_s: float) -> str:
    worst_s = max(seconds)
    return (
        f"{what}: {statistics.median(seconds):.1f} s in the median, {worst_s:.1f} s at worst, "
        f"goal {goal_s:g} s: {_held(worst_s <= goal_s)}"
    )


def _held(is_held: bool) -> str:
    return "held" if is_held else "missed"
