# SPDX-License-Identifier: GPL-2.0-or-later
"""Which holes of a device file get blocks, and what stays free."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.drivers import space_reservation
from sanctl.errors import CommandError, Problem
from tests.fakes.runner import Answer, FakeRunner

MIB = 1 << 20
BLOCK = 4096


class Filesystem(FakeRunner):
    """A file's blocks, as FS_IOC_FIEMAP tells them and fallocate(1) changes them."""

    def __init__(self, path: str, size: int, free: int, written: Sequence[tuple[int, int]]) -> None:
        """Make the file, with blocks in the ranges `written` (begin, end)."""
        super().__init__(self._fallocate)
        self.path, self.size, self.free = path, size, free
        self.mapped = {block for a, b in written for block in range(a // BLOCK, b // BLOCK)}

    def extents(self) -> list[tuple[int, int]]:
        """Return begin and length of each run of blocks."""
        runs: list[tuple[int, int]] = []
        for block in sorted(self.mapped):
            if runs and sum(runs[-1]) == block * BLOCK:
                runs[-1] = (runs[-1][0], runs[-1][1] + BLOCK)
            else:
                runs.append((block * BLOCK, BLOCK))
        return runs

    def ioctl(self, _handle: int, number: int, request: bytearray) -> int:
        """Answer FS_IOC_FIEMAP."""
        assert number == 0xC020660B
        header, extent = space_reservation._REQUEST, space_reservation._EXTENT
        at, length, flags, _mapped, room, _ = header.unpack_from(request)
        found = [one for one in self.extents() if sum(one) > at and one[0] < at + length]
        for n, (begin, count) in enumerate(found[:room]):
            last = int(n + 1 == len(found))
            extent.pack_into(request, header.size + n * extent.size, begin, 0, count, last)
        header.pack_into(request, 0, at, length, flags, min(room, len(found)), room, 0)
        return 0

    def statvfs(self, _path: str) -> SimpleNamespace:
        """Tell what is free."""
        return SimpleNamespace(f_bavail=self.free // BLOCK, f_frsize=BLOCK)

    def _fallocate(self, argv: Sequence[str]) -> Answer:
        """Carry out fallocate(1)."""
        assert argv[:2] == ["fallocate", "--keep-size"] and argv[-1] == self.path
        at, length = int(argv[3]), int(argv[5])
        new = set(range(at // BLOCK, (at + length) // BLOCK)) - self.mapped
        if len(new) * BLOCK > self.free:
            return CommandError(Problem("SAN-CMD-003", "No space left on device"))
        self.mapped |= new
        self.free -= len(new) * BLOCK
        return ""


def filesystem(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    size: int,
    free: int,
    written: Sequence[tuple[int, int]] = (),
) -> Filesystem:
    path = tmp_path / "vm1.0.data"
    with path.open("wb") as file:
        file.truncate(size)
    made = Filesystem(str(path), size, free, written)
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def reserve(made: Filesystem, *, keep: int = 0, deadline_s: float = float("inf")) -> bool:
    return space_reservation.reserve(made, made.path, keep_free_bytes=keep, deadline_s=deadline_s)


@pytest.mark.parametrize(
    "written",
    [
        [],
        [(0, 4 * BLOCK)],
        [(8 * BLOCK, 9 * BLOCK), (20 * BLOCK, 21 * BLOCK)],
        [(n * BLOCK, (n + 1) * BLOCK) for n in range(0, 4000, 2)],
    ],
    ids=["empty", "begin", "two", "fragmented"],
)
def test_every_hole_gets_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: list[tuple[int, int]]
) -> None:
    made = filesystem(tmp_path, monkeypatch, size=600 * MIB, free=700 * MIB, written=written)
    assert reserve(made)
    assert made.extents() == [(0, 600 * MIB)]
    assert len(made.calls) <= 4, "one call for many holes"
    assert space_reservation.next_hole(made.path, 0) is None


def test_a_file_without_holes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filesystem(tmp_path, monkeypatch, size=MIB, free=0, written=[(0, MIB)])
    assert reserve(made)
    assert made.calls == []


def test_what_is_to_stay_free_stays_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filesystem(tmp_path, monkeypatch, size=600 * MIB, free=300 * MIB)
    assert not reserve(made, keep=64 * MIB)
    assert made.free == 64 * MIB


def test_a_full_pool_is_not_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = filesystem(tmp_path, monkeypatch, size=600 * MIB, free=MIB)
    assert not reserve(made, keep=64 * MIB)
    assert made.calls == []


def test_it_ends_at_the_deadline_and_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = filesystem(tmp_path, monkeypatch, size=600 * MIB, free=700 * MIB)
    moments = iter([0.0, 2.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(moments))
    assert not reserve(made, deadline_s=1.0)
    assert len(made.calls) == 1
    monkeypatch.undo()
    monkeypatch.setattr(fcntl, "ioctl", made.ioctl)
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    assert reserve(made)
    assert made.extents() == [(0, 600 * MIB)]


def test_a_file_that_is_gone_needs_nothing(tmp_path: Path) -> None:
    assert space_reservation.unreserved_bytes(str(tmp_path / "none")) == 0
    with pytest.raises(FileNotFoundError):
        space_reservation.next_hole(str(tmp_path / "none"), 0)


def test_how_much_is_not_reserved(tmp_path: Path) -> None:
    path = tmp_path / "vm1.0.data"
    with path.open("wb") as file:
        file.truncate(64 * MIB)
    assert space_reservation.unreserved_bytes(str(path)) == 64 * MIB
    path.write_bytes(b"x" * MIB)
    assert space_reservation.unreserved_bytes(str(path)) == 0
