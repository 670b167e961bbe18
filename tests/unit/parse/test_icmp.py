# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP echo messages: what is sent, and which packets are a reply."""

from __future__ import annotations

import struct

import pytest

from sanctl.parse.icmp import Echo, checksum, echo_request, parse_echo_reply

ECHO = Echo(0x1234, 2, b"0123456789abcde")  # an odd number of bytes


def reply(version: int, echo: Echo = ECHO) -> bytes:
    """Return the reply to a request, as a raw socket receives it."""
    message = bytearray(echo_request(version, echo))
    message[0] = {4: 0, 6: 129}[version]
    message[2:4] = b"\0\0"
    if version == 6:
        return bytes(message)
    message[2:4] = struct.pack("!H", checksum(bytes(message)))
    return ip_header(20) + bytes(message)


def ip_header(length: int) -> bytes:
    return bytes([0x40 | length // 4]) + bytes(length - 1)


def test_a_checksum_is_that_of_rfc_1071() -> None:
    """The RFC's own example; its sum has a carry."""
    assert checksum(bytes.fromhex("0001f203f4f5f6f7")) == 0xFFFF - 0xDDF2
    assert checksum(b"\xff\xff" * 70000) == 0
    assert checksum(b"\x01") == 0xFEFF
    assert checksum(b"") == 0xFFFF


def test_a_request_of_ipv4_has_its_checksum_and_one_of_ipv6_is_for_the_kernel() -> None:
    assert checksum(echo_request(4, ECHO)) == 0
    assert echo_request(4, ECHO)[:2] == bytes([8, 0])
    assert echo_request(6, ECHO) == bytes([128, 0, 0, 0]) + b"\x12\x34\x00\x02" + ECHO.payload


@pytest.mark.parametrize("version", [4, 6])
def test_a_reply_says_what_the_request_said(version: int) -> None:
    assert parse_echo_reply(version, reply(version)) == ECHO
    empty = Echo(0, 0xFFFF, b"")
    assert parse_echo_reply(version, reply(version, empty)) == empty


def test_a_header_of_ipv4_with_options_is_passed_over() -> None:
    assert parse_echo_reply(4, ip_header(60) + reply(4)[20:]) == ECHO


@pytest.mark.parametrize(
    ("version", "packet"),
    [
        (4, b""),
        (4, ip_header(20)),
        (4, ip_header(20) + bytes(7)),
        (4, ip_header(60) + bytes(20)),
        # No header of IP, which has 20 bytes at least.
        (4, bytes([0x44]) + bytes(40)),
        # A request: what was sent to this node's own address, or by another node.
        (4, ip_header(20) + echo_request(4, ECHO)),
        # Another code; and damaged on the way.
        (4, ip_header(20) + bytes([0, 1]) + reply(4)[22:]),
        (4, reply(4)[:-1] + b"X"),
        (6, b""),
        (6, bytes(7)),
        (6, echo_request(6, ECHO)),
        (6, bytes([129, 1]) + reply(6)[2:]),
        # Of the other version.
        (6, reply(4)),
        (4, reply(6)),
    ],
)
def test_anything_else_is_no_reply(version: int, packet: bytes) -> None:
    assert parse_echo_reply(version, packet) is None
