# SPDX-License-Identifier: GPL-2.0-or-later
"""The folder into which LIO writes, over a socket in place of /dev/fuse: one packet a request."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator

import pytest

from sanctl.drivers.fuse import Folder, Write

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, WRITE, RELEASE = 1, 2, 3, 4, 14, 16, 18
FLUSH, INIT, CREATE, INTERRUPT, UNKNOWN = 25, 26, 35, 36, 99


class Kernel:
    """The kernel's side: sends requests, reads answers."""

    def __init__(self, answer: int = 0) -> None:
        self.socket, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5.0)
        self.writes: list[Write] = []
        self.may_answer = threading.Event()
        self._server, self._answer = server, answer
        self.folder = Folder(server.fileno(), self.write)
        self._unique = 0

    def write(self, write: Write) -> int:
        self.writes.append(write)
        assert self.may_answer.wait(5.0)
        return self._answer

    def send(
        self,
        operation: int,
        node: int = 1,
        body: bytes = b"",
        *,
        resent: bool = False,
        thread: int = 7,
    ) -> int:
        self._unique += 2
        unique = self._unique | (1 << 63 if resent else 0)
        head = struct.pack("<IIQQIIII", 40 + len(body), operation, unique, node, 0, 0, thread, 0)
        self.socket.send(head + body)
        self.folder._handle(os.read(self._server.fileno(), 1 << 21))
        return unique

    def answered(self) -> tuple[int, int, bytes]:
        data = self.socket.recv(1 << 16)
        size, error, unique = struct.unpack_from("<IiQ", data)
        assert size == len(data)
        return unique, error, data[16:]

    def ask(
        self, operation: int, node: int = 1, body: bytes = b"", *, thread: int = 7
    ) -> tuple[int, bytes]:
        unique = self.send(operation, node, body, thread=thread)
        found, error, data = self.answered()
        assert found == unique
        return error, data

    def look_up(self, name: bytes) -> int:
        error, data = self.ask(LOOKUP, 1, name + b"\0")
        assert (error, len(data)) == (0, 128)
        return int(struct.unpack_from("<Q", data)[0])

    def close(self) -> None:
        self.socket.close()
        self._server.close()


@pytest.fixture
def kernel() -> Iterator[Kernel]:
    found = Kernel()
    yield found
    found.close()


def write_body(data: bytes, size: int | None = None, handle: int = 1) -> bytes:
    return (
        struct.pack("<QQIIQII", handle, 0, len(data) if size is None else size, 0, 0, 0, 0) + data
    )


def test_the_first_words(kernel: Kernel) -> None:
    error, data = kernel.ask(INIT, 0, struct.pack("<IIII", 7, 41, 0, 0).ljust(64, b"\0"))
    assert (error, len(data)) == (0, 64)
    major, minor, _, flags = struct.unpack_from("<IIII", data)
    assert (major, minor) == (7, 38) and flags & 1 << 30
    assert struct.unpack_from("<I", data, 32)[0] == 1 << 7, "a request may be handed out again"


def test_a_write_waits_and_others_are_answered_meanwhile(kernel: Kernel) -> None:
    node = kernel.look_up(b"aptpl_1")
    assert kernel.look_up(b"aptpl_2") != node == kernel.look_up(b"aptpl_1")
    assert kernel.ask(OPEN, node)[0] == 0
    unique = kernel.send(WRITE, node, write_body(b"text\0"))
    assert kernel.ask(GETATTR, node)[0] == 0
    while not kernel.writes:
        time.sleep(0.001)
    (write,) = kernel.writes
    kernel.send(INTERRUPT, 0, struct.pack("<Q", unique + 2))
    assert not write.interrupted.is_set(), "another one was"
    kernel.send(INTERRUPT, 0, struct.pack("<Q", unique))
    assert write.interrupted.is_set()
    kernel.may_answer.set()
    assert kernel.answered() == (unique, 0, struct.pack("<II", 5, 0))
    assert write[:3] == ("aptpl_1", b"text\0", False)
    kernel.send(INTERRUPT, 0, struct.pack("<Q", unique))


def test_it_is_idle_between_two_writes(kernel: Kernel) -> None:
    file = kernel.look_up(b"aptpl_x")
    assert kernel.folder.is_idle
    kernel.send(WRITE, file, write_body(b"ab"))
    assert not kernel.folder.is_idle
    kernel.may_answer.set()
    kernel.answered()
    assert kernel.folder.is_idle


