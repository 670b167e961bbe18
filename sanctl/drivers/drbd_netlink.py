# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD 9 says of a resource, asked of the kernel by generic netlink, without a process.

The interface is the one that drbdsetup uses (drbd-headers, linux/drbd_genl.h): four dumps, of the
resource, its devices, its connections and the peers' replicas. Only what sanctl reads of them is
named here. A dump waits for no command of DRBD's: its family has parallel operations, and what it
lists is read under RCU.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import struct
import sys
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.parse.drbd import ProcState

_TIMEOUT_S = 4.0
_NETLINK_GENERIC = 16
_REQUEST, _DUMP, _NESTED = 0x1, 0x300, 0x8000
_ERROR, _DONE, _FIRST = 2, 3, 16
#: A dump has some messages in each packet; more than those of any node.
_MOST_PACKETS = 10_000
_CONTROL, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_FAMILY, _VERSION = "drbd", 2
# Dumps: DRBD_ADM_GET_RESOURCES and the three after it.
_RESOURCES, _DEVICES, _CONNECTIONS, _PEER_DEVICES = 30, 31, 32, 33
_CONTEXT, _RESOURCE, _DEVICE, _CONNECTION, _PEER_DEVICE, _PEER_STATISTICS = 2, 15, 16, 17, 18, 22
_CONTEXT_RESOURCE, _CONTEXT_CONNECTION = 2, 5
_OUT_OF_SYNC = 5
_NO_ERROR, _RESOURCE_NOT_KNOWN = 101, 158
_ROLES = ("Unknown", "Primary", "Secondary")
_DISKS = (
    "Diskless", "Attaching", "Detaching", "Failed", "Negotiating", "Inconsistent", "Outdated",
    "DUnknown", "Consistent", "UpToDate",
)  # fmt: skip
#: enum drbd_repl_state, from L_OFF on, which has the number of C_CONNECTED.
_OFF = 9
_REPLICATION = (
    "Off", "Established", "StartingSyncS", "StartingSyncT", "WFBitMapS", "WFBitMapT", "WFSyncUUID",
    "SyncSource", "SyncTarget", "VerifyS", "VerifyT", "PausedSyncS", "PausedSyncT", "Ahead",
    "Behind",
)  # fmt: skip
_NOT_SAID = "Unknown"
_sequences = itertools.count(1)


class OwnState(NamedTuple):
    """What DRBD 9 says of the replica here, and of each connection.

    Attributes:
        role: `Primary` or `Secondary`.
        disk: the state of the disk here.
        is_suspended: DRBD holds back the device's I/O, for whatever reason.
        peers: by the connection's name, which is the peer's node: what /proc/drbd of DRBD 8.4 would
            say of it. Its `connection` is the state of the replication, `Off` while there is none.
    """

    role: str
    disk: str
    is_suspended: bool
    peers: dict[str, ProcState]


class _Message(NamedTuple):
    result: int
    #: Attributes of each kind, by their numbers; the last of each counts.
    parts: dict[int, dict[int, bytes]]

    def text(self, part: int, number: int) -> str:
        return self.parts.get(part, {}).get(number, b"").rstrip(b"\0").decode()

    def number(self, part: int, number: int) -> int | None:
        """Return a number of any width; None where there is none."""
        value = self.parts.get(part, {}).get(number)
        return int.from_bytes(value, sys.byteorder) if value else None

    def word(self, part: int, number: int, words: tuple[str, ...], first: int = 0) -> str:
        found = self.number(part, number)
        at = -1 if found is None else found - first
        return words[at] if 0 <= at < len(words) else _NOT_SAID


class _NotKnown(Exception):
    """DRBD has no such resource."""


