# SPDX-License-Identifier: GPL-2.0-or-later
"""What is dirty in RAM on this node: its limit, how much it is, how fast it could be flushed."""

from __future__ import annotations

import os

from sanctl.drivers import page_cache
from sanctl.drivers.page_cache import Usage
from sanctl.system import state_files

_LIMIT = "dirty-limit"
#: Flushing less than this tells nothing of how fast a disk is.
_TELLING_BYTES = 1 << 20
_STEPS = 16
#: A fifth of a node's RAM: what the kernel lets be dirty where nobody says anything
#: (vm.dirty_ratio). More would make a flush as long as somebody mistyped.
_MOST_OF_RAM = 5


def set_limit(name: str, limit_bytes: int | None) -> None:
    """Limit what is dirty on this node to what its devices in write-back may have together.

    Args:
        name: the device.
        limit_bytes: its share; None: it has none any more.
    """
    note = state_files.of_device(name, _LIMIT)
    text = "" if limit_bytes is None else str(limit_bytes)
    if note.read() == text:
        return
    with state_files.locked(state_files.node_lock("dirty")):
        wanted = _wanted_bytes(beside=name) + (limit_bytes or 0)
        page_cache.set_dirty_limit(
            min(wanted, max_bytes()) or None, saved_in=state_files.of_node("dirty-before")
        )
        # Noted once the kernel has been told: whoever is killed before comes here again.
        if limit_bytes is None:
            note.remove()
        else:
            note.write(text)


def _wanted_bytes(*, beside: str = "") -> int:
    """What the devices in write-back, all or all beside one, may have dirty by their policies."""
    return sum(
        int(state_files.of_device(name, _LIMIT).read() or 0)
        for name in state_files.devices_with(_LIMIT)
        if name != beside
    )


def max_bytes() -> int:
    """Return what may be dirty on this node at most: a fifth of its RAM, whatever is wanted."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MOST_OF_RAM


def record_flush_rate(used: Usage | None, took_s: float) -> None:
    """Remember how fast a flush was, if it tells anything."""
    if used is not None and used.dirty_bytes >= _TELLING_BYTES:
        _rate().write(str(max(round(used.dirty_bytes / took_s), 1)))


def published_fields(path: str, limit_bytes: int) -> str:
    """Return what is published of a device in write-back, ` key=value` each.

    In sixteenths of the limit: it must not be news with every monitor.
    """
    used, rate = page_cache.usage(path), _flush_rate(path)
    text = f" limit={limit_bytes}"
    if _wanted_bytes() > max_bytes():
        text += f" node-limit={max_bytes()}"
    if used is None:
        return text
    step = max(min(limit_bytes, max_bytes()) // _STEPS, 1)
    dirty = -(-used.dirty_bytes // step) * step
    text += f" dirty={dirty}"
    return text if rate is None else f"{text} flush-s={-(-dirty // rate)}"


def _flush_rate(path: str) -> int | None:
    """Bytes a second: as measured in the last flush, or else as the kernel reckons."""
    measured = _rate().read()
    return int(measured) if measured.isdecimal() else page_cache.flush_rate_bytes_s(path)


def _rate() -> state_files.StateFile:
    return state_files.of_node("flush-rate")
