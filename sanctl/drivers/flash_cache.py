# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's flash cache on this node: kept in the wanted mode, stopped after the unmount.

The orders that keep data safe (docs/adr/0031):

* enter write-back: write the note `write-back`, then set the mode.
* leave write-back: set the mode; when no data is dirty any more, flush the slow disk; then remove
  the note.
* use flash that was away, or may have been: only after it has been formatted.

Before the mount it is assembled: sanctl/drivers/flash_assembly.py. The single calls are in
sanctl/drivers/bcache.py.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid as uuids
from collections.abc import Callable
from typing import TYPE_CHECKING

from sanctl.drivers import bcache, bcache_superblock, pool_mount, pool_notes, pool_problems
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Attachment, CacheState, Superblock, WantedMode
from sanctl.system import journal, state_files
from sanctl.system.files import exists, is_mount_point

if TYPE_CHECKING:
    from sanctl.model.topology import Pool, PoolCache

_ATTACHED = "flash-attached"
_LOST = "flash-lost"
_RATE = "flash-rate"
#: How long one step of bcache's is waited for, and how often it is looked at.
STEP_S, POLL_S = 10.0, 0.2
#: Dirty data is published in steps, so that not every monitor publishes a new value.
_PUBLISHED_STEP_BYTES = 1 << 20
#: Writing back less than this says nothing about how fast a disk is.
_MIN_RATE_BYTES = 4 << 20
#: Fewer reads than these say nothing about the share that is found on flash.
_MIN_READS = 500

FLASH_LOST = "flash-lost"
NO_FLASH = "no-flash"
FLUSHING = "flushing"
CHANGING = "changing"
#: What is mounted is not on bcache, and the slow disk was read and is not prepared for the pool.
NO_BCACHE = "no-bcache"


def label_of(pool: Pool) -> str:
    """Return the label in both superblocks of a pool: 32 characters, as many as fit."""
    return pool.uuid.replace("-", "")


def origin_uuid(pool: Pool) -> bytes:
    """Return the uuid of a pool's slow disk; not the pool's, which its filesystem has."""
    return uuids.uuid5(uuids.UUID(pool.uuid), "origin").bytes


def format_flash(pool: Pool, flash: str) -> None:
    """Format a flash device that belongs to the pool, or is blank, as an empty cache.

    Raises:
        SanctlError, OSError: the device cannot be read, and nothing was written; it belongs to
            another pool; it cannot be written.
    """
    try:
        found = bcache_superblock.read_superblock(flash)
    except OSError as error:
        raise CommandError(pool_problems.unreadable_problem(pool, flash, error)) from error
    if found is not None and not (found.is_flash and found.label == label_of(pool)):
        raise Refused(
            Problem("SAN-CACHE-009", f"{flash} is not this pool's flash", "take another device")
        )
    if bcache.cache_set_folder(flash) is not None:
        bcache.detach_flash(flash, within_s=STEP_S)
    bcache_superblock.format_flash(flash, label_of(pool))


def stop(pool: Pool) -> None:
    """After the unmount: stop bcache, and note that flash was attached to the end.

    Raises:
        CommandError: something still uses the disk, such as a mount; there is no note.
        OSError: the disk cannot be opened; likewise.
    """
    cache = cache_of(pool)
    with locked(pool):
        seen = bcache.observe(str(cache.origin))
        if seen is None:
            return
        bcache.stop(str(cache.origin), within_s=STEP_S)
        written = None
        with contextlib.suppress(OSError):  # Not known to be clean: flash begins cold.
            written = superblock_or_none(str(cache.origin))
        if seen.has_flash and written is not None and written.state is Attachment.CLEAN:
            pool_notes.write(pool.name, pool_notes.STOPPED, written.set_uuid)
    log(pool, "disk and flash are stopped", step="stop")


