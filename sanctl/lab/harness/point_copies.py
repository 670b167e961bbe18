# SPDX-License-Identifier: GPL-2.0-or-later
"""A restore point's copies on the nodes, read against the log of the ledger that wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure import cut_check
from sanctl.lab.measure.ledger_writer import LogHead, Record

# Prints the digest of a file, or of its beginning, then the block and the sequence number of each
# write that it holds. A restore point's file may have its first name until the pool agent's next
# monitor.
_READ = """
import hashlib, struct, sys
path, run = sys.argv[1], bytes.fromhex(sys.argv[2])
start, count, size = map(int, sys.argv[3:])
head = struct.Struct("<8s16sQQ")
try:
    file = open(path, "rb")
except FileNotFoundError:
    try:
        file = open(path + ".taking", "rb")
    except FileNotFoundError:
        file = open(path, "rb")
with file:
    digest, left = hashlib.sha256(), size or sys.maxsize
    while part := file.read(min(1 << 20, left)):
        digest.update(part)
        left -= len(part)
    print(digest.hexdigest())
    assert not (size and left), f"it ends {left} bytes before"
    file.seek(start)
    for block in range(count):
        magic, of_run, sequence, told = head.unpack_from(file.read(4096))
        if magic == b"SANLEDG1" and of_run == run:
            assert told == block, (told, block)
            print(block, sequence)
"""


class PointCopy(NamedTuple):
    """What a copy holds.

    Attributes:
        digest: of all of it.
        held: by block, the sequence number of the ledger's write there.
    """

    digest: str
    held: Mapping[int, int]


def read(bed: LabSession, node: str, file: str, head: LogHead, *, size_bytes: int = 0) -> PointCopy:
    """Read a copy on a machine.

    Args:
        bed: the laboratory.
        node: the machine.
        file: the path of the copy there.
        head: the head of the log of the ledger that writes to the device.
        size_bytes: the size of the restore point, where its file may be longer; 0: all counts.

    Raises:
        CommandError: it cannot be read, is shorter, or holds a block in a wrong place.
    """
    run = head.run_id.replace("-", "")
    digest, *lines = bed.sh(
        node,
        f"python3 - {file} {run} {head.start_bytes} {head.blocks} {size_bytes}",
        stdin=_READ,
        timeout_s=300,
    ).stdout.splitlines()
    return PointCopy(digest, {int(a): int(b) for a, b in map(str.split, lines)})


def judge(
    file: str,
    copies: Mapping[str, PointCopy],
    records: Sequence[Record],
    *,
    min_writes: int = 1,
    asked_at: int | None = None,
) -> list[str]:
    """Return what copies of a restore point have against being one state of one moment.

    Args:
        file: how they are named.
        copies: the copies, by the machine that has each.
        records: the log of the ledger, fetched after the restore point was made.
        min_writes: how many of the ledger's blocks a copy must hold; fewer would prove little.
        asked_at: how many records the log had when the restore point was asked for, which is of no
            earlier moment; None: not known.
    """
    faults = []
    if len({copy.digest for copy in copies.values()}) != 1:
        faults.append(f"{file} differs between {', '.join(copies)}")
    for node, (_digest, held) in copies.items():
        if len(held) < min_writes:
            faults.append(f"{file} on {node} holds {len(held)} of the ledger's blocks")
        found = cut_check.find_violations(records, held)
        if asked_at is not None:
            found += cut_check.find_missing(records, held, asked_at)
        faults += [f"{node}: {fault}" for fault in found]
    return faults


def find_faults(
    load: LedgerLoad,
    file: str,
    nodes: Sequence[str],
    *,
    min_writes: int = 1,
    size_bytes: int = 0,
) -> list[str]:
    """Return what a restore point's copies have against being one state of one moment.

    Args:
        load: the ledger, which may be running.
        file: the path of the copy, the same on each node.
        nodes: the nodes that have one.
        min_writes: how many of the ledger's blocks a copy must hold; fewer would prove little.
        size_bytes: as for `read`.

    Raises:
        CommandError: a copy cannot be read, is shorter, or holds a block in a wrong place.
    """
    head, records = load.host.fetch_log(load.run)
    copies = {node: read(load.bed, node, file, head, size_bytes=size_bytes) for node in nodes}
    return judge(file, copies, records, min_writes=min_writes)
