# SPDX-License-Identifier: GPL-2.0-or-later
"""The gate of a replica in the size that DRBD has: made so, and grown when DRBD has grown."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Protocol

from sanctl.drivers import drbd_kernel, gate, loop, pool_files
from sanctl.errors import SanctlError
from sanctl.system import journal, state_files


class Device(Protocol):
    """What this needs of a device: its name, its DRBD device, and the size that it is to have."""

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def minor(self) -> int: ...  # noqa: D102

    @property
    def size_bytes(self) -> int: ...  # noqa: D102

    @property
    def drbd_device(self) -> str: ...  # noqa: D102


def make_gate(device: Device) -> None:
    """Make the two device-mapper devices, closed, in the size that DRBD has."""
    size = drbd_kernel.size_bytes(device.minor) or device.size_bytes
    with _size_loop_device(device.name, size) as shape:
        gate.create(device.name, shape=shape, size_bytes=size)


@contextlib.contextmanager
def _size_loop_device(name: str, size_bytes: int) -> Iterator[str]:
    """Make an empty loop device with the limits of a device file; it is removed after use."""
    path = state_files.size_file(name)
    remove_size_loop_device(name)
    pool_files.allocate(path, size_bytes)
    try:
        yield loop.attach(path, direct_io=False)
    finally:
        remove_size_loop_device(name)


def remove_size_loop_device(name: str) -> None:
    """Remove the loop device of `_size_loop_device`, also one that an interrupted action left."""
    loop.detach(state_files.size_file(name))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(state_files.size_file(name))


def finish_growth(device: Device, size_bytes: int) -> bool:
    """Grow the device-mapper devices to DRBD's size; return whether they were smaller."""
    present = gate.size_bytes(device.name)
    if present is None or size_bytes <= present:
        return False
    if gate.gate_table(device.name).startswith("drbd"):
        gate.grow_active(device.name, below=device.drbd_device, size_bytes=size_bytes)
    else:
        with _size_loop_device(device.name, size_bytes) as shape:
            gate.grow_standby(device.name, shape=shape, size_bytes=size_bytes)
    return True


def grow_closed_gate(device: Device, size_bytes: int) -> int:
    """Grow a gate that is about to be opened, of this size, to DRBD's; return the size it has.

    A standby's monitor may not have come to it since DRBD has grown, and hosts would find a device
    that has lost its end. An error is logged: better that they find that than no device, and the
    monitor tries again.
    """
    wanted_bytes = drbd_kernel.size_bytes(device.minor)
    if wanted_bytes <= size_bytes:
        return size_bytes
    try:
        finish_growth(device, wanted_bytes)
    except (SanctlError, OSError) as error:
        log_not_grown(device, str(error))
    # Also where it was interrupted half way: what is below has to be as large.
    return gate.size_bytes(device.name) or size_bytes


def log_not_grown(device: Device, why: str) -> None:
    """Log that a replica is smaller than it is to be, and goes on so."""
    journal.write(
        f"{device.name}: it cannot grow to {device.size_bytes} bytes: {why}",
        priority=journal.ERROR,
        device=device.name,
        action="grow",
    )
