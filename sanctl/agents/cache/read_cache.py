# SPDX-License-Identifier: GPL-2.0-or-later
"""Inserts, resizes, removes the read cache in RAM, as plan.cache.read_cache says.

The monitor does it, so the cache comes some seconds after a takeover and never delays one. It is
empty each time. While a device has one, hosts may not unmap.
"""

from __future__ import annotations

import time

from sanctl.agents.cache import write_cache_steps
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbd_kernel, lio_backstore, loop, ram_cache
from sanctl.errors import SanctlError
from sanctl.model.cache_policy import CachePolicy, parse_cache_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.read_cache import ReadCacheReason, allowed_read_cache, leaves_enough_ram
from sanctl.system import state_files
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_STEPS = 16
# I/O in flight has to end before the data file's device is exchanged, and new I/O waits for that.
_SWAP_S = 4.0
# No disk may take longer, or DRBD disconnects its node (ko-count in sanctl/render/drbd.py).
_UNMAP_TIMEOUT_S = 13.0


def apply_policy(runner: Runner, device: Device, state: ResourceState) -> None:
    """Bring the read cache to the wanted size; an error is logged, and the next monitor retries."""
    try:
        if not _policy(device).read_bytes and not _has_any_part(device.name):
            return
        if not _must_resize(runner, device, state):
            return
        # Another device's change may wait for a disk that hangs: the next monitor tries again.
        with ram_cache.locked(wait=False) as is_mine:
            if is_mine:
                _resize(runner, device, state)
    except (SanctlError, OSError) as error:
        write_cache_steps.log(
            device.name, f"the read cache could not be changed: {error}", step="read"
        )


def _has_any_part(name: str) -> bool:
    return bool(ram_cache.size_bytes(name)) or ram_cache.exists_any(name)


def _must_resize(runner: Runner, device: Device, state: ResourceState) -> bool:
    present, allowed, _ = _compare(runner, device, state)
    return allowed != present or (not present and ram_cache.exists_any(device.name))


def _compare(
    runner: Runner, device: Device, state: ResourceState
) -> tuple[int, int, ReadCacheReason | None]:
    """Return the present size, the allowed size, and why that is not the wanted one."""
    present = ram_cache.size_bytes(device.name)
    allowed, reason = _allowed_size(device, state, present)
    if present > 0 and ram_cache.usage(runner, device.name) is None:
        return present, 0, ReadCacheReason.FAILED
    return present, allowed, reason


def _resize(runner: Runner, device: Device, state: ResourceState) -> None:
    path = lost_writes.data_file(device.name)
    loop_device = loop.find(path) if path else None
    if loop_device is None:
        return
    present, allowed, reason = _compare(runner, device, state)
    if allowed == present:
        if not present and ram_cache.exists_any(device.name):
            ram_cache.remove_parts(device.name)  # Left by an agent that was killed.
        return
    if present:
        ram_cache.remove(device.name, over=loop_device, within_s=_SWAP_S)
    if allowed:
        ram_cache.insert(runner, device.name, over=loop_device, size=allowed, within_s=_SWAP_S)
    what = (
        f"up to {allowed} bytes are cached for reads"
        if allowed
        else "reads are not cached any more"
    )
    write_cache_steps.log(
        device.name, f"{what}{f' ({reason.value})' if reason else ''}", step="read"
    )


def offers_unmap(device: Device) -> bool:
    """Whether hosts may unmap: with a read cache it would be as slow as writing zeros."""
    return not _policy(device).read_bytes


def update_unmap_offer(device: Device) -> None:
    """Offer UNMAP to hosts, or no longer, and write down when that changed.

    Raises:
        CommandError: the kernel refused.
    """
    wanted = offers_unmap(device)
    if lio_backstore.is_unmap_offered(device.name, device.minor) is not wanted:
        # First: after a kill between the two the target already agrees with the policy, and no
        # later monitor would write the time.
        _unmap_offer_changed_at(device.name).write(str(time.monotonic()))
        lio_backstore.offer_unmap(device.name, device.minor, on=wanted)


def _may_unmap_still(device: Device) -> bool:
    """Whether an UNMAP of a host may be in flight, from before UNMAP was no longer offered.

    It would be lost in the exchange: the device that it then reaches offers no discard, and says
    so too late for DRBD to write zeros instead (block/blk-lib.c, blkdev_issue_discard takes that
    for done).
    """
    note = _unmap_offer_changed_at(device.name)
    text = note.read()
    if not text:
        return False  # No change since the target was made.
    try:
        since_s = time.monotonic() - float(text)
    except ValueError:
        since_s = note.age_s() or 0.0  # of another release
    ages = [each.age_s for each in drbd_kernel.oldest_requests(device.name)]
    return since_s < _UNMAP_TIMEOUT_S or max(ages, default=0.0) >= since_s


def _unmap_offer_changed_at(name: str) -> state_files.StateFile:
    """When the offer of UNMAP changed, on the monotonic clock; no file if not since the start."""
    return state_files.of_device(name, "unmap-offer")


def remove(device: Device) -> None:
    """Remove the read cache, so that reads go to the data file; a verify has to read the disk.

    Raises:
        CommandError: the cache is still in use.
    """
    path = lost_writes.data_file(device.name)
    loop_device = loop.find(path) if path else None
    if loop_device is not None and ram_cache.size_bytes(device.name):
        with ram_cache.locked():
            ram_cache.remove(device.name, over=loop_device)


def published_fields(runner: Runner, device: Device, state: ResourceState | None) -> str:
    """Return the fields published of the read cache, ` key=value` each; empty if none is wanted.

    The amount cached is in sixteenths of the size: it must not change with every monitor.
    """
    try:
        policy = _policy(device)
        if not policy.read_bytes or state is None or not state.is_primary:
            return ""
        present = ram_cache.size_bytes(device.name)
        _, reason = _allowed_size(device, state, present)
        text = f" read={max(present, 0)}"
        if reason:
            text += f" read-why={reason.value}"
        used = ram_cache.usage(runner, device.name) if present > 0 else None
    except (SanctlError, OSError) as error:
        return f" read=? read-why={type(error).__name__}"
    if used is None:
        return text
    step = max(present // _STEPS, 1)
    text += f" read-held={min(-(-used.held_bytes // step) * step, present)}"
    return f"{text} read-hit={100 * used.hits // used.reads}" if used.reads else text


def _allowed_size(
    device: Device, state: ResourceState, present: int
) -> tuple[int, ReadCacheReason]:
    allowed, reason = allowed_read_cache(
        _policy(device).read_bytes, state, has_place=backing_device.exists(device.name)
    )
    if allowed and not present and _may_unmap_still(device):
        return 0, ReadCacheReason.WAITS
    if allowed > present and not _fits_in_ram(device.name, allowed):
        return 0, ReadCacheReason.NO_RAM
    return allowed, reason


def _fits_in_ram(name: str, size: int) -> bool:
    """Whether a cache of that size, in place of the present one, leaves enough RAM."""
    meminfo = dict(line.split(":", 1) for line in read_text_or("/proc/meminfo", "").splitlines())
    available, total = (int(meminfo[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    needed = ram_cache.needed_bytes(size) - ram_cache.ram_bytes(name)
    return leaves_enough_ram(needed, ram_cache.reserved_bytes(), available, total)


def _policy(device: Device) -> CachePolicy:
    try:
        return parse_cache_policy(device.cache)
    except ValueError:
        return CachePolicy()  # `write_cache.apply_policy` raises the error.
