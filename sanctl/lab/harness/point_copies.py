# SPDX-License-Identifier: GPL-2.0-or-later
"""A restore point's copies on the nodes, read against the log of the ledger that wrote."""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.measure import cut_check

# Prints the digest of a file, then the block and the sequence number of each write that it holds.
_READ = """
import hashlib, struct, sys
path, run = sys.argv[1], bytes.fromhex(sys.argv[2])
start, count = map(int, sys.argv[3:])
head = struct.Struct("<8s16sQQ")
with open(path, "rb") as file:
    print(hashlib.file_digest(file, "sha256").hexdigest())
    file.seek(start)
    for block in range(count):
        magic, of_run, sequence, told = head.unpack_from(file.read(4096))
        if magic == b"SANLEDG1" and of_run == run:
            assert told == block, (told, block)
            print(block, sequence)
"""


def find_faults(
    load: LedgerLoad, file: str, nodes: Sequence[str], *, min_writes: int = 1
) -> list[str]:
    """Return what a restore point's copies have against being one state of one moment.

    Args:
        load: the ledger, which may be running.
        file: the path of the copy, the same on each node.
        nodes: the nodes that have one.
        min_writes: how many of the ledger's blocks a copy must hold; fewer would prove little.

    Raises:
        CommandError: a copy cannot be read, or holds a block in a wrong place.
    """
    head, records = load.host.fetch_log(load.run)
    run = head.run_id.replace("-", "")
    told = {
        node: load.bed.sh(
            node,
            f"python3 - {file} {run} {head.start_bytes} {head.blocks}",
            stdin=_READ,
            timeout_s=300,
        ).stdout.splitlines()
        for node in nodes
    }
    faults = []
    if len({lines[0] for lines in told.values()}) != 1:
        faults.append(f"{file} differs between {', '.join(nodes)}")
    for node, (_digest, *lines) in told.items():
        held = {int(block): int(sequence) for block, sequence in map(str.split, lines)}
        if len(held) < min_writes:
            faults.append(f"{file} on {node} holds {len(held)} of the ledger's blocks")
        faults += [f"{node}: {fault}" for fault in cut_check.find_violations(records, held)]
    return faults
