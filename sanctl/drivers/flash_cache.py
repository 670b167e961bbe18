# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's flash cache on this node: put together before the mount, then kept in the wanted mode.

The orders that keep data safe (docs/adr/0031):

* enter write-back: the note `write-back`, then the mode.
* leave: the mode; when nothing is dirty any more a flush of the slow disk; then the note goes.
* use flash that was away, or may have been: not before it has been emptied.

What is decided is decided by sanctl/plan/pool/flash_assembly.py, from what lies on the devices.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid as uuids
from collections.abc import Callable
from typing import TYPE_CHECKING

from sanctl.drivers import bcache, pool_notes, pool_problems
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cache_policy import Mode
from sanctl.model.pool_cache import Attachment, CacheState, ModeWish, Superblock
from sanctl.plan.pool.flash_assembly import Act, assemble
from sanctl.system import journal
from sanctl.system.files import exists, flocked, is_mount_point, read_text_or, write_atomically
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool, PoolCache

_RUNTIME = "/run/sanctl"
_LOST = "flash-lost"
_RATE = "flash-rate"
_STEP_S = 10.0
_POLL_S = 0.2
#: Dirty data is told in steps: it must not be news with every monitor.
_TOLD_STEP = 1 << 20
#: Writing back less than this tells nothing of how fast a disk is.
_TELLING_BYTES = 4 << 20
#: Fewer reads than these tell nothing of how much is found on flash.
_TELLING_READS = 500

FLASH_LOST = "flash-lost"
NO_FLASH = "no-flash"
FLUSHING = "flushing"
CHANGING = "changing"
NOT_PREPARED = "not-prepared"


def label_of(pool: Pool) -> str:
    """Return what both superblocks of a pool say: 32 characters, as many as there is room for."""
    return pool.uuid.replace("-", "")


def origin_uuid(pool: Pool) -> bytes:
    """Return the uuid of a pool's slow disk; not the pool's, which its filesystem has."""
    return uuids.uuid5(uuids.UUID(pool.uuid), "origin").bytes


def start(runner: Runner, pool: Pool, *, patience_s: float) -> None:
    """Put disk and flash together, for the mount that follows.

    Raises:
        Refused: data is on flash that is not here, or the disk is not this pool's, or was being
            made anew.
        SanctlError: it could not be done.
    """
    cache = cached(pool)
    bcache.load_module(runner)
    with locked(pool):
        _await_devices(cache, patience_s)
        seen = bcache.observe(str(cache.origin))
        if seen is not None and seen.disk:
            # In use: this is a second start, and what is on the devices is not the point.
            pool_notes.clear(pool.name, pool_notes.STOPPED)
            return
        _refuse_unfinished(pool)
        origin, flash = _origin(pool, cache), _flash(pool, cache)
        stopped = pool_notes.read(pool.name, pool_notes.STOPPED)
        pool_notes.clear(pool.name, pool_notes.STOPPED)
        act = assemble(
            label=label_of(pool),
            origin=origin,
            flash=flash,
            is_noted_write_back=is_noted(pool),
            stopped_with=stopped,
        )
        _carry_out(pool, cache, act)
        _await_disk(pool, cache)
        bcache.tune(str(cache.origin), str(cache.flash))
    tell(pool, _DONE[act], step=act.value)


def _refuse_unfinished(pool: Pool) -> None:
    if pool_notes.is_of(pool.name, pool_notes.MADE, pool.uuid) and pool_notes.is_of(
        pool.name, pool_notes.MAKING, pool.uuid
    ):
        raise Refused(pool_problems.unfinished_problem(pool))


def _origin(pool: Pool, cache: PoolCache) -> Superblock | None:
    try:
        return bcache.read_superblock(str(cache.origin))
    except OSError as error:
        raise CommandError(pool_problems.unread_problem(pool, str(cache.origin), error)) from error


def _flash(pool: Pool, cache: PoolCache) -> Superblock | None:
    """Return the flash's superblock; one that cannot be read counts as one that is not here.

    The note `write-back` says whether the disk may be used alone then.
    """
    try:
        return superblock(str(cache.flash))
    except OSError as error:
        tell(
            pool,
            f"{cache.flash} cannot be read: {error.strerror}",
            step="flash-unread",
            priority=journal.WARNING,
        )
        return None


