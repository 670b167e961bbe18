# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate between LIO and DRBD: opened with a given size on the Primary, else fails all I/O.

Two device-mapper devices. LIO opens `sanctl-NAME`, which never changes below a session; its table
leads to `sanctl-NAME-gate`, which is `error` on a standby node and `linear` onto DRBD on the active
one. Two, because a device's limits (write cache, discard, block sizes) are computed when its table
is loaded: swapping the gate leaves the limits of the upper device as they were, so that all paths
of a device report the same limits to a host, on a standby node too. A host that learns "no write
cache" from a standby path would send no flush through it after a failover.
"""

from __future__ import annotations

import time

from sanctl.drivers import dm

#: RuntimeMaxSec of sanctl-point@.service is 2 s; the rest is for a systemd that is busy.
LONGEST_HOLD_S = 5.0
_POLL_S = 0.05


def target_device(name: str) -> str:
    """Return the path that the target's backstore opens."""
    return dm.path(_upper(name))


def gate_table(name: str) -> str:
    """Return the target of the device's gate, from the kernel: no process, no open.

    One of `absent`, `error`, or the name of the block device below it (`drbd1`, `loop3`).
    """
    below = dm.lower_device(_gate(name))
    if below is None:
        return "absent"
    return below or "error"


def tables(name: str) -> tuple[dm.ActiveTable | None, dm.ActiveTable | None]:
    """Return the active tables of the upper device and of the gate.

    Raises:
        CommandError: the kernel did not answer.
    """
    return dm.active_table(_upper(name)), dm.active_table(_gate(name))


def dm_names(name: str) -> tuple[str, str]:
    """Return the names of the two device-mapper devices, the upper one first."""
    return _upper(name), _gate(name)


def is_complete(name: str) -> bool:
    """Whether both devices exist."""
    return dm.lower_device(_upper(name)) is not None and dm.lower_device(_gate(name)) is not None


def is_suspended(name: str) -> bool:
    """Whether one of the two devices is suspended: a growth or a swap was interrupted."""
    return dm.is_suspended(_upper(name)) or dm.is_suspended(_gate(name))


def stays_suspended(name: str) -> bool:
    """Whether one of the two devices is suspended, and not for a restore point alone.

    While a restore point is made the gate is suspended for a moment. A monitor that took that for a
    failure would have the cluster recover a device that serves.
    """
    deadline = time.monotonic() + LONGEST_HOLD_S
    while is_suspended(name):
        if time.monotonic() > deadline:
            return True
        time.sleep(_POLL_S)
    return False


def exists_any(name: str) -> bool:
    """Whether one of the two devices exists."""
    return dm.lower_device(_upper(name)) is not None or dm.lower_device(_gate(name)) is not None


def size_bytes(name: str) -> int | None:
    """Return the size of the device that LIO opens, or None when that does not exist."""
    return dm.size_bytes(_upper(name))


def _upper(name: str) -> str:
    return f"sanctl-{name}"


def _gate(name: str) -> str:
    return f"sanctl-{name}-gate"


def _error_table(size_bytes: int) -> str:
    return f"0 {size_bytes // dm.SECTOR_BYTES} error"


def _linear_table(size_bytes: int, below: str) -> str:
    return f"0 {size_bytes // dm.SECTOR_BYTES} linear {below} 0"


def open_gate(name: str, *, below: str, size_bytes: int) -> None:
    """Open the gate onto a block device: from now on I/O reaches that device."""
    dm.swap_table(_gate(name), _linear_table(size_bytes, below))


def close_gate(name: str, *, size_bytes: int, timeout_s: float) -> None:
    """Make the gate fail all I/O, after the I/O in flight below it has ended.

    The swap suspends the gate and waits for its I/O. Where that I/O hangs, so does the swap.

    Raises:
        CommandError: not done within `timeout_s` seconds; the gate may still be open.
    """
    dm.swap_table(_gate(name), _error_table(size_bytes), timeout_s=timeout_s)


def resume(name: str) -> None:
    """Let I/O through the upper device to the gate, where an interrupted growth holds it back."""
    if dm.is_suspended(_upper(name)):
        dm.resume(_upper(name))


def hold(name: str) -> None:
    """Have all I/O of an open gate wait, once that which is in flight below it has ended.

    In the calling thread, so that a signal to it ends the wait.

    Raises:
        OSError: there is no gate, or a signal ended the wait; then I/O goes on.
    """
    dm.hold(_gate(name))


def is_held(name: str) -> bool:
    """Whether the I/O of the gate waits."""
    return dm.is_suspended(_gate(name))


def release(name: str) -> None:
    """Let the I/O of a gate go on; one whose I/O does not wait is fine.

    Raises:
        OSError: there is no gate.
    """
    dm.release(_gate(name))


def create(name: str, *, shape: str, size_bytes: int) -> None:
    """Create both devices, with the limits of `shape`, and the gate closed.

    `shape` is an empty block device with the limits that hosts are to see, at least as large. The
    gate leads onto it for the moment in which the upper device's limits are computed; nothing that
    a host could reach stands above it yet.
    """
    gate, upper = _gate(name), _upper(name)
    remove(name)
    dm.create(gate, _linear_table(size_bytes, shape))
    dm.create(upper, _linear_table(size_bytes, dm.path(gate)))
    dm.swap_table(gate, _error_table(size_bytes))


def grow_active(name: str, *, below: str, size_bytes: int) -> None:
    """Grow both devices on the active node; I/O goes on."""
    open_gate(name, below=below, size_bytes=size_bytes)
    dm.swap_table(_upper(name), _linear_table(size_bytes, dm.path(_gate(name))))


def grow_standby(name: str, *, shape: str, size_bytes: int) -> None:
    """Grow both devices on a standby node, keeping the limits that hosts have seen.

    The upper device is suspended until the gate is suspended over `shape` and then fails all I/O
    again, so that no I/O can reach `shape`.

    `shape` is an empty block device with the limits to keep, at least as large.
    """
    gate, upper = _gate(name), _upper(name)
    dm.suspend(upper)
    dm.swap_table(gate, _linear_table(size_bytes, shape))
    dm.suspend(gate)
    dm.swap_table(upper, _linear_table(size_bytes, dm.path(gate)))
    dm.swap_table(gate, _error_table(size_bytes))


def remove(name: str) -> None:
    """Remove both devices; what is already gone is fine."""
    dm.remove(_upper(name))
    dm.remove(_gate(name))