def apply_mode(pool: Pool, wanted: WantedMode, *, at: Callable[[str], None]) -> CacheState:
    """Take the pool one step towards the wanted mode, and return the state of its cache.

    The returned state carries the serial of `wanted`. `at` is called with the name of each step
    after which the process may die.

    Raises:
        CommandError: the pool cannot be used: its flash has failed in write-back; or where its data
            is is not known: its slow disk is not there, cannot be read, or is another one.
    """
    cache = cache_of(pool)
    seen = bcache.observe(str(cache.origin))
    if seen is None and _is_unprepared(pool):
        return CacheState(
            mode=CacheMode.NONE, wanted=wanted.mode, reason=NO_BCACHE, serial=wanted.serial
        )
    if seen is None or not seen.disk or not exists(f"/dev/{seen.disk}"):
        if is_stopped(pool):
            raise CommandError(pool_problems.disk_stopped_problem(pool))
        raise CommandError(pool_problems.flash_missing_problem(pool))
    with locked(pool, wait=False) as is_locked:
        # While another process holds the lock, the mode alone does not show that a step is done.
        reason = _step(pool, cache, seen, wanted.mode, at) if is_locked else CHANGING
    seen = bcache.observe(str(cache.origin)) or seen
    return _state(pool, seen, wanted, reason)


def _step(
    pool: Pool,
    cache: PoolCache,
    seen: bcache.OriginState,
    wanted: CacheMode,
    at: Callable[[str], None],
) -> str:
    disk, flash = str(cache.origin), str(cache.flash)
    if not seen.has_flash:
        if wanted is CacheMode.NONE:
            # It may have failed before `_leave` was done. As in clear_note_of_missing_flash.
            pool_notes.clear(pool.name, pool_notes.WRITE_BACK)
            return ""
        return _attach_again(pool, cache)
    note_attached(pool)
    if wanted is CacheMode.WRITE_BACK:
        if seen.mode is not CacheMode.WRITE_BACK or not has_write_back_note(pool):
            pool_notes.write(pool.name, pool_notes.WRITE_BACK)
            at("pool-cache-noted")
            bcache.set_mode(disk, CacheMode.WRITE_BACK)
            log(pool, "write-back: writes end when they are on flash", step="write-back")
        return ""
    is_over = (
        seen.mode is not CacheMode.WRITE_BACK and seen.is_clean and not has_write_back_note(pool)
    )
    if not is_over and not _leave(pool, disk, seen, at):
        return FLUSHING
    if wanted is CacheMode.NONE:
        # First: with the flash detached the note says that it has failed, should this process die.
        _state_file(pool, _ATTACHED).remove()
        bcache.detach_flash(flash, within_s=STEP_S)
        at("pool-cache-detached")
        log(pool, "none: the flash is free", step="none")
    return ""


def _leave(pool: Pool, disk: str, seen: bcache.OriginState, at: Callable[[str], None]) -> bool:
    """Leave write-back, as far as one monitor can; return whether it has been left."""
    begun, before = time.monotonic(), seen.dirty_bytes
    if seen.mode is CacheMode.WRITE_BACK or not seen.is_clean:
        # Again after a crash: the mode is kept on disk, the speed of writeback is not.
        bcache.set_mode(disk, CacheMode.WRITE_THROUGH)
        at("pool-cache-mode")
    now = seen
    while not now.is_clean:
        if time.monotonic() - begun > STEP_S:
            _record_rate(pool, before - now.dirty_bytes, time.monotonic() - begun)
            return False
        time.sleep(POLL_S)
        now = bcache.observe(disk) or now
        if not now.has_flash:
            raise CommandError(pool_problems.flash_missing_problem(pool))
    _record_rate(pool, before, time.monotonic() - begun)
    at("pool-cache-clean")
    bcache.flush(now.disk)
    at("pool-cache-flushed")
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)
    log(pool, "write-through: the slow disk has all that was on flash", step="write-through")
    return True