def test_a_write_that_is_handed_out_again_says_so(kernel: Kernel) -> None:
    kernel.may_answer.set()
    unique = kernel.send(WRITE, kernel.look_up(b"aptpl_1"), write_body(b"t"), resent=True)
    assert kernel.answered()[0] == unique
    assert kernel.writes[0].is_resent


def handle_of(opened: bytes) -> int:
    return int(struct.unpack_from("<Q", opened)[0])


def test_a_write_is_as_late_as_its_threads_lookup(kernel: Kernel) -> None:
    """The kernel lets one at a time write to a file, whoever was first."""
    kernel.may_answer.set()
    name, handles = b"aptpl_1\0", {}
    for thread in (11, 12):
        _, entry = kernel.ask(LOOKUP, 1, name, thread=thread)
    node = int(struct.unpack_from("<Q", entry)[0])
    for thread in (12, 11):
        handles[thread] = handle_of(kernel.ask(OPEN, node, thread=thread)[1])
    # One that makes the file, and one that opens it a second time.
    handles[13] = handle_of(kernel.ask(CREATE, 1, bytes(16) + name, thread=13)[1][128:])
    handles[14] = handle_of(kernel.ask(OPEN, node, thread=11)[1])
    for each in (14, 12, 13, 11):
        kernel.ask(WRITE, node, write_body(b"t", handle=handles[each]))
    numbers = [write.number for write in kernel.writes]
    assert numbers == [handles[each] for each in (14, 12, 13, 11)]
    assert handles[11] < handles[12] < handles[13] < handles[14]
    later = Kernel()
    _, opened = later.ask(OPEN, node)
    assert handle_of(opened) > handles[14], "of the process after this one"
    later.close()


def test_lookups_that_nothing_follows_are_forgotten(kernel: Kernel) -> None:
    for thread in range(1000):
        kernel.ask(LOOKUP, 1, b"aptpl_1\0", thread=thread)
    assert len(kernel.folder._looked_up) <= 256


def test_a_refused_write() -> None:
    kernel = Kernel(errno.EIO)
    kernel.may_answer.set()
    unique = kernel.send(WRITE, kernel.look_up(b"aptpl_1"), write_body(b"t"))
    assert kernel.answered() == (unique, -errno.EIO, b"")
    kernel.close()


def test_what_a_writer_asks_besides(kernel: Kernel) -> None:
    body = struct.pack("<IIII", 0, 0o600, 0, 0) + b"aptpl_9\0"
    error, data = kernel.ask(CREATE, 1, body)
    assert (error, len(data)) == (0, 128 + 16)
    node = struct.unpack_from("<Q", data)[0]
    for operation in (SETATTR, GETATTR):
        error, data = kernel.ask(operation, node)
        assert (error, len(data)) == (0, 104)
    for operation in (FLUSH, RELEASE):
        assert kernel.ask(operation, node) == (0, b"")
    assert kernel.ask(UNKNOWN)[0] == -errno.ENOSYS
    kernel.send(FORGET, node)
    kernel.socket.settimeout(0.05)
    with pytest.raises(TimeoutError):
        kernel.answered()


def test_a_new_process_asks_for_what_was_not_answered(kernel: Kernel) -> None:
    kernel.folder.ask_again()
    assert struct.unpack("<IiQ", kernel.socket.recv(64)) == (16, 7, 0)


def test_serving_ends_with_the_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [errno.EINTR, errno.ENOENT, errno.ENODEV]

    def read(*_: object) -> bytes:
        raise OSError(errors.pop(0), "")

    monkeypatch.setattr(os, "read", read)
    Folder(0, lambda _: 0).serve()
    errors.append(errno.EBADF)
    with pytest.raises(OSError):
        Folder(0, lambda _: 0).serve()


def test_a_later_process_knows_a_file_by_its_number() -> None:
    """What broke: a write that a process had read was the next one's to a file without a name."""
    first, later = Kernel(), Kernel()
    names: list[str] = []
    later.folder._known_names = lambda: names
    later.may_answer.set()
    node = first.look_up(b"aptpl_1")
    assert first.look_up(b"aptpl_2") != node > 1
    unique = later.send(WRITE, node, write_body(b"t"), resent=True)
    later.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        later.answered()
    names += ["other", "aptpl_1"]
    later.socket.settimeout(5.0)
    assert later.answered()[0] == unique
    assert [write[:3] for write in later.writes] == [("aptpl_1", b"t", True)]
    first.close()
    later.close()
