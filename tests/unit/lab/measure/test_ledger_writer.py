# SPDX-License-Identifier: GPL-2.0-or-later
"""The ledger's checker finds every broken block, and reports no sound one."""

from __future__ import annotations

import errno
import json
import os
import shutil
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.lab.measure import ledger_writer
from sanctl.lab.measure.ledger_writer import (
    BLOCK_BYTES,
    BlockHistory,
    BlockVerdict,
    RecordKind,
    blocks_of_writer,
    build_histories,
    check,
    encode_block,
    judge_block,
    open_device,
    read_log,
)

RUN = uuid.UUID(int=7).hex
OTHER_RUN = uuid.UUID(int=8).hex
REGION = 64 * BLOCK_BYTES


def write(directory: Path, *options: str) -> int:
    """Run the writer on `directory`/device with its log beside it."""
    device, log = str(directory / "device"), str(directory / "log")
    return ledger_writer.main(["write", "--buffered", "--device", device, "--log", log, *options])


class Ledger:
    """A finished run on a plain file, whose device can then be damaged."""

    def __init__(self, directory: Path) -> None:
        self.device = directory / "device"
        self.log = directory / "log"

    def verdict(self) -> dict[str, int]:
        head, records = read_log(self.log)
        fd = open_device(str(self.device), write=False, buffered=True)
        try:
            verdicts = check(fd, head, records).verdicts
        finally:
            os.close(fd)
        return {
            name: count for name, count in verdicts.items() if count and name != BlockVerdict.OK
        }

    def acked(self) -> dict[int, BlockHistory]:
        histories = build_histories(read_log(self.log)[1])
        return {block: history for block, history in histories.items() if history.acked}

    def overwrite(self, block: int, data: bytes, offset: int = 0) -> None:
        with self.device.open("r+b") as file:
            file.seek(block * BLOCK_BYTES + offset)
            file.write(data)


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("run")
    (directory / "device").write_bytes(bytes(REGION))
    assert write(directory, "--seconds", "0.3", "--run-id", RUN) == 0
    assert Ledger(directory).verdict() == {}, "an undamaged device must pass"
    return directory


@pytest.fixture
def ledger(finished_run: Path, tmp_path: Path) -> Ledger:
    return Ledger(shutil.copytree(finished_run, tmp_path / "run"))


def twice_written(ledger: Ledger) -> tuple[int, BlockHistory]:
    return next((b, h) for b, h in ledger.acked().items() if len(h.issued) > 1)


def test_many_writes_are_acknowledged_and_every_block_is_checked(ledger: Ledger) -> None:
    head, records = read_log(ledger.log)
    assert head.blocks == 64
    assert sum(record.kind is RecordKind.ACK for record in records) > 100
    assert len({record.writer for record in records}) == 4
    assert len(build_histories(records)) > 32


def test_a_lost_acknowledged_write_is_found(ledger: Ledger) -> None:
    ledger.overwrite(next(iter(ledger.acked())), bytes(BLOCK_BYTES))
    assert ledger.verdict() == {"lost": 1}


def test_a_reverted_write_is_found(ledger: Ledger) -> None:
    block, history = twice_written(ledger)
    ledger.overwrite(block, encode_block(RUN, min(history.issued), block))
    assert ledger.verdict() == {"stale": 1}


def test_a_value_of_an_earlier_run_is_found(ledger: Ledger) -> None:
    block = next(iter(ledger.acked()))
    ledger.overwrite(block, encode_block(OTHER_RUN, 1, block))
    assert ledger.verdict() == {"stale": 1}


@pytest.mark.parametrize("sector", range(8))
def test_a_torn_block_is_found_whichever_sector_is_old(ledger: Ledger, sector: int) -> None:
    block, history = twice_written(ledger)
    old = encode_block(RUN, min(history.issued), block)[sector * 512 : sector * 512 + 512]
    ledger.overwrite(block, old, sector * 512)
    assert ledger.verdict() == {"torn": 1}


def test_a_block_of_which_the_head_is_missing_is_torn(ledger: Ledger) -> None:
    ledger.overwrite(next(iter(ledger.acked())), bytes(512))
    assert ledger.verdict() == {"torn": 1}


def test_a_block_at_the_wrong_address_is_found(ledger: Ledger) -> None:
    (one, history), (two, _) = list(ledger.acked().items())[:2]
    assert history.acked is not None
    ledger.overwrite(two, encode_block(RUN, history.acked, one))
    assert ledger.verdict() == {"misplaced": 1}


def test_a_value_that_was_never_issued_is_found(ledger: Ledger) -> None:
    block = next(iter(ledger.acked()))
    ledger.overwrite(block, encode_block(RUN, 10**9, block))
    assert ledger.verdict() == {"misplaced": 1}


