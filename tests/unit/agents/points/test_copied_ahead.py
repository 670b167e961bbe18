# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy that is made ahead is the origin's content in the hold, whatever hosts write meanwhile."""

from __future__ import annotations

import errno
import itertools
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.agents.points import copied_ahead
from sanctl.agents.points.copied_ahead import CopiedAhead
from sanctl.drivers import reflink
from sanctl.errors import CommandError
from sanctl.model.restore_point import MAX_EXTENTS
from sanctl.system.forked_call import ForkedCall

BLOCK, BLOCKS = 4096, 3000


class Files:
    """Two files of a filesystem that shares blocks, and never writes one that is shared."""

    def __init__(self, folder: Path) -> None:
        flags = os.O_RDWR | os.O_CREAT
        self.origin = os.open(folder / "origin", flags)
        self.copy = os.open(folder / "copy", flags)
        os.truncate(self.origin, BLOCK * BLOCKS)
        self.places: dict[int, dict[int, int]] = {self.origin: {}, self.copy: {}}
        self.next_place = 10
        self.clones: list[int] = []
        self.chance = random.Random(7)
        #: What happens in each sleep, and at each copied range.
        self.meanwhile: Callable[[], None] = lambda: None
        self.is_dirty = False
        self.written: list[tuple[int, int]] = []

    def write(self, at: int) -> None:
        """As to a block that is shared: a new one, never the next one on the disk."""
        self.next_place += 2
        self.places[self.origin][at] = self.next_place

    def write_some(self, count: int) -> None:
        for _ in range(count):
            at = self.chance.randrange(BLOCKS)
            if self.chance.random() < 0.2:
                self.places[self.origin].pop(at, None)
            else:
                self.write(at)

    def written_blocks(self, handle: int, *, settled: bool) -> list[tuple[int, int, int]] | None:
        if settled and handle == self.origin and self.is_dirty:
            return None
        return [
            (at * BLOCK, place * BLOCK, BLOCK) for at, place in sorted(self.places[handle].items())
        ]

    def clone_range(self, origin: int, copy: int, begin: int, end: int) -> None:
        assert (origin, copy) == (self.origin, self.copy)
        blocks = range(begin // BLOCK, -(-end // BLOCK))
        for at in blocks:
            self.places[copy].pop(at, None)
            if at in self.places[origin]:
                self.places[copy][at] = self.places[origin][at]
        self.clones.append(len(blocks))
        self.meanwhile()

    def write_range(self, begin: int, end: int) -> None:
        """Dirty pages of the range are written before it is copied."""
        self.written.append((begin, end))

    def is_same(self) -> bool:
        return self.places[self.copy] == self.places[self.origin]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    made = Files(tmp_path)
    for at in range(0, BLOCKS, 2):
        made.write(at)
    monkeypatch.setattr(reflink, "written_blocks", made.written_blocks)
    monkeypatch.setattr(reflink, "clone_range", made.clone_range)
    monkeypatch.setattr(reflink, "is_synchronous", lambda _: False)
    yield made
    os.close(made.origin)
    os.close(made.copy)


@pytest.fixture
def ahead(files: Files) -> Iterator[CopiedAhead]:
    made = CopiedAhead(files.origin, files.copy, files.write_range)
    yield made
    made.close()


def test_hosts_write_while_most_is_copied_and_the_hold_copies_the_rest(
    files: Files, ahead: CopiedAhead
) -> None:
    files.meanwhile = lambda: files.write_some(3)
    assert ahead.advance()
    assert not files.is_same()
    assert len(files.clones) > 3 and max(files.clones) <= 2 * 1024
    assert len(files.written) == len(files.clones)
    files.meanwhile = lambda: None
    files.clones.clear()
    ahead.complete()
    assert files.is_same()
    assert sum(files.clones) < 1000, "what was copied ahead is copied again"
    ahead.check()


def test_what_was_written_since_is_copied_with_the_next_look(
    files: Files, ahead: CopiedAhead
) -> None:
    assert ahead.advance()
    files.write_some(500)
    assert ahead.advance()
    files.clones.clear()
    ahead.complete()
    assert files.is_same() and not files.clones


def test_without_an_end_of_writes_the_passes_have_one(files: Files, ahead: CopiedAhead) -> None:
    files.meanwhile = lambda: files.write_some(200)
    assert ahead.advance()


def test_a_file_that_has_grown_is_copied_in_its_new_size(files: Files, ahead: CopiedAhead) -> None:
    assert ahead.advance()
    os.truncate(files.origin, BLOCK * (BLOCKS + 10))
    files.write(BLOCKS + 3)
    ahead.complete()
    ahead.check()
    assert files.is_same() and os.fstat(files.copy).st_size == BLOCK * (BLOCKS + 10)


def test_the_child_tells_what_the_origin_was(files: Files, ahead: CopiedAhead) -> None:
    """The copy is made by a child, and compared by its parent when hosts write again."""
    assert ahead.advance()
    # The parent's model of the files does not see what the child copies.
    assert files.is_same()
    call = ForkedCall(ahead.complete, keep=(files.origin, files.copy))
    call.begin(within_s=30)
    assert call.errno_of(within_s=30) == 0
    assert call.end(within_s=10)
    files.write_some(50)
    ahead.check()


@pytest.mark.parametrize("harm", ["missing", "other", "more"])
def test_a_copy_that_is_not_the_origin_is_none(files: Files, ahead: CopiedAhead, harm: str) -> None:
    assert ahead.advance()
    ahead.complete()
    copy = files.places[files.copy]
    if harm == "missing":
        copy.pop(max(copy))
    else:
        copy[max(copy) if harm == "other" else BLOCKS - 1] = 1_000_000
    with pytest.raises(CommandError, match="SAN-SNAP-021"):
        ahead.check()


def test_nothing_that_was_not_completed_is_a_copy(files: Files, ahead: CopiedAhead) -> None:
    assert ahead.advance()
    with pytest.raises(CommandError, match="SAN-SNAP-021"):
        ahead.check()


def test_a_page_that_is_dirty_in_the_hold_ends_it(files: Files, ahead: CopiedAhead) -> None:
    assert ahead.advance()
    files.is_dirty = True
    with pytest.raises(OSError, match="not known") as refused:
        ahead.complete()
    assert refused.value.errno == errno.EFBIG


def test_a_filesystem_that_does_not_tell_has_no_copy_ahead(
    files: Files, ahead: CopiedAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reflink, "written_blocks", lambda *_, **__: None)
    assert not ahead.advance()
    assert not files.clones


@pytest.mark.parametrize("most", [100, 8000])
def test_the_time_before_the_hold_ends_as_well(
    files: Files, ahead: CopiedAhead, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """What is left is copied in the hold, where that is not too much."""
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(copied_ahead, "MAX_HELD_EXTENTS", most)
    if most == 100:
        with pytest.raises(CommandError, match="SAN-SNAP-007"):
            ahead.advance(within_s=10.0)
        return
    assert ahead.advance(within_s=10.0)
    assert 0 < len(files.clones) < 10 and not files.is_same()
    files.write_some(30)
    ahead.complete()
    ahead.check()
    assert files.is_same()


def test_more_is_copied_at_a_time_where_that_is_short_and_fewer_where_it_is_long(
    files: Files, ahead: CopiedAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    slept: list[float] = []
    took_s = iter([0.001] * 6 + [0.5] * 100)

    def clone_range(*_: int) -> None:
        now_s[0] += next(took_s)

    monkeypatch.setattr(reflink, "clone_range", clone_range)
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    for at in range(BLOCKS):
        files.write(at)
    ahead.advance(within_s=2.0)
    sizes = [(end - begin) // BLOCK for begin, end in files.written]
    assert sizes[:5] == [64, 128, 256, 512, 1024]
    assert max(slept) <= 0.1 and sizes[6:8] != [1024, 1024]


def test_a_file_that_is_written_synchronously_has_few_calls_in_the_hold(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each forces the journal of the filesystem to the disk."""
    calls = {}
    for is_synchronous in (False, True):
        monkeypatch.setattr(reflink, "is_synchronous", lambda _, answer=is_synchronous: answer)
        ahead = CopiedAhead(files.origin, files.copy, files.write_range)
        assert ahead.advance()
        for at in range(0, BLOCKS, 100):
            files.write(at)
        files.clones.clear()
        ahead.complete()
        assert files.is_same()
        calls[is_synchronous] = len(files.clones)
        ahead.close()
    assert calls[True] == 1 < calls[False]


def test_the_map_has_room_for_what_comes_until_the_hold(files: Files, ahead: CopiedAhead) -> None:
    assert ahead._most > MAX_EXTENTS
