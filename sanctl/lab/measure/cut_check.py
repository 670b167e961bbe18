# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a copy of a device is a state that its writer's log allows at one moment.

A write that was acknowledged before another was issued is in each state that has the other. The log
has both in the order in which they happened, so a copy is of one moment if and only if every write
that it lacks was acknowledged after every write that it has was issued.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sanctl.lab.measure.ledger_writer import Record, RecordKind


def find_violations(records: Sequence[Record], held: Mapping[int, int]) -> list[str]:
    """Return why a copy is no state of one moment; empty for one that is.

    Args:
        records: the writer's log.
        held: by block, the sequence number of the write that the copy holds there; a block that is
            not among them holds none of the writer's.
    """
    issued: dict[tuple[int, int], int] = {}
    latest, newest = -1, ""
    found = []
    for position, record in enumerate(records):
        if record.kind is RecordKind.INTENT:
            issued.setdefault((record.block, record.sequence), position)
    for block, sequence in held.items():
        at = issued.get((block, sequence))
        if at is None:
            found.append(f"block {block} holds write {sequence}, which was never issued there")
        elif at > latest:
            latest, newest = at, f"write {sequence} of block {block}"
    for position, record in enumerate(records):
        is_missing = record.sequence > held.get(record.block, 0)
        if record.kind is RecordKind.ACK and is_missing and position < latest:
            found.append(
                f"write {record.sequence} of block {record.block} is missing; it was acknowledged "
                f"before {newest}, which is there, was issued"
            )
    return found


def find_missing(records: Sequence[Record], held: Mapping[int, int], position: int) -> list[str]:
    """Return the writes that a copy lacks though they were acknowledged before it was asked for.

    The state of an earlier moment is one of the log, too. By the length of the log, not by a time:
    that of the host may be another one than that of the machine that asked.

    Args:
        records: the writer's log.
        held: as of `find_violations`.
        position: how many records the log had when the copy was asked for.
    """
    return [
        f"write {record.sequence} of block {record.block} is missing; it was acknowledged before "
        "the copy was asked for"
        for record in records[:position]
        if record.kind is RecordKind.ACK and record.sequence > held.get(record.block, 0)
    ]