_DONE = {
    Act.ATTACH: "disk and flash are together; what is on flash is right",
    Act.RENEW: "flash may have been away and was emptied: it begins cold",
    Act.ALONE: "the disk is used without flash",
}


def _carry_out(pool: Pool, cache: PoolCache, act: Act) -> None:
    disk, flash = str(cache.origin), str(cache.flash)
    match act:
        case Act.FOREIGN:
            raise Refused(
                Problem(
                    "SAN-POOL-017",
                    f"pool {pool.name}: {disk} is not the disk of this pool",
                    f"right disk? 'sanctl pool prepare {pool.name} --anew' makes a blank one it",
                )
            )
        case Act.REFUSE:
            raise Refused(pool_problems.lost_problem(pool))
        case Act.ATTACH:
            bcache.register(flash)
            bcache.register(disk)
            _set_flag(_runtime(pool, "attached"), is_set=True)
        case Act.RENEW:
            empty(pool, flash)
            bcache.register(flash)
            bcache.register(disk)
            bcache.attach(disk, flash)
            bcache.set_mode(disk, Mode.WRITE_THROUGH)
            _set_flag(_runtime(pool, "attached"), is_set=True)
        case Act.ALONE:
            bcache.register(disk)
            bcache.run_alone(disk)


def empty(pool: Pool, flash: str) -> None:
    """Make a flash device that belongs to a pool, or is blank, an empty cache.

    Raises:
        SanctlError, OSError: it cannot be read, and nothing was written; it is another's; it
            cannot be written.
    """
    try:
        found = bcache.read_superblock(flash)
    except OSError as error:
        raise CommandError(pool_problems.unread_problem(pool, flash, error)) from error
    if found is not None and not (found.is_flash and found.label == label_of(pool)):
        raise Refused(
            Problem("SAN-CACHE-009", f"{flash} is not this pool's flash", "take another device")
        )
    if bcache.set_of(flash) is not None:
        bcache.release_flash(flash, within_s=_STEP_S)
    bcache.format_flash(flash, label_of(pool))


def stop(pool: Pool) -> None:
    """After the unmount: note that flash has been there to the end, and let go of the disk.

    Raises:
        CommandError: something still uses the disk.
    """
    cache = cached(pool)
    with locked(pool):
        seen = bcache.observe(str(cache.origin))
        if seen is None:
            return
        bcache.stop(str(cache.origin), within_s=_STEP_S)
        written = None
        with contextlib.suppress(OSError):  # Not known to be clean: flash begins cold.
            written = superblock(str(cache.origin))
        if seen.has_flash and written is not None and written.state is Attachment.CLEAN:
            pool_notes.write(pool.name, pool_notes.STOPPED, written.set_uuid)
    tell(pool, "let go of disk and flash", step="stop")


def follow(pool: Pool, wish: ModeWish, *, at: Callable[[str], None]) -> CacheState:
    """Take the pool one step towards the wanted mode, and return where it is.

    Args:
        pool: the pool.
        wish: the mode, and the serial that the answer bears.
        at: told the name of each step that an interruption may follow.

    Raises:
        CommandError: the pool cannot be used: its flash has failed in write-back.
    """
    cache = cached(pool)
    seen = bcache.observe(str(cache.origin))
    if seen is None and is_mount_point(pool.path) and not _is_ours(pool, str(cache.origin)):
        return CacheState(mode=Mode.NONE, wanted=wish.mode, reason=NOT_PREPARED, serial=wish.serial)
    if seen is None or not seen.disk or not exists(f"/dev/{seen.disk}"):
        raise CommandError(pool_problems.lost_problem(pool))
    with locked(pool, wait=False) as is_mine:
        # While another holds it, the mode alone does not tell that all of the step was done.
        reason = _step(pool, cache, seen, wish.mode, at) if is_mine else CHANGING
    seen = bcache.observe(str(cache.origin)) or seen
    return _state(pool, seen, wish, reason)