def clear_note_of_missing_flash(pool: Pool) -> None:
    """Before a replica in a pool is resynced: flash that is missing is not trusted again.

    bcache would have stopped the disk if any data had been on that flash alone (super.c,
    conditional_stop_bcache_device).
    """
    seen = bcache.observe(str(cache_of(pool).origin))
    if seen is not None and seen.disk and not seen.has_flash:
        with locked(pool):
            pool_notes.clear(pool.name, pool_notes.WRITE_BACK)


def _attach_again(pool: Pool, cache: PoolCache) -> str:
    """Attach flash that the mode `none` has detached; flash that failed waits for an operator."""
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)  # as in clear_note_of_missing_flash
    if _state_file(pool, _ATTACHED).exists():
        _state_file(pool, _LOST).write()
        _state_file(pool, _ATTACHED).remove()
        log(
            pool,
            "the flash has failed; nothing is lost, and the disk serves without it",
            step="flash-lost",
            priority=journal.WARNING,
        )
    if _state_file(pool, _LOST).exists():
        return FLASH_LOST
    try:
        found = superblock_or_none(str(cache.flash))
    except OSError:
        return NO_FLASH  # The next monitor reads the flash again.
    if found is None or found.label != label_of(pool):
        return NO_FLASH
    attach_flash(pool)
    return ""


def attach_flash(pool: Pool) -> None:
    """Format a pool's flash and attach it, under a pool that is in use or not.

    Raises:
        SanctlError, OSError: a step failed; the pool goes on without flash.
    """
    cache = cache_of(pool)
    format_flash(pool, str(cache.flash))
    bcache.register(str(cache.flash))
    bcache.attach(str(cache.origin), str(cache.flash))
    # At once, not with the next monitor: flash that fails before that must not be attached again.
    note_attached(pool)
    bcache.set_mode(str(cache.origin), CacheMode.WRITE_THROUGH)
    bcache.tune(str(cache.origin), str(cache.flash))
    _state_file(pool, _LOST).remove()
    log(pool, "an empty flash is attached", step="attach")


def note_attached(pool: Pool) -> None:
    """Note until the boot that flash is attached: if it is missing later, it has failed."""
    _state_file(pool, _ATTACHED).write()


def has_failed_flash(pool: Pool) -> bool:
    """Whether flash that is not attached has failed since the boot, as a monitor saw it or will."""
    return _state_file(pool, _LOST).exists() or _state_file(pool, _ATTACHED).exists()


def clear_flash_lost(pool: Pool) -> None:
    """Allow flash that has failed to be attached again: an operator has asked for it."""
    _state_file(pool, _LOST).remove()


def clear_notes(pool: Pool) -> None:
    """Remove all notes about a pool, after its disk has been formatted."""
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)
    pool_notes.clear(pool.name, pool_notes.STOPPED)
    pool_notes.clear(pool.name, pool_notes.SHUT_DOWN)
    pool_notes.clear(pool.name, pool_notes.MADE)
    pool_notes.clear(pool.name, pool_notes.MAKING)


