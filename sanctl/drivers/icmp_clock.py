# SPDX-License-Identifier: GPL-2.0-or-later
"""Offsets of other machines' clocks, by ICMP timestamps, which their kernels answer."""

from __future__ import annotations

import contextlib
import math
import os
import select
import socket
import struct
import time
from collections.abc import Collection

from sanctl.parse.icmp_timestamp import offset_ms, parse_timestamp_reply, timestamp_request

# icmp(7): a set bit blocks a type, and timestamp replies alone are not blocked.
_SOL_RAW, _ICMP_FILTER, _TIMESTAMP_REPLY = 255, 1, 14
_PACKET_BYTES = 2048
#: Reads end after so many packets, whatever others send.
_MOST_PACKETS = 1000


def offsets_s(addresses: Collection[str], *, within_s: float) -> dict[str, float]:
    """Return by how many seconds the clocks of machines are ahead of the one here.

    A machine that does not answer in time is left out; an offset is wrong by half of `within_s` at
    most.

    Args:
        addresses: IPv4 addresses of the machines.
        within_s: the time for all answers, in seconds.

    Raises:
        OSError: the kernel has no such socket, or does not permit it.
    """
    found: dict[str, float] = {}
    identifier, sequence = os.getpid() & 0xFFFF, int.from_bytes(os.urandom(2))
    with _open() as asking:
        sent: dict[str, int] = {}
        for address in addresses:
            sent[address] = _now_ms()
            # A machine without a route says nothing of the others.
            with contextlib.suppress(OSError):
                request = timestamp_request(identifier, sequence, sent[address])
                asking.sendto(request, (address, 0))
        until_s = time.monotonic() + within_s
        poll = select.poll()
        poll.register(asking.fileno(), select.POLLIN)
        for _ in range(_MOST_PACKETS):
            left_s = until_s - time.monotonic()
            if len(found) == len(sent) or left_s <= 0:
                break
            if not poll.poll(math.ceil(left_s * 1000)):
                break
            try:
                packet, sender = asking.recvfrom(_PACKET_BYTES)
            except OSError:
                continue  # The kernel has thrown the packet away, or reports another's error.
            answered_ms, address = _now_ms(), str(sender[0])
            reply = parse_timestamp_reply(packet)
            if (
                reply is not None
                and address in sent
                and address not in found
                and (reply.identifier, reply.sequence) == (identifier, sequence)
            ):
                found[address] = offset_ms(reply.received_ms, sent[address], answered_ms) / 1000
    return found


def _open() -> socket.socket:
    made = socket.socket(
        socket.AF_INET,
        socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        socket.IPPROTO_ICMP,
    )
    try:
        blocked = struct.pack("=I", 0xFFFFFFFF & ~(1 << _TIMESTAMP_REPLY))
        made.setsockopt(_SOL_RAW, _ICMP_FILTER, blocked)
    except OSError:
        made.close()
        raise
    return made


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
