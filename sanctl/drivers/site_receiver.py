# SPDX-License-Identifier: GPL-2.0-or-later
"""Program that a second site runs: takes copies of restore points, proves them, gives them back.

It is sent there by ssh with each connection and imports nothing but Python's standard library
(3.9 or later): so both ends are of one release, whatever the site's was before. What lies at the
site outlives releases, and has a format of its own (FORMAT).

    PATH/sanctl-site.json          the mark: the format, and an id that the cluster knows
    PATH/DEVICE.UUID/POINT.TOKEN   a proven copy, as raw as the device; nobody ever writes it
    PATH/DEVICE.UUID/POINT.TOKEN.json      what is known of it
    PATH/DEVICE.UUID/TOKEN.partial one that is being made

A copy begins as a reflink of a proven one, `.partial`. It gets its name when all of it is on the
disk and its digest is that of the restore point; so whatever dies, half a copy never has one.
A new run for a device removes what runs before it have left, and so ends one that still goes on.

Both ends talk in frames: a letter, the length of the rest (4 bytes), the rest. `J` is JSON, `R` a
range of data, `Z` a range of zeros, `C` the digests of all chunks, `A` a sign of life.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import os
import re
import select
import struct
import sys
import time
import zlib
from collections.abc import Callable

#: The format of what lies at a site. Another one is refused.
FORMAT = 1
MARK = "sanctl-site.json"
#: The length of the chunks that digests are made of, and the most data of one frame.
CHUNK_BYTES = 1 << 20
DIGEST_BYTES = 32
HEADER = struct.Struct(">cI")
#: Begin, length, whether the data is compressed, and its SHA-256.
RANGE = struct.Struct(">QI?32s")
ZEROS = struct.Struct(">QQ")
#: How often there is a sign of life.
ALIVE_S = 15.0
#: What is left free at a site, beside what a copy needs.
_SPARE_BYTES = 64 << 20
_MOST_BYTES = 2 * CHUNK_BYTES
_FICLONE = 0x40049409
_KEEP_SIZE_PUNCH_HOLE = 0x3
_FOLDER = re.compile(r"[a-z0-9-]{1,63}\.[0-9a-f]{32}")
_COPY = re.compile(r"([a-z0-9-]{1,40})\.([0-9a-f]{16})")
_PARTIAL = re.compile(r"[0-9a-f]{16}\.partial")
_KNOWN = ("made_s", "proven_s", "size_bytes", "changed_bytes", "sent_bytes")


class SiteError(Exception):
    """What is wrong, with its code; it goes back to the cluster."""

    def __init__(self, code: str, text: str) -> None:
        self.code = code
        super().__init__(text)


def clone(origin: int, copy: int) -> None:
    """Give the open file `copy` the blocks of the open file `origin`."""
    fcntl.ioctl(copy, _FICLONE, origin)


def punch(handle: int, begin: int, length: int) -> None:
    """Make a range of a file zeros, without blocks of its own where the filesystem can."""
    libc = ctypes.CDLL(None, use_errno=True)
    where = ctypes.c_int64(begin), ctypes.c_int64(length)
    if libc.fallocate(handle, _KEEP_SIZE_PUNCH_HOLE, *where) == 0:
        return
    number = ctypes.get_errno()
    if number != errno.EOPNOTSUPP:
        raise OSError(number, os.strerror(number))
    zeros = bytes(CHUNK_BYTES)
    for at in range(begin, begin + length, CHUNK_BYTES):
        write_all(handle, zeros[: begin + length - at], at)


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


def chunk_digests(handle: int, size_bytes: int, look: Callable[[int], object]) -> bytes:
    """Return the SHA-256 of each chunk of a file, one behind the other. Holes are not read.

    Args:
        handle: the open file.
        size_bytes: its size.
        look: called now and then with how much is done.
    """
    os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    zeros = hashlib.sha256(bytes(CHUNK_BYTES)).digest()
    found, data_at = [], 0
    for at in range(0, size_bytes, CHUNK_BYTES):
        length = min(CHUNK_BYTES, size_bytes - at)
        if data_at < at:
            data_at = _next_data(handle, at, size_bytes)
        if data_at >= at + length:
            found.append(zeros if length == CHUNK_BYTES else hashlib.sha256(bytes(length)).digest())
        else:
            found.append(hashlib.sha256(read_all(handle, at, length)).digest())
            # A copy is as large as a device: it is not to fill the machine's memory.
            os.posix_fadvise(handle, at, length, os.POSIX_FADV_DONTNEED)
        look(at + length)
    return b"".join(found)


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


class _Line:
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
        data = memoryview(HEADER.pack(kind, len(body)) + body)
        while data:
            data = data[os.write(1, data) :]
        self._said_s = time.monotonic()

    def answer(self, **fields: object) -> None:
        self.send(b"J", json.dumps(fields).encode())

    def alive(self, _done_bytes: int = 0) -> None:
        """Give a sign of life, if one is due. It also finds out that nobody listens any more."""
        if time.monotonic() - self._said_s >= ALIVE_S - 1:
            self.send(b"A", b"")


class Receiver:
    """One connection's state: the site, the device's folder, the copy that is being made."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._path = self._folder = ""
        self._partial = ""
        self._handle = -1
        self._size_bytes = 0
        #: The digest of the partial copy, if nothing was written since; empty: not known.
        self._digest = ""

    def close(self) -> None:
        """End; a copy that is not proven goes."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            _unlink(self._partial)

    # Commands. Each answers by one frame, `_put` and `_zero` by none.

    def hello(self) -> None:
        """Answer: the connection is made, and nothing was looked at."""
        self._line.answer()

    def survey(self, path: str, new_id: str) -> None:
        """Look at a directory, and mark it as a site unless it is one; answer with its id."""
        self._path = path
        _require_folder(path)
        others = [each for each in os.listdir(path) if each != "lost+found"]
        if MARK not in others and others:
            raise SiteError(
                "SAN-SITE-006",
                f"{path} is no site yet, and not empty: it has {', '.join(sorted(others)[:4])}",
            )
        self._require_reflink()
        if MARK not in others:
            text = json.dumps({"format": FORMAT, "id": new_id})
            _write_file(f"{path}/{MARK}", text.encode())
        self._answer_state(self._require_mark())

    def open(self, path: str, id: str, device: str) -> None:
        """Open a device's folder at the site; answer with its proven copies."""
        self._path = path
        found = self._require_mark()
        if found != id:
            raise SiteError(
                "SAN-SITE-006",
                f"{path} is another site than the one that was added: its mark is {found[:8]}..., "
                f"not {id[:8]}...",
            )
        if not _FOLDER.fullmatch(device):
            raise SiteError("SAN-SITE-008", f"{device!r} is no name of a device's folder")
        self._folder = f"{path}/{device}"
        self._answer_state(found)

    def _answer_state(self, mark: str) -> None:
        status = os.statvfs(self._path)
        self._line.answer(
            id=mark,
            copies=self._copies() if self._folder else [],
            free_bytes=status.f_bavail * status.f_frsize,
            total_bytes=status.f_blocks * status.f_frsize,
        )

    def begin(self, token: str, base: str, size_bytes: int, needed_bytes: int) -> None:
        """Begin a copy: as the proven one with the token `base`, or all zeros."""
        status = os.statvfs(self._path)
        free = status.f_bavail * status.f_frsize
        if free < needed_bytes + _SPARE_BYTES:
            raise SiteError(
                "SAN-SITE-007",
                f"{self._path} has {free >> 20} MiB free, and the copy needs "
                f"{needed_bytes + _SPARE_BYTES >> 20} MiB",
            )
        if not re.fullmatch(r"[0-9a-f]{16}", token):
            raise SiteError("SAN-SITE-008", f"{token!r} is no token")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        _fsync(self._path)
        with _locked(self._folder):
            self._clean_up()
            self._partial = f"{self._folder}/{token}.partial"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self._partial, flags, 0o600)
            if base:
                self._clone(base)
        os.ftruncate(self._handle, size_bytes)
        self._size_bytes, self._digest = size_bytes, ""
        self._line.answer()

    def _clone(self, base: str) -> None:
        origin = self._open_copy(base)
        try:
            clone(origin, self._handle)
        finally:
            os.close(origin)

    def _open_copy(self, token: str) -> int:
        name = next((each["name"] for each in self._copies() if each["token"] == token), None)
        if name is None:
            raise SiteError("SAN-SITE-008", f"the site has no copy {token}")
        path = f"{self._folder}/{name}.{token}"
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _put(self, body: bytes) -> None:
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
        write_all(self._handle, data, at)

    def _zero(self, body: bytes) -> None:
        """Make a range zeros."""
        at, length = ZEROS.unpack(body)
        self._check_range(at, length)
        punch(self._handle, at, length)

    def _check_range(self, at: int, length: int) -> None:
        if self._handle < 0 or at + length > self._size_bytes:
            raise SiteError("SAN-SITE-008", f"a range at byte {at} is outside of the copy")
        self._digest = ""
        self._line.alive()

    def chunks(self) -> None:
        """Flush, read the copy from the disk, and answer with the digests of its chunks."""
        os.fsync(self._handle)
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
        found = chunk_digests(self._handle, self._size_bytes, self._line.alive)
        self._digest = digest_of(found, self._size_bytes)
        self._line.send(b"C", found)

    def prove(self, digest: str, name: str, token: str, **known: int) -> None:
        """Give the copy its name if its digest is that of the restore point."""
        if not self._digest or self._digest != digest:
            raise SiteError(
                "SAN-SITE-009", "the copy at the site is not equal to the restore point"
            )
        final = f"{self._folder}/{name}.{token}"
        if not _COPY.fullmatch(f"{name}.{token}") or set(known) != set(_KNOWN):
            raise SiteError("SAN-SITE-008", f"{name!r} is no name of a copy")
        with _locked(self._folder):
            if not _is_same(self._handle, self._partial):
                raise SiteError("SAN-SITE-016", "a later run for this device has taken over")
            text = json.dumps({"digest": digest, **known})
            _write_file(f"{final}.json", text.encode())
            os.fchmod(self._handle, 0o400)
            os.fsync(self._handle)
            os.rename(self._partial, final)
            _fsync(self._folder)
        os.close(self._handle)
        self._handle = -1
        self._line.answer()

    def remove(self, tokens: list[str]) -> None:
        """Remove proven copies, and answer with the names of those that were there."""
        removed = []
        with _locked(self._folder):
            for each in self._copies():
                if each["token"] in tokens:
                    path = f"{self._folder}/{each['name']}.{each['token']}"
                    _unlink(path)
                    _fsync(self._folder)
                    _unlink(f"{path}.json")
                    removed.append(each["name"])
        self._line.answer(removed=removed)

    def _copies(self) -> list[dict[str, object]]:
        """Return the proven copies of the device."""
        found: list[dict[str, object]] = []
        for name in _names(self._folder):
            words = _COPY.fullmatch(name)
            if words is None:
                continue
            try:
                with open(f"{self._folder}/{name}.json", encoding="ascii") as file:
                    known = json.load(file)
                copy = {"name": words[1], "token": words[2], "digest": str(known["digest"])}
                found.append({**copy, **{key: int(known[key]) for key in _KNOWN}})
            except (OSError, ValueError, KeyError, TypeError):
                continue  # Of a later release, or damaged: it is no base, and nobody removes it.
        return found

    def _clean_up(self) -> None:
        """Remove what runs that died have left. Only one run has the lock, so none is at it."""
        names = _names(self._folder)
        for name in names:
            copy = name.removesuffix(".json")
            is_alone = name.endswith(".json") and _COPY.fullmatch(copy) and copy not in names
            if _PARTIAL.fullmatch(name) or is_alone or name.endswith(".json.new"):
                _unlink(f"{self._folder}/{name}")

    def _require_mark(self) -> str:
        _require_folder(self._path)
        try:
            with open(f"{self._path}/{MARK}", encoding="ascii") as file:
                mark = json.load(file)
            number, found = int(mark["format"]), str(mark.get("id", ""))
        except FileNotFoundError:
            raise SiteError(
                "SAN-SITE-006", f"{self._path} is no site: it has no {MARK}; is it mounted?"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteError("SAN-SITE-006", f"{self._path}/{MARK} cannot be read") from None
        if number != FORMAT:
            raise SiteError(
                "SAN-SITE-013",
                f"{self._path} has format {number}, and this release of sanctl writes {FORMAT}",
            )
        return found

    def _require_reflink(self) -> None:
        """Raise SiteError unless files in the directory can share blocks; tried with two."""
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        handles = [os.open(self._path, flags, 0o600) for _ in range(2)]
        try:
            clone(*handles)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}:
                raise
            raise SiteError(
                "SAN-SITE-006",
                f"the filesystem of {self._path} cannot share blocks between files: XFS or btrfs "
                "is needed",
            ) from None
        finally:
            for each in handles:
                os.close(each)


