# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy at a second site, as what a device is to hold: what the device has is not sent.

The device is read, chunk by chunk, and a chunk with another digest than the copy's is asked for,
some ahead of what is used. Each chunk is used once it has the digest that the copy's has.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections import deque

from sanctl.drivers import block_stream
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    block_digests,
    digest_of,
)
from sanctl.errors import CommandError, Problem
from sanctl.model.site_copy import SiteCopy

#: How much is asked for ahead. The line is not to wait for each answer; and what is asked for has
#: to fit between the two ends, as neither reads while it writes: 4 KiB for each chunk.
_AHEAD_BYTES = 8 * CHUNK_BYTES
_ZERO_BLOCK = bytes(CHUNK_BYTES)


class SiteSource:
    """A copy; what a device holds already is taken from there. See range_copy.Source."""

    def __init__(
        self, link: SiteLink, copy: SiteCopy, device: str, size_bytes: int, chunks: bytes
    ) -> None:
        """Use a connection on which the copy is read.

        Args:
            link: the connection.
            copy: the copy.
            device: the path of the device that is to hold it.
            size_bytes: the copy's size.
            chunks: the digests of its chunks.

        Raises:
            CommandError: they are not those of the copy that was noted.
        """
        if digest_of(chunks, size_bytes) != copy.digest:
            raise CommandError(
                Problem(
                    "SAN-SITE-017",
                    f"copy {copy.name} is not any more what was proven: it has another digest",
                    "use another copy: 'sanctl site copies' lists them; look at the kernel's log "
                    "of the site's server",
                )
            )
        self._link, self._copy, self._path = link, copy, device
        self._size_bytes, self._chunks = size_bytes, chunks
        self._device = -1
        self._buffer = mmap.mmap(-1, CHUNK_BYTES)
        self._ahead = 0
        #: What the device has, and whether that is not the copy's and was asked for.
        self._asked: deque[tuple[bytes, bool]] = deque()

    def open(self) -> int:
        """See Source.open."""
        flags = os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._device = os.open(self._path, flags)
        return self._size_bytes

    def read(self, buffer: mmap.mmap, at: int, length: int) -> int:
        """See Source.read."""
        end = min(at + length, self._size_bytes)
        for begin in range(at, end, CHUNK_BYTES):
            self._look_ahead(begin)
            chunk = self._next(begin // CHUNK_BYTES)
            buffer[begin - at : begin - at + len(chunk)] = chunk
        return max(0, end - at)

    def close(self) -> None:
        """See Source.close. The connection stays."""
        if self._device >= 0:
            os.close(self._device)
        self._device = -1

    def _look_ahead(self, at: int) -> None:
        while self._ahead < min(at + _AHEAD_BYTES, self._size_bytes):
            own = self._read_device(self._ahead)
            number = self._ahead // CHUNK_BYTES
            differs = hashlib.sha256(own).digest() != self._digest(number)
            if differs:
                is_zero = own == _ZERO_BLOCK[: len(own)]
                self._link.want(number, b"" if is_zero else block_digests(own))
            self._asked.append((own, differs))
            self._ahead += len(own)

    def _next(self, number: int) -> bytes:
        own, differs = self._asked.popleft()
        if not differs:
            return own
        chunk = bytearray(own)
        self._link.take(number, chunk)
        if hashlib.sha256(chunk).digest() != self._digest(number):
            raise CommandError(
                Problem(
                    "SAN-SITE-017",
                    f"copy {self._copy.name}: what came for byte {number * CHUNK_BYTES} and the "
                    "MiB behind it has another digest than the copy",
                    "it is tried again; if it stays so, use another copy",
                )
            )
        return bytes(chunk)

    def _digest(self, number: int) -> bytes:
        return self._chunks[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]

    def _read_device(self, at: int) -> bytes:
        length, got = min(CHUNK_BYTES, self._size_bytes - at), 0
        with memoryview(self._buffer) as view:
            while got < length:
                with view[got:length] as part:
                    count = os.preadv(self._device, [part], at + got)
                if not count:
                    raise OSError(0, f"ends at byte {at + got} of {self._size_bytes}", self._path)
                got += count
        return self._buffer[:length]


def digest_of_device(device: str, size_bytes: int) -> str:
    """Read the first bytes of a device from the disks; return the digest that a copy of it has.

    Raises:
        OSError: it cannot be read.
    """
    chunks: list[bytes] = []
    chunk, filled = hashlib.sha256(), 0

    def use(part: memoryview) -> None:
        nonlocal chunk, filled
        while part:
            length = min(len(part), CHUNK_BYTES - filled)
            chunk.update(part[:length])
            filled, part = filled + length, part[length:]
            if filled == CHUNK_BYTES:
                chunks.append(chunk.digest())
                chunk, filled = hashlib.sha256(), 0

    block_stream.read_through(device, size_bytes, use)
    if filled:
        chunks.append(chunk.digest())
    return digest_of(b"".join(chunks), size_bytes)
