# SPDX-License-Identifier: GPL-2.0-or-later
"""Figures of copies to a second site: what was sent by what had changed, pauses, ages. Pure."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sanctl.lab.measure.ledger_latency import Pause
from sanctl.lab.measure.ledger_writer import BLOCK_BYTES, Record, RecordKind

#: What may at most be sent for a byte that has changed.
SENT_GOAL = 1.1
#: How old the newest copy may be at most, in intervals: one until the next restore point, and one
#: in which that copy is made.
AGE_GOAL_INTERVALS = 2.0
#: What is reported as sent may be that much less than what the interface counted, by ssh and TCP,
#: and by each connection.
_LINE_FACTOR, _CONNECTION_BYTES = 1.25, 256 << 10
#: The host's clock and a node's differ by a little.
_MARGIN_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRun:
    """One run of `sanctl replicate run` while a host wrote.

    Attributes:
        is_first: whether it was the first copy, of all that was ever written.
        codes: why runs before it, of the same interval, made none; empty: it was the first try.
        made_s: when its restore point was made, in seconds since 1970.
        proven_s: when it counted.
        seconds: the time of the command.
        changed_bytes: what differs from the copy before, as both were read at the site, behind the
            ledger's blocks: it is random, and does not compress.
        ledger_bytes: what differs of the ledger's blocks, which compress to next to nothing.
        sent_bytes: what was sent, as the copy says.
        line_bytes: what the node's interface has sent meanwhile.
        pause: the longest time that the host had no answer during the command.
        before_s: the same, in the seconds just before: what the machine does to it anyway.
        faults: what the copy has against being its restore point, at one moment of the host's log.
    """

    is_first: bool
    codes: tuple[str, ...]
    made_s: float
    proven_s: float
    seconds: float
    changed_bytes: int
    ledger_bytes: int
    sent_bytes: int
    line_bytes: int
    pause: Pause
    before_s: float
    faults: tuple[str, ...]

    @property
    def ratio(self) -> float:
        """What was sent by what had changed, of what does not compress: all is sent for that."""
        return self.sent_bytes / max(1, self.changed_bytes)

    @property
    def is_good(self) -> bool:
        """Whether it is sound, no request of the host failed, and it sent little enough."""
        return not self.faults and not self.pause.errors and self.ratio <= SENT_GOAL


def most_changed_bytes(records: Sequence[Record], begin_s: float, end_s: float) -> int:
    """Return how much a ledger can have changed between two moments, of the host's clock."""
    blocks = {
        record.block
        for record in records
        if record.kind is RecordKind.INTENT
        and begin_s - _MARGIN_S <= record.wall_ns / 1e9 <= end_s + _MARGIN_S
    }
    return len(blocks) * BLOCK_BYTES


def find_faults(
    *,
    changed_bytes: int,
    written_bytes: int,
    ledger_bytes: int,
    most_ledger_bytes: int,
    sent_bytes: int,
    line_bytes: int,
) -> list[str]:
    """Return in what a copy's figures contradict each other.

    Args:
        changed_bytes: what differs from the copy before, behind the ledger's blocks.
        written_bytes: what the host has changed there.
        ledger_bytes: what differs of the ledger's blocks.
        most_ledger_bytes: the most that can differ of them.
        sent_bytes: what is reported as sent.
        line_bytes: what the interface has sent.
    """
    faults = []
    if changed_bytes != written_bytes:
        faults.append(f"{changed_bytes} bytes differ, and the host has changed {written_bytes}")
    if ledger_bytes > most_ledger_bytes:
        faults.append(f"{ledger_bytes - most_ledger_bytes} bytes differ that no ledger has written")
    if line_bytes > _LINE_FACTOR * sent_bytes + _CONNECTION_BYTES:
        faults.append(f"{line_bytes} bytes were sent, and {sent_bytes} reported")
    return faults


def worst_age_s(runs: Sequence[CopyRun]) -> float:
    """Return how old the newest copy was at worst: just before the next one counted."""
    return max(
        (after.proven_s - before.made_s for before, after in itertools.pairwise(runs)), default=0.0
    )


def is_good(runs: Sequence[CopyRun], interval_s: float) -> bool:
    """Whether each run is good, and the newest copy was never older than two intervals."""
    return all(run.is_good for run in runs) and worst_age_s(runs) <= AGE_GOAL_INTERVALS * interval_s


COLUMNS = (
    "COPIES", "CHANGED", "SENT", "RATIO (MEDIAN, WORST)", "TOOK (MEDIAN, WORST)",
    "HOST'S PAUSE (MEDIAN, WORST)", "WITHOUT", "FAILED RUNS", "ERRORS", "FAULTS",
)  # fmt: skip


def rows(runs: Sequence[CopyRun]) -> list[tuple[str, ...]]:
    """Return the table's rows: the first copy, and all later ones together."""
    parts = (
        ("the first", [run for run in runs if run.is_first]),
        ("later ones", [run for run in runs if not run.is_first]),
    )
    return [_row(what, part) for what, part in parts if part]


def _row(what: str, runs: Sequence[CopyRun]) -> tuple[str, ...]:
    ratios = [run.ratio for run in runs]
    pauses = [run.pause.seconds for run in runs]
    seconds = [run.seconds for run in runs]
    return (
        f"{what}: {len(runs)}",
        _mib(statistics.median(run.changed_bytes for run in runs)),
        _mib(statistics.median(run.sent_bytes for run in runs)),
        f"{statistics.median(ratios):.3f}, {max(ratios):.3f}",
        f"{statistics.median(seconds):.1f} s, {max(seconds):.1f} s",
        f"{_ms(statistics.median(pauses))}, {_ms(max(pauses))}",
        _ms(statistics.median(run.before_s for run in runs)),
        str(sum(len(run.codes) for run in runs)),
        str(sum(run.pause.errors for run in runs)),
        str(sum(len(run.faults) for run in runs)),
    )


def judgement(runs: Sequence[CopyRun], interval_s: float) -> str:
    """Say whether the goals were held."""
    worst = max(run.ratio for run in runs)
    age_s, limit_s = worst_age_s(runs), AGE_GOAL_INTERVALS * interval_s
    return (
        f"sent by changed: {worst:.3f} at worst, goal {SENT_GOAL:g}: {_held(worst <= SENT_GOAL)}\n"
        f"age of the newest copy: {age_s:.0f} s at worst, goal {limit_s:.0f} s: "
        f"{_held(age_s <= limit_s)}"
    )


def _held(is_held: bool) -> str:
    return "held" if is_held else "missed"


def _mib(value: float) -> str:
    return f"{value / 2**20:.2f} MiB"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"
