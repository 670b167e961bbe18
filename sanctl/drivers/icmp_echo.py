# SPDX-License-Identifier: GPL-2.0-or-later
"""Pings addresses at once from this process, by one raw socket for each IP version: no program.

ping(8) is a process for each address, and waits a second between its requests whatever came.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import struct
import time
from collections.abc import Iterable
from ipaddress import IPv6Address

from sanctl.parse.icmp import Echo, echo_request, parse_echo_reply
from sanctl.plan.failover.reach import Address, Look, Watch

_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_PROTOCOLS = {4: socket.IPPROTO_ICMP, 6: socket.IPPROTO_ICMPV6}
# icmp(7), RFC 3542: a socket receives replies to echo requests and nothing else. A set bit blocks
# a type of ICMP; of ICMPv6 there are 256, in words of the machine's byte order.
_SOL_RAW, _ICMP_FILTER, _ICMP6_FILTER = 255, 1, 1
_ECHO_REPLY, _ECHO_REPLY_V6 = 0, 129
_TOKEN_BYTES = 16
_PACKET_BYTES = 2048
#: So many packets are read after the time is over: more than a socket's buffer has, in which an
#: answer may have waited since it came in time. What others cause to come does not end.
_LATE_PACKETS = 1000

#: Where an answer comes from: IP version, address, and index of the interface of a link-local one.
_Source = tuple[int, bytes, int]


def look(watch: Watch) -> Look:
    """Ask all addresses at once, and again those that have not answered; end when all have.

    No error is raised: what failed is in the result, for each address that it concerns.
    """
    with contextlib.ExitStack() as stack:
        asked = _Look(watch)
        for version in sorted({each.version for each in watch.addresses}):
            try:
                asked.sockets[version] = stack.enter_context(_open(version))
            except OSError as error:
                asked.note(version, error)
        for sequence in range(1, watch.attempts + 1):
            if asked.send(sequence):
                asked.receive(time.monotonic() + watch.timeout_s)
        return Look(frozenset(asked.answered), tuple(asked.errors))


class _Look:
    """One look that is under way."""

    def __init__(self, watch: Watch) -> None:
        self.sockets: dict[int, socket.socket] = {}
        self.answered: set[Address] = set()
        self.errors: list[tuple[Address, int]] = []
        self._watch = watch
        self._identifier = os.getpid() & 0xFFFF
        # An answer to an earlier look, or to another program of the same identifier, is none.
        self._token = os.urandom(_TOKEN_BYTES)
        self._asked: dict[_Source, Address] = {}

    def note(self, version: int, error: OSError) -> None:
        """Note an error of all addresses of an IP version, and use its socket no more."""
        self.sockets.pop(version, None)
        self.errors += [(each, error.errno or 0) for each in self._of(version)]

    def send(self, sequence: int) -> bool:
        """Send a request to each address that has not answered; return whether one was sent."""
        is_sent = False
        for address in self._missing():
            asked_by = self.sockets.get(address.version)
            if asked_by is None:
                continue
            request = echo_request(address.version, Echo(self._identifier, sequence, self._token))
            try:
                scope = _interface_index(address)
                # With a number for each part: nothing is resolved, which could take long.
                where = (_numeric(address), 0) + ((0, scope) if address.version == 6 else ())
                asked_by.sendto(request, where)
            except OSError as error:
                self.errors.append((address, error.errno or 0))
            else:
                self._asked[address.version, address.packed, scope] = address
                is_sent = True
        return is_sent

    def receive(self, until_s: float) -> None:
        """Receive until all that were asked have answered, or the time is over.

        What has come in time counts, also where this process had no processor meanwhile.
        """
        poll = select.poll()
        versions = {each.fileno(): version for version, each in self.sockets.items()}
        for descriptor in versions:
            poll.register(descriptor, select.POLLIN)
        late_packets = 0
        while any(each not in self.answered for each in self._asked.values()):
            left_s = until_s - time.monotonic()
            ready = poll.poll(max(0, math.ceil(left_s * 1000)))
            late_packets += len(ready) if left_s <= 0 else 0
            if not ready or late_packets > _LATE_PACKETS:
                return
            for descriptor, _ in ready:
                try:
                    self._take(versions[descriptor])
                except BlockingIOError:
                    continue  # The kernel has thrown the packet away: its checksum is wrong.
                except OSError as error:
                    poll.unregister(descriptor)
                    self.note(versions[descriptor], error)

    def _take(self, version: int) -> None:
        packet, sender = self.sockets[version].recvfrom(_PACKET_BYTES)
        host = str(sender[0]).partition("%")[0]
        # The kernel names the interface of a link-local address alone.
        scope = sender[3] if version == 6 else 0
        address = self._asked.get((version, socket.inet_pton(_FAMILIES[version], host), scope))
        reply = parse_echo_reply(version, packet)
        if (
            address is not None
            and reply is not None
            and (reply.identifier, reply.payload) == (self._identifier, self._token)
            # Also to the first request while the second is waited for.
            and 1 <= reply.sequence <= self._watch.attempts
        ):
            self.answered.add(address)

    def _missing(self) -> list[Address]:
        return [each for each in self._watch.addresses if each not in self.answered]

    def _of(self, version: int) -> Iterable[Address]:
        return (each for each in self._watch.addresses if each.version == version)


def _open(version: int) -> socket.socket:
    """Return a raw socket that receives echo replies of an IP version.

    Raises:
        OSError: not permitted, no memory, no descriptor, no such IP version in this kernel.
    """
    made = socket.socket(
        _FAMILIES[version],
        socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC,
        _PROTOCOLS[version],
    )
    try:
        if version == 4:
            made.setsockopt(
                _SOL_RAW, _ICMP_FILTER, struct.pack("=I", 0xFFFFFFFF & ~(1 << _ECHO_REPLY))
            )
        else:
            words = [0xFFFFFFFF] * 8
            words[_ECHO_REPLY_V6 // 32] &= ~(1 << _ECHO_REPLY_V6 % 32)
            made.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, struct.pack("=8I", *words))
    except OSError:
        made.close()
        raise
    return made


def _interface_index(address: Address) -> int:
    """Return the index of the interface that a link-local address names, 0 where it names none.

    Raises:
        OSError: ENODEV, there is no such interface.
    """
    scope = address.scope_id if isinstance(address, IPv6Address) else None
    if scope is None or not address.is_link_local:
        return 0
    if scope.isdecimal():
        return int(scope)
    try:
        return socket.if_nametoindex(scope)
    except OSError as error:
        # Without an errno before Python 3.13.
        raise OSError(error.errno or errno.ENODEV, os.strerror(errno.ENODEV)) from error


def _numeric(address: Address) -> str:
    return str(address).partition("%")[0]
