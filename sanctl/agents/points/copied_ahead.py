# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy whose blocks are shared before the hold, so that the hold copies what changed since.

To share the blocks of a file takes 10 to 40 µs for each extent, and to read where they are a
twentieth of that. So most are shared while hosts write, in slices: XFS lets no write to the file
through while it copies a slice. In the hold the map of the origin is read once more, and compared
with the copy's (plan/device/copied_ahead.py says what follows from that). After the hold the copy's
map is compared with what the origin's was in it: a copy that is not the same is none.
"""

from __future__ import annotations

import array
import errno
import gc
import itertools
import mmap
import os
import time
from collections.abc import Callable

from sanctl.drivers import reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.restore_point import MAX_EXTENTS, MAX_HELD_EXTENTS
from sanctl.plan.device.copied_ahead import Mapped, Range, first_slice, ranges_to_copy, runs

#: A file with fewer extents is copied in the hold: that takes as long as to compare.
FEW_EXTENTS = 256
#: How many extents are shared at a time while hosts write: the first time for two milliseconds.
#: Each time waits for the direct I/O in flight, so with a slow disk more are shared at a time.
_FEWEST, _MOST = 64, 1024
_SHORT_S, _LONG_S = 0.01, 0.1
#: How many extents are copied in the time of a call: of a file that is written synchronously each
#: forces the journal to the disk (fs/xfs/xfs_file.c, xfs_file_remap_range).
_CALL_EXTENTS, _SYNCHRONOUS_CALL_EXTENTS = 8, 200
#: So often what has changed meanwhile is shared, at most, and as long as it is more than this.
_PASSES, _FEW_RANGES = 4, 64
#: How long all passes may take. The other nodes wait for that, and so does systemd.
AHEAD_S = 20.0
_EXTENT_BYTES = 24


class CopiedAhead:
    """The copy of one file, made by `advance`, `complete` in a child of this process, `check`."""

    def __init__(self, origin: int, copy: int, write_range: Callable[[int, int], None]) -> None:
        """Begin with an empty copy.

        Args:
            origin: the open file.
            copy: the open file that becomes its copy.
            write_range: writes the origin's dirty pages of a range, begin and end in bytes.
        """
        self._origin, self._copy, self._write_range = origin, copy, write_range
        self._blocks: list[Mapped] = []
        self._block_set: frozenset[Mapped] = frozenset()
        self._slice = _FEWEST
        self._call_extents = (
            _SYNCHRONOUS_CALL_EXTENTS if reflink.is_synchronous(origin) else _CALL_EXTENTS
        )
        # Where the child leaves the origin's map; the file may get more extents until then.
        self._most = 2 * MAX_EXTENTS
        self._seen = mmap.mmap(-1, 8 + self._most * _EXTENT_BYTES)

    def close(self) -> None:
        """Give the memory back."""
        self._seen.close()

    def advance(self, *, within_s: float = AHEAD_S) -> bool:
        """Share what has changed, while hosts write; again does so with what has changed since.

        Returns:
            False: the filesystem does not tell where the file's blocks are; the copy has some.

        Raises:
            CommandError: the time was too short, and more is left than can be copied in the hold.
            OSError: blocks could not be shared.
        """
        until_s = time.monotonic() + within_s
        for number in range(_PASSES):
            size = os.fstat(self._origin).st_size
            os.ftruncate(self._copy, size)
            origin = reflink.written_blocks(self._origin, settled=False)
            if origin is None:
                return False
            ranges = self._to_copy(origin, size, _CALL_EXTENTS)
            if number and len(ranges) <= _FEW_RANGES:
                break
            is_whole = self._share(ranges, origin, until_s)
            copied = reflink.written_blocks(self._copy, settled=True)
            if copied is None:
                return False
            self._blocks, self._block_set = copied, frozenset(copied)
            if not is_whole:
                self._check_rest(origin, within_s)
                break
        # So its pages are there in the hold.
        used = 8 + min(self._most, len(self._blocks) * 5 // 4) * _EXTENT_BYTES
        self._seen[:used] = bytes(used)
        return True

    def _to_copy(self, origin: list[Mapped], size_bytes: int, call_extents: int) -> list[Range]:
        return ranges_to_copy(
            origin,
            self._blocks,
            self._block_set,
            size_bytes=size_bytes,
            call_extents=call_extents,
        )

    def _share(self, ranges: list[Range], origin: list[Mapped], until_s: float) -> bool:
        """Share ranges in slices; return False where the time was too short for all."""
        left = list(reversed(ranges))
        while left:
            begin, end = left.pop()
            cut = first_slice(begin, end, origin, extents=self._slice)
            if cut < end:
                left.append((cut, end))
            if time.monotonic() > until_s:
                return False
            # Else written while the file takes no write.
            self._write_range(begin, cut)
            begun_s = time.monotonic()
            self._clone(begin, cut)
            took_s = time.monotonic() - begun_s
            if took_s < _SHORT_S:
                self._slice = min(2 * self._slice, _MOST)
            elif took_s > _LONG_S:
                self._slice = max(self._slice // 2, _FEWEST)
            # Hosts' writes have as much time as the copy.
            time.sleep(min(took_s, _LONG_S))
        return True

    def _check_rest(self, origin: list[Mapped], within_s: float) -> None:
        """Check that the hold can copy what is left."""
        left = sum(each not in self._block_set for each in origin)
        if left > MAX_HELD_EXTENTS:
            raise CommandError(
                Problem(
                    "SAN-SNAP-007",
                    f"of {len(origin)} extents {left} were not copied ahead within "
                    f"{within_s:.0f} s",
                    "a node or a disk may be very busy; try again",
                )
            )

    def complete(self) -> None:
        """Copy what has changed since, in the hold: nobody writes, and no page is dirty.

        For a child process, which ends afterwards.

        Raises:
            OSError: it could not be copied.
        """
        # What is made here is not looked through for what nobody uses.
        gc.disable()
        size = os.fstat(self._origin).st_size
        if os.fstat(self._copy).st_size != size:
            os.ftruncate(self._copy, size)
        origin = reflink.written_blocks(self._origin, settled=True)
        if origin is None or len(origin) > self._most:
            raise OSError(errno.EFBIG, "the file's blocks are not known, or too many")
        for begin, end in self._to_copy(origin, size, self._call_extents):
            self._clone(begin, end)
        packed = array.array("Q", itertools.chain.from_iterable(origin)).tobytes()
        self._seen[8 : 8 + len(packed)] = packed
        self._seen[:8] = len(origin).to_bytes(8, "little")

    def check(self) -> None:
        """Compare the copy with what its origin was in the hold; nobody waits.

        Raises:
            CommandError: it is not the same.
            OSError: the copy cannot be read.
        """
        count = int.from_bytes(self._seen[:8], "little")
        flat = array.array("Q", self._seen[8 : 8 + count * _EXTENT_BYTES])
        origin = zip(flat[0::3], flat[1::3], flat[2::3], strict=True)
        copied = reflink.written_blocks(self._copy, settled=True)
        if copied is None or runs(copied) != runs(origin):
            raise CommandError(
                Problem(
                    "SAN-SNAP-021",
                    "the copy is not what its origin was while hosts' I/O was held back",
                    "no restore point was made; please report it",
                )
            )

    def _clone(self, begin: int, end: int) -> None:
        reflink.clone_range(self._origin, self._copy, begin, end)
