# SPDX-License-Identifier: GPL-2.0-or-later
"""Remounts of a pool whose filesystem shut itself down: when, and how often a day.

The steps before and after it, and why each replica in the pool counts as suspect, are in
fs_shutdown.py. With flash, bcache may have stopped the disk below the pool: disk and flash are
assembled again between the unmount and the mount, as at boot. Each step is decided from the state
that is found, so after a kill the next agent goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.recovery.fs_shutdown import (
    mount_note,
    record_shutdown,
    shut_down_problem,
    source_answers,
)
from sanctl.agents.replica import lost_writes
from sanctl.drivers import loop, point_files, pool_mount, pool_notes
from sanctl.drivers.pool_files import check_marker
from sanctl.errors import CommandError, SanctlError
from sanctl.system import journal, state_files
from sanctl.system.files import is_mount_point
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

_START_WAIT_S = 5.0
_POLL_S = 0.5
_TRIAL_TURN_S = 1.0
#: Remounts by the pool's agent alone: a disk that goes on failing is for an operator.
MAX_REMOUNTS_PER_DAY = 3
_REMOUNT_TIMES = "mounted-anew"
_DAY_S = 24 * 3600
_IS_LOCKED = "another agent is remounting it"
# The journal's name for all steps after a shutdown.
_log = DeviceLog("fs-shutdown", priority=journal.WARNING)


@contextlib.contextmanager
def usable_for_start(runner: Runner, pool: Pool) -> Iterator[None]:
    """Remount a pool that is shut down, and keep it mounted while a replica in it is started.

    No agent unmounts the pool inside this context: files made in a folder that nothing is mounted
    on would be a new replica on the node's own disk. The wait is short, 5 s: other replicas here
    may have to be demoted first, which may come after this start. A start that failed for this is
    tried again once the pool is usable (agents/node/failure_cleanup.py).

    Raises:
        SanctlError, OSError: the pool takes no writes, and cannot be remounted in time.
    """
    deadline = time.monotonic() + _START_WAIT_S
    while True:
        try:
            remount(runner, pool)
        except (SanctlError, OSError):
            # Other replicas here are still releasing their files.
            if time.monotonic() > deadline:
                raise
        else:
            with state_files.locked(_lock(pool), wait_s=0.0, shared=True) as is_held:
                if is_held:
                    yield
                    return
            if time.monotonic() > deadline:
                raise CommandError(shut_down_problem(str(pool.name), _IS_LOCKED))
        time.sleep(_POLL_S)


def _lock(pool: Pool) -> str:
    # The lock's old name: an agent of the release before may hold it during an update.
    return state_files.pool_lock(str(pool.name), "aground")


def remount(runner: Runner, pool: Pool, *, max_per_day: int | None = None) -> None:
    """Unmount and mount a pool's filesystem if it is shut down and nothing uses it.

    `max_per_day` limits the remounts within 24 hours. A start of a replica, which an operator may
    have ordered, gives None: no limit.

    Raises:
        SanctlError, OSError: the filesystem is still shut down; the next call goes on.
    """
    path, name = str(pool.path), str(pool.name)
    is_noted = pool_notes.exists(name, pool_notes.SHUT_DOWN)
    is_shut = pool_mount.is_shut_down(path)
    if not is_shut and not is_noted and not mount_note(name).exists():
        return
    # Before the lock is taken: a start waits for it.
    answering = _answering_source(pool) if is_shut else None
    with state_files.locked(_lock(pool), wait_s=0.0) as is_mine:
        if not is_mine:
            raise CommandError(shut_down_problem(name, _IS_LOCKED))
        if is_shut and pool_mount.is_shut_down(path):
            record_shutdown(name)
            # Without it the remount would make a pool that has lost writes pass for whole.
            if not pool_notes.exists(name, pool_notes.SHUT_DOWN):
                raise CommandError(shut_down_problem(name, "no note of that can be written"))
            _unmount(runner, pool, max_per_day, answering)
        saved = _saved_mount(name)
        if saved is not None and not is_mount_point(saved.path):
            saved = _assembled(runner, pool, saved)
            pool_mount.mount(runner, saved)
            _log("", f"pool {name}: its filesystem is remounted", step="mounted")
            if pool_mount.is_shut_down(path):
                raise CommandError(
                    shut_down_problem(name, f"{saved.source} is mounted elsewhere, too")
                )
        _mark_suspect(pool)
        mount_note(name).remove()


def _answering_source(pool: Pool) -> str | None:
    """Return the device that a pool is mounted from, if it answers."""
    found = pool_mount.mount_of(str(pool.path))
    return found.source if found is not None and source_answers(pool, found.source) else None


def _refuse_if_not_assembled(pool: Pool) -> None:
    if pool.cache is None:
        return
    from sanctl.drivers import flash_assembly, flash_cache  # noqa: PLC0415 - as above

    if flash_cache.is_stopped(pool):
        flash_assembly.refuse_to_unmount(pool)


def _assembled(runner: Runner, pool: Pool, saved: pool_mount.Mount) -> pool_mount.Mount:
    """Have a pool's disk and flash assembled before the mount; return what is to be mounted."""
    if pool.cache is None:
        return saved
    from sanctl.drivers import flash_assembly  # noqa: PLC0415 - pools without flash need it not

    source = flash_assembly.start_again(runner, pool, saved.source)
    ocf.crash_point("fs-shutdown-assembled")
    return saved._replace(source=source)


