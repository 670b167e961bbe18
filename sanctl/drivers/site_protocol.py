# SPDX-License-Identifier: GPL-2.0-or-later
"""What both ends of a connection to a second site agree on: frames, chunks, digests.

It goes to the site with the receiver (site_link.py), so it imports nothing but Python's standard
library (3.9 or later).

A frame is a letter, the length of the rest (4 bytes), the rest. To the site: `J` a command in
JSON, `R` a range of data, `Z` a range of zeros, `W` which chunk of a copy is wanted. From it: `J`
an answer, `C` the digests of all chunks, `U` those of the chunks that were written anew, `D` a
range of a wanted chunk, `E` that it is all there, `A` a sign of life.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import select
import struct
import threading
import time
from collections.abc import Callable, Iterable

#: The length of the chunks that digests are made of, and the most data of one frame.
CHUNK_BYTES = 1 << 20
DIGEST_BYTES = 32
#: The length of the blocks of which a chunk that differs is put together, and of their digests,
#: which need not tell more than two blocks apart: the chunk's is compared afterwards.
BLOCK_BYTES = 4096
BLOCK_DIGEST_BYTES = 16
HEADER = struct.Struct(">cI")
#: Begin, length, whether the data is compressed, and its SHA-256.
RANGE = struct.Struct(">QI?32s")
ZEROS = struct.Struct(">QQ")
#: The number of a chunk that was written anew, and its digest.
UPDATED = struct.Struct(">Q32s")
#: The number of a chunk that is wanted. The digests of the blocks that are there follow; without
#: any all of it is sent.
WANTED = struct.Struct(">Q")
#: Begin, and whether the data is compressed.
PART = struct.Struct(">Q?")
#: How often there is a sign of life.
ALIVE_S = 15.0
#: How long one step of a disk may take that is slow, not dead: little is done in one.
STALLED_S = 3600.0
_MOST_BYTES = 2 * CHUNK_BYTES


class SiteError(Exception):
    """What is wrong, with its code; it goes back to the cluster."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


def write_all(handle: int, data: bytes, at: int) -> None:
    """Write all of some data at a position of a file."""
    done = 0
    while done < len(data):
        done += os.pwrite(handle, data[done:], at + done)


def read_all(handle: int, at: int, length: int) -> bytes:
    """Read a range of a file that has it.

    Raises:
        OSError: the file ends before.
    """
    parts, left = [], length
    while left:
        part = os.pread(handle, left, at + length - left)
        if not part:
            raise OSError(errno.EIO, f"the file ends before byte {at + length}")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def chunk_digests(
    handle: int,
    size_bytes: int,
    look: Callable[[int], object],
    numbers: Iterable[int] | None = None,
) -> bytes:
    """Return the SHA-256 of each chunk of a file, one behind the other. Holes are not read.

    Args:
        handle: the open file.
        size_bytes: its size.
        look: called now and then with how much is done.
        numbers: the numbers of the chunks that are read, in order; None: all are.
    """
    # Of some chunks nothing is read ahead: that would be of others.
    advice = os.POSIX_FADV_SEQUENTIAL if numbers is None else os.POSIX_FADV_RANDOM
    os.posix_fadvise(handle, 0, 0, advice)
    zeros = hashlib.sha256(bytes(CHUNK_BYTES)).digest()
    found, data_at, done = [], 0, 0
    for number in range(chunk_count(size_bytes)) if numbers is None else numbers:
        at = number * CHUNK_BYTES
        length = min(CHUNK_BYTES, size_bytes - at)
        if data_at < at:
            data_at = _next_data(handle, at, size_bytes)
        if data_at >= at + length:
            found.append(zeros if length == CHUNK_BYTES else hashlib.sha256(bytes(length)).digest())
        else:
            found.append(hashlib.sha256(read_all(handle, at, length)).digest())
            # A copy is as large as a device: it is not to fill the machine's memory.
            os.posix_fadvise(handle, at, length, os.POSIX_FADV_DONTNEED)
        done += length
        look(done)
    return b"".join(found)


