# SPDX-License-Identifier: GPL-2.0-or-later
"""A device becomes the same as a file, by writing what differs alone; here both are files."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sanctl.drivers.range_copy import CHUNK_BYTES, PIECE_BYTES, FileSource, PipeSource, RangeCopy

SIZE = 2 * CHUNK_BYTES + 3 * 4096


@pytest.fixture(autouse=True)
def buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every filesystem on which tests run has direct I/O."""
    monkeypatch.setattr(os, "O_DIRECT", 0)


def _copy(wanted: bytes, present: bytes, folder: Path) -> tuple[bytes, int, int]:
    file, device = folder / "point", folder / "device"
    file.write_bytes(wanted)
    device.write_bytes(present)
    steps = 1
    with RangeCopy(FileSource(str(file)), str(device)) as copy:
        assert copy.size_bytes == len(present)
        while copy.step():
            steps += 1
        copy.flush()
        assert copy.done_bytes == len(present)
        assert not copy.step()
    return device.read_bytes(), copy.written_bytes, steps


def test_what_differs_is_written(tmp_path: Path) -> None:
    wanted = random.Random(1).randbytes(SIZE)
    present = bytearray(wanted)
    for at in (0, CHUNK_BYTES - 1, CHUNK_BYTES + PIECE_BYTES, SIZE - 1):
        present[at] ^= 1
    found, written, steps = _copy(wanted, bytes(present), tmp_path)
    assert (found, steps) == (wanted, 3)
    assert written == 3 * PIECE_BYTES + 3 * 4096


def test_nothing_is_written_where_nothing_differs(tmp_path: Path) -> None:
    same = random.Random(2).randbytes(SIZE)
    found, written, _ = _copy(same, same, tmp_path)
    assert (found, written) == (same, 0)


def test_what_is_behind_a_shorter_file_becomes_zeros(tmp_path: Path) -> None:
    present = random.Random(3).randbytes(SIZE)
    wanted = random.Random(4).randbytes(CHUNK_BYTES + 4096)
    found, written, _ = _copy(wanted, present, tmp_path)
    assert found == wanted + bytes(SIZE - len(wanted))
    assert written == SIZE


def test_an_empty_device_has_nothing_to_copy(tmp_path: Path) -> None:
    assert _copy(b"", b"", tmp_path)[1] == 0


def test_a_longer_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is smaller than"):
        _copy(bytes(8192), bytes(4096), tmp_path)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "device").write_bytes(bytes(4096))
    with (
        pytest.raises(FileNotFoundError),
        RangeCopy(FileSource(str(tmp_path / "point")), str(tmp_path / "device")),
    ):
        pass


def test_reads_and_writes_that_are_short_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def halved(call: Callable[..., int]) -> Callable[..., int]:
        def short(handle: int, parts: list[memoryview[int]], at: int) -> int:
            return call(handle, [part[: max(4096, len(part) // 2)] for part in parts], at)

        return short

    real: Any = os
    preadv, pwritev = real.preadv, real.pwritev
    monkeypatch.setattr(os, "preadv", halved(preadv))
    monkeypatch.setattr(os, "pwritev", halved(pwritev))
    wanted, present = random.Random(5).randbytes(SIZE), random.Random(6).randbytes(SIZE)
    assert _copy(wanted, present, tmp_path)[0] == wanted


def test_a_file_that_loses_its_end_meanwhile_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "point").write_bytes(b"x" * SIZE)
    (tmp_path / "device").write_bytes(b"x" * (SIZE + 4096))
    with RangeCopy(FileSource(str(tmp_path / "point")), str(tmp_path / "device")) as copy:
        assert copy.step()
        os.truncate(tmp_path / "point", SIZE - 4096)
        assert copy.step()
        with pytest.raises(OSError, match="the source ends at byte"):
            copy.step()
    assert (tmp_path / "device").read_bytes() == b"x" * (SIZE + 4096)


def test_a_device_that_ends_early_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "point").write_bytes(bytes(SIZE))
    (tmp_path / "device").write_bytes(bytes(SIZE))
    with RangeCopy(FileSource(str(tmp_path / "point")), str(tmp_path / "device")) as copy:
        os.truncate(tmp_path / "device", 4096)
        with pytest.raises(OSError, match="ends at byte"):
            copy.step()


def _through_a_pipe(data: bytes, announced: int, device: Path) -> int:
    """Copy what comes by a pipe onto a device; return how much of it was written."""
    read_end, write_end = os.pipe()
    sender = threading.Thread(target=_send, args=(write_end, data))
    sender.start()
    try:
        with RangeCopy(PipeSource(read_end, announced, silence_s=5.0), str(device)) as copy:
            while copy.step():
                pass
            return copy.written_bytes
    finally:
        os.close(read_end)
        sender.join()


def _send(pipe: int, data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), os.fdopen(pipe, "wb") as file:
        file.write(data)


def test_what_comes_by_a_pipe(tmp_path: Path) -> None:
    wanted, device = random.Random(7).randbytes(SIZE), tmp_path / "device"
    device.write_bytes(bytes(SIZE))
    assert _through_a_pipe(wanted, SIZE, device) == SIZE
    assert device.read_bytes() == wanted
    device.write_bytes(wanted + b"x" * 4096)
    assert _through_a_pipe(wanted, SIZE, device) == 4096 + 3 * 4096
    assert device.read_bytes() == wanted + bytes(4096)


def test_a_pipe_that_ends_early_is_an_error(tmp_path: Path) -> None:
    device = tmp_path / "device"
    device.write_bytes(bytes(SIZE))
    with pytest.raises(OSError, match="the data ends at byte"):
        _through_a_pipe(bytes(SIZE - 4096), SIZE, device)
    with pytest.raises(OSError, match="is smaller than"):
        _through_a_pipe(b"", SIZE + 4096, device)
