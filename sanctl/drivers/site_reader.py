# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that gives a copy back. It never opens one for writing.

The other end has the digests of all chunks first, and wants chunks that it does not have. Of one
of which it has some blocks only the others are sent. Nothing is remembered between connections.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Callable

from sanctl.drivers.site_protocol import (
    BLOCK_BYTES,
    BLOCK_DIGEST_BYTES,
    CHUNK_BYTES,
    PART,
    WANTED,
    Line,
    SiteError,
    block_digests,
    chunk_digests,
    read_all,
)


class Reader:
    """The copy that one connection reads."""

    def __init__(self, line: Line, open_copy: Callable[[str], int]) -> None:
        """Read by a connection; `open_copy` opens the proven copy with a token for reading."""
        self._line, self._open_copy = line, open_copy
        self._handle = -1
        self._size_bytes = 0

    def close(self) -> None:
        """End."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def read(self, token: str, size_bytes: int) -> None:
        """Read a copy from the disk, and answer with the digests of its chunks."""
        self.close()
        self._handle = self._open_copy(token)
        # A run with --keep leaves it for as long as it is read.
        fcntl.flock(self._handle, fcntl.LOCK_SH)
        found = os.fstat(self._handle).st_size
        if found != size_bytes:
            raise SiteError(
                "SAN-SITE-017", f"copy {token} has {found} bytes, and {size_bytes} were noted"
            )
        self._size_bytes = size_bytes
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
        self._line.send(b"C", chunk_digests(self._handle, size_bytes, self._line.alive))

    def want(self, body: bytes) -> None:
        """Send what differs of a chunk: all of it if no digests of blocks came."""
        (number,) = WANTED.unpack_from(body)
        known = body[WANTED.size :]
        begin = number * CHUNK_BYTES
        length = min(CHUNK_BYTES, self._size_bytes - begin)
        if self._handle < 0 or length <= 0:
            raise SiteError("SAN-SITE-008", f"there is no chunk {number}")
        data = read_all(self._handle, begin, length)
        for at, end in _differing(block_digests(data), known, length):
            part = data[at:end]
            packed = zlib.compress(part, 1)
            is_smaller = len(packed) < len(part)
            head = PART.pack(begin + at, is_smaller)
            self._line.send(b"D", head + (packed if is_smaller else part))
        self._line.send(b"E", body[: WANTED.size])


def _differing(own: bytes, known: bytes, length: int) -> list[tuple[int, int]]:
    """Return the ranges of a chunk whose blocks' digests differ; all of it if none are known."""
    if not known:
        return [(0, length)]
    if len(known) != len(own):
        raise SiteError("SAN-SITE-008", f"{len(known)} bytes of digests came for a chunk")
    found: list[tuple[int, int]] = []
    for at in range(0, length, BLOCK_BYTES):
        where = at // BLOCK_BYTES * BLOCK_DIGEST_BYTES
        if own[where : where + BLOCK_DIGEST_BYTES] == known[where : where + BLOCK_DIGEST_BYTES]:
            continue
        end = min(at + BLOCK_BYTES, length)
        if found and found[-1][1] == at:
            found[-1] = (found[-1][0], end)
        else:
            found.append((at, end))
    return found
