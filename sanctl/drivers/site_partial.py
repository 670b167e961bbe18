# SPDX-License-Identifier: GPL-2.0-or-later
"""The part of a second site's program that makes a copy: what is written, and what it is then.

It begins as a reflink of a proven copy, under a name of its own, `.partial`. Under which locks, and
whether the copy may get its name, is the receiver's (site_receiver.py).
"""

from __future__ import annotations

import hashlib
import os
import zlib

from sanctl.drivers.site_chunks import SUFFIX, WrittenChunks, chunks_of
from sanctl.drivers.site_copies import open_copy
from sanctl.drivers.site_files import (
    clone,
    is_same_file,
    punch,
    sync_folder,
    unlink_if_there,
    write_file,
)
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    RANGE,
    UPDATED,
    ZEROS,
    Line,
    SiteError,
    chunk_digests,
    digest_of,
    with_updated,
    write_all,
)

#: So much is written before it is flushed. Where a disk is slower than the line, the rest would
#: else be flushed in one step at the end, of hours.
_FLUSHED_BYTES = 16 << 20


class PartialCopy:
    """The copy that one connection makes."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._path = ""
        self._handle = -1
        self._size_bytes = 0
        #: How much was written since the last flush.
        self._dirty_bytes = 0
        #: The digests of the base's chunks, if that list is right; empty: there is none.
        self._base_chunks = b""
        self._written = WrittenChunks(0)
        #: The digest of the copy, and those of its chunks, if nothing was written since; empty: not
        #: known.
        self._digest, self._chunks = "", b""

    def close(self) -> None:
        """End; a copy that is not proven goes."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            unlink_if_there(self._path)

    def create(self, path: str) -> None:
        """Make the file, which is not there yet."""
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        self._base_chunks = b""

    def begin_as(self, base: str, folder: str, size_bytes: int) -> None:
        """Give it the blocks of the proven copy with the token `base` in a folder."""
        copy, origin = open_copy(folder, base)
        try:
            self._line.patiently(lambda: clone(origin, self._handle))
            # In a copy that has grown the last chunk of the list may be shorter than it is now.
            if size_bytes == copy["size_bytes"] == os.fstat(origin).st_size:
                self._base_chunks = chunks_of(folder, copy)
        finally:
            os.close(origin)

    def resize(self, size_bytes: int) -> bool:
        """Give it its size; return whether there is a right list of the base's chunks."""
        os.ftruncate(self._handle, size_bytes)
        self._size_bytes, self._dirty_bytes, self._digest = size_bytes, 0, ""
        self._written = WrittenChunks(size_bytes)
        return bool(self._base_chunks)

    def put(self, body: bytes) -> None:
        """Write a range of data."""
        at, length, is_compressed, wanted = RANGE.unpack_from(body)
        data = body[RANGE.size :]
        if is_compressed:
            try:
                data = zlib.decompressobj().decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise SiteError("SAN-SITE-008", f"a range at byte {at}: {error}") from None
        if len(data) != length or hashlib.sha256(data).digest() != wanted:
            raise SiteError("SAN-SITE-008", f"the range at byte {at} did not come as it was sent")
        self._check_range(at, length)
        # A disk that is full of what is to be written holds up writers, for as long as it likes.
        self._line.patiently(lambda: write_all(self._handle, data, at))
        self._dirty_bytes += length
        if self._dirty_bytes >= _FLUSHED_BYTES:
            self._dirty_bytes = 0
            self.require_own()
            self._line.patiently(lambda: os.fdatasync(self._handle))

    def zero(self, body: bytes) -> None:
        """Make a range zeros."""
        at, length = ZEROS.unpack(body)
        self._check_range(at, length)
        self._line.patiently(lambda: punch(self._handle, at, length))

    def _check_range(self, at: int, length: int) -> None:
        if self._handle < 0 or at + length > self._size_bytes:
            raise SiteError("SAN-SITE-008", f"a range at byte {at} is outside of the copy")
        self._digest = ""
        self._written.mark(at, length)
        self._line.alive()

    def require_own(self) -> None:
        """Raise SiteError if a later run has removed the copy: what is sent would go nowhere."""
        if not is_same_file(self._handle, self._path):
            raise SiteError("SAN-SITE-016", "a later run for this device has taken over")

    def chunks(self, *, only_changed: bool = False) -> None:
        """Flush, read the copy from the disk, and answer with the digests of its chunks.

        With `only_changed` what was written is read, and the answer has the base's list as well.
        """
        self.require_own()
        self._line.patiently(lambda: os.fsync(self._handle))
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
        if not only_changed:
            self._chunks = chunk_digests(self._handle, self._size_bytes, self._line.alive)
            self._digest = digest_of(self._chunks, self._size_bytes)
            self._line.send(b"C", self._chunks)
            return
        if not self._base_chunks:
            raise SiteError("SAN-SITE-008", "there is no list of the base's chunks")
        written = self._written
        found = chunk_digests(self._handle, self._size_bytes, self._line.alive, written.numbers())
        self._chunks = with_updated(self._base_chunks, written.numbers(), found)
        self._digest = digest_of(self._chunks, self._size_bytes)
        self._line.send(b"C", self._base_chunks)
        updated = bytearray()
        for number in written.numbers():
            at = number * DIGEST_BYTES
            updated += UPDATED.pack(number, self._chunks[at : at + DIGEST_BYTES])
        self._line.send(b"U", bytes(updated))

    def is_equal(self, digest: str) -> bool:
        """Whether it was read since the last write, and has that digest."""
        return bool(self._digest) and self._digest == digest

    def rename(self, final: str) -> None:
        """Give it its name, once all of it is on the disk, and the list of its chunks beside it."""
        write_file(f"{final}{SUFFIX}", self._chunks)
        os.fchmod(self._handle, 0o400)
        self._line.patiently(lambda: os.fsync(self._handle))
        os.rename(self._path, final)
        sync_folder(os.path.dirname(final))
        os.close(self._handle)
        self._handle = -1
