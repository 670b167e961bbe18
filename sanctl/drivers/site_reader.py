# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that gives a copy back. It never opens one for writing.

The other end has the digests of all chunks first, and wants chunks that it does not have. Where it
has an earlier copy they come of the lists beside both, and only what differs is read. Of a chunk
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
    DIGEST_BYTES,
    PART,
    UPDATED,
    WANTED,
    Line,
    SiteError,
    block_digests,
    chunk_digests,
    read_all,
)


class Reader:
    """The copy that one connection reads."""

    def __init__(
        self,
        line: Line,
        open_copy: Callable[[str], int],
        list_of: Callable[[str, int], bytes],
    ) -> None:
        """Read by a connection.

        Args:
            line: the connection.
            open_copy: opens the proven copy with a token for reading.
            list_of: returns the digests of the chunks of such a copy of a size, if there are right
                ones.
        """
        self._line, self._open_copy, self._list_of = line, open_copy, list_of
        self._handle = -1
        self._size_bytes = 0

    def close(self) -> None:
        """End."""
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1

    def read(self, token: str, size_bytes: int) -> None:
        """Read a copy from the disk, and answer with the digests of its chunks."""
        self._open(token, size_bytes)
        self._line.send(b"C", chunk_digests(self._handle, size_bytes, self._line.alive))

    def changes(self, base: str, token: str, size_bytes: int) -> None:
        """Read from the disk what a copy has not from an earlier one of the same size.

        Answers whether what was read is as the list beside the copy says. If so, with the digests
        of the earlier one's chunks, and with those that the copy has instead.
        """
        before, now = self._list_of(base, size_bytes), self._list_of(token, size_bytes)
        numbers = [
            at // DIGEST_BYTES
            for at in range(0, len(now), DIGEST_BYTES)
            if before[at : at + DIGEST_BYTES] != now[at : at + DIGEST_BYTES]
        ]
        is_right = False
        if before and now:
            self._open(token, size_bytes)
            read = chunk_digests(self._handle, size_bytes, self._line.alive, numbers)
            is_right = read == b"".join(_digest(now, number) for number in numbers)
        self._line.answer(has_changes=is_right)
        if is_right:
            self._line.send(b"C", before)
            changed = (UPDATED.pack(number, _digest(now, number)) for number in numbers)
            self._line.send(b"U", b"".join(changed))

    def _open(self, token: str, size_bytes: int) -> None:
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


def _digest(chunks: bytes, number: int) -> bytes:
    return chunks[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES]


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
