# SPDX-License-Identifier: GPL-2.0-or-later
"""The two device-mapper devices between the target and DRBD.

`sanctl-NAME` is what LIO opens and never changes below a session; it stands on
`sanctl-NAME-gate`, which is `error` on a standby node and `linear` onto DRBD on the active one.
Two, because a device's limits (write cache, discard, block sizes) are computed when its table is
loaded: swapping the gate leaves those of the upper device as they were, so that every path of a
device tells a host the same, on a standby node too. A host that learns "no write cache" from a
standby path would send no flush through it after a failover.
"""

from __future__ import annotations

from sanctl.drivers import dm
from sanctl.system.runner import Runner


def target_device(name: str) -> str:
    """Return the path that the target's backstore opens."""
    return dm.path(_upper(name))


def gate_table(name: str) -> str:
    """Return what the gate of the device leads to, from the kernel: no process, no open.

    One of `absent`, `error`, or the name of the block device below it (`drbd1`, `loop3`).
    """
    below = dm.below(_gate(name))
    if below is None:
        return "absent"
    return below or "error"


def is_complete(name: str) -> bool:
    """Whether both devices exist."""
    return dm.below(_upper(name)) is not None and dm.below(_gate(name)) is not None


def is_suspended(name: str) -> bool:
    """Whether one of the two devices holds I/O back: a growth or a swap was interrupted."""
    return dm.is_suspended(_upper(name)) or dm.is_suspended(_gate(name))


def exists_any(name: str) -> bool:
    """Whether one of the two devices exists."""
    return dm.below(_upper(name)) is not None or dm.below(_gate(name)) is not None


def size_bytes(name: str) -> int | None:
    """Return the size of the device that LIO opens, or None when it does not exist."""
    return dm.size_bytes(_upper(name))


def _upper(name: str) -> str:
    return f"sanctl-{name}"


def _gate(name: str) -> str:
    return f"sanctl-{name}-gate"


def _error_table(size_bytes: int) -> str:
    return f"0 {size_bytes // dm.SECTOR_BYTES} error"


def _linear_table(size_bytes: int, below: str) -> str:
    return f"0 {size_bytes // dm.SECTOR_BYTES} linear {below} 0"


def open_gate(runner: Runner, name: str, *, below: str, size_bytes: int) -> None:
    """Lead the gate onto a block device: from now on I/O reaches it."""
    dm.swap(runner, _gate(name), _linear_table(size_bytes, below))


def close_gate(runner: Runner, name: str, *, size_bytes: int, timeout_s: float) -> None:
    """Make the gate fail all I/O, after what is in flight below it has ended.

    The swap suspends the gate and waits for its I/O. Where that I/O hangs, so does the swap.

    Raises:
        CommandError: not done within `timeout_s` seconds; the gate may still lead onto DRBD.
    """
    dm.swap(runner, _gate(name), _error_table(size_bytes), timeout_s=timeout_s)


def release(runner: Runner, name: str) -> None:
    """Let I/O through the upper device to the gate, where an interrupted growth holds it back."""
    if dm.is_suspended(_upper(name)):
        dm.resume(runner, _upper(name))


def create(runner: Runner, name: str, *, shape: str, size_bytes: int) -> None:
    """Make both devices, with the limits of `shape`, and the gate closed.

    Args:
        runner: starts dmsetup.
        name: the device's name.
        shape: path of an empty block device with the limits that hosts are to see, at least as
            large. The gate leads onto it for the moment in which the upper device's limits are
            computed; nothing that a host could reach stands above it yet.
        size_bytes: the device's size.
    """
    gate, upper = _gate(name), _upper(name)
    remove(runner, name)
    dm.create(runner, gate, _linear_table(size_bytes, shape))
    dm.create(runner, upper, _linear_table(size_bytes, dm.path(gate)))
    dm.swap(runner, gate, _error_table(size_bytes))


def grow_active(runner: Runner, name: str, *, below: str, size_bytes: int) -> None:
    """Grow both devices on the active node; I/O goes on."""
    open_gate(runner, name, below=below, size_bytes=size_bytes)
    dm.swap(runner, _upper(name), _linear_table(size_bytes, dm.path(_gate(name))))


def grow_standby(runner: Runner, name: str, *, shape: str, size_bytes: int) -> None:
    """Grow both devices on a standby node, keeping the limits that hosts have seen.

    The upper device is suspended until the gate is suspended over `shape` and then fails all I/O
    again, so that no I/O can reach `shape`.

    Args:
        runner: starts dmsetup.
        name: the device's name.
        shape: path of an empty block device with the limits to keep, at least as large.
        size_bytes: the new size.
    """
    gate, upper = _gate(name), _upper(name)
    dm.suspend(runner, upper)
    dm.swap(runner, gate, _linear_table(size_bytes, shape))
    dm.suspend(runner, gate)
    dm.swap(runner, upper, _linear_table(size_bytes, dm.path(gate)))
    dm.swap(runner, gate, _error_table(size_bytes))


def remove(runner: Runner, name: str) -> None:
    """Remove both devices; what is already gone is fine."""
    dm.remove(runner, _upper(name))
    dm.remove(runner, _gate(name))
