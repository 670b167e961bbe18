# SPDX-License-Identifier: GPL-2.0-or-later
"""Write latencies and the longest pause, computed from a ledger's log. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sanctl.lab.measure.ledger_writer import Record, RecordKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One write of the host, from its first attempt to its acknowledgement."""

    writer: int
    block: int
    sequence: int
    issued_wall_s: float
    latency_s: float
    attempts: int

    @property
    def acked_wall_s(self) -> float:
        """When it was acknowledged, by the wall clock at its issue plus the monotonic latency."""
        return self.issued_wall_s + self.latency_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """The longest time during which the host got no answer, in some stretch of time."""

    longest_gap_s: float  # between two acknowledgements, of whichever writer
    gap_began_wall_s: float
    longest_write_s: float
    errors: int

    @property
    def seconds(self) -> float:
        """The pause: the longer of the gap between acknowledgements and the slowest write."""
        return max(self.longest_gap_s, self.longest_write_s)

    @property
    def ended_wall_s(self) -> float:
        """When the first write after the pause was acknowledged."""
        return self.gap_began_wall_s + self.longest_gap_s


def pair_writes(records: Sequence[Record]) -> list[Write]:
    """Join intents to acknowledgements; unacknowledged writes are left out."""
    first: dict[int, Record] = {}
    attempts: dict[int, int] = {}
    writes: list[Write] = []
    for record in records:
        if record.kind is RecordKind.INTENT:
            first.setdefault(record.sequence, record)
            attempts[record.sequence] = attempts.get(record.sequence, 0) + 1
        elif record.kind is RecordKind.ACK and (intent := first.pop(record.sequence, None)):
            writes.append(
                Write(
                    writer=record.writer,
                    block=record.block,
                    sequence=record.sequence,
                    issued_wall_s=intent.wall_ns / 1e9,
                    latency_s=(record.mono_ns - intent.mono_ns) / 1e9,
                    attempts=attempts.pop(record.sequence),
                )
            )
    return writes


def find_pause(records: Sequence[Record], begin_wall_s: float, end_wall_s: float) -> Pause:
    """Return the longest pause that began in the given stretch of wall-clock time.

    Raises:
        ValueError: fewer than two writes were acknowledged from then on: nothing was measured.
    """
    # A gap begins in the stretch if its first acknowledgement lies in it, or just before it.
    acks = sorted(
        (record.mono_ns, record.wall_ns / 1e9)
        for record in records
        if record.kind is RecordKind.ACK
    )
    gaps = [
        ((after - before) / 1e9, began)
        for (before, began), (after, ended) in itertools.pairwise(acks)
        if ended > begin_wall_s and began < end_wall_s
    ]
    if not gaps:
        raise ValueError("no write was acknowledged in that time")
    longest, began = max(gaps)
    return Pause(
        longest_gap_s=longest,
        gap_began_wall_s=began,
        longest_write_s=max(
            (
                write.latency_s
                for write in pair_writes(records)
                if write.acked_wall_s > begin_wall_s and write.issued_wall_s < end_wall_s
            ),
            default=0.0,
        ),
        errors=sum(
            record.kind is RecordKind.ERROR and begin_wall_s <= record.wall_ns / 1e9 <= end_wall_s
            for record in records
        ),
    )


def find_pause_so_far(
    records: Sequence[Record], begin_wall_s: float, end_wall_s: float
) -> Pause | None:
    """Return what `find_pause` does; a pause that has not ended counts with its time so far.

    The records must have been fetched after the end of the stretch, or a write that was not yet
    fetched would be taken for one without an answer.

    Returns:
        None: fewer than two writes were acknowledged from the beginning on.
    """
    try:
        pause = find_pause(records, begin_wall_s, end_wall_s)
    except ValueError:
        return None
    last_s = max(record.wall_ns / 1e9 for record in records if record.kind is RecordKind.ACK)
    if end_wall_s - last_s <= pause.longest_gap_s:
        return pause
    return replace(pause, longest_gap_s=end_wall_s - last_s, gap_began_wall_s=last_s)


def bytes_written(records: Sequence[Record], begin_wall_s: float, end_wall_s: float) -> int:
    """Return the bytes of distinct blocks written in a stretch of time: what a resync must send.

    Counted from intents: a write that was never answered may have reached one replica.
    """
    return 4096 * len(
        {
            record.block
            for record in records
            if record.kind is RecordKind.INTENT
            and begin_wall_s <= record.wall_ns / 1e9 <= end_wall_s
        }
    )
