# SPDX-License-Identifier: GPL-2.0-or-later
"""ICMP timestamp messages of IPv4, written and read (RFC 792): what time a machine has.

The time is in milliseconds since midnight UTC.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from sanctl.parse.icmp import checksum

DAY_MS = 86_400_000
_REQUEST, _REPLY = 13, 14
#: Type, code, checksum, identifier, sequence; when sent, received, and sent back.
_MESSAGE = struct.Struct("!BBHHHIII")
_IPV4_HEADER_BYTES = 20


class Timestamp(NamedTuple):
    """What a reply says.

    Attributes:
        identifier: the request's.
        sequence: the request's.
        received_ms: when the request was received there.
    """

    identifier: int
    sequence: int
    received_ms: int


def timestamp_request(identifier: int, sequence: int, sent_ms: int) -> bytes:
    """Return the message of a request."""

    def message(check: int) -> bytes:
        return _MESSAGE.pack(_REQUEST, 0, check, identifier, sequence, sent_ms % DAY_MS, 0, 0)

    return message(checksum(message(0)))


def parse_timestamp_reply(packet: bytes) -> Timestamp | None:
    """Return what a reply says, as a raw socket has received it, with its IP header.

    None: it is no whole reply, or the machine does not say the time of day in UTC.
    """
    header_bytes = (packet[0] & 0xF) * 4 if packet else 0
    message = packet[header_bytes:]
    if header_bytes < _IPV4_HEADER_BYTES or len(message) < _MESSAGE.size:
        return None
    kind, code, _, identifier, sequence, _, received_ms, _ = _MESSAGE.unpack_from(message)
    # Beyond a day: a machine that has no such time sets the highest bit.
    if (kind, code) != (_REPLY, 0) or checksum(message) or received_ms >= DAY_MS:
        return None
    return Timestamp(identifier, sequence, received_ms)


def offset_ms(received_ms: int, sent_ms: int, answered_ms: int) -> int:
    """Return how much a machine's clock is ahead; negative: behind. Whole days are not seen.

    Args:
        received_ms: when it received the request, by its clock.
        sent_ms: when the request was sent, by the clock here, in milliseconds since 1970.
        answered_ms: when the answer came, likewise.
    """
    ahead = (received_ms - (sent_ms + answered_ms) // 2) % DAY_MS
    return ahead - DAY_MS if ahead > DAY_MS // 2 else ahead
