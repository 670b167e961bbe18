# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD 9 answers by netlink is read as it was meant; anything else is no answer."""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sanctl.drivers import drbd_netlink
from sanctl.errors import CommandError
from sanctl.parse.drbd import ProcState

FAMILY = 31
DONE, ERROR = 3, 2


def attribute(kind: int, value: bytes | int | str, width: int = 4) -> bytes:
    match value:
        case int():
            value = value.to_bytes(width, sys.byteorder)
        case str():
            value = value.encode() + b"\0"
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, sequence: int, body: bytes) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, 2, sequence, 0) + body


def answer(*parts: bytes, result: int = 101) -> bytes:
    return struct.pack("=BBHIi", 30, 2, 0, 1, result) + b"".join(parts)


def of(name: str, connection: str = "") -> bytes:
    named = attribute(2, name) + (attribute(5, connection) if connection else b"")
    return attribute(2, attribute(1, 0) + named)


def resource(name: str, role: int, *suspended: int) -> bytes:
    flags = b"".join(attribute(each, each in suspended, 1) for each in (2, 3, 4, 5))
    return answer(of(name), attribute(15, attribute(1, role) + flags))


def device(disk: int) -> bytes:
    return answer(of("web"), attribute(16, attribute(1, disk)))


def connection(peer: str, role: int) -> bytes:
    return answer(of("web", peer), attribute(17, attribute(1, 9) + attribute(2, role)))


def peer_device(peer: str, replication: int, disk: int, sectors: int) -> bytes:
    return answer(
        of("web", peer),
        attribute(18, attribute(1, replication) + attribute(2, disk)),
        attribute(22, attribute(5, sectors, 8)),
    )


class Kernel:
    """A socket to a kernel that answers each command with some bodies."""

    def __init__(self) -> None:
        self.answers: dict[int, list[bytes]] = {
            30: [resource("other", 2), resource("web", 1)],
            31: [device(9)],
            32: [connection("n2", 2), connection("n3", 0)],
            33: [peer_device("n2", 10, 9, 0), peer_device("n3", 9, 7, 8)],
        }
        self.packets: list[bytes] = []
        self.endless = b""
        self.is_closed = False
        self.asked: list[bytes] = []

    def settimeout(self, _: float) -> None:
        pass

    def bind(self, _: object) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True

    def sendto(self, data: bytes, _: object) -> None:
        _length, kind, _flags, sequence, _port = struct.unpack_from("=IHHII", data)
        command = data[16]
        if kind == 16:
            body = struct.pack("=BBH", 1, 2, 0) + attribute(1, FAMILY, 2) + attribute(2, "drbd")
            self.packets.append(message(kind, sequence, body))
            return
        assert kind == FAMILY
        self.asked.append(data)
        found = self.answers[command]
        # Several messages in one packet, and an old one that nobody waits for.
        packet = message(kind, sequence - 1, device(0))
        packet += b"".join(message(kind, sequence, each) for each in found)
        if found == [self.endless]:
            self.packets += [message(kind, sequence, self.endless)] * 20_000
            return
        self.packets += [packet, message(DONE, sequence, bytes(4))]

    def recvfrom(self, _: int) -> tuple[bytes, tuple[int, int]]:
        if not self.packets:
            raise TimeoutError("timed out")
        return self.packets.pop(0), (0, 0)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    made = Kernel()
    connect: Callable[..., Any] = lambda: made  # noqa: E731
    monkeypatch.setattr(drbd_netlink, "_connect", connect)
    yield made
    assert made.is_closed


def test_a_resource_with_two_peers(kernel: Kernel) -> None:
    found = drbd_netlink.observe("web")
    assert found is not None
    assert (found.role, found.disk, found.is_suspended) == ("Primary", "UpToDate", False)
    good = ProcState("Established", "Primary", "Secondary", "UpToDate", "UpToDate", False, 0)
    lost = ProcState("Off", "Primary", "Unknown", "UpToDate", "DUnknown", False, 4)
    assert found.peers == {"n2": good, "n3": lost}
    # Only the one resource, but for the first dump, which has no such filter.
    assert [b"web" in asked for asked in kernel.asked] == [False, True, True, True]


@pytest.mark.parametrize("reason", [2, 3, 4, 5])
def test_io_that_is_held_back_for_any_reason(kernel: Kernel, reason: int) -> None:
    kernel.answers[30] = [resource("web", 1, reason)]
    found = drbd_netlink.observe("web")
    assert found is not None and found.is_suspended
    assert found.peers["n2"].is_suspended


def test_what_holds_io_back_has_to_be_said(kernel: Kernel) -> None:
    kernel.answers[30] = [answer(of("web"), attribute(15, attribute(1, 1)))]
    with pytest.raises(CommandError, match="holds its I/O back"):
        drbd_netlink.observe("web")


def test_a_replica_without_peers(kernel: Kernel) -> None:
    kernel.answers[32] = kernel.answers[33] = []
    assert drbd_netlink.observe("web") == ("Primary", "UpToDate", False, {})


def test_a_resource_that_is_not_there(kernel: Kernel) -> None:
    assert drbd_netlink.observe("none") is None


def test_a_resource_that_goes_in_between(kernel: Kernel) -> None:
    """The kernel repeats that for ever; it is read once."""
    kernel.endless = answer(result=158)
    kernel.answers[33] = [kernel.endless]
    assert drbd_netlink.observe("web") is None


def test_words_that_are_not_known_are_none_that_count(kernel: Kernel) -> None:
    kernel.answers[33] = [peer_device("n2", 77, 0, 0), peer_device("n3", 0, 99, 0)]
    found = drbd_netlink.observe("web")
    assert found is not None
    assert [each.connection for each in found.peers.values()] == ["Unknown", "Unknown"]
    assert [each.peer_disk for each in found.peers.values()] == ["Diskless", "Unknown"]


def test_what_a_peer_lacks_has_to_be_said(kernel: Kernel) -> None:
    kernel.answers[33] = [answer(of("web", "n2"), attribute(18, attribute(1, 10)))]
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        drbd_netlink.observe("web")


@pytest.mark.parametrize("body", [answer(result=127), b"\0\0"])
def test_an_error_is_no_answer(kernel: Kernel, body: bytes) -> None:
    kernel.answers[31] = [body]
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        drbd_netlink.observe("web")


def test_an_answer_without_an_end(kernel: Kernel) -> None:
    kernel.endless = device(9)
    kernel.answers[31] = [kernel.endless]
    with pytest.raises(CommandError, match="without an end"):
        drbd_netlink.observe("web")


def test_a_kernel_that_is_silent(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "sendto", lambda *_: None)
    with pytest.raises(CommandError, match="SAN-SNAP-015"):
        drbd_netlink.observe("web")
