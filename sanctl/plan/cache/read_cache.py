# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: how large a Primary's read cache in RAM may be now, and why smaller, or off."""

from __future__ import annotations

from enum import StrEnum

from sanctl.model.drbd import ResourceState


class ReadCacheReason(StrEnum):
    """Why the Primary has no read cache in RAM although the policy wants one."""

    NONE = ""
    NOT_GOOD = "not-good"
    """Its replica is not UpToDate: reads may be answered from the peer's."""
    COMPARED = "compared"
    """A verify runs: what is on the disk has to be read."""
    NO_RAM = "no-ram"
    """The node would be left too little RAM."""
    WAITS = "waits"
    """Hosts have just been told that they cannot unmap; unmaps in flight have to end first."""
    FAILED = "failed"
    """The cache has failed, and is being set up again."""
    RESTART = "restart"
    """A release without such a cache started the replica."""


READ_CACHE_REASON_TEXTS = {
    ReadCacheReason.NOT_GOOD: "its replica is not up to date",
    ReadCacheReason.COMPARED: "the replicas are being compared",
    ReadCacheReason.NO_RAM: "the node would be left too little RAM",
    ReadCacheReason.WAITS: "what hosts have unmapped has to end first",
    ReadCacheReason.FAILED: "the cache has failed, and is being set up again",
    ReadCacheReason.RESTART: "an older release started it: "
    "'sanctl node drain' its node, then 'undrain'",
}


def allowed_read_cache(
    wanted_bytes: int, state: ResourceState | None, *, has_place: bool
) -> tuple[int, ReadCacheReason]:
    """Return how large a replica's read cache in RAM is to be, and why less than wanted.

    Only on the Primary: a standby serves no reads, and what it cached would only take up RAM.

    `state` is None when DRBD has no such resource here; `has_place`: the backing device of DRBD is
    one that a cache can be put under.
    """
    if not wanted_bytes or state is None or not state.is_primary:
        return 0, ReadCacheReason.NONE
    if not has_place:
        return 0, ReadCacheReason.RESTART
    if state.disk != "UpToDate":
        return 0, ReadCacheReason.NOT_GOOD
    if any(peer.is_verifying for peer in state.peers):
        return 0, ReadCacheReason.COMPARED
    size = wanted_bytes if state.size_kib is None else min(wanted_bytes, state.size_kib * 1024)
    return size, ReadCacheReason.NONE


def leaves_enough_ram(needed: int, promised: int, available: int, total: int) -> bool:
    """Whether a quarter of a node's RAM is still available when all read caches are full.

    In bytes: `needed` by another cache when it is full, `promised` to the existing ones,
    `MemAvailable` and `MemTotal` of proc_meminfo(5).
    """
    return available - promised - needed >= total // 4
