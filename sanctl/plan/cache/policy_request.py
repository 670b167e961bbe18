# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a requested cache policy fits the device; the request's fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sanctl.errors import Problem
from sanctl.model.cache_policy import DEFAULT_DIRTY_BYTES, CacheMode, CachePolicy
from sanctl.model.device import DeviceSpec
from sanctl.model.names import ByteSize, format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePolicyChange:
    """The fields of a cache policy that are to change; None stays as it is."""

    mode: CacheMode | None = None
    dirty_bytes: int | None = None
    read_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to change."""
        return self == CachePolicyChange()

    def applied_to(self, policy: CachePolicy) -> CachePolicy:
        """Return the changed policy; only a policy with write-back keeps a dirty limit."""
        mode = policy.mode if self.mode is None else self.mode
        dirty_bytes = policy.dirty_bytes if self.dirty_bytes is None else self.dirty_bytes
        return CachePolicy(
            mode,
            dirty_bytes if mode is CacheMode.WRITE_BACK else DEFAULT_DIRTY_BYTES,
            policy.read_bytes if self.read_bytes is None else self.read_bytes,
        )


def cache_policy_problems(device: DeviceSpec, change: CachePolicyChange) -> Iterator[Problem]:
    """Return why a change of the cache policy does not fit a device."""
    mode = device.cache.mode if change.mode is None else change.mode
    if change.dirty_bytes is not None and mode is not CacheMode.WRITE_BACK:
        yield Problem(
            "SAN-CACHE-005",
            f"device {device.name} is in {mode.value}: only write-back has a dirty limit",
            f"'sanctl device cache {device.name} write-back --dirty-limit SIZE' sets both",
        )
    yield from read_cache_problems(f"device {device.name}", device.size, change.read_bytes or 0)


def read_cache_problems(subject: str, size: ByteSize, read_bytes: int) -> Iterator[Problem]:
    """Return why a device of a size has no use for a read cache of another size."""
    if read_bytes > size.bytes:
        yield Problem(
            "SAN-CACHE-011",
            f"a read cache of {format_bytes(read_bytes)} is larger than {subject}, which has "
            f"{size}",
            f"{size} is the most that makes sense: all of it is in RAM then",
        )


def cache_policy_text(policy: CachePolicy) -> str:
    """Return a policy as text."""
    text = policy.mode.value
    if policy.mode is CacheMode.WRITE_BACK:
        text += f", at most {format_bytes(policy.dirty_bytes)} dirty"
    if policy.read_bytes:
        text += f", read cache {format_bytes(policy.read_bytes)}"
    return text
