# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's cache policy: cache mode, dirty limit and read cache size, as value and as text.

NamedTuples, not dataclasses: the agents import this on every monitor.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

#: The dirty limit of one device on one node unless another is asked for. The limit bounds the time
#: that a flush takes, and so the pause when redundancy is lost.
DEFAULT_DIRTY_BYTES = 64 << 20
MIN_DIRTY_BYTES = 1 << 20
MIN_READ_BYTES = 4 << 20
_DIRTY, _READ = "dirty=", "read="


class CacheMode(StrEnum):
    """Where an acknowledged write is, on each replica in sync."""

    NONE = "none"
    """On the disk, whose own write cache may hold the write until a host flushes."""
    WRITE_THROUGH = "write-through"
    """On stable storage."""
    WRITE_BACK = "write-back"
    """In RAM until a host flushes, or the kernel writes it to the disk."""


class CachePolicy(NamedTuple):
    """The cache policy that is wanted for a device.

    Attributes:
        mode: the mode while its replicas are in sync.
        dirty_bytes: how much of its data may be in RAM alone on one node, in write-back.
        read_bytes: the size of its read cache in RAM on the Primary; 0: none.
    """

    mode: CacheMode = CacheMode.NONE
    dirty_bytes: int = DEFAULT_DIRTY_BYTES
    read_bytes: int = 0

    def __str__(self) -> str:
        """Return the policy's text in the CIB."""
        words = [self.mode.value]
        if self.mode is CacheMode.WRITE_BACK and self.dirty_bytes != DEFAULT_DIRTY_BYTES:
            words.append(f"{_DIRTY}{self.dirty_bytes}")
        if self.read_bytes:
            words.append(f"{_READ}{self.read_bytes}")
        return ",".join(words)


NO_CACHE = CachePolicy()


def parse_cache_policy(text: str) -> CachePolicy:
    """Read a policy's text in the CIB; an empty text means no cache.

    Raises:
        ValueError: the text is no cache policy.
    """
    if not text:
        return NO_CACHE
    word, *rest = text.split(",")
    policy = CachePolicy(CacheMode(word))
    for each in rest:
        if each.startswith(_DIRTY) and policy.mode is CacheMode.WRITE_BACK:
            policy = policy._replace(dirty_bytes=_size(each, _DIRTY, MIN_DIRTY_BYTES))
        elif each.startswith(_READ):
            policy = policy._replace(read_bytes=_size(each, _READ, MIN_READ_BYTES))
        else:
            raise ValueError(f"{text!r} is not a cache policy")
    return policy


def _size(text: str, key: str, least: int) -> int:
    digits = text.removeprefix(key)
    if not digits.isdecimal() or int(digits) < least:
        raise ValueError(f"{text!r}: less than {least} bytes is no cache")
    return int(digits)
