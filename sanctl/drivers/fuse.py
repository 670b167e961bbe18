# SPDX-License-Identifier: GPL-2.0-or-later
"""A flat folder of files whose writes are answered when the caller says so, by /dev/fuse.

LIO writes the text of all reservations of a backstore into a file before it answers a PERSISTENT
RESERVE OUT, and drops the result of that write for most of them (target_core_pr.c,
core_scsi3_update_and_write_aptpl). So a write that cannot be made good is not refused: it waits.
The connection outlives the process (systemd keeps the descriptor), and the kernel hands out again
what a process had read and not answered (FUSE_NOTIFY_RESEND, Linux 6.9).

The protocol is that of include/uapi/linux/fuse.h, of which LIO's writer uses lookup, open or
create, truncate, write and release. Nothing here may look at the mounted folder by its path: the
look would wait for this very process.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

_LIBC = ctypes.CDLL(None, use_errno=True)
_NOSUID, _NODEV = 2, 4
_DETACH = 2
_LARGEST_WRITE = 1 << 20
_BUFFER = _LARGEST_WRITE + 4096
_ROOT = 1
_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<QQQQQQIIIIIIIIII")
_INIT_EXT, _ATOMIC_O_TRUNC, _MAX_PAGES = 1 << 30, 1 << 3, 1 << 22
#: Of the second 32 flags.
_HAS_RESEND = 1 << 7
_RESENT = 1 << 63
_NOTIFY_RESEND = 7
_DIRECT_IO = 1
_RETRY_S = 0.5
_LOOKUPS_MAX = 256
_MAJOR, _MINOR = 7, 38

_LOOKUP, _FORGET, _GETATTR, _SETATTR, _OPEN, _WRITE, _STATFS = 1, 2, 3, 4, 14, 16, 17
_RELEASE, _FSYNC, _FLUSH, _INIT, _OPENDIR, _RELEASEDIR = 18, 20, 25, 26, 27, 29
_ACCESS, _CREATE, _INTERRUPT, _BATCH_FORGET = 34, 35, 36, 42
_UNANSWERED = frozenset({_FORGET, _BATCH_FORGET})
_EMPTY = frozenset({_RELEASE, _FSYNC, _FLUSH, _RELEASEDIR, _ACCESS})


class Write(NamedTuple):
    """A write that waits for its answer.

    Attributes:
        name: the file's name in the folder.
        data: what is written, from the file's begin.
        is_resent: a process before this one had it, and has not answered.
        interrupted: set once the kernel's thread that writes was sent a signal.
        number: how late its thread began with the file, also over the process's end. The kernel
            lets one thread at a time write to a file, and not in this order (fs/fuse/file.c,
            fuse_direct_write_iter): LIO has made its text before it looks the file up.
    """

    name: str
    data: bytes
    is_resent: bool
    interrupted: threading.Event
    number: int


def mount(path: str) -> int:
    """Mount a new connection at a folder; return its descriptor.

    Raises:
        OSError: the kernel refused.
    """
    descriptor = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={descriptor},rootmode=40700,user_id=0,group_id=0"
    if _LIBC.mount(b"sanctl", path.encode(), b"fuse", _NOSUID | _NODEV, options.encode()):
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, os.strerror(number), path)
    return descriptor


def unmount(path: str) -> None:
    """Take the topmost mount at a folder away, whether or not anybody serves it.

    Raises:
        OSError: the kernel refused.
    """
    if _LIBC.umount2(path.encode(), _DETACH):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


class Folder:
    """The files of one connection. Names are learnt as they are looked up; nothing is kept.

    The number of a file follows from its name: what was looked up with a process before this one is
    written to by its number alone.
    """

    def __init__(
        self,
        descriptor: int,
        write: Callable[[Write], int],
        known_names: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        """Serve a connection.

        Args:
            descriptor: of /dev/fuse, mounted.
            write: called in a thread of its own for each write; returns 0 once that is made good,
                an errno to refuse it.
            known_names: returns names that a process before this one may have been asked for.
        """
        self._descriptor, self._write, self._known_names = descriptor, write, known_names
        self._names: dict[int, str] = {}
        self._interrupted: dict[int, threading.Event] = {}
        #: By thread, the number of its latest lookup that no opening has followed yet.
        self._looked_up: dict[int, int] = {}
        self._latest = 0

    def ask_again(self) -> None:
        """Have the kernel hand out what a process before this one has read and not answered.

        Raises:
            OSError: EINVAL: this kernel cannot (before 6.9), or the connection is new.
        """
        os.write(self._descriptor, _OUT.pack(_OUT.size, _NOTIFY_RESEND, 0))

    @property
    def is_idle(self) -> bool:
        """Whether each write that was read has been answered, or is just about to be."""
        return not self._interrupted

    def serve(self) -> None:
        """Answer requests until the folder is unmounted.

        Raises:
            OSError: the connection failed.
        """
        while True:
            try:
                request = os.read(self._descriptor, _BUFFER)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno in {errno.EINTR, errno.ENOENT, errno.EAGAIN}:
                    continue
                raise
            self._handle(request)

    def _handle(self, request: bytes) -> None:
        _, operation, unique, node, _, _, thread, _ = _IN.unpack_from(request)
        body = request[_IN.size :]
        if operation in _UNANSWERED:
            return
        if operation == _INTERRUPT:
            # The kernel's thread goes on to wait: the answer is still due.
            interrupted = self._interrupted.get(struct.unpack_from("<Q", body)[0])
            if interrupted is not None:
                interrupted.set()
            return
        if operation == _WRITE:
            self._begin_write(unique, node, body)
        elif operation == _INIT:
            self._init(unique, body)
        elif operation == _LOOKUP:
            self._note_lookup(thread)
            self._answer(unique, self._entry(body.split(b"\0")[0].decode("ascii", "replace")))
        elif operation == _CREATE:
            name = body[16:].split(b"\0")[0].decode("ascii", "replace")
            self._answer(unique, self._entry(name) + self._opened(thread))
        elif operation in {_GETATTR, _SETATTR}:
            self._answer(unique, struct.pack("<QII", 0, 0, 0) + _attributes(node))
        elif operation in {_OPEN, _OPENDIR}:
            self._answer(unique, self._opened(thread))
        elif operation == _STATFS:
            self._answer(unique, bytes(80))
        elif operation in _EMPTY:
            self._answer(unique, b"")
        else:
            self._answer(unique, b"", errno.ENOSYS)

    def _init(self, unique: int, body: bytes) -> None:
        _, minor, readahead, _ = struct.unpack_from("<IIII", body)
        flags = _INIT_EXT | _ATOMIC_O_TRUNC | _MAX_PAGES
        head = (_MAJOR, min(minor, _MINOR), readahead, flags, 12, 9, _LARGEST_WRITE, 1, 256, 0)
        answer = struct.pack("<IIIIHHIIHHI", *head, _HAS_RESEND)
        self._answer(unique, answer.ljust(64, b"\0"))

    def _note_lookup(self, thread: int) -> None:
        if len(self._looked_up) >= _LOOKUPS_MAX:
            del self._looked_up[next(iter(self._looked_up))]
        self._looked_up[thread] = self._next_number()

    def _next_number(self) -> int:
        # Those of a process before this one, as long as the node runs, were lower.
        self._latest = max(self._latest + 1, time.monotonic_ns())
        return self._latest

    def _opened(self, thread: int) -> bytes:
        """Return a handle, which each write with it has: the number of the thread's lookup."""
        number = self._looked_up.pop(thread, None)
        handle = self._next_number() if number is None else number
        return struct.pack("<QII", handle, _DIRECT_IO, 0)

    def _entry(self, name: str) -> bytes:
        number = _number(name)
        self._names[number] = name
        # Nothing is kept in the kernel: each use begins with a lookup.
        return struct.pack("<QQQQII", number, 1, 0, 0, 0, 0) + _attributes(number)

    def _begin_write(self, unique: int, node: int, body: bytes) -> None:
        number, _, size = struct.unpack_from("<QQI", body)
        # Before the next request is read, which may be the signal.
        interrupted = self._interrupted[unique] = threading.Event()

        def run() -> None:
            data = body[40 : 40 + size]
            write = Write(self._name_of(node), data, bool(unique & _RESENT), interrupted, number)
            error = self._write(write)
            del self._interrupted[unique]
            self._answer(unique, b"" if error else struct.pack("<II", size, 0), error)

        threading.Thread(target=run, daemon=True).start()

    def _name_of(self, node: int) -> str:
        """Return the name of a file; of one that is not known the write waits until it is."""
        while (name := self._names.get(node)) is None:
            for each in self._known_names():
                self._names.setdefault(_number(each), each)
            if node not in self._names:
                time.sleep(_RETRY_S)
        return name

    def _answer(self, unique: int, data: bytes, error: int = 0) -> None:
        try:
            os.write(self._descriptor, _OUT.pack(_OUT.size + len(data), -error, unique) + data)
        except OSError as failure:
            # The request is gone: the folder was unmounted, say.
            if failure.errno not in {errno.ENOENT, errno.ENODEV, errno.EINVAL}:
                raise


def _number(name: str) -> int:
    """Return the number of a file: 63 bits of its name's digest, and not the folder's."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1 | 1 << 62


def _attributes(number: int) -> bytes:
    mode = stat.S_IFDIR | 0o700 if number == _ROOT else stat.S_IFREG | 0o600
    return _ATTR.pack(number, 0, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