def test_a_device_that_became_shorter_is_unreadable(ledger: Ledger) -> None:
    touched = [block for block in ledger.acked() if block >= 32]
    os.truncate(ledger.device, 32 * BLOCK_BYTES)
    assert ledger.verdict() == {"unreadable": len(touched)}


def test_the_check_command_says_what_it_found(
    ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check", "--device", str(ledger.device), "--log", str(ledger.log), "--buffered"]
    assert ledger_writer.main(arguments) == 0
    block = next(iter(ledger.acked()))
    ledger.overwrite(block, bytes(BLOCK_BYTES))
    assert ledger_writer.main(arguments) == 1
    good, bad = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (good["lost"], bad["lost"]) == (0, 1)
    assert f"block {block}: lost" in bad["findings"][0]


@pytest.mark.parametrize(
    ("acked", "pending", "holds", "verdict"),
    [
        (None, set(), None, BlockVerdict.OK),
        (None, {5}, None, BlockVerdict.OK),  # the unanswered write never arrived
        (None, {5}, 5, BlockVerdict.OK),  # it did arrive
        (4, {5}, 4, BlockVerdict.OK),
        (4, {5}, 5, BlockVerdict.OK),
        (4, {5}, 3, BlockVerdict.STALE),
        (4, {5}, None, BlockVerdict.LOST),
    ],
)
def test_an_unanswered_write_may_or_may_not_be_there(
    acked: int | None, pending: set[int], holds: int | None, verdict: BlockVerdict
) -> None:
    data = bytes(BLOCK_BYTES) if holds is None else encode_block(RUN, holds, 9)
    history = BlockHistory(acked=acked, pending=pending, issued={3, 4} | pending)
    assert judge_block(data, RUN, 9, history) is verdict


def test_errors_are_recorded_and_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = tmp_path / "device"
    device.write_bytes(bytes(REGION))
    real, failures = os.pwrite, iter(range(3))

    def flaky(fd: int, data: bytes, at: int) -> int:
        if next(failures, None) is not None:
            raise OSError(errno.EIO, "from the test")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", flaky)
    assert write(tmp_path, "--depth", "1", "--seconds", "0.6", "--rate", "50") == 0
    head, records = read_log(tmp_path / "log")
    assert [record.kind for record in records[:8]] == [RecordKind.INTENT, RecordKind.ERROR] * 3 + [
        RecordKind.INTENT,
        RecordKind.ACK,
    ]
    assert {record.sequence for record in records[:8]} == {1}
    assert records[1].errno == errno.EIO
    fd = open_device(str(device), write=False, buffered=True)
    result = check(fd, head, records)
    os.close(fd)
    assert (result.errors, result.lost, result.unanswered) == (3, 0, 0)


def test_a_log_is_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "device").write_bytes(bytes(REGION))
    (tmp_path / "log").write_bytes(b"promises")
    assert write(tmp_path, "--seconds", "0.1") == 2
    assert (tmp_path / "log").read_bytes() == b"promises"
    assert "File exists" in capsys.readouterr().err


def test_a_record_cut_short_is_left_out(ledger: Ledger) -> None:
    head, records = read_log(ledger.log)
    with ledger.log.open("ab") as log:
        log.write(b"\x01half")
    assert read_log(ledger.log) == (head, records)


def test_the_rate_is_kept(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(bytes(REGION))
    assert write(tmp_path, "--seconds", "0.6", "--rate", "50") == 0
    acked = sum(record.kind is RecordKind.ACK for record in read_log(tmp_path / "log")[1])
    assert 15 <= acked <= 40


@given(st.integers(1, 64), st.integers(64, 500))
def test_every_block_has_exactly_one_writer(depth: int, blocks: int) -> None:
    owned = [block for index in range(depth) for block in blocks_of_writer(index, depth, blocks)]
    assert sorted(owned) == list(range(blocks))


@pytest.mark.parametrize(("options", "synced"), [((), True), (("--unsynced",), False)])
def test_what_is_acknowledged_is_stable_unless_that_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], synced: bool
) -> None:
    (tmp_path / "device").write_bytes(bytes(REGION))
    flags: dict[str, int] = {}
    real = os.open

    def opened(path: str, flag: int, *mode: int) -> int:
        flags[os.path.basename(path)] = flag
        return real(path, flag, *mode)

    monkeypatch.setattr(os, "open", opened)
    assert write(tmp_path, "--seconds", "0.1", "--rate", "50", *options) == 0
    assert bool(flags["device"] & os.O_DSYNC) is synced
