# SPDX-License-Identifier: GPL-2.0-or-later
"""A flush in pieces ends in time, tells errors, and leaves no page of the file out."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.drivers import page_cache, write_out
from sanctl.drivers.write_out import CachedPages
from sanctl.errors import CommandError

PAGE = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
PIECE = write_out._PIECE_BYTES


class File:
    """A file of which some pages are dirty, on a disk that takes a while for each of them."""

    def __init__(self, path: Path, size: int) -> None:
        self.path = str(path)
        self.dirty: set[int] = set()
        self.written: list[tuple[int, int]] = []
        self.fails_at: int | None = None
        self.can_count = True
        self.asked = 0
        self.now_s = 0.0
        self.synced: list[int] = []
        self.handles: set[int] = set()
        with path.open("wb") as file:
            file.truncate(size)

    def pages(self, at: int, length: int) -> set[int]:
        return {each for each in self.dirty if at <= each * PAGE < (at + length)}

    def count(self, _handle: int, at: int, length: int) -> CachedPages | None:
        self.asked += 1
        return CachedPages(0, len(self.pages(at, length))) if self.can_count else None

    def writer(self, handle: int) -> Callable[[int, int], None]:
        self.handles.add(handle)

        def write(at: int, length: int) -> None:
            self.written.append((at, length))
            done = self.pages(at, length)
            if self.fails_at in done:
                raise OSError(errno.EIO, "lost")
            self.now_s += len(done) * 0.01
            self.dirty -= done

        return write

    def fsync(self, handle: int) -> None:
        self.synced.append(handle)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[File]:
    made = File(tmp_path / "data", 1 << 40)
    monkeypatch.setattr(write_out, "cached_pages", made.count)
    monkeypatch.setattr(write_out, "_writer", made.writer)
    monkeypatch.setattr(os, "fsync", made.fsync)
    with monkeypatch.context() as at_first:
        at_first.setattr(time, "monotonic", lambda: made.now_s)
        yield made


def test_real_pages_are_written(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"x" * (5 * MIB))
    with path.open("rb") as opened:
        assert write_out.write_out_within(opened.fileno(), 60.0)
        pages = write_out.cached_pages(opened.fileno(), 0, 0)
        assert pages is None or pages.dirty == 0
    path.write_bytes(b"y" * (5 * MIB))
    with path.open("rb") as opened:
        write_out.write_out(opened.fileno())
        pages = write_out.cached_pages(opened.fileno(), 0, 0)
        assert pages is None or pages.dirty == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        write_out.write_out(-1)
    reading, writing = os.pipe()
    with pytest.raises(OSError, match="Illegal seek"):
        write_out.write_out(reading)
    os.close(reading)
    os.close(writing)


def test_all_is_written_in_small_pieces_and_what_is_clean_is_passed_over(file: File) -> None:
    far = (1 << 40) // PAGE
    dense = set(range(far // 2, far // 2 + 3000))
    file.dirty = {0, 7, *dense, far - 1}
    page_cache.flush(file.path, within_s=1000.0)
    assert not file.dirty and len(file.synced) == 1
    assert file.asked < 1000, "a terabyte, most of it clean"
    for at, length in file.written:
        assert len({each for each in dense if at <= each * PAGE < at + length}) * PAGE <= PIECE


def test_a_kernel_that_does_not_count_has_all_written(tmp_path: Path, file: File) -> None:
    file.can_count = False
    os.truncate(file.path, 64 * MIB + 5)
    file.dirty = {0, 100, 64 * MIB // PAGE}
    page_cache.flush(file.path, within_s=1000.0)
    assert not file.dirty and len(file.synced) == 1
    assert file.written[0] == (0, PIECE)
    assert sum(length for _, length in file.written) >= 64 * MIB + 5


def test_such_a_kernel_passes_a_large_clean_file_too(file: File) -> None:
    """What would break: each flush begins anew, and would never come to the end of many TiB."""
    file.can_count = False
    half = (1 << 39) // PAGE
    file.dirty = set(range(half, half + 3 * PIECE // PAGE))
    page_cache.flush(file.path, within_s=1000.0)
    assert not file.dirty and file.asked == 1
    assert len(file.written) < 20000, "a terabyte"
    slow = next(place for place, (at, length) in enumerate(file.written) if at + length > 1 << 39)
    # After a piece that took its time the next one is short.
    assert file.written[slow + 1][1] == PIECE


def test_it_ends_in_time_and_goes_on_where_it_was(file: File) -> None:
    """What broke: an action that flushed for longer than it had was killed."""
    file.dirty = set(range(20000))
    left = [len(file.dirty)]
    for _ in range(10):
        begun_s = file.now_s
        try:
            page_cache.flush(file.path, within_s=30.0)
            break
        except page_cache.FlushUnfinished as error:
            assert error.problems[0].code == "SAN-CACHE-012"
            # One piece of a disk that takes 10 ms for each page.
            assert file.now_s - begun_s < 30.0 + 11.0
            assert file.synced == []
            left.append(len(file.dirty))
    assert left == sorted(left, reverse=True) and len(left) > 3
    assert not file.dirty and len(file.synced) == 1


def test_without_time_a_piece_is_written_all_the_same(file: File) -> None:
    file.dirty = set(range(3 * PIECE // PAGE))
    for _ in range(4):
        try:
            page_cache.flush(file.path, within_s=-5.0)
        except page_cache.FlushUnfinished:
            continue
        break
    assert not file.dirty


def test_a_piece_that_fails_is_a_failed_flush(file: File) -> None:
    """The kernel has told the error then, and tells it to no flush that comes later."""
    file.dirty, file.fails_at = set(range(5000)), 4000
    with pytest.raises(CommandError, match="SAN-CACHE-001") as failed:
        page_cache.flush(file.path, within_s=1000.0)
    assert not isinstance(failed.value, page_cache.FlushUnfinished)
    assert file.synced == []


def test_pieces_and_the_end_are_of_one_open_file(file: File) -> None:
    """An error that no piece was told is told to the end of that file."""
    file.dirty = set(range(5000))
    page_cache.flush(file.path, within_s=1000.0)
    assert {*file.synced} == file.handles and len(file.handles) == 1


def test_a_flush_without_a_limit_is_one_call(file: File) -> None:
    file.dirty = set(range(5000))
    page_cache.flush(file.path)
    assert file.written == [] and file.asked == 0 and len(file.synced) == 1
