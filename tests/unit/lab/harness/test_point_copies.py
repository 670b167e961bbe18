# SPDX-License-Identifier: GPL-2.0-or-later
"""Copies of a restore point, read as on a node, against the log of the ledger that wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.lab.harness import point_copies
from sanctl.lab.harness.failover import LedgerLoad
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure.ledger_writer import LogHead, Record, RecordKind, encode_block

RUN = "00112233-4455-6677-8899-aabbccddeeff"
HEAD = LogHead(
    run_id=RUN, device="", seed=1, start_bytes=4096, blocks=3, rate=1, depth=1, started_wall_ns=0
)


def record(kind: RecordKind, block: int, sequence: int) -> Record:
    return Record(kind, 0, 0, block, sequence, 0, 0)


#: Each write was acknowledged before the next was issued.
LOG = [
    record(kind, block, sequence)
    for sequence, block in ((1, 0), (2, 1), (3, 0))
    for kind in (RecordKind.INTENT, RecordKind.ACK)
]


class Nodes:
    """Runs on this machine what is to run on a node; each node has a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, node: str, *sequences: int) -> None:
        """Make a node's copy: the sequence number that each block holds, 0 for none."""
        blocks = [
            encode_block(RUN, sequence, block) if sequence else bytes(4096)
            for block, sequence in enumerate(sequences)
        ]
        (self.folder / node).write_bytes(bytes(4096) + b"".join(blocks))

    def sh(self, node: str, script: str, *, stdin: str, **_options: Any) -> SimpleNamespace:
        words = script.replace("FILE", str(self.folder / node)).split()
        done = subprocess.run(
            [sys.executable, *words[1:]], input=stdin, capture_output=True, text=True, check=True
        )
        return SimpleNamespace(stdout=done.stdout)


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def find_faults(nodes: Nodes, **options: int) -> list[str]:
    host = SimpleNamespace(fetch_log=lambda _run: (HEAD, LOG))
    load = cast("LedgerLoad", SimpleNamespace(bed=nodes, host=host, run=None))
    return point_copies.find_faults(load, "FILE", ("n1", "n2"), **options)


def test_a_state_of_one_moment_has_no_fault(nodes: Nodes) -> None:
    for held in ((0, 0, 0), (1, 0, 0), (1, 2, 0), (3, 2, 0)):
        nodes.write("n1", *held)
        nodes.write("n2", *held)
        assert find_faults(nodes, min_writes=0) == []


def test_a_later_write_without_an_earlier_one_is_a_fault(nodes: Nodes) -> None:
    nodes.write("n1", 3, 0, 0)
    nodes.write("n2", 3, 0, 0)
    n1, n2 = find_faults(nodes)
    assert n1.startswith("n1: write 2 of block 1 is missing") and n2.startswith("n2: ")


def test_copies_of_two_moments_are_a_fault(nodes: Nodes) -> None:
    nodes.write("n1", 1, 2, 0)
    nodes.write("n2", 3, 2, 0)
    assert find_faults(nodes) == ["FILE differs between n1, n2"]


def test_a_copy_with_too_few_writes_proves_nothing(nodes: Nodes) -> None:
    nodes.write("n1", 1, 0, 0)
    nodes.write("n2", 1, 0, 0)
    assert len(find_faults(nodes, min_writes=2)) == 2


def test_a_copy_may_still_have_its_first_name(nodes: Nodes) -> None:
    nodes.write("n1.taking", 1, 2, 0)
    found = point_copies.read(cast("LabSession", nodes), "n1", "FILE", HEAD)
    assert found.held == {0: 1, 1: 2}
    with pytest.raises(subprocess.CalledProcessError):
        point_copies.read(cast("LabSession", nodes), "n2", "FILE", HEAD)


def test_copies_of_an_earlier_moment_than_the_command_are_a_fault() -> None:
    copies = {"n1": point_copies.PointCopy("d", {0: 1})}
    assert point_copies.judge("FILE", copies, LOG) == []
    assert point_copies.judge("FILE", copies, LOG, asked_at=2) == []
    first, second = point_copies.judge("FILE", copies, LOG, asked_at=6)
    assert first.startswith(
        "n1: write 2 of block 1 is missing; it was acknowledged before the copy"
    )
    assert "write 3 of block 0" in second
