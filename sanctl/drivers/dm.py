"""The two device-mapper devices between the target and DRBD.

`sanctl-NAME` is what LIO opens and never changes below a session; it stands on
`sanctl-NAME-gate`, which is `error` on a standby node and `linear` onto DRBD on the active one.
Two, because a device's limits (write cache, discard, block sizes) are computed when its table is
loaded: swapping the gate leaves those of the upper device as they were, so that every path of a
device tells a host the same, on a standby node too. A host that learns "no write cache" from a
standby path would send no flush through it after a failover.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0
_SECTOR_BYTES = 512
_FOLDER = "/dev/mapper"


def target_device(name: str) -> str:
    """Return the path that the target's backstore opens."""
    return f"{_FOLDER}/sanctl-{name}"


def gate_table(name: str) -> str:
    """Return what the gate of the device leads to, from sysfs: no process, no open.

    One of `absent`, `error`, or the name of the block device below it (`drbd1`, `loop3`).
    """
    below = _below(f"sanctl-{name}-gate")
    if below is None:
        return "absent"
    return below or "error"


def is_complete(name: str) -> bool:
    """Whether both devices exist."""
    return _below(f"sanctl-{name}") is not None and _below(f"sanctl-{name}-gate") is not None


def is_suspended(name: str) -> bool:
    """Whether one of the two devices holds I/O back: a growth or a swap was interrupted."""
    return _is_suspended(f"sanctl-{name}") or _is_suspended(f"sanctl-{name}-gate")


def _is_suspended(dm_name: str) -> bool:
    return read_text_or(f"/sys/block/{_kernel_name(dm_name)}/dm/suspended", "0").strip() == "1"


def exists_any(name: str) -> bool:
    """Whether one of the two devices exists."""
    return _below(f"sanctl-{name}") is not None or _below(f"sanctl-{name}-gate") is not None


def size_bytes(name: str) -> int | None:
    """Return the size of the device that LIO opens, or None when it does not exist."""
    node = _kernel_name(f"sanctl-{name}")
    text = read_text_or(f"/sys/block/{node}/size", "") if node else ""
    return int(text) * _SECTOR_BYTES if text.strip() else None


def _kernel_name(dm_name: str) -> str | None:
    """Return `dm-N` of a device-mapper device, None where the kernel has none of that name.

    The node in /dev/mapper is only a hint: udev may make or remove it late, so the kernel's own
    list decides.
    """
    with contextlib.suppress(FileNotFoundError):
        hint = f"dm-{os.minor(os.stat(f'{_FOLDER}/{dm_name}').st_rdev)}"
        if read_text_or(f"/sys/block/{hint}/dm/name", "").strip() == dm_name:
            return hint
    for entry in os.listdir("/sys/block"):
        if entry.startswith("dm-") and (
            read_text_or(f"/sys/block/{entry}/dm/name", "").strip() == dm_name
        ):
            return entry
    return None


def _below(dm_name: str) -> str | None:
    node = _kernel_name(dm_name)
    if node is None:
        return None
    try:
        slaves = os.listdir(f"/sys/block/{node}/slaves")
    except FileNotFoundError:
        return None
    return slaves[0] if slaves else ""


def _error_table(size_bytes: int) -> str:
    return f"0 {size_bytes // _SECTOR_BYTES} error"


def _linear_table(size_bytes: int, below: str) -> str:
    return f"0 {size_bytes // _SECTOR_BYTES} linear {below} 0"


def open_gate(runner: Runner, name: str, *, below: str, size_bytes: int) -> None:
    """Lead the gate onto a block device: from now on I/O reaches it."""
    _swap(runner, f"sanctl-{name}-gate", _linear_table(size_bytes, below))


def close_gate(runner: Runner, name: str, *, size_bytes: int, timeout_s: float) -> None:
    """Make the gate fail all I/O, after what is in flight below it has ended.

    The swap suspends the gate and waits for its I/O. Where that I/O hangs, so does the swap.

    Raises:
        CommandError: not done within `timeout_s` seconds; the gate may still lead onto DRBD.
    """
    _swap(runner, f"sanctl-{name}-gate", _error_table(size_bytes), timeout_s=timeout_s)


def release(runner: Runner, name: str) -> None:
    """Let I/O through the upper device to the gate, where an interrupted growth holds it back."""
    if _is_suspended(f"sanctl-{name}"):
        runner.run(["dmsetup", "resume", "--noudevsync", f"sanctl-{name}"], timeout_s=_TIMEOUT_S)


def _swap(runner: Runner, dm_name: str, table: str, timeout_s: float = _TIMEOUT_S) -> None:
    runner.run(["dmsetup", "reload", dm_name, "--table", table], timeout_s=_TIMEOUT_S)
    # Resuming a device with a loaded table suspends it, swaps and resumes: one call, not three.
    # --noudevsync: nothing here waits for udev's links, and udev must not hold up a failover.
    runner.run(["dmsetup", "resume", "--noudevsync", dm_name], timeout_s=timeout_s)


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
    gate, upper = f"sanctl-{name}-gate", f"sanctl-{name}"
    remove(runner, name)
    _create(runner, gate, _linear_table(size_bytes, shape))
    _create(runner, upper, _linear_table(size_bytes, f"{_FOLDER}/{gate}"))
    _swap(runner, gate, _error_table(size_bytes))


def _create(runner: Runner, dm_name: str, table: str) -> None:
    # No udev rules: they would open and probe the gate while it leads somewhere. --verifyudev makes
    # libdm make the node itself then, which it otherwise leaves to udev.
    runner.run(
        ["dmsetup", "create", dm_name, "--noudevrules", "--verifyudev", "--table", table],
        timeout_s=_TIMEOUT_S,
    )


def grow_active(runner: Runner, name: str, *, below: str, size_bytes: int) -> None:
    """Grow both devices on the active node; I/O goes on."""
    open_gate(runner, name, below=below, size_bytes=size_bytes)
    _swap(runner, f"sanctl-{name}", _linear_table(size_bytes, f"{_FOLDER}/sanctl-{name}-gate"))


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
    gate, upper = f"sanctl-{name}-gate", f"sanctl-{name}"
    runner.run(["dmsetup", "suspend", "--noudevsync", upper], timeout_s=_TIMEOUT_S)
    _swap(runner, gate, _linear_table(size_bytes, shape))
    runner.run(["dmsetup", "suspend", "--noudevsync", gate], timeout_s=_TIMEOUT_S)
    _swap(runner, upper, _linear_table(size_bytes, f"{_FOLDER}/{gate}"))
    _swap(runner, gate, _error_table(size_bytes))


def remove(runner: Runner, name: str) -> None:
    """Remove both devices; what is already gone is fine."""
    for dm_name in (f"sanctl-{name}", f"sanctl-{name}-gate"):
        if _kernel_name(dm_name) is not None:
            # --retry: a probe of udev or blkid may hold it for a moment.
            runner.run(
                ["dmsetup", "remove", "--retry", "--noudevsync", dm_name], timeout_s=_TIMEOUT_S
            )
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{_FOLDER}/{dm_name}")