def awaits_mount(pool: Pool) -> bool:
    """Whether a pool with flash has no disk, and waits to be remounted or mounted again.

    Raises:
        OSError: the state of the pool's flash cannot be read.
    """
    if pool.cache is None:
        return False
    from sanctl.drivers import flash_cache  # noqa: PLC0415 - pools without flash need it not

    is_unmounted = mount_note(str(pool.name)).exists() and not is_mount_point(str(pool.path))
    return is_unmounted or flash_cache.is_stopped(pool)


def _unmount(runner: Runner, pool: Pool, max_per_day: int | None, answering: str | None) -> None:
    name, path = str(pool.name), str(pool.path)
    found = pool_mount.mount_of(path)
    if found is None or found.path != path or found.root != "/":
        raise CommandError(shut_down_problem(name, f"{path} is not a filesystem's only mount"))
    # First: of a pool whose flash is missing that is what an operator has to know.
    _refuse_if_not_assembled(pool)
    _refuse_in_use(name, path, but=f"{path}/{point_files.FOLDER}/")
    if found.source != answering:
        raise CommandError(shut_down_problem(name, f"{found.source} does not answer"))
    if pool_mount.is_damaged(found):
        raise CommandError(shut_down_problem(name, "the filesystem is damaged: run fsck"))
    now_s = int(time.time())
    noted = map(int, pool_notes.read(name, _REMOUNT_TIMES).split())
    # One that lies ahead was made before the clock was put back, and would count for years.
    before = [at for at in noted if 0 <= now_s - at < _DAY_S]
    if max_per_day is not None and len(before) >= max_per_day:
        raise CommandError(
            shut_down_problem(name, f"it was remounted {len(before)} times within a day")
        )
    # Hosts that read a restore point read errors by now.
    with contextlib.suppress(SanctlError, OSError):
        from sanctl.drivers import lio_export  # noqa: PLC0415 - seldom: no monitor pays for it

        lio_export.remove_below(path)
    _refuse_in_use(name, path)
    with contextlib.suppress(OSError):
        pool_notes.write(name, _REMOUNT_TIMES, " ".join(map(str, (*before, now_s))))
    import json  # noqa: PLC0415 - seldom: no monitor pays for it

    text = json.dumps([*found[:5], sorted(found.options)])
    mount_note(name).write(text)
    ocf.crash_point("fs-shutdown-mount-noted")
    pool_mount.unmount(runner, found.path)
    ocf.crash_point("fs-shutdown-unmounted")


def _refuse_in_use(name: str, path: str, *, but: str = "\0") -> None:
    """Check that no loop device is over a file of a pool, but for those below one folder.

    Raises:
        CommandError: one is.
    """
    files = (each for each in loop.backing_files() if each.startswith(f"{path}/"))
    if users := sorted(file for file in files if not file.startswith(but)):
        raise CommandError(shut_down_problem(name, f"{users[0]} is in use"))


def _mark_suspect(pool: Pool) -> None:
    """Mark the replicas of a pool that was shut down as suspect, before one of them is started.

    Only once the filesystem is known to take writes, and the note stays while a file is in use: a
    replica that is not marked, and of which no note tells, passes for whole after a loss of power.
    But for a file whose use proves that this filesystem was not shut down (unbroken_use.py).

    Raises:
        SanctlError, OSError: the note stays; the next call goes on.
    """
    name, folder = str(pool.name), f"{pool.path}/devices"
    if not pool_notes.exists(name, pool_notes.SHUT_DOWN):
        return
    # First: a disk that hangs must not hang the caller, which holds a lock.
    # Other starts that find the note try at the same time.
    writes = pool_mount.try_writes(str(pool.path), turn_s=_TRIAL_TURN_S)
    if writes is not pool_mount.Writes.TAKEN:
        pool_mount.refuse_read_only(name, str(pool.path))
        raise CommandError(shut_down_problem(name, "it is not known to take writes again"))
    check_marker(str(pool.path), pool.uuid)
    used, passed = set(loop.backing_files()), ""
    unbroken = _unbroken(name, used, str(pool.path))
    with contextlib.suppress(FileNotFoundError):  # a pool that never had a device
        for entry in sorted(os.listdir(folder)):
            if not entry.endswith(".data"):
                continue
            # DRBD reads and writes it, and the marker would not stop that.
            if f"{folder}/{entry}" in unbroken:
                continue
            if f"{folder}/{entry}" in used:
                passed = passed or f"{folder}/{entry}"
            else:
                lost_writes.set_shutdown_marker(f"{folder}/{entry}")
    ocf.crash_point("fs-shutdown-marked")
    if passed:
        raise CommandError(
            shut_down_problem(
                name,
                f"{passed} is in use, and may lack writes; it is released once its device is "
                "stopped on this node ('sanctl node standby')",
            )
        )
    pool_notes.clear(name, pool_notes.SHUT_DOWN)
    _log("", f"pool {name}: its replicas may lack writes and get all data again", step="marked")


def _unbroken(name: str, used: set[str], path: str) -> frozenset[str]:
    mine = {file for file in used if file.startswith(f"{path}/")}
    if not mine:
        return frozenset()
    from sanctl.agents.recovery import unbroken_use  # noqa: PLC0415 - rarely needed

    return unbroken_use.proven(pool_notes.read(name, pool_notes.SHUT_DOWN), mine, path)


def _saved_mount(pool: str) -> pool_mount.Mount | None:
    """Return the mount of a pool that was unmounted here and has to be mounted again."""
    import json  # noqa: PLC0415 - seldom: no monitor pays for it

    with contextlib.suppress(ValueError, TypeError):
        path, number, root, source, kind, options = json.loads(mount_note(pool).read())
        return pool_mount.Mount(path, number, root, source, kind, frozenset(options), frozenset())
    return None
