# SPDX-License-Identifier: GPL-2.0-or-later
"""Assembles a pool's disk and flash before the mount, as plan.pool.flash_assembly says."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from sanctl.drivers import bcache, flash_cache, pool_mount, pool_notes, pool_problems
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.pool_cache import Superblock
from sanctl.plan.pool.flash_assembly import AssemblyAction, choose_assembly
from sanctl.system import journal
from sanctl.system.files import exists
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool, PoolCache

#: How long after an unmount bcache may take to let go of a disk that it has stopped.
_RELEASE_S = 5.0


def start(runner: Runner, pool: Pool, *, patience_s: float) -> None:
    """Assemble disk and flash, for the mount that follows.

    Raises:
        Refused: data is on flash that is not here, or the disk is not this pool's, or its
            formatting was interrupted, or the notes that decide are not there to be read.
        SanctlError: a step failed.
    """
    cache = flash_cache.cache_of(pool)
    bcache.load_module(runner)
    with flash_cache.locked(pool):
        _await_devices(cache, patience_s)
        seen = bcache.observe(str(cache.origin))
        if seen is not None and seen.disk:
            # In use: this is a second start, and the superblocks decide nothing.
            pool_notes.clear(pool.name, pool_notes.STOPPED)
            return
        act = _choose(pool, cache)
        pool_notes.clear(pool.name, pool_notes.STOPPED)
        _carry_out(pool, cache, act)
        _await_disk(pool, cache)
        bcache.tune(str(cache.origin), str(cache.flash))
    flash_cache.log(pool, _DONE[act], step=act.value)


def _choose(pool: Pool, cache: PoolCache) -> AssemblyAction:
    _refuse_without_notes(pool)
    _refuse_unfinished(pool)
    return choose_assembly(
        label=flash_cache.label_of(pool),
        origin=flash_cache.read_origin(pool),
        flash=_flash(pool, cache),
        is_noted_write_back=flash_cache.has_write_back_note(pool),
        stopped_with=pool_notes.read(pool.name, pool_notes.STOPPED),
    )


def refuse_to_unmount(pool: Pool) -> None:
    """Refuse to unmount a pool whose disk bcache has stopped, if it could not be assembled then.

    It stays as it is where flash is missing that it needs, or a disk does not answer.

    Raises:
        SanctlError, OSError: as `start`, or a disk does not answer in time.
    """
    cache = flash_cache.cache_of(pool)
    _refuse_hanging(pool, cache)
    act = _choose(pool, cache)
    if act in {AssemblyAction.FOREIGN, AssemblyAction.REFUSE}:
        _carry_out(pool, cache, act)


def _refuse_hanging(pool: Pool, cache: PoolCache) -> None:
    """Refuse to read a disk that hangs: the caller has locks. One that gives errors is read."""
    for device in map(str, (cache.origin, cache.flash)):
        if exists(device) and not pool_mount.gives_answer(device):
            raise CommandError(pool_problems.disk_stopped_problem(pool, f"{device} hangs"))


def start_again(runner: Runner, pool: Pool, source: str) -> str:
    """Assemble the disk and flash of a pool that has just been unmounted; return what to mount.

    Bcache may have stopped the disk after errors: it is gone with the unmount. Then the rules of
    the boot hold, as flash, or disk, may have been away meanwhile.

    Args:
        runner: starts programs.
        pool: any pool that is not mounted.
        source: the device that was mounted; returned as it is, if it was none of bcache's.

    Raises:
        SanctlError, OSError: as `start`; or bcache still has the disk. The next call goes on.
    """
    if pool.cache is None or not os.path.basename(source).startswith("bcache"):
        return source
    origin = str(pool.cache.origin)
    if bcache.observe(origin) is None:
        _refuse_hanging(pool, pool.cache)
        bcache.await_release(source, origin, within_s=_RELEASE_S)
    start(runner, pool, patience_s=0.0)
    # By its number another pool's disk may have the name now that this one had.
    seen = bcache.observe(origin)
    if seen is None or not seen.disk:
        raise CommandError(pool_problems.disk_stopped_problem(pool, "it does not run yet"))
    return f"/dev/{seen.disk}"


def _refuse_without_notes(pool: Pool) -> None:
    """Refuse to decide without the folder of the notes, which the preparation makes first.

    A missing note `write-back` permits to empty the flash; /var may be a filesystem of its own.
    """
    if not pool_notes.have_folder():
        raise Refused(pool_problems.notes_missing_problem(pool))


def _refuse_unfinished(pool: Pool) -> None:
    if pool_notes.is_of(pool.name, pool_notes.MADE, pool.uuid) and pool_notes.is_of(
        pool.name, pool_notes.MAKING, pool.uuid
    ):
        raise Refused(pool_problems.unfinished_preparation_problem(pool))


def _flash(pool: Pool, cache: PoolCache) -> Superblock | None:
    """Return the flash's superblock; flash that cannot be read counts as flash that is not here.

    The note `write-back` says whether the disk may be used alone then.
    """
    try:
        return flash_cache.superblock_or_none(str(cache.flash))
    except OSError as error:
        flash_cache.log(
            pool,
            f"{cache.flash} cannot be read: {error.strerror}",
            step="flash-unread",
            priority=journal.WARNING,
        )
        return None


_DONE = {
    AssemblyAction.ATTACH: "disk and flash are together; what is on flash is right",
    AssemblyAction.RENEW: "flash may have been away and was emptied: it begins cold",
    AssemblyAction.ALONE: "the disk is used without flash",
}


def _carry_out(pool: Pool, cache: PoolCache, act: AssemblyAction) -> None:
    disk, flash = str(cache.origin), str(cache.flash)
    match act:
        case AssemblyAction.FOREIGN:
            raise Refused(
                Problem(
                    "SAN-POOL-017",
                    f"pool {pool.name}: {disk} is not the disk of this pool",
                    f"right disk? 'sanctl pool prepare {pool.name} --anew' makes a blank one it",
                )
            )
        case AssemblyAction.REFUSE:
            raise Refused(pool_problems.flash_missing_problem(pool))
        case AssemblyAction.ATTACH:
            bcache.register(flash)
            bcache.register(disk)
            flash_cache.note_attached(pool)
        case AssemblyAction.RENEW:
            flash_cache.format_flash(pool, flash)
            bcache.register(flash)
            bcache.register(disk)
            bcache.attach(disk, flash)
            bcache.set_mode(disk, CacheMode.WRITE_THROUGH)
            flash_cache.note_attached(pool)
        case AssemblyAction.ALONE:
            bcache.register(disk)
            bcache.run_without_flash(disk)


def _await_devices(cache: PoolCache, patience_s: float) -> None:
    """Wait for both devices at boot, for `patience_s` seconds at most."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        if exists(cache.origin) and exists(cache.flash):
            return
        time.sleep(flash_cache.POLL_S)


def _await_disk(pool: Pool, cache: PoolCache) -> None:
    deadline = time.monotonic() + flash_cache.STEP_S
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
        time.sleep(flash_cache.POLL_S)