def _step(
    pool: Pool, cache: PoolCache, seen: bcache.Seen, wanted: Mode, at: Callable[[str], None]
) -> str:
    disk, flash = str(cache.origin), str(cache.flash)
    if not seen.has_flash:
        if wanted is Mode.NONE:
            return ""
        return _attach_again(pool, cache)
    _set_flag(_runtime(pool, "attached"), is_set=True)
    if wanted is Mode.WRITE_BACK:
        if seen.mode is not Mode.WRITE_BACK or not is_noted(pool):
            pool_notes.write(pool.name, pool_notes.WRITE_BACK)
            at("pool-cache-noted")
            bcache.set_mode(disk, Mode.WRITE_BACK)
            tell(pool, "write-back: writes end when they are on flash", step="write-back")
        return ""
    is_over = seen.mode is not Mode.WRITE_BACK and seen.is_clean and not is_noted(pool)
    if not is_over and not _leave(pool, disk, seen, at):
        return FLUSHING
    if wanted is Mode.NONE:
        bcache.release_flash(flash, within_s=_STEP_S)
        _set_flag(_runtime(pool, "attached"), is_set=False)
        tell(pool, "none: the flash is free", step="none")
    return ""


def _leave(pool: Pool, disk: str, seen: bcache.Seen, at: Callable[[str], None]) -> bool:
    """End write-back as far as it goes in one monitor; return whether it has ended."""
    begun, before = time.monotonic(), seen.dirty_bytes
    if seen.mode is Mode.WRITE_BACK or not seen.is_clean:
        # A crash may lie between: the mode is kept on disk, how fast it is left is not.
        bcache.set_mode(disk, Mode.WRITE_THROUGH)
        at("pool-cache-mode")
    now = seen
    while not now.is_clean:
        if time.monotonic() - begun > _STEP_S:
            _note_rate(pool, before - now.dirty_bytes, time.monotonic() - begun)
            return False
        time.sleep(_POLL_S)
        now = bcache.observe(disk) or now
        if not now.has_flash:
            raise CommandError(pool_problems.lost_problem(pool))
    _note_rate(pool, before, time.monotonic() - begun)
    at("pool-cache-clean")
    bcache.flush(now.disk)
    at("pool-cache-flushed")
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)
    tell(pool, "write-through: the slow disk has all that was on flash", step="write-through")
    return True


def note_loss(pool: Pool) -> None:
    """Before a copy in a pool is brought up to date: flash that is gone is not trusted again.

    The disk would have been stopped if anything had been on that flash alone (super.c,
    conditional_stop_bcache_device).
    """
    seen = bcache.observe(str(cached(pool).origin))
    if seen is not None and seen.disk and not seen.has_flash:
        with locked(pool):
            pool_notes.clear(pool.name, pool_notes.WRITE_BACK)


def _attach_again(pool: Pool, cache: PoolCache) -> str:
    """Attach flash that `none` had freed; not flash that has failed: an operator looks first."""
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)  # as in note_loss
    if exists(_runtime(pool, "attached")):
        _set_flag(_runtime(pool, _LOST), is_set=True)
        _set_flag(_runtime(pool, "attached"), is_set=False)
        tell(
            pool,
            "the flash has failed; nothing is lost, and the disk serves without it",
            step="flash-lost",
            priority=journal.WARNING,
        )
    if exists(_runtime(pool, _LOST)):
        return FLASH_LOST
    try:
        found = superblock(str(cache.flash))
    except OSError:
        return NO_FLASH  # It is looked at again.
    if found is None or found.label != label_of(pool):
        return NO_FLASH
    attach_flash(pool)
    return ""


def attach_flash(pool: Pool) -> None:
    """Empty a pool's flash and attach it, under a pool that is in use or not.

    Raises:
        SanctlError, OSError: it could not be done; the pool goes on without.
    """
    cache = cached(pool)
    empty(pool, str(cache.flash))
    bcache.register(str(cache.flash))
    bcache.attach(str(cache.origin), str(cache.flash))
    # At once, not with the next monitor: flash that fails before that is not to be taken again.
    _set_flag(_runtime(pool, "attached"), is_set=True)
    bcache.set_mode(str(cache.origin), Mode.WRITE_THROUGH)
    bcache.tune(str(cache.origin), str(cache.flash))
    _set_flag(_runtime(pool, _LOST), is_set=False)
    tell(pool, "an empty flash is attached", step="attach")


