# SPDX-License-Identifier: GPL-2.0-or-later
"""Node-wide vm.dirty_bytes for write-back: the sum over devices, put back after the last."""

from __future__ import annotations

import contextlib

from sanctl.drivers import page_cache
from sanctl.drivers.page_cache import Usage
from sanctl.model.cache_policy import DEFAULT_DIRTY_BYTES
from sanctl.system import memory, state_files

_KIND = "dirty-limit"
#: The time of a smaller flush says nothing about how fast a disk is.
_MIN_MEASURED_BYTES = 1 << 20
_STEPS = 16
#: A fifth of a node's RAM, the kernel's default (vm.dirty_ratio). A larger limit, mistyped for
#: example, would make flushes too long.
_RAM_DIVISOR = 5


def set_limit(name: str, limit_bytes: int | None) -> None:
    """Limit this node's dirty memory to the sum of the limits of its devices in write-back.

    `limit_bytes` is None when the device has no limit any more. A limit that another program has
    lifted, sysctl(8) for one, is set again.
    """
    file = state_files.of_device(name, _KIND)
    text = "" if limit_bytes is None else str(limit_bytes)
    if file.read() == text and (limit_bytes is None or _is_in_force()):
        return
    with state_files.locked(state_files.node_lock("dirty")):
        wanted = _wanted_bytes(without=name) + (limit_bytes or 0)
        page_cache.set_dirty_limit(
            min(wanted, max_bytes()) or None, saved_in=state_files.of_node("dirty-before")
        )
        # Written once the kernel has the limit: after a kill before, the next call sets it again.
        if limit_bytes is None:
            file.remove()
        else:
            file.write(text)


def _is_in_force() -> bool:
    """Whether the kernel has what the notes of all devices amount to."""
    return page_cache.dirty_limit_bytes() == min(_wanted_bytes(), max_bytes())


def _wanted_bytes(*, without: str = "") -> int:
    """Return the sum of the limits of the devices in write-back, without the one named."""
    return sum(
        _noted_bytes(state_files.of_device(name, _KIND).read())
        for name in state_files.devices_with(_KIND)
        if name != without
    )


def _noted_bytes(text: str) -> int:
    """Return a device's limit as noted; of a note of a newer release the default, at least."""
    word = (text.split() or [""])[0]
    if word.isascii() and word.isdecimal():
        return int(word)
    return DEFAULT_DIRTY_BYTES if word else 0


def max_bytes() -> int:
    """Return the highest limit on this node, a fifth of its RAM, whatever the policies want."""
    return memory.total_bytes() // _RAM_DIVISOR


def record_flush_rate(used: Usage | None, duration_s: float) -> None:
    """Write down how fast a flush was, if it was large enough to measure and there is room."""
    if used is None or used.dirty_bytes < _MIN_MEASURED_BYTES:
        return
    with contextlib.suppress(OSError):
        _flush_rate_file().write(str(max(round(used.dirty_bytes / duration_s), 1)))


def published_fields(path: str, limit_bytes: int) -> str:
    """Return the fields published of a device in write-back, ` key=value` each.

    Amounts are in sixteenths of the limit: they must not change with every monitor.
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
    """Return bytes per second as measured in the last flush, or else the kernel's estimate."""
    measured = _flush_rate_file().read()
    return int(measured) if measured.isdecimal() else page_cache.flush_rate_bytes_s(path)


def _flush_rate_file() -> state_files.StateFile:
    return state_files.of_node("flush-rate")
