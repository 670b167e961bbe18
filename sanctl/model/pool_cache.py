# SPDX-License-Identifier: GPL-2.0-or-later
"""Values of a pool's flash cache: wanted mode, published state, superblock's fields; unit names."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from sanctl.model.cache_policy import CacheMode

#: The permanent node attribute with the wanted mode of a pool begins so. Not `sanctl-...`: those
#: are devices' attributes.
MODE_ATTRIBUTE_PREFIX = "pool-cache-"


class Attachment(StrEnum):
    """The state in a slow disk's superblock (bcache's BDEV_STATE), in the order of its numbers."""

    NONE = "none"
    """The disk has no flash."""
    CLEAN = "clean"
    """The disk has flash, and no data is on flash alone."""
    DIRTY = "dirty"
    """The disk lacks data that is on flash."""
    STALE = "stale"
    """The disk has been used without the flash it had."""


class Superblock(NamedTuple):
    """A bcache superblock.

    Attributes:
        is_flash: the superblock is a flash device's; otherwise a slow disk's.
        set_uuid: the cache set, 32 hex digits.
        label: the pool's uuid, which sanctl writes there.
        state: the state of a slow disk's flash.
        mode: the last cache mode of a slow disk.
    """

    is_flash: bool
    set_uuid: str
    label: str
    state: Attachment
    mode: CacheMode


class WantedMode(NamedTuple):
    """The wanted mode of a pool's flash cache on a node, as its node attribute holds it.

    Attributes:
        mode: the mode.
        serial: counts the changes of the wanted mode; 0: the inventory's mode. A node publishes the
            state of its cache with the serial that it has acted on: without a serial, the state
            after an earlier change to the same mode could be taken for the result of this one.
    """

    mode: CacheMode
    serial: int = 0

    def __str__(self) -> str:
        """Return the text of the node attribute."""
        return f"{self.mode.value}:{self.serial}"


def parse_wanted_mode(text: str, default: CacheMode) -> WantedMode:
    """Read the text of `str`, or a mode alone; for any other text the default is wanted."""
    word, _, serial = text.partition(":")
    if word not in set(CacheMode):
        return WantedMode(default)
    return WantedMode(
        CacheMode(word), int(serial) if serial.isascii() and serial.isdecimal() else 0
    )


class CacheState(NamedTuple):
    """The state of a pool's flash cache that a node last published.

    Attributes:
        mode: the mode in force.
        wanted: the wanted mode.
        reason: why the wanted mode is not in force; empty where it is.
        dirty_bytes: about how much data is on flash alone.
        flush_s: how long writing that back would take; None: not known.
        hit_percent: the share of reads found on flash since the boot; None: too few reads.
        serial: the serial of the wanted mode that the node has acted on.
    """

    mode: CacheMode
    wanted: CacheMode
    reason: str = ""
    dirty_bytes: int = 0
    flush_s: int | None = None
    hit_percent: int | None = None
    serial: int = 0

    def __str__(self) -> str:
        """Return the text of the node attribute."""
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


def parse_cache_state(pairs: dict[str, str]) -> CacheState | None:
    """Read the fields of `CacheState.__str__`; None where they are missing or malformed."""
    try:
        return CacheState(
            mode=CacheMode(pairs["cache"]),
            wanted=CacheMode(pairs["cache-wanted"]),
            reason=pairs.get("cache-why", ""),
            dirty_bytes=int(pairs.get("dirty", "0")),
            flush_s=int(pairs["flush-s"]) if "flush-s" in pairs else None,
            hit_percent=int(pairs["hits"]) if "hits" in pairs else None,
            serial=int(pairs.get("cache-wish", "0")),
        )
    except (KeyError, ValueError):
        return None


def mount_unit_name(path: str) -> str:
    """Return the name of a mount point's systemd unit (systemd.unit(5), escaping)."""
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


def mount_units_at(path: str) -> list[str]:
    """Return the names of the units that a mount at a path, or at a folder above it, would have.

    As `RequiresMountsFor=` of systemd.unit(5) finds them. One that does not exist orders nothing.
    """
    parts = [part for part in path.split("/") if part]
    return [mount_unit_name("/".join(parts[:count])) for count in range(1, len(parts) + 1)]
