# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's cache policy: what an acknowledged write may still be in.

NamedTuples, not dataclasses: the agents import this on every monitor.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

#: How much may be dirty on one node for one device unless another limit is asked for. It bounds
#: how long a flush takes, and so the pause when redundancy is lost.
DEFAULT_DIRTY_BYTES = 64 << 20
LEAST_DIRTY_BYTES = 1 << 20
LEAST_READ_BYTES = 4 << 20
_DIRTY, _READ = "dirty=", "read="


class Mode(StrEnum):
    """Where an acknowledged write is on each replica in sync."""

    NONE = "none"
    """Given to the disk, whose own write cache may hold it until a host flushes."""
    WRITE_THROUGH = "write-through"
    """On stable storage."""
    WRITE_BACK = "write-back"
    """In RAM until a host flushes, or the kernel writes it."""


class Policy(NamedTuple):
    """What is wanted for a device.

    Attributes:
        mode: the mode while its replicas are in sync.
        dirty_bytes: how much of it may be in RAM alone on one node, in write-back.
        read_bytes: how much of it may be in RAM for reads on the node that serves; 0: nothing.
    """

    mode: Mode = Mode.NONE
    dirty_bytes: int = DEFAULT_DIRTY_BYTES
    read_bytes: int = 0

    def __str__(self) -> str:
        """Return it as the CIB holds it."""
        words = [self.mode.value]
        if self.mode is Mode.WRITE_BACK and self.dirty_bytes != DEFAULT_DIRTY_BYTES:
            words.append(f"{_DIRTY}{self.dirty_bytes}")
        if self.read_bytes:
            words.append(f"{_READ}{self.read_bytes}")
        return ",".join(words)


NO_CACHE = Policy()


def parse_policy(text: str) -> Policy:
    """Read a policy as the CIB holds it; nothing there means no cache.

    Raises:
        ValueError: it is none.
    """
    if not text:
        return NO_CACHE
    word, *rest = text.split(",")
    policy = Policy(Mode(word))
    for each in rest:
        if each.startswith(_DIRTY) and policy.mode is Mode.WRITE_BACK:
            policy = policy._replace(dirty_bytes=_size(each, _DIRTY, LEAST_DIRTY_BYTES))
        elif each.startswith(_READ):
            policy = policy._replace(read_bytes=_size(each, _READ, LEAST_READ_BYTES))
        else:
            raise ValueError(f"{text!r} is not a cache policy")
    return policy


def _size(text: str, key: str, least: int) -> int:
    digits = text.removeprefix(key)
    if not digits.isdecimal() or int(digits) < least:
        raise ValueError(f"{text!r}: less than {least} bytes is no cache")
    return int(digits)