def observe(name: str) -> OwnState | None:
    """Return what DRBD 9 says of a resource with one volume; None: it is not up.

    The four dumps are not of one moment. What is said of one peer is, but for its role.

    Raises:
        CommandError: the kernel did not answer, or has no DRBD (SAN-SNAP-015).
    """
    try:
        with contextlib.closing(_connect()) as line:
            family = _family(line)
            resources = [
                each
                for each in _dump(line, family, _RESOURCES, "")
                if each.text(_CONTEXT, _CONTEXT_RESOURCE) == name
            ]
            if not resources:
                return None
            devices = _dump(line, family, _DEVICES, name)
            if len(devices) != 1:
                return None
            connections = _dump(line, family, _CONNECTIONS, name)
            peers = _dump(line, family, _PEER_DEVICES, name)
    except _NotKnown:
        return None
    except (OSError, struct.error, UnicodeDecodeError) as error:
        raise _no_answer(name, str(error)) from error
    role = resources[0].word(_RESOURCE, 1, _ROLES)
    # res_susp and its kinds: by an operator, no data, fencing, quorum.
    reasons = [resources[0].number(_RESOURCE, number) for number in (2, 3, 4, 5)]
    if None in reasons:
        raise _no_answer(name, "nothing of what holds its I/O back")
    is_suspended = any(reasons)
    disk = devices[0].word(_DEVICE, 1, _DISKS)
    roles = {
        each.text(_CONTEXT, _CONTEXT_CONNECTION): each.word(_CONNECTION, 2, _ROLES)
        for each in connections
    }
    seen = {}
    for each in peers:
        peer = each.text(_CONTEXT, _CONTEXT_CONNECTION)
        sectors = each.number(_PEER_STATISTICS, _OUT_OF_SYNC)
        if sectors is None:
            raise _no_answer(name, f"nothing of what {peer} lacks")
        seen[peer] = ProcState(
            connection=each.word(_PEER_DEVICE, 1, _REPLICATION, _OFF),
            role=role,
            peer_role=roles.get(peer, _NOT_SAID),
            disk=disk,
            peer_disk=each.word(_PEER_DEVICE, 2, _DISKS),
            is_suspended=is_suspended,
            # A half is one that differs.
            out_of_sync_kib=(sectors + 1) // 2,
        )
    return OwnState(role, disk, is_suspended, seen)


def _no_answer(name: str, why: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-SNAP-015",
            f"{os.uname().nodename}: DRBD does not say by netlink how {name} is: {why}",
            f"'drbdsetup status {name}' there asks the same",
        )
    )


def _connect() -> socket.socket:
    line = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC)
    line.settimeout(_TIMEOUT_S)
    line.bind((0, 0))
    return line


def _family(line: socket.socket) -> int:
    """Return the number of DRBD's family; OSError (ENOENT) where DRBD is not loaded."""
    wanted = _attribute(_FAMILY_NAME, _FAMILY.encode() + b"\0")
    head = struct.pack("=BBH", _GET_FAMILY, 1, 0)
    for body in _ask(line, _CONTROL, _REQUEST, head + wanted):
        found = dict(_attributes(body[4:])).get(_FAMILY_ID)
        if found:
            return int.from_bytes(found, sys.byteorder)
    raise OSError("no family of DRBD's")


def _dump(line: socket.socket, family: int, command: int, name: str) -> list[_Message]:
    """Return what a dump has of one resource; of all where no name is given."""
    context = _attribute(_CONTEXT_RESOURCE, name.encode() + b"\0")
    head = struct.pack("=BBHII", command, _VERSION, 0, 0xFFFFFFFF, 0)
    body = head + (_attribute(_CONTEXT | _NESTED, context) if name else b"")
    found = []
    for answer in _ask(line, family, _REQUEST | _DUMP, body):
        (result,) = struct.unpack_from("=i", answer, 8)
        # The kernel says this for ever (9.3.3, drbd_nl.c): nothing more is read of this socket.
        if result == _RESOURCE_NOT_KNOWN:
            raise _NotKnown
        if result != _NO_ERROR:
            raise OSError(f"error {result} of DRBD's")
        parts = {kind: dict(_attributes(value)) for kind, value in _attributes(answer[12:])}
        found.append(_Message(result, parts))
    return found


def _ask(line: socket.socket, kind: int, flags: int, body: bytes) -> Iterator[bytes]:
    """Send a request, and yield the bodies of the answers, without netlink's own header.

    Unless all are read the socket is of no more use.
    """
    sequence = next(_sequences)
    line.sendto(struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body, (0, 0))
    for _ in range(_MOST_PACKETS):
        data, (sender, _groups) = line.recvfrom(1 << 16)
        if sender:
            continue  # Of another process, not of the kernel.
        at = 0
        while at + 16 <= len(data):
            length, kind_here, _flags, of, _port = struct.unpack_from("=IHHII", data, at)
            if length < 16:
                raise OSError("a message of no length")
            body_here = data[at + 16 : at + length]
            at += (length + 3) & ~3
            if of != sequence:
                continue
            if kind_here == _ERROR and struct.unpack_from("=i", body_here)[0]:
                number = -struct.unpack_from("=i", body_here)[0]
                raise OSError(number, os.strerror(number))
            if kind_here in {_ERROR, _DONE}:
                return
            if kind_here >= _FIRST:
                yield body_here
                if not flags & _DUMP:
                    return
    raise OSError("an answer without an end")


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < 4:
            return
        # Without the marks of a nested attribute and of the byte order.
        yield kind & 0x3FFF, data[at + 4 : at + length]
        at += (length + 3) & ~3
