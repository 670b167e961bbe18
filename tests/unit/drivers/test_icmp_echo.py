# SPDX-License-Identifier: GPL-2.0-or-later
"""Pings by raw sockets: which answers count, when a look ends, what an error says of addresses."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address, ip_address
from typing import Any

import pytest

from sanctl.drivers import icmp_echo
from sanctl.parse.icmp import checksum
from sanctl.plan.failover.reach import Look, Watch

NEAR, FAR, SIX = (ip_address(each) for each in ("192.0.2.1", "192.0.2.2", "2001:db8::1"))
LINK = ip_address("fe80::1%lo")
#: A packet and its sender, or how the receive fails.
Received = tuple[bytes, tuple[Any, ...]] | OSError


class Network:
    """What the addresses answer; a clock; and a poll that passes the time when nothing has come."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.stalls_s: list[float] = []
        self.answers: Callable[[str, bytes], list[Received]] = echoed
        self.send_error: Callable[[str], int] = lambda _host: 0
        self.open_error = 0
        self.sent: list[tuple[str, int]] = []
        self.sockets: list[Socket] = []

    def open(self, version: int) -> Socket:
        if self.open_error:
            raise OSError(self.open_error, "refused")
        self.sockets.append(Socket(self, version))
        return self.sockets[-1]

    def monotonic(self) -> float:
        self.now_s += self.stalls_s.pop(0) if self.stalls_s else 0.0
        return self.now_s

    def ready(self) -> list[tuple[int, int]]:
        return [(each.number, select.POLLIN) for each in self.sockets if each.received]


class Socket:
    def __init__(self, network: Network, version: int) -> None:
        self.network, self.version = network, version
        self.number = 100 + version
        self.is_closed = False
        self.received: deque[Received] = deque()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def fileno(self) -> int:
        return self.number

    def sendto(self, packet: bytes, where: tuple[Any, ...]) -> None:
        number = self.network.send_error(where[0])
        if number:
            raise OSError(number, "not sent")
        self.network.sent.append((where[0], packet[7]))
        self.received.extend(self.network.answers(where[0], packet))

    def recvfrom(self, _most: int) -> tuple[bytes, tuple[Any, ...]]:
        found = self.received.popleft()
        if isinstance(found, OSError):
            raise found
        return found


class Poll:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.registered: set[int] = set()

    def register(self, number: int, _events: int) -> None:
        self.registered.add(number)

    def unregister(self, number: int) -> None:
        self.registered.remove(number)

    def poll(self, wait_ms: int) -> list[tuple[int, int]]:
        assert isinstance(wait_ms, int)
        assert wait_ms >= 0
        ready = [each for each in self.network.ready() if each[0] in self.registered]
        self.network.now_s += 0.01 if ready else wait_ms / 1000
        return ready


def echoed(host: str, packet: bytes) -> list[Received]:
    """Return the reply of an address that answers."""
    if ":" in host:
        return [(bytes([129, 0]) + packet[2:], (host, 0, 0, 1 if host == "fe80::1" else 0))]
    message = bytes([0, 0, 0, 0]) + packet[4:]
    message = message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    return [(bytes([0x45]) + bytes(19) + message, (host, 0))]


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    made = Network()
    monkeypatch.setattr(icmp_echo, "_open", made.open)
    monkeypatch.setattr(time, "monotonic", made.monotonic)
    monkeypatch.setattr(select, "poll", lambda: Poll(made))
    yield made
    assert all(each.is_closed for each in made.sockets)


def look(*addresses: Any, attempts: int = 2) -> Look:
    return icmp_echo.look(Watch(addresses, attempts, 1.0, "8s"))


def test_all_are_asked_at_once_and_a_look_ends_with_the_last_answer(network: Network) -> None:
    assert look(NEAR, FAR, SIX) == Look(frozenset({NEAR, FAR, SIX}), ())
    assert network.sent == [("192.0.2.1", 1), ("192.0.2.2", 1), ("2001:db8::1", 1)]
    assert network.now_s < 1000.1


