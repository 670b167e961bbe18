# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a block device the same as a file: reads both, and writes the ranges that differ.

Direct I/O on both sides: no page of the device's is left over that the kernel would write later,
and none of a host's memory is between what is compared and the disks.
"""

from __future__ import annotations

import mmap
import os
from types import TracebackType
from typing import Self

#: How much is read at once.
CHUNK_BYTES = 4 << 20
#: The smallest range that is written: XFS allocates copied blocks in runs of that size.
PIECE_BYTES = 128 << 10


class RangeCopy:
    """One copy; a context manager.

    The file may be shorter than the device: what is behind its end becomes zeros.

    Attributes:
        size_bytes: the size of the device.
        done_bytes: how much has been compared.
        written_bytes: how much differed.
    """

    def __init__(self, file: str, device: str) -> None:
        self._paths = file, device
        self._file = self._device = -1
        # Anonymous maps begin with a page, as direct I/O wants it.
        self._wanted, self._present = mmap.mmap(-1, CHUNK_BYTES), mmap.mmap(-1, CHUNK_BYTES)
        self.size_bytes = self.done_bytes = self.written_bytes = 0

    def __enter__(self) -> Self:
        file, device = self._paths
        flags = os.O_DIRECT | os.O_CLOEXEC
        try:
            self._file = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | flags)
            self._device = os.open(device, os.O_RDWR | flags)
            self.size_bytes = os.lseek(self._device, 0, os.SEEK_END)
            if os.fstat(self._file).st_size > self.size_bytes:
                raise OSError(0, f"is larger than {device}", file)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for handle in (self._file, self._device):
            if handle >= 0:
                os.close(handle)
        self._file = self._device = -1

    def step(self) -> bool:
        """Compare the next chunk, and write what differs of it; return whether there is more.

        Raises:
            OSError: one of the two cannot be read, or the device cannot be written.
        """
        at = self.done_bytes
        length = min(CHUNK_BYTES, self.size_bytes - at)
        if length <= 0:
            return False
        self._read_file(at, length)
        if _read(self._device, self._present, at, length) < length:
            raise OSError(0, f"ends at byte {at}", self._paths[1])
        if self._wanted[:length] != self._present[:length]:
            for begin in range(0, length, PIECE_BYTES):
                end = min(begin + PIECE_BYTES, length)
                if self._wanted[begin:end] != self._present[begin:end]:
                    self._write(at, begin, end)
                    self.written_bytes += end - begin
        self.done_bytes += length
        return self.done_bytes < self.size_bytes

    def flush(self) -> None:
        """Return when all that was written is on the disks.

        Raises:
            OSError: it is not.
        """
        os.fsync(self._device)

    def _read_file(self, at: int, length: int) -> None:
        got = _read(self._file, self._wanted, at, length)
        if got < length:
            self._wanted[got:length] = bytes(length - got)

    def _write(self, at: int, begin: int, end: int) -> None:
        with memoryview(self._wanted) as view:
            while begin < end:
                with view[begin:end] as part:
                    begin += os.pwritev(self._device, [part], at + begin)


def _read(handle: int, buffer: mmap.mmap, at: int, length: int) -> int:
    """Read until the end, and return how much came."""
    got = 0
    with memoryview(buffer) as view:
        while got < length:
            with view[got:length] as part:
                count = os.preadv(handle, [part], at + got)
            if not count:
                break
            got += count
    return got
