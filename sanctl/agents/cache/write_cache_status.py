# SPDX-License-Identifier: GPL-2.0-or-later
"""The published fields of a replica's write cache: mode, reason, dirty amount, suspect."""

from __future__ import annotations

import contextlib

from sanctl.agents.cache import dirty_limit, write_cache, write_cache_steps
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import page_cache
from sanctl.errors import SanctlError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import ModeReason


def published_fields(device: Device, state: ResourceState | None) -> str:
    """Return the write cache's published fields, ` key=value` each; empty without a data file."""
    try:
        return _fields(device, state)
    except (SanctlError, OSError) as error:
        return f" cache=? cache-why={type(error).__name__}"


def _fields(device: Device, state: ResourceState | None) -> str:
    path = lost_writes.data_file(device.name)
    if path is None:
        return ""
    policy, held = write_cache.wanted_policy(device), page_cache.observe(path)
    if held is None:
        return ""
    mode = held.mode
    if (
        mode is CacheMode.NONE
        and policy.mode is not CacheMode.NONE
        and write_cache_steps.is_power_protected()
    ):
        # On a node with protected power the disk's own cache is as safe as the disk.
        mode = CacheMode.WRITE_THROUGH
    is_suspect = lost_writes.is_suspect(device.name, path)
    if policy.mode is not CacheMode.WRITE_BACK and not is_suspect and lost_writes.has_marker(path):
        # The file is synchronous before the flush that ends write-back: until that has ended, or
        # where it was interrupted, earlier writes are in RAM.
        mode = CacheMode.WRITE_BACK
    text = f" cache={mode.value}"
    if is_suspect:
        text += " suspect=1"
        # Unreadable: suspect all the same.
        with contextlib.suppress(OSError):
            text += f" suspect-of={','.join(lost_writes.causes(path))}"
    if not write_cache.is_readable(device):
        text += f" cache-wanted=? cache-why={ModeReason.UNREADABLE.value}"
    elif mode is not policy.mode:
        _, reason = write_cache.decide_mode(policy, device.name, path, state)
        if policy.mode is CacheMode.NONE and held.is_buffered and mode is CacheMode.WRITE_THROUGH:
            reason = reason or ModeReason.BLOCKS
        text += (
            f" cache-wanted={policy.mode.value} cache-why={(reason or ModeReason.CHANGING).value}"
        )
    if mode is CacheMode.WRITE_BACK:
        text += dirty_limit.published_fields(path, policy.dirty_bytes)
    return text