def test_only_those_without_an_answer_are_asked_again(network: Network) -> None:
    network.answers = lambda host, packet: echoed(host, packet) if host != str(FAR) else []
    assert look(NEAR, FAR) == Look(frozenset({NEAR}), ())
    assert network.sent == [("192.0.2.1", 1), ("192.0.2.2", 1), ("192.0.2.2", 2)]
    assert 1002.0 <= network.now_s < 1002.1


def test_one_lost_packet_is_no_lost_network(network: Network) -> None:
    network.answers = lambda host, packet: echoed(host, packet) if packet[7] == 2 else []
    assert look(NEAR).answered == {NEAR}
    assert network.now_s < 1001.1


def test_an_answer_to_the_first_request_counts_while_the_second_is_waited_for(
    network: Network,
) -> None:
    first: list[bytes] = []

    def late(host: str, packet: bytes) -> list[Received]:
        first.append(packet)
        return echoed(host, first[0]) if len(first) == 2 else []

    network.answers = late
    assert look(NEAR).answered == {NEAR}


def test_an_answer_that_comes_twice_is_one(network: Network) -> None:
    network.answers = lambda host, packet: echoed(host, packet) * 2
    assert look(NEAR, FAR) == Look(frozenset({NEAR, FAR}), ())


@pytest.mark.parametrize("stalled_s", [1.5, 60.0])
def test_what_came_in_time_counts_for_a_process_that_had_no_processor(
    network: Network, stalled_s: float
) -> None:
    """Its time for an answer is over before its first look at what has come."""
    network.stalls_s = [0.0, stalled_s]
    assert look(NEAR, attempts=1).answered == {NEAR}
    assert network.now_s > 1000.0 + stalled_s


def damaged(host: str, packet: bytes) -> bytes:
    (answer,) = echoed(host, packet)
    assert isinstance(answer, tuple)
    return answer[0][:-1] + b"X"


def changed(packet: bytes, at: int) -> bytes:
    return packet[:at] + bytes([packet[at] ^ 1]) + packet[at + 1 :]


@pytest.mark.parametrize(
    "answers",
    [
        # From another address; to another identifier, sequence, token; cut short.
        lambda _host, packet: echoed(str(FAR), packet),
        lambda host, packet: echoed(host, changed(packet, 4)),
        lambda host, packet: echoed(host, changed(packet, 6)),
        lambda host, packet: echoed(host, packet[:7] + bytes([3]) + packet[8:]),
        lambda host, packet: echoed(host, packet[:7] + bytes([0]) + packet[8:]),
        lambda host, packet: echoed(host, changed(packet, 8)),
        lambda host, packet: echoed(host, changed(packet, len(packet) - 1)),
        lambda host, packet: echoed(host, packet[:-1]),
        lambda host, packet: [(damaged(host, packet), (host, 0))],
        lambda host, _packet: [(b"", (host, 0))],
    ],
)
def test_what_is_no_answer_to_this_look_is_none(network: Network, answers: Any) -> None:
    network.answers = answers
    assert look(NEAR) == Look(frozenset(), ())


def test_each_look_has_a_token_of_its_own(network: Network) -> None:
    earlier: list[bytes] = []

    def of_the_look_before(host: str, packet: bytes) -> list[Received]:
        earlier.append(packet)
        return echoed(host, earlier[0])

    network.answers = of_the_look_before
    assert look(NEAR, attempts=1).answered == {NEAR}
    assert look(NEAR, attempts=1).answered == set()


@pytest.mark.parametrize("number", [errno.ENETUNREACH, errno.ENOBUFS])
def test_an_error_of_a_send_is_that_addresss_and_nothing_is_waited_for(
    network: Network, number: int
) -> None:
    network.send_error = lambda host: number if host == str(FAR) else 0
    found = look(NEAR, FAR)
    assert found == Look(frozenset({NEAR}), ((FAR, number), (FAR, number)))
    assert network.now_s < 1000.1


