# SPDX-License-Identifier: GPL-2.0-or-later
"""When, and how often a day, a pool is remounted whose filesystem shut itself down.

A disk that fails for a moment costs the filesystem its journal: it takes no writes until it is
remounted. What it had not committed is gone, and with it writes that DRBD had acknowledged to its
peer: to places of a sparse file that nothing had been written to, and, in write-back, all that was
in RAM. DRBD detaches the disk later, at the first write that fails, and its bitmap begins there
(docs/adr/0044). So each replica in the pool counts as suspect:

1. The agent that first sees the shutdown writes a note outside the pool.
2. Each replica that has a peer with good data is detached from its disk. The cluster moves a device
   away from a Primary without a disk, to a node that has the data.
3. When the disk answers again each standby releases its files. DRBD stays up without a disk.
4. When nothing uses the filesystem any more the pool's agent remounts it. With flash, bcache may
   have stopped the disk below: disk and flash are assembled again in between, as at boot.
5. The replicas are marked, the note is removed, and each replica is stopped and started, which has
   all of it sent by its peer.

Each step is decided from the state that is found, so after a kill the next agent goes on.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    drbdsetup,
    loop,
    node_attributes,
    point_files,
    pool_mount,
    pool_notes,
)
from sanctl.drivers.pool_files import check_marker, files_of
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.system import journal, state_files
from sanctl.system.files import is_mount_point
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

RESTART_REASON = "its pool was remounted after a disk error; the replica is restarted"
_START_WAIT_S = 5.0
_POLL_S = 0.5
_TRIAL_TURN_S = 1.0
# A Primary waits until the peer's agents have checked their pool: both may share what failed.
_PEER_CHECKS_WITHIN_S = 15.0
#: Remounts by the pool's agent alone: a disk that goes on failing is for an operator.
MAX_REMOUNTS_PER_DAY = 3
_REMOUNT_TIMES = "mounted-anew"
_DAY_S = 24 * 3600
_IS_LOCKED = "another agent is remounting it"
_log = DeviceLog("fs-shutdown", priority=journal.WARNING)


class FilesystemState(StrEnum):
    """What the filesystem below a replica asks of the monitor."""

    HEALTHY = "healthy"
    """The monitor goes on as usual; so it does where DRBD must keep a disk that is shut down."""
    SHUT_DOWN = "shut down"
    """The replica has no disk; the monitor does nothing else for it."""
    REMOUNTED = "remounted"
    """The replica has to be stopped and started."""


def release_files(runner: Runner, device: Device, state: ResourceState) -> FilesystemState:
    """Detach and release a replica's files, as far as is safe, if their filesystem is shut down.

    Raises:
        SanctlError, OSError: a step failed; the next monitor tries again.
    """
    data = lost_writes.data_file(device.name)
    is_detached = state.disk == "Diskless" and not state.is_primary
    if data is None:
        if not is_detached:
            return FilesystemState.HEALTHY
        if _is_usable(device):
            return FilesystemState.REMOUNTED
        if parts.attached_files(device):
            # An agent was killed after it had released some of the files.
            resource_file.clear_disk(device.name)
            parts.detach_files(device)
        return FilesystemState.SHUT_DOWN
    if not _is_shut_down(device, data, is_tried=state.disk == "Diskless"):
        return FilesystemState.HEALTHY
    record_shutdown(device.pool)
    if state.disk != "Diskless":
        if not _may_detach(runner, device, state):
            return FilesystemState.HEALTHY
        drbdsetup.force_detach(runner, device.minor)
        _log(device.name, "its disk is detached", step="detached")
        return FilesystemState.SHUT_DOWN
    found = pool_mount.mount_of(data)
    if is_detached and found is not None and _answers(_pool_of(device), found.source):
        # First: the loop device that the resource file names may be another file's a moment later.
        resource_file.clear_disk(device.name)
        ocf.crash_point("fs-shutdown-disk-cleared")
        parts.detach_files(device)
        _log(device.name, "its files are released", step="released")
    return FilesystemState.SHUT_DOWN


def _is_shut_down(device: Device, data: str, *, is_tried: bool) -> bool:
    """Whether a replica's filesystem is shut down, or was when the pool's agent checked.

    Only the pool's agent tries a write, and a device's agent for a disk that DRBD has detached.
    """
    folder = os.path.dirname(data)
    # The note last: the node's own disk, which holds it, may be the one that does not answer.
    if pool_mount.reports_shut_down(folder) or pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return True
    return is_tried and pool_mount.is_shut_down(folder)


def _may_detach(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Whether DRBD may give up an attached disk: a peer has good data on a healthy filesystem.

    A Primary keeps its disk where DRBD 9's quorum decides: without one it may no longer be part of
    a majority.
    """
    good = [peer for peer in state.peers if peer.is_connected and peer.disk == "UpToDate"]
    if not good or (state.is_primary and uses_quorum(len(device.nodes))):
        return False
    if (
        state.is_primary
        and pool_notes.age_s(device.pool, pool_notes.SHUT_DOWN) < _PEER_CHECKS_WITHIN_S
    ):
        return False
    here = os.uname().nodename
    attribute = f"sanctl-pool-{device.pool}"
    others = [node for node in device.nodes if node != here]
    # Of two replicas that is the only peer; of more, one other shut-down pool is one too many.
    return not any("error=" in node_attributes.query(runner, attribute, node) for node in others)


def refuse_promotion(device: Device) -> None:
    """Refuse to make a replica Primary whose filesystem has shut itself down.

    Raises:
        CommandError: the filesystem is shut down; a good replica is promoted instead, if any.
    """
    data = lost_writes.data_file(device.name)
    if data is not None and _is_shut_down(device, data, is_tried=False):
        raise CommandError(shut_down_problem(device.pool, f"{device.name} may lack writes here"))


