# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy at a second site, for a device that is an earlier copy: what differs is read and written.

Which chunks those are the lists of both copies say, each of which has the digest that was noted of
its copy. Nothing else of the device is read: that it is the earlier copy is for the caller to know.
A chunk that is none of the two shows that it is not.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import deque
from types import TracebackType
from typing import Self

from sanctl.drivers.range_copy import PIECE_BYTES
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    block_digests,
    digest_of,
)
from sanctl.errors import CommandError, Problem
from sanctl.model.site_copy import SiteCopy

#: How many chunks are asked for ahead. The line is not to wait for each answer; and what is asked
#: for has to fit between the two ends, as neither reads while it writes: 4 KiB for each chunk.
_AHEAD = 8


class NotTheBase(Exception):
    """The device is not the copy that it was taken for."""


class SiteDelta:
    """The chunks in which two copies differ, brought to a device; a context manager.

    Attributes:
        size_bytes: how much may differ.
        done_bytes: how much of that has been compared.
        written_bytes: how much differed.
    """

    def __init__(
        self,
        link: SiteLink,
        copy: SiteCopy,
        device: str,
        size_bytes: int,
        lists: tuple[bytes, bytes],
    ) -> None:
        """Use a connection on which the site has opened the later copy.

        Args:
            link: the connection.
            copy: the copy that the device is to be.
            device: the device's path.
            size_bytes: the size of both copies.
            lists: the digests of the chunks of the copy that the device is, and of the later one,
                as `are_of` has found them right.
        """
        self._link, self._copy, self._path = link, copy, device
        self._copy_bytes, (self._base, self._wanted) = size_bytes, lists
        self._numbers = [
            number
            for number in range(len(self._wanted) // DIGEST_BYTES)
            if _digest(self._base, number) != _digest(self._wanted, number)
        ]
        self._ahead = self._next = 0
        self._asked: deque[tuple[bytes, bool]] = deque()
        self._device = -1
        # Anonymous maps begin with a page, as direct I/O wants it.
        self._buffer = mmap.mmap(-1, CHUNK_BYTES)
        self.size_bytes = sum(map(self._length, self._numbers))
        self.done_bytes = self.written_bytes = 0

    def __enter__(self) -> Self:
        self._device = os.open(self._path, os.O_RDWR | os.O_DIRECT | os.O_CLOEXEC)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._device)
        self._device = -1

    def step(self) -> bool:
        """Compare the next chunk, and write what differs of it; return whether there is more.

        Raises:
            OSError: the device cannot be read or written.
            CommandError: the site cannot be reached, or sends something else.
            NotTheBase: the device has something else there than either copy.
        """
        if self._next == len(self._numbers):
            return False
        self._look_ahead()
        number, (own, differs) = self._numbers[self._next], self._asked.popleft()
        if differs:
            chunk = bytearray(own)
            self._link.take(number, chunk)
            self._check(number, chunk, "what came")
            self._write(number, own, bytes(chunk))
        self._next += 1
        self.done_bytes += len(own)
        return self._next < len(self._numbers)

    def flush(self) -> None:
        """Return when all that was written is on the disks.

        Raises:
            OSError: it is not.
        """
        os.fsync(self._device)

    def check(self) -> None:
        """Read all chunks that may have differed from the disks, and compare their digests.

        Raises:
            OSError: the device cannot be read.
            CommandError: one has another digest.
        """
        for number in self._numbers:
            self._check(number, self._read(number), "what was read back")

    def _look_ahead(self) -> None:
        while self._ahead < min(self._next + _AHEAD, len(self._numbers)):
            number = self._numbers[self._ahead]
            own = self._read(number)
            found = hashlib.sha256(own).digest()
            differs = found != _digest(self._wanted, number)
            if differs and found != _digest(self._base, number):
                raise NotTheBase(f"byte {number * CHUNK_BYTES} and the MiB behind it")
            if differs:
                self._link.want(number, block_digests(own))
            self._asked.append((own, differs))
            self._ahead += 1

    def _check(self, number: int, chunk: bytes | bytearray, what: str) -> None:
        if hashlib.sha256(chunk).digest() != _digest(self._wanted, number):
            raise CommandError(
                Problem(
                    "SAN-SITE-017",
                    f"copy {self._copy.name}: {what} for byte {number * CHUNK_BYTES} and the MiB "
                    "behind it has another digest than the copy",
                    "it is tried again; if it stays so, use another copy, or a disk or its memory "
                    "does not keep what was written",
                )
            )

    def _write(self, number: int, own: bytes, chunk: bytes) -> None:
        for begin in range(0, len(chunk), PIECE_BYTES):
            end = min(begin + PIECE_BYTES, len(chunk))
            if own[begin:end] == chunk[begin:end]:
                continue
            self._buffer[: end - begin] = chunk[begin:end]
            at = number * CHUNK_BYTES + begin
            done = 0
            with memoryview(self._buffer) as view:
                while done < end - begin:
                    with view[done : end - begin] as part:
                        done += os.pwritev(self._device, [part], at + done)
            self.written_bytes += end - begin

    def _read(self, number: int) -> bytes:
        at, length, got = number * CHUNK_BYTES, self._length(number), 0
        with memoryview(self._buffer) as view:
            while got < length:
                with view[got:length] as part:
                    count = os.preadv(self._device, [part], at + got)
                if not count:
                    raise OSError(0, f"ends at byte {at + got} of {self._copy_bytes}", self._path)
                got += count
        return self._buffer[:length]

    def _length(self, number: int) -> int:
        return min(CHUNK_BYTES, self._copy_bytes - number * CHUNK_BYTES)


def are_of(copies: tuple[SiteCopy, SiteCopy], lists: tuple[bytes, bytes], size_bytes: int) -> bool:
    """Whether lists of chunks' digests are those of the copies that were noted, of that size."""
    return all(
        digest_of(chunks, size_bytes) == copy.digest
        for copy, chunks in zip(copies, lists, strict=True)
    )


def _digest(chunks: bytes, number: int) -> bytes:
    return chunks[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]
