# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP echo messages of both IP versions, written and read (RFC 792, RFC 4443)."""

from __future__ import annotations

import struct
from typing import NamedTuple

#: Type (request, reply) by IP version; the code is 0.
_TYPES = {4: (8, 0), 6: (128, 129)}
_HEADER = struct.Struct("!BBHHH")
_IPV4_HEADER_BYTES = 20


class Echo(NamedTuple):
    """What an echo request says, and its reply says again."""

    identifier: int
    sequence: int
    payload: bytes


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071); 0 over data that contain a right one."""
    padded = data + b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def echo_request(version: int, echo: Echo) -> bytes:
    """Return the message of a request. The kernel writes the checksum of one of IPv6 itself."""
    kind = _TYPES[version][0]

    def message(check: int) -> bytes:
        return _HEADER.pack(kind, 0, check, echo.identifier, echo.sequence) + echo.payload

    return message(checksum(message(0)) if version == 4 else 0)


def parse_echo_reply(version: int, packet: bytes) -> Echo | None:
    """Return what a reply says, as a raw socket has received it; None: it is no whole reply.

    A packet of IPv4 begins with its IP header, and its checksum is verified here: the kernel hands
    it to raw sockets before it looks. One of IPv6 is the message alone, which the kernel has
    verified.
    """
    message = packet
    if version == 4:
        header_bytes = (packet[0] & 0xF) * 4 if packet else 0
        if header_bytes < _IPV4_HEADER_BYTES:
            return None
        message = packet[header_bytes:]
    if len(message) < _HEADER.size:
        return None
    kind, code, _, identifier, sequence = _HEADER.unpack_from(message)
    if (kind, code) != (_TYPES[version][1], 0) or (version == 4 and checksum(message)):
        return None
    return Echo(identifier, sequence, message[_HEADER.size :])