def before_stop(device: Device) -> None:
    """Write the note of a shut-down filesystem that no monitor has written yet.

    Monitors end with the stop, and did not run in maintenance mode.
    """
    data = lost_writes.data_file(device.name)
    if data is None:
        return
    with contextlib.suppress(SanctlError, OSError):  # the stop goes on after any error
        if pool_mount.is_shut_down(os.path.dirname(data)):
            pools = parts.load_topology().pools
            over = (str(one.name) for one in pools if data.startswith(f"{one.path}/"))
            if name := device.pool or next(over, ""):
                record_shutdown(name)


def record_shutdown(pool: str) -> None:
    """Write a durable note, outside the pool, that its replicas may lack acknowledged writes.

    Where the node's own disk takes no writes either, that is logged, and the callers go on: the
    note is in RAM then (drivers/pool_notes.py), and the next call tries the disk again.
    """
    try:
        with contextlib.suppress(OSError):  # not known: an own disk that does not answer
            if pool_notes.is_on_disk(pool, pool_notes.SHUT_DOWN):
                return
        from sanctl.agents.recovery import unbroken_use  # noqa: PLC0415 - rarely needed

        text = ""
        with contextlib.suppress(OSError):  # A note that proves nothing stays for longer.
            text = unbroken_use.describe()
        pool_notes.write(pool, pool_notes.SHUT_DOWN, text)
    except OSError as error:
        _log(
            "",
            f"pool {pool}: the note of its shut-down filesystem cannot be written: {error}",
            step="unnoted",
        )
        return
    _log("", f"pool {pool}: its filesystem has shut itself down", step="noted")


def _is_usable(device: Device) -> bool:
    where = parts.load_topology().pool(device.pool)
    if where is None or _mount_note(device.pool).exists():
        return False
    # While it is there the start would be refused, or the next monitor detach the disk again.
    if pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return False
    try:
        check_marker(str(where.path), where.uuid)
    except SanctlError:
        return False
    return not pool_mount.is_shut_down(str(where.path))


@contextlib.contextmanager
def usable_for_start(runner: Runner, pool: Pool) -> Iterator[None]:
    """Remount a pool that is shut down, and keep it mounted while a replica in it is started.

    No agent unmounts the pool inside this context: files made in a folder that nothing is mounted
    on would be a new replica on the node's own disk. The wait is short: what other replicas here
    have to do may come after this start, a demotion for one. A start that failed for this is tried
    again once the pool is usable (agents/node/failure_cleanup.py).

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


def trust_only_replica(pool: Pool, device: Device) -> None:
    """Clear the marker of a device's only replica: no peer could send it what it may lack.

    Raises:
        OSError: the pool takes no writes.
    """
    if len(device.nodes) == 1:
        lost_writes.clear_shutdown_marker(files_of(str(pool.path), device.name, device.uuid).data)


def remount(runner: Runner, pool: Pool, *, max_per_day: int | None = None) -> None:
    """Unmount and mount a pool's filesystem if it is shut down and nothing uses it.

    `max_per_day` limits the remounts within 24 hours; None for a replica that is being started,
    which an operator may have ordered.

    Raises:
        SanctlError, OSError: the filesystem is still shut down; the next call goes on.
    """
    path, name = str(pool.path), str(pool.name)
    is_noted = pool_notes.exists(name, pool_notes.SHUT_DOWN)
    is_shut = pool_mount.is_shut_down(path)
    if not is_shut and not is_noted and not _mount_note(name).exists():
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
        _mount_note(name).remove()


def _answering_source(pool: Pool) -> str | None:
    """Return the device that a pool is mounted from, if it answers."""
    found = pool_mount.mount_of(str(pool.path))
    return found.source if found is not None and _answers(pool, found.source) else None


def _answers(pool: Pool | None, source: str) -> bool:
    """Whether the device that a pool is mounted from answers; its slow disk if bcache stopped it.

    Nobody can open a disk that bcache has stopped.
    """
    if pool is not None and pool.cache is not None:
        from sanctl.drivers import flash_cache  # noqa: PLC0415 - pools without flash need it not

        if flash_cache.is_stopped(pool):
            source = str(pool.cache.origin)
    return pool_mount.is_readable(source)


def _pool_of(device: Device) -> Pool | None:
    return parts.load_topology().pool(device.pool)


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
    """Whether a pool with flash has no disk: it waits to be remounted, or to be mounted again.

    Raises:
        OSError: not known.
    """
    if pool.cache is None:
        return False
    from sanctl.drivers import flash_cache  # noqa: PLC0415 - pools without flash need it not

    is_unmounted = _mount_note(str(pool.name)).exists() and not is_mount_point(str(pool.path))
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
    _mount_note(name).write(text)
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


def shut_down_problem(pool: str, why: str) -> Problem:
    """Return SAN-POOL-023 with the reason why the pool is not remounted yet."""
    return Problem(
        "SAN-POOL-023",
        f"pool {pool}: its filesystem has shut itself down and is not remounted yet: {why}",
        "see docs/howto/night-page.md, SAN-POOL-023",
    )


def _saved_mount(pool: str) -> pool_mount.Mount | None:
    """Return the mount of a pool that was unmounted here and has to be mounted again."""
    import json  # noqa: PLC0415 - seldom: no monitor pays for it

    with contextlib.suppress(ValueError, TypeError):
        path, number, root, source, kind, options = json.loads(_mount_note(pool).read())
        return pool_mount.Mount(path, number, root, source, kind, frozenset(options), frozenset())
    return None


def _mount_note(pool: str) -> state_files.StateFile:
    """The pool's mount, from before it is unmounted until it is mounted again."""
    return state_files.of_pool(pool, "mount")