class _locked:  # noqa: N801 - used as a function
    """Keeps other connections out of a device's folder for a moment."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._handle = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def __exit__(self, *_error: object) -> None:
        os.close(self._handle)


def _require_folder(path: str) -> None:
    try:
        os.listdir(path)
    except OSError as error:
        raise SiteError("SAN-SITE-006", f"{path}: {error.strerror}") from None


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _is_same(handle: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


def _write_file(path: str, data: bytes) -> None:
    """Write a small file so that there is the old one, or the new one as a whole."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(f"{path}.new", flags, 0o600)
    try:
        write_all(handle, data, 0)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.rename(f"{path}.new", path)
    _fsync(os.path.dirname(path))


def _fsync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def serve(line: _Line) -> None:
    """Do what comes over the connection until it ends."""
    receiver = Receiver(line)
    commands: dict[str, Callable[..., None]] = {
        "hello": receiver.hello, "survey": receiver.survey, "open": receiver.open,
        "begin": receiver.begin, "chunks": receiver.chunks, "prove": receiver.prove,
        "remove": receiver.remove,
    }  # fmt: skip
    ranges = {b"R": receiver._put, b"Z": receiver._zero}
    try:
        while (frame := line.read()) is not None:
            kind, body = frame
            if kind in ranges:
                ranges[kind](body)
                continue
            wanted = json.loads(body)
            commands[wanted.pop("do")](**wanted)
    except SiteError as error:
        line.answer(code=error.code, error=str(error))
    except OSError as error:
        if error.errno == errno.EPIPE:
            return  # Nobody listens any more.
        code = "SAN-SITE-007" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "SAN-SITE-014"
        line.answer(code=code, error=str(error))
    except EOFError:
        pass
    finally:
        receiver.close()


if __name__ == "__main__":
    serve(_Line())
    sys.exit(0)
