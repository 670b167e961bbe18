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
_DIRTY = "dirty="


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
    """

    mode: Mode = Mode.NONE
    dirty_bytes: int = DEFAULT_DIRTY_BYTES

    def __str__(self) -> str:
        """Return it as the CIB holds it."""
        if self.mode is Mode.WRITE_BACK and self.dirty_bytes != DEFAULT_DIRTY_BYTES:
            return f"{self.mode.value},{_DIRTY}{self.dirty_bytes}"
        return self.mode.value


NO_CACHE = Policy()


def parse_policy(text: str) -> Policy:
    """Read a policy as the CIB holds it; nothing there means no cache.

    Raises:
        ValueError: it is none.
    """
    word, comma, rest = text.partition(",")
    if not text:
        return NO_CACHE
    mode = Mode(word)
    if not comma:
        return Policy(mode)
    digits = rest.removeprefix(_DIRTY)
    if mode is not Mode.WRITE_BACK or digits == rest or not digits.isdecimal():
        raise ValueError(f"{text!r} is not a cache policy")
    if int(digits) < LEAST_DIRTY_BYTES:
        raise ValueError(f"{text!r}: less than {LEAST_DIRTY_BYTES} bytes is no cache")
    return Policy(mode, int(digits))