def forget_loss(pool: Pool) -> None:
    """Take flash into use again that has failed: somebody has looked."""
    _set_flag(_runtime(pool, _LOST), is_set=False)


def forget_notes(pool: Pool) -> None:
    """Forget what is noted about a pool: its disk has been made anew."""
    pool_notes.clear(pool.name, pool_notes.WRITE_BACK)
    pool_notes.clear(pool.name, pool_notes.STOPPED)
    pool_notes.clear(pool.name, pool_notes.SHUT_DOWN)
    pool_notes.clear(pool.name, pool_notes.MADE)
    pool_notes.clear(pool.name, pool_notes.MAKING)


def _state(pool: Pool, seen: bcache.Seen, wish: ModeWish, reason: str) -> CacheState:
    mode = seen.mode
    if mode is Mode.WRITE_THROUGH and not seen.is_clean:
        mode, reason = Mode.WRITE_BACK, FLUSHING
    dirty = 0 if seen.is_clean else max(-(-seen.dirty_bytes // _TOLD_STEP), 1) * _TOLD_STEP
    rate = read_text_or(_runtime(pool, _RATE), "")
    reads = seen.hits + seen.misses
    tells = reads >= _TELLING_READS and mode is not Mode.NONE
    return CacheState(
        mode=mode,
        wanted=wish.mode,
        reason=reason or ("" if mode is wish.mode else CHANGING),
        dirty_bytes=dirty,
        flush_s=-(-dirty // int(rate)) if dirty and rate.isdecimal() else None,
        # In steps of five: see _TOLD_STEP.
        hit_percent=seen.hits * 20 // reads * 5 if tells else None,
        serial=wish.serial,
    )


def superblock(device: str) -> Superblock | None:
    """Return a device's superblock; None where there is no device, or none on it.

    Raises:
        OSError: the device cannot be read.
    """
    try:
        return bcache.read_superblock(device)
    except (FileNotFoundError, NotADirectoryError):
        return None


def cached(pool: Pool) -> PoolCache:
    """Return how a pool is cached.

    Raises:
        Refused: it is not.
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


def _is_ours(pool: Pool, device: str) -> bool:
    found = superblock(device)
    return found is not None and found.label == label_of(pool)


def is_noted(pool: Pool) -> bool:
    """Whether data may be on flash alone, by sanctl's own note."""
    return pool_notes.exists(pool.name, pool_notes.WRITE_BACK)


def _await_devices(cache: PoolCache, patience_s: float) -> None:
    """Wait for both devices at boot; flash that does not come is not waited for in vain later."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if exists(cache.origin) and exists(cache.flash):
            return
        time.sleep(_POLL_S)


def _await_disk(pool: Pool, cache: PoolCache) -> None:
    deadline = time.monotonic() + _STEP_S
    while True:
        seen = bcache.observe(str(cache.origin))
        if seen is not None and seen.disk and exists(f"/dev/{seen.disk}"):
            return
        if time.monotonic() > deadline:
            raise CommandError(
                Problem(
                    "SAN-CACHE-007",
                    f"pool {pool.name}: bcache does not run {cache.origin}",
                    "'dmesg' says why",
                )
            )
        time.sleep(_POLL_S)


def _note_rate(pool: Pool, written: int, took_s: float) -> None:
    if written >= _TELLING_BYTES:
        write_atomically(_runtime(pool, _RATE), str(max(round(written / max(took_s, 0.1)), 1)))


def _runtime(pool: Pool, kind: str) -> str:
    return f"{_RUNTIME}/pool-{pool.name}.{kind}"


def _set_flag(path: str, *, is_set: bool) -> None:
    if is_set:
        with open(path, "w", encoding="utf-8"):
            pass
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def locked(pool: Pool, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Hold a pool's cache: the unit, the agent and the command each change it."""
    os.makedirs(_RUNTIME, mode=0o700, exist_ok=True)
    return flocked(_runtime(pool, "lock"), wait=wait)


def tell(pool: Pool, text: str, *, step: str, priority: int = journal.NOTICE) -> None:
    """Write to the journal what happened to a pool's cache."""
    journal.write(
        f"pool {pool.name}: cache: {text}", priority=priority, action="pool-cache", step=step
    )
