# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's flash cache: what is wanted of it, and what its parts say."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sanctl.model.cache_policy import Mode

#: The permanent node attribute that holds the wanted mode of a pool. Not `sanctl-...`, which would
#: be a device's.
WISH = "pool-cache-"


class Attachment(StrEnum):
    """What a slow disk's superblock says of its flash, in the order of the kernel's numbers."""

    NONE = "none"
    """It has none."""
    CLEAN = "clean"
    """It has one, and nothing is on flash alone."""
    DIRTY = "dirty"
    """It lacks what is on flash."""
    STALE = "stale"
    """It has been used without the one it had."""


class Superblock(NamedTuple):
    """A bcache superblock.

    Attributes:
        is_flash: of a flash device; otherwise of a slow disk.
        set_uuid: the cache set, 32 hex digits.
        label: whose it is: sanctl writes the pool's uuid.
        state: a slow disk's relation to its flash.
        mode: how a slow disk's flash was used last.
    """

    is_flash: bool
    set_uuid: str
    label: str
    state: Attachment
    mode: Mode


class ModeWish(NamedTuple):
    """The mode that is wanted of a pool on a node, as its node attribute holds it.

    Attributes:
        mode: the mode.
        serial: counts the changes of the wish; 0: it is the inventory's. A node tells what it has
            done with the serial that it did it for: without, what it told of an earlier wish for
            the same mode could be taken for the answer to this one.
    """

    mode: Mode
    serial: int = 0

    def __str__(self) -> str:
        """Return it as the node attribute holds it."""
        return f"{self.mode.value}:{self.serial}"


def parse_wish(text: str, default: Mode) -> ModeWish:
    """Read what `str` writes, or a mode alone; anything else is no wish: the default is wanted."""
    word, _, serial = text.partition(":")
    if word not in set(Mode):
        return ModeWish(default)
    return ModeWish(Mode(word), int(serial) if serial.isascii() and serial.isdecimal() else 0)


class CacheState(NamedTuple):
    """What a node last published of a pool's flash cache.

    Attributes:
        mode: what it is in.
        wanted: what it is to be in.
        reason: why it has not done all that is wanted; empty where it has.
        dirty_bytes: what is on flash alone, about.
        flush_s: how long writing that back would take; None: not known.
        hit_percent: what reads found on flash since the boot; None: too few to tell.
        serial: that of the wish this is about.
    """

    mode: Mode
    wanted: Mode
    reason: str = ""
    dirty_bytes: int = 0
    flush_s: int | None = None
    hit_percent: int | None = None
    serial: int = 0

    def __str__(self) -> str:
        """Return it as the node attribute holds it."""
        words = [f"cache={self.mode.value}", f"cache-wanted={self.wanted.value}"]
        if self.reason:
            words.append(f"cache-why={self.reason}")
        if self.dirty_bytes:
            words.append(f"dirty={self.dirty_bytes}")
        if self.flush_s is not None:
            words.append(f"flush-s={self.flush_s}")
        if self.hit_percent is not None:
            words.append(f"hits={self.hit_percent}")
        if self.serial:
            words.append(f"cache-wish={self.serial}")
        return " ".join(words)


def parse_state(pairs: dict[str, str]) -> CacheState | None:
    """Read what `str` writes, as pairs; None where it is not there or does not read."""
    try:
        return CacheState(
            mode=Mode(pairs["cache"]),
            wanted=Mode(pairs["cache-wanted"]),
            reason=pairs.get("cache-why", ""),
            dirty_bytes=int(pairs.get("dirty", "0")),
            flush_s=int(pairs["flush-s"]) if "flush-s" in pairs else None,
            hit_percent=int(pairs["hits"]) if "hits" in pairs else None,
            serial=int(pairs.get("cache-wish", "0")),
        )
    except (KeyError, ValueError):
        return None


def mount_unit(path: str) -> str:
    """Return the name that systemd gives a mount point's unit (systemd.unit(5), escaping)."""
    parts = [part for part in path.split("/") if part]
    escaped = "-".join(
        "".join(
            character
            if character.isascii() and (character.isalnum() or character in "_:.")
            else "".join(f"\\x{byte:02x}" for byte in character.encode())
            for character in part
        )
        for part in parts
    )
    if escaped.startswith("."):
        escaped = f"\\x2e{escaped[1:]}"
    return f"{escaped or '-'}.mount"
