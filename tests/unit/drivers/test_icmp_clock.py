# SPDX-License-Identifier: GPL-2.0-or-later
"""Clocks are asked for by one socket; late, foreign and broken answers count for nothing."""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import deque
from typing import Any

import pytest

from sanctl.drivers import icmp_clock
from sanctl.parse.icmp import checksum

NEAR, FAR = "192.0.2.1", "192.0.2.2"
Received = tuple[bytes, tuple[str, int]] | OSError


def answer(request: bytes, ahead_ms: int, *, sequence: int | None = None) -> bytes:
    _, _, _, identifier, number, sent_ms, _, _ = struct.unpack("!BBHHHIII", request)
    there = (sent_ms + ahead_ms) % 86_400_000
    words = (identifier, number if sequence is None else sequence, sent_ms, there, there)
    empty = struct.pack("!BBHHHIII", 14, 0, 0, *words)
    return bytes([0x45]) + bytes(19) + empty[:2] + struct.pack("!H", checksum(empty)) + empty[4:]


class Socket:
    """A raw socket on a network on which some answer."""

    def __init__(self) -> None:
        self.ahead_ms = {NEAR: 600_000, FAR: -3000}
        self.unreachable: set[str] = set()
        self.received: deque[Received] = deque()
        self.is_closed = False
        self.option_error = False

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True

    def setsockopt(self, *_: object) -> None:
        if self.option_error:
            raise OSError(12, "no memory")

    def fileno(self) -> int:
        return 100

    def sendto(self, request: bytes, where: tuple[str, int]) -> None:
        if where[0] in self.unreachable:
            raise OSError(101, "Network is unreachable")
        self.received.append((answer(request, 0, sequence=1 << 15), where))
        self.received.append((b"E", where))
        self.received.append((answer(request, 1), ("192.0.2.9", 0)))
        if where[0] in self.ahead_ms:
            self.received.append(OSError(113, "No route to host"))
            self.received.append((answer(request, self.ahead_ms[where[0]]), where))
            self.received.append((answer(request, 0), where))

    def recvfrom(self, _most: int) -> tuple[bytes, tuple[str, int]]:
        found = self.received.popleft()
        if isinstance(found, OSError):
            raise found
        return found


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Socket:
    found = Socket()

    class Poll:
        def register(self, *_: object) -> None:
            pass

        def poll(self, _wait_ms: int) -> list[Any]:
            return [(100, select.POLLIN)] if found.received else []

    monkeypatch.setattr(socket, "socket", lambda *_: found)
    monkeypatch.setattr(select, "poll", Poll)
    monkeypatch.setattr(icmp_clock, "_now_ms", lambda: 1_790_000_000_000)
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    return found


def test_each_clock_that_answers(network: Socket) -> None:
    assert icmp_clock.offsets_s([NEAR, FAR], within_s=0.5) == {NEAR: 600.0, FAR: -3.0}
    assert network.is_closed


def test_who_does_not_answer_is_left_out(network: Socket) -> None:
    del network.ahead_ms[FAR]
    assert icmp_clock.offsets_s([NEAR, FAR], within_s=0.5) == {NEAR: 600.0}
    network.unreachable.add(NEAR)
    assert icmp_clock.offsets_s([NEAR], within_s=0.5) == {}
    assert icmp_clock.offsets_s([], within_s=0.5) == {}


def test_the_time_ends_whatever_others_send(
    network: Socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_s = iter(range(100))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(passed_s)))
    network.ahead_ms.clear()
    assert icmp_clock.offsets_s([NEAR], within_s=2.5) == {}
    assert len(network.received) == 1
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    network.received.extend([(b"E", (FAR, 0))] * 2000)
    assert icmp_clock.offsets_s([NEAR], within_s=2.5) == {}
    assert network.received


def test_a_socket_without_its_filter_is_not_used(network: Socket) -> None:
    network.option_error = True
    with pytest.raises(OSError, match="no memory"):
        icmp_clock.offsets_s([NEAR], within_s=0.5)
    assert network.is_closed
