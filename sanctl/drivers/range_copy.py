# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes a block device the same as a file or a stream: reads both, writes the ranges that differ.

Direct I/O on the device, and on the file: no page of the device's is left over that the kernel
would write later, and none of a host's memory is between what is compared and the disks.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from sanctl.system import pipe_wait

#: How much is read at once.
CHUNK_BYTES = 4 << 20
#: The smallest range that is written: XFS allocates copied blocks in runs of that size.
PIECE_BYTES = 128 << 10


class Source(Protocol):
    """What a device is to hold."""

    def open(self) -> int:
        """Open it, and return its size in bytes.

        Raises:
            OSError: it cannot be opened.
        """
        ...

    def read(self, buffer: mmap.mmap, at: int, length: int) -> int:
        """Read into a buffer; return how many bytes came, which is less at its end alone.

        It is read from begin to end, each byte once.

        Raises:
            OSError: it cannot be read.
        """
        ...

    def close(self) -> None:
        """Close it, if it is open."""
        ...


class FileSource:
    """A file, opened with `open_file`, which is given its path and flags."""

    def __init__(self, path: str, open_file: Callable[[str, int], int] = os.open) -> None:
        self._path, self._open, self._handle = path, open_file, -1

    def open(self) -> int:
        """See Source.open."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECT | os.O_CLOEXEC
        self._handle = self._open(self._path, flags)
        return os.fstat(self._handle).st_size

    def read(self, buffer: mmap.mmap, at: int, length: int) -> int:
        """See Source.read."""
        return _read(self._handle, buffer, at, length)

    def close(self) -> None:
        """See Source.close."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


class PipeSource:
    """What comes by a pipe: as many bytes as were announced, and none less."""

    def __init__(self, pipe: int, size_bytes: int, *, silence_s: float) -> None:
        self._pipe, self._size_bytes, self._silence_s = pipe, size_bytes, silence_s

    def open(self) -> int:
        """See Source.open."""
        return self._size_bytes

    def read(self, buffer: mmap.mmap, at: int, length: int) -> int:
        """See Source.read."""
        length = max(0, min(length, self._size_bytes - at))
        got = 0
        with memoryview(buffer) as view:
            while got < length:
                pipe_wait.await_data(self._pipe, silence_s=self._silence_s)
                with view[got:length] as part:
                    count = os.readv(self._pipe, [part])
                if not count:
                    raise OSError(0, f"the data ends at byte {at + got} of {self._size_bytes}")
                got += count
        return got

    def close(self) -> None:
        """See Source.close. The pipe is its program's."""


class RangeCopy:
    """One copy; a context manager.

    The source may be shorter than the device: what is behind the size that it said when it was
    opened becomes zeros. One that ends before that is an error.

    Attributes:
        size_bytes: the size of the device.
        done_bytes: how much has been compared.
        written_bytes: how much differed.
    """

    def __init__(self, source: Source, device: str) -> None:
        self._source, self._path = source, device
        self._device = -1
        self._source_bytes = 0
        # Anonymous maps begin with a page, as direct I/O wants it.
        self._wanted, self._present = mmap.mmap(-1, CHUNK_BYTES), mmap.mmap(-1, CHUNK_BYTES)
        self.size_bytes = self.done_bytes = self.written_bytes = 0

    def __enter__(self) -> Self:
        try:
            self._source_bytes = self._source.open()
            self._device = os.open(self._path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
            self.size_bytes = os.lseek(self._device, 0, os.SEEK_END)
            if self._source_bytes > self.size_bytes:
                raise OSError(0, f"is smaller than the {self._source_bytes} bytes", self._path)
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
        self._source.close()
        if self._device >= 0:
            os.close(self._device)
        self._device = -1

    def step(self) -> bool:
        """Compare the next chunk, and write what differs of it; return whether there is more.

        Raises:
            OSError: one of the two cannot be read, or the device cannot be written.
        """
        at = self.done_bytes
        length = min(CHUNK_BYTES, self.size_bytes - at)
        if length <= 0:
            return False
        self._read_source(at, length)
        if _read(self._device, self._present, at, length) < length:
            raise OSError(0, f"ends at byte {at}", self._path)
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

    def _read_source(self, at: int, length: int) -> None:
        got = self._source.read(self._wanted, at, length)
        if at + got < min(at + length, self._source_bytes):
            raise OSError(0, f"the source ends at byte {at + got} of {self._source_bytes}")
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
