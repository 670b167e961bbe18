# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP timestamps are written as RFC 792 has them, and offsets are taken across midnight."""

from __future__ import annotations

import struct

import pytest

from sanctl.parse.icmp import checksum
from sanctl.parse.icmp_timestamp import (
    DAY_MS,
    Timestamp,
    offset_ms,
    parse_timestamp_reply,
    timestamp_request,
)

IP = bytes([0x45]) + bytes(19)


def reply(received_ms: int, *, kind: int = 14, code: int = 0) -> bytes:
    words = (7, 8, 1000, received_ms, received_ms)
    empty = struct.pack("!BBHHHIII", kind, code, 0, *words)
    return struct.pack("!BBHHHIII", kind, code, checksum(empty), *words)


def test_a_request_has_a_right_checksum() -> None:
    request = timestamp_request(7, 8, DAY_MS + 1000)
    assert checksum(request) == 0
    assert struct.unpack("!BBHHHIII", request)[3:6] == (7, 8, 1000)
    assert request[:2] == b"\x0d\x00"


def test_a_reply_says_when_the_request_was_received() -> None:
    # As Linux has answered on its loopback interface.
    seen = bytes.fromhex("0e00c532004d0001002964010029640100296401")
    assert parse_timestamp_reply(IP + seen) == Timestamp(77, 1, 2_712_577)
    assert parse_timestamp_reply(IP + reply(5)) == Timestamp(7, 8, 5)


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        bytes([0x41]) + bytes(40),
        IP,
        IP + reply(5)[:-1],
        IP + reply(5, kind=13),
        IP + reply(5, code=1),
        IP + reply(5)[:-1] + b"x",
        IP + reply(DAY_MS),
        IP + reply(1 << 31),
    ],
)
def test_what_is_no_reply(packet: bytes) -> None:
    assert parse_timestamp_reply(packet) is None


@pytest.mark.parametrize(
    ("received", "sent", "answered", "ahead"),
    [
        (1000, 990, 1010, 0),
        (1000 + 600_000, 990, 1010, 600_000),
        (1000, 600_990, 601_010, -600_000),
        # Midnight has passed there, or here, alone.
        (500, 20 * DAY_MS - 510, 20 * DAY_MS - 490, 1000),
        (DAY_MS - 500, 20 * DAY_MS + 490, 20 * DAY_MS + 510, -1000),
    ],
)
def test_the_offset(received: int, sent: int, answered: int, ahead: int) -> None:
    assert offset_ms(received, sent, answered) == ahead
