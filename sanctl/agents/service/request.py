# SPDX-License-Identifier: GPL-2.0-or-later
"""The request that resource-agents/client sends to sanctl-actions.service, and its replies.

    client   LENGTH (8 decimal digits), then the fields of `Request`, each ended by a NUL
    service  READY: a process has read it and waits
    client   GO: that process may begin. A client that got no READY in time closes the connection
             instead, and runs the program itself
    service  the exit status, one byte. The end of the connection without it: the process died

A client may be of another release than the service, as both are replaced one after the other: what
the two have to understand of each other first, PROTOCOL and the release, stands first for good.
"""

from __future__ import annotations

import os
from typing import NamedTuple

PROTOCOL = b"1"
READY = b"r"
GO = b"g"
LENGTH_DIGITS = 8
#: Arguments and environment of a process have 2 MiB together (execve(2), with an 8 MiB stack).
MAX_BYTES = 4 * 2**20


class Request(NamedTuple):
    """One program to run, with what a process has from the one that started it."""

    release: str
    folder: str
    umask: int
    argv: tuple[str, ...]
    environment: dict[bytes, bytes]


def parse_length(header: bytes) -> int:
    """Return how many bytes follow the header.

    Raises:
        ValueError: it is no header, or says too much.
    """
    if len(header) != LENGTH_DIGITS or not header.isdigit():
        raise ValueError(f"no request: it begins with {header!r}")
    length = int(header)
    if length > MAX_BYTES:
        raise ValueError(f"a request of {length} bytes")
    return length


def parse(body: bytes) -> Request:
    """Return the request out of its fields.

    Raises:
        ValueError: it is not a request of this protocol.
    """
    protocol, _, rest = body.partition(b"\0")
    if protocol != PROTOCOL:
        raise ValueError(f"a request of protocol {protocol[:20]!r}")
    fields = rest.split(b"\0")
    if len(fields) < 6 or fields[-1]:
        raise ValueError("a request that ends in the middle")
    release, folder, umask, count, *words = fields[:-1]
    if not umask.isdigit() or not count.isdigit() or not 0 < int(count) <= len(words):
        raise ValueError(f"a request with umask {umask[:20]!r} and {count[:20]!r} arguments")
    pairs = [word.partition(b"=") for word in words[int(count) :]]
    return Request(
        release=os.fsdecode(release),
        folder=os.fsdecode(folder),
        umask=int(umask) & 0o777,
        argv=tuple(os.fsdecode(word) for word in words[: int(count)]),
        environment={name: value for name, _, value in pairs if name},
    )
