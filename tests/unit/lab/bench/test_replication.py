# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench replicate` takes, and the programs with which it counts what has changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sanctl.lab.bench import replication
from sanctl.lab.bench.commands import bench

MIB = 1 << 20


def program(text: str, *words: object) -> str:
    return subprocess.run(
        [sys.executable, "-", *map(str, words)],
        input=text, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip


def test_what_is_written_is_what_is_counted(tmp_path: Path) -> None:
    device, before = tmp_path / "device", tmp_path / "before"
    device.write_bytes(b"x" * (8 * MIB))
    before.write_bytes(device.read_bytes())
    assert program(replication._COMPARE, 4 * MIB, device, before) == "0 0\n"
    program(replication._CHANGE, device, 4 * MIB, 8 * MIB, 5, 64 << 10)
    assert program(replication._COMPARE, 4 * MIB, device, before) == f"0 {5 * (64 << 10)}\n"
    assert program(replication._COMPARE, 8 * MIB, device, before) == f"{5 * (64 << 10)} 0\n"
    assert device.read_bytes()[: 4 * MIB] == before.read_bytes()[: 4 * MIB]
    assert device.stat().st_size == 8 * MIB


def test_the_first_copy_is_compared_with_nothing(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.write_bytes(bytes(4096) + b"x" + bytes(4 * MIB - 4097))
    assert program(replication._COMPARE, 4096, copy) == "0 4096\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--size", "16M"],
        ["--size", "64.5M"],
        ["--changed", "60K"],
        ["--changed", "63M"],
        ["--copies", "1"],
        ["--every", "9"],
    ],
)
def test_what_cannot_be_measured_is_refused(words: list[str]) -> None:
    done = CliRunner().invoke(bench, ["replicate", *words])
    assert done.exit_code == 2, done.output
