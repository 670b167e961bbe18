# SPDX-License-Identifier: GPL-2.0-or-later
"""A read cache in RAM on the node that serves a device: put in and taken out while hosts read.

By the monitor, so some seconds after a takeover, and never in its way. It begins cold each time.
"""

from __future__ import annotations

import time

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbdsetup, lio, loop, ram_cache
from sanctl.errors import SanctlError
from sanctl.model.cache_policy import CachePolicy, parse_cache_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.read_cache import ReadCacheReason, allowed_read_cache, leaves_enough_ram
from sanctl.system import state_files
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_STEPS = 16
# What is in flight has to end before a swap, and all that is new waits for it.
_SWAP_S = 4.0
# No disk may take longer, or DRBD gives its node up (ko-count in sanctl/render/drbd.py).
_UNMAP_ENDS_S = 13.0


def apply_policy(runner: Runner, device: Device, state: ResourceState) -> None:
    """Have reads cached as the policy wants it; what does not work is told, and tried again."""
    try:
        if not _policy(device).read_bytes and not _is_here(device.name):
            return
        if not _is_to_change(runner, device, state):
            return
        # Another device's may wait for a disk that hangs: the next monitor looks again.
        with ram_cache.locked(wait=False) as is_mine:
            if is_mine:
                _follow(runner, device, state)
    except (SanctlError, OSError) as error:
        write_cache.log(device.name, f"its read cache could not be changed: {error}", "read")


def _is_here(name: str) -> bool:
    return bool(ram_cache.size_bytes(name)) or ram_cache.exists_any(name)


def _is_to_change(runner: Runner, device: Device, state: ResourceState) -> bool:
    present, due, _ = _compare(runner, device, state)
    return due != present or (not present and ram_cache.exists_any(device.name))


def _compare(
    runner: Runner, device: Device, state: ResourceState
) -> tuple[int, int, ReadCacheReason | None]:
    """Return the size there is, the one that is due, and why it is not the one that is wanted."""
    present = ram_cache.size_bytes(device.name)
    due, reason = _due(device, state, present)
    if present > 0 and ram_cache.usage(runner, device.name) is None:
        return present, 0, ReadCacheReason.FAILED
    return present, due, reason


def _follow(runner: Runner, device: Device, state: ResourceState) -> None:
    path = lost_writes.data_file(device.name)
    over = loop.find(path) if path else None
    if over is None:
        return
    present, due, reason = _compare(runner, device, state)
    if due == present:
        if not present and ram_cache.exists_any(device.name):
            ram_cache.remove_parts(runner, device.name)  # Left by one that died half way.
        return
    if present:
        ram_cache.remove(runner, device.name, over=over, within_s=_SWAP_S)
    if due:
        ram_cache.insert(runner, device.name, over=over, size=due, within_s=_SWAP_S)
    what = f"up to {due} bytes are cached for reads" if due else "reads are not cached any more"
    write_cache.log(device.name, f"{what}{f' ({reason.value})' if reason else ''}", "read")


def offers_unmap(device: Device) -> bool:
    """Whether hosts may unmap: below a read cache it would be as slow as writing zeros."""
    return not _policy(device).read_bytes


def update_unmap_offer(device: Device) -> None:
    """Tell hosts whether they may unmap, and remember when they were told that they may not.

    Raises:
        CommandError: the kernel refused.
    """
    wanted = offers_unmap(device)
    if lio.is_unmap_offered(device.name, device.minor) is not wanted:
        # First, because whoever dies in between is followed by one that finds nothing to tell.
        _changed_at(device.name).write(str(time.monotonic()))
        lio.offer_unmap(device.name, device.minor, on=wanted)


def _may_unmap_still(device: Device) -> bool:
    """Whether a host's UNMAP may be under way, from before it was told that it cannot.

    It would be lost in the swap: what it is sent to then offers none, and says so too late for
    DRBD to write zeros instead (block/blk-lib.c, blkdev_issue_discard takes that for done).
    """
    text = _changed_at(device.name).read()
    if not text:
        return False  # Since the target is there.
    since_s = time.monotonic() - float(text)
    ages = [each.age_s for each in drbdsetup.oldest_requests(device.name)]
    return since_s < _UNMAP_ENDS_S or max(ages, default=0.0) >= since_s


def _changed_at(name: str) -> state_files.StateFile:
    """When hosts were told whether they may unmap, on the monotonic clock; none since the start."""
    return state_files.of_device(name, "unmap-offer")


def remove(runner: Runner, device: Device) -> None:
    """Have reads go to the data file: before something else is to read it.

    Raises:
        CommandError: it is still in use.
    """
    path = lost_writes.data_file(device.name)
    over = loop.find(path) if path else None
    if over is not None and ram_cache.size_bytes(device.name):
        with ram_cache.locked():
            ram_cache.remove(runner, device.name, over=over)


def published_fields(runner: Runner, device: Device, state: ResourceState | None) -> str:
    """Return what is published of the read cache, ` key=value` each; nothing where none is wanted.

    What it holds in sixteenths of its size: it must not be news with every monitor.
    """
    try:
        policy = _policy(device)
        if not policy.read_bytes or state is None or not state.is_primary:
            return ""
        present = ram_cache.size_bytes(device.name)
        _, reason = _due(device, state, present)
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


def _due(device: Device, state: ResourceState, present: int) -> tuple[int, ReadCacheReason]:
    due, reason = allowed_read_cache(
        _policy(device).read_bytes, state, has_place=backing_device.exists(device.name)
    )
    if due and not present and _may_unmap_still(device):
        return 0, ReadCacheReason.WAITS
    if due > present and not _fits(device.name, due):
        return 0, ReadCacheReason.NO_RAM
    return due, reason


def _fits(name: str, size: int) -> bool:
    """Whether there is room for a cache of that size in the place of the one there is."""
    told = dict(line.split(":", 1) for line in read_text_or("/proc/meminfo", "").splitlines())
    available, total = (int(told[key].split()[0]) * 1024 for key in ("MemAvailable", "MemTotal"))
    needed = ram_cache.needed_bytes(size) - ram_cache.ram_bytes(name)
    return leaves_enough_ram(needed, ram_cache.reserved_bytes(), available, total)


def _policy(device: Device) -> CachePolicy:
    try:
        return parse_cache_policy(device.cache)
    except ValueError:
        return CachePolicy()  # `cache.settle` says so.