def _state(pool: Pool, seen: bcache.OriginState, wanted: WantedMode, reason: str) -> CacheState:
    mode = seen.mode
    if mode is CacheMode.WRITE_THROUGH and not seen.is_clean:
        mode, reason = CacheMode.WRITE_BACK, FLUSHING
    dirty = (
        0
        if seen.is_clean
        else max(-(-seen.dirty_bytes // _PUBLISHED_STEP_BYTES), 1) * _PUBLISHED_STEP_BYTES
    )
    rate = _state_file(pool, _RATE).read()
    reads = seen.hits + seen.misses
    is_enough = reads >= _MIN_READS and mode is not CacheMode.NONE
    return CacheState(
        mode=mode,
        wanted=wanted.mode,
        reason=reason or ("" if mode is wanted.mode else CHANGING),
        dirty_bytes=dirty,
        flush_s=-(-dirty // int(rate)) if dirty and rate.isdecimal() else None,
        # In steps of five: see _PUBLISHED_STEP_BYTES.
        hit_percent=seen.hits * 20 // reads * 5 if is_enough else None,
        serial=wanted.serial,
    )


def superblock_or_none(device: str) -> Superblock | None:
    """Return a device's superblock; None where there is no device, or no superblock on it.

    Raises:
        OSError: the device cannot be read.
    """
    try:
        return bcache_superblock.read_superblock(device)
    except (FileNotFoundError, NotADirectoryError):
        return None


def cache_of(pool: Pool) -> PoolCache:
    """Return a pool's cache settings.

    Raises:
        Refused: the pool has no flash cache.
    """
    if pool.cache is None:
        raise Refused(
            Problem(
                "SAN-POOL-018",
                f"pool {pool.name} has no flash cache",
                "give it `cache` in the inventory: docs/howto/pool-cache.md",
            )
        )
    return pool.cache


def read_origin(pool: Pool) -> Superblock | None:
    """Return the superblock of a pool's slow disk; None: it was read and has none.

    Raises:
        CommandError: it is not there, or cannot be read.
    """
    origin = str(cache_of(pool).origin)
    try:
        return bcache_superblock.read_superblock(origin)
    except OSError as error:
        raise CommandError(pool_problems.unreadable_problem(pool, origin, error)) from error


def _is_unprepared(pool: Pool) -> bool:
    """Whether a pool is in use as before it got flash: none of its data is on flash.

    Asked of a slow disk that is not registered. One that is not there says nothing: its name may be
    wrong in the inventory, and what is mounted be on bcache.

    Raises:
        CommandError: that is not known.
    """
    found = read_origin(pool)
    if (found is not None and found.label == label_of(pool)) or not is_mount_point(pool.path):
        return False
    if is_on_bcache(pool) is not False:
        raise CommandError(pool_problems.other_disk_problem(pool, str(cache_of(pool).origin)))
    return True


def is_on_bcache(pool: Pool) -> bool | None:
    """Whether what is mounted at a pool's path is on a disk of bcache's; None: not known.

    Raises:
        OSError: the mounts, or sysfs, cannot be read.
    """
    mount = pool_mount.mount_of(str(pool.path))
    if mount is None:
        return None
    number = mount.device_number
    if number.startswith("0:"):  # Not a disk's: btrfs gives each filesystem a number of its own.
        try:
            disk = os.stat(mount.source).st_rdev
        except (FileNotFoundError, NotADirectoryError):
            return None
        number = f"{os.major(disk)}:{os.minor(disk)}"
    return bcache.is_cached_disk(number)


def is_stopped(pool: Pool) -> bool:
    """Whether bcache has stopped the disk under a pool that is mounted; never without flash.

    Both signs are asked for: a link that bcache did not make says nothing of a disk that it has.

    Raises:
        OSError: the mounts, or sysfs, cannot be read.
    """
    if pool.cache is None or bcache.observe(str(pool.cache.origin)) is not None:
        return False
    mount = pool_mount.mount_of(str(pool.path))
    return mount is not None and bcache.has_let_go(mount.source)


def has_write_back_note(pool: Pool) -> bool:
    """Whether sanctl's note says that data may be on flash alone."""
    return pool_notes.exists(pool.name, pool_notes.WRITE_BACK)


def _record_rate(pool: Pool, written_bytes: int, took_s: float) -> None:
    if written_bytes >= _MIN_RATE_BYTES:
        _state_file(pool, _RATE).write(str(max(round(written_bytes / max(took_s, 0.1)), 1)))


def _state_file(pool: Pool, kind: str) -> state_files.StateFile:
    return state_files.of_pool(str(pool.name), kind)


def locked(pool: Pool, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Lock a pool's cache: the systemd unit, the agent and the command each change it."""
    path = state_files.pool_lock(str(pool.name), "lock")
    return state_files.locked(path, wait_s=None if wait else 0.0)


def log(pool: Pool, text: str, *, step: str, priority: int = journal.NOTICE) -> None:
    """Log to the journal what happened to a pool's cache."""
    journal.write(
        f"pool {pool.name}: cache: {text}", priority=priority, action="pool-cache", step=step
    )