@pytest.mark.parametrize("number", [errno.EPERM, errno.EMFILE, errno.ENOMEM])
def test_without_a_socket_no_address_was_looked_at(network: Network, number: int) -> None:
    network.open_error = number
    assert look(NEAR, SIX) == Look(frozenset(), ((NEAR, number), (SIX, number)))
    assert network.sent == []


def test_an_error_of_a_receive_is_that_of_all_of_its_version(network: Network) -> None:
    def broken(host: str, packet: bytes) -> list[Received]:
        return [OSError(errno.ENOMEM, "none")] if host == str(NEAR) else echoed(host, packet)

    network.answers = broken
    found = look(NEAR, SIX)
    assert found.answered == {SIX}
    assert found.errors == ((NEAR, errno.ENOMEM),)


def test_a_packet_that_the_kernel_throws_away_is_none(network: Network) -> None:
    network.answers = lambda host, packet: [
        BlockingIOError(errno.EAGAIN, "again"),
        *echoed(host, packet),
    ]
    assert look(NEAR) == Look(frozenset({NEAR}), ())


def test_a_flood_does_not_hold_a_look_up(network: Network) -> None:
    network.answers = lambda _host, packet: echoed(str(FAR), packet) * 2000
    assert look(NEAR, attempts=1).answered == set()
    left = len(network.sockets[0].received)
    assert 0 < left < 2000 - icmp_echo._LATE_PACKETS


def test_the_interface_of_a_link_local_address_counts(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices = {"lo": 1, "eth9": 9}
    monkeypatch.setattr(socket, "if_nametoindex", indices.__getitem__)
    assert look(LINK).answered == {LINK}
    other = ip_address("fe80::1%eth9")
    assert look(other).answered == set(), "the answer came by lo"
    assert look(ip_address("fe80::1%1")).answered == {ip_address("fe80::1%1")}
    assert look(IPv6Address("2001:db8::1%eth9")).answered, "of a global address it means nothing"


@pytest.mark.parametrize("number", [None, errno.ENODEV, errno.ENOMEM])
def test_an_interface_that_is_not_there_is_no_way(
    network: Network, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def lacking(_name: str) -> int:
        raise OSError("no interface with this name") if number is None else OSError(number, "")

    monkeypatch.setattr(socket, "if_nametoindex", lacking)
    assert look(LINK, attempts=1).errors == ((LINK, number or errno.ENODEV),)


def _may_ping() -> bool:
    try:
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    except PermissionError:
        return False
    return True


@pytest.mark.skipif(not _may_ping(), reason="raw sockets are for root")
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_a_real_kernel_answers(address: str) -> None:
    if ":" in address and not os.path.exists("/proc/sys/net/ipv6/conf/lo"):
        pytest.skip("this machine has no IPv6")
    one = ip_address(address)
    began_s = time.monotonic()
    assert look(one, attempts=1) == Look(frozenset({one}), ())
    assert time.monotonic() - began_s < 0.9, "it did not wait for the end of its time"


@pytest.mark.skipif(not _may_ping(), reason="raw sockets are for root")
def test_a_socket_receives_replies_alone() -> None:
    with icmp_echo._open(4) as made:
        kept = made.getsockopt(icmp_echo._SOL_RAW, icmp_echo._ICMP_FILTER)
        assert kept == 0xFFFFFFFE - (1 << 32)


def test_a_socket_that_cannot_be_set_up_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []

    class Unfit:
        def __init__(self, *_: object) -> None: ...

        def setsockopt(self, *_: object) -> None:
            raise OSError(errno.ENOPROTOOPT, "none")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(socket, "socket", Unfit)
    for version in (4, 6):
        with pytest.raises(OSError, match="none"):
            icmp_echo._open(version)
    assert closed == [True, True]