def chunk_count(size_bytes: int) -> int:
    """Return how many chunks a file of that size has; the last one may be shorter."""
    return -(-size_bytes // CHUNK_BYTES)


def with_updated(chunks: bytes, numbers: Iterable[int], digests: bytes) -> bytes:
    """Return a list of chunks' digests with those of some chunks replaced."""
    found = bytearray(chunks)
    for place, number in enumerate(numbers):
        digest = digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES]
        found[number * DIGEST_BYTES : (number + 1) * DIGEST_BYTES] = digest
    return bytes(found)


def _next_data(handle: int, at: int, size_bytes: int) -> int:
    try:
        return os.lseek(handle, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return size_bytes


def digest_of(chunks: bytes, size_bytes: int) -> str:
    """Return the digest of a file's content, from its size and the digests of its chunks."""
    return hashlib.sha256(struct.pack(">Q", size_bytes) + chunks).hexdigest()


def block_digests(chunk: bytes) -> bytes:
    """Return the digest of each block of a chunk, one behind the other."""
    return b"".join(
        hashlib.blake2b(chunk[at : at + BLOCK_BYTES], digest_size=BLOCK_DIGEST_BYTES).digest()
        for at in range(0, len(chunk), BLOCK_BYTES)
    )


class Line:
    """The connection: frames from standard input, frames to standard output."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def read(self) -> tuple[bytes, bytes] | None:
        """Return the next frame; None at the end."""
        head = self._exactly(HEADER.size, may_end=True)
        if head is None:
            return None
        kind, length = HEADER.unpack(head)
        if length > _MOST_BYTES:
            raise SiteError("SAN-SITE-008", f"a frame of {length} bytes came")
        return kind, self._exactly(length) or b""

    def _exactly(self, length: int, *, may_end: bool = False) -> bytes | None:
        parts, left = [], length
        while left:
            if not select.select([0], [], [], ALIVE_S)[0]:
                self.alive()
                continue
            part = os.read(0, min(left, 1 << 20))
            if not part:
                if may_end and left == length:
                    return None
                raise EOFError
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def send(self, kind: bytes, body: bytes) -> None:
        """Send a frame."""
        data = memoryview(HEADER.pack(kind, len(body)) + body)
        while data:
            data = data[os.write(1, data) :]
        self._said_s = time.monotonic()

    def answer(self, **fields: object) -> None:
        """Send an answer in JSON."""
        self.send(b"J", json.dumps(fields).encode())

    def alive(self, _done_bytes: int = 0) -> None:
        """Give a sign of life, if one is due. It also finds out that nobody listens any more."""
        if time.monotonic() - self._said_s >= ALIVE_S - 1:
            self.send(b"A", b"")

    def require_other_end(self) -> None:
        """Raise OSError with EPIPE if the other end is known to be gone."""
        poll = select.poll()
        poll.register(0, select.POLLRDHUP)
        poll.register(1, 0)
        # POLLHUP and POLLERR come unasked; that there is something to read does not.
        if poll.poll(0):
            raise OSError(errno.EPIPE, os.strerror(errno.EPIPE))

    def take_no_more(self) -> None:
        """Let the other end find out at once that nothing is read any more.

        The end of the program tells it too, but that waits for a call that hangs in a disk, in a
        thread or in `close`.
        """
        handle = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        os.dup2(handle, 0)
        os.close(handle)

    def patiently(self, step: Callable[[], object]) -> None:
        """Do what a slow disk may take minutes for, and give signs of life meanwhile.

        Raises:
            SiteError: it takes so long that the disk is taken for dead.
            OSError: it failed.
        """
        failures: list[Exception] = []

        def run() -> None:
            try:
                step()
            except Exception as error:
                failures.append(error)

        # Nobody waits for it at the end of the program: nothing ends a call that hangs.
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        deadline = time.monotonic() + STALLED_S
        while thread.is_alive():
            thread.join(ALIVE_S / 4)
            self.alive()
            if thread.is_alive() and time.monotonic() > deadline:
                raise SiteError("SAN-SITE-014", f"a disk has ended nothing for {STALLED_S:g} s")
        if failures:
            raise failures[0]
