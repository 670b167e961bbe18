# SPDX-License-Identifier: GPL-2.0-or-later
"""Gets a pool off its filesystem that has shut itself down, and onto it again, mounted anew.

A disk that fails for a moment costs the filesystem its journal, and from then on it takes no
writes until it is mounted anew. What it had not committed is gone, and with it writes that DRBD
had acknowledged to its peer: to places of a sparse file that nothing had been written to, and, in
write-back, all that was in RAM. DRBD drops the disk later, at the first write that fails, and its
bitmap begins there (docs/adr/0044). So each copy in the pool counts as suspect:

1. It is noted outside the pool, by whichever agent sees it first.
2. DRBD drops the disk of each replica that has a peer with good data. A node that serves without
   a disk is left by the cluster, for one that has the data.
3. When the disk answers again each standby lets go of its files. DRBD stays up without a disk.
4. When nothing uses the filesystem any more the pool's agent mounts it anew.
5. The copies are marked, the note goes, and each replica is stopped and started: filled whole.

Each step is seen from what there is, so whoever dies is followed by one that goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, loop, node_attributes, pool_mount, pool_notes
from sanctl.drivers.pool_files import check_marker, files_of
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.files import is_mount_point
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

RESTART_REASON = "its pool was mounted anew after an error of its disk; it is started anew"
_WAIT_S = 5.0
_POLL_S = 0.5
# A node that serves waits until its peer's agents have looked at theirs: what failed may be common.
_PEER_LOOKS_S = 15.0
#: So often the pool's agent does it by itself: a disk that goes on failing is for an operator.
MAX_REMOUNTS_A_DAY = 3
_TIMES = "mounted-anew"
_DAY_S = 24 * 3600


class Verdict(StrEnum):
    """What there is to be done about a replica."""

    AFLOAT = "afloat"
    AGROUND = "aground"
    """It has no disk, and there is nothing else to be done for it."""
    START_ANEW = "start anew"


def release_files(runner: Runner, device: Device, state: ResourceState) -> Verdict:
    """Give a replica's files up, as far as it goes, if their filesystem has shut itself down.

    Raises:
        SanctlError, OSError: it could not be done; the next monitor tries again.
    """
    data = lost_writes.data_file(device.name)
    is_out = state.disk == "Diskless" and not state.is_primary
    if data is None:
        if not is_out:
            return Verdict.AFLOAT
        if _is_usable(device):
            return Verdict.START_ANEW
        if parts.attached_files(device):
            # Whoever let go of the first of its files was killed before the last.
            resource_file.clear_disk(device.name)
            parts.detach_files(runner, device)
        return Verdict.AGROUND
    if not _is_shut_down(device, data, is_tried=state.disk == "Diskless"):
        return Verdict.AFLOAT
    record_shutdown(device.pool)
    if state.disk != "Diskless":
        if not _may_drop(runner, device, state):
            return Verdict.AFLOAT
        drbdsetup.force_detach(runner, device.minor)
        _tell(f"{device.name}: its disk is dropped", step="dropped", device=device.name)
        return Verdict.AGROUND
    found = pool_mount.mount_of(data)
    if is_out and found is not None and pool_mount.is_readable(found.source):
        # Before: the loop device that it names may be another file's a moment later.
        resource_file.clear_disk(device.name)
        ocf.crash_point("aground-forgotten")
        parts.detach_files(runner, device)
        _tell(f"{device.name}: it has let go of its files", step="let-go", device=device.name)
    return Verdict.AGROUND


def _is_shut_down(device: Device, data: str, *, is_tried: bool) -> bool:
    """Whether a replica's filesystem has shut itself down, or had when the pool's agent looked.

    Trying it out is for the pool's agent, and for a disk that DRBD has dropped.
    """
    folder = os.path.dirname(data)
    # The note last: it is on the node's own disk, which may be the one that does not answer.
    if pool_mount.reports_shut_down(folder) or pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return True
    return is_tried and pool_mount.is_shut_down(folder)


def _may_drop(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Whether a disk that is attached may be dropped: another copy is good, and not aground itself.

    A Primary of DRBD 9 keeps its own: without a disk it may be none of a majority any more.
    """
    good = [peer for peer in state.peers if peer.is_connected and peer.disk == "UpToDate"]
    if not good or (state.is_primary and state.has_quorum is not None):
        return False
    if state.is_primary and pool_notes.age_s(device.pool, pool_notes.SHUT_DOWN) < _PEER_LOOKS_S:
        return False
    here = os.uname().nodename
    told = f"sanctl-pool-{device.pool}"
    others = [node for node in device.nodes if node != here]
    # Of two copies that is the other one; of more, one that is aground too is one too many.
    return not any("error=" in node_attributes.query(runner, told, node) for node in others)


def refuse_promotion(device: Device) -> None:
    """Refuse to make a replica Primary that lies on a filesystem that has shut itself down.

    Raises:
        CommandError: it does; a copy that is good serves in its place, if there is one.
    """
    data = lost_writes.data_file(device.name)
    if data is not None and _is_shut_down(device, data, is_tried=False):
        raise CommandError(shut_down_problem(device.pool, f"{device.name} may lack writes here"))


def before_stop(device: Device) -> None:
    """Note what a stop would leave to nobody: a replica's filesystem has shut itself down.

    Monitors end with it, and so they do in maintenance mode.
    """
    data = lost_writes.data_file(device.name)
    if data is None:
        return
    with contextlib.suppress(SanctlError, OSError):  # whatever it is, the stop goes on
        if pool_mount.is_shut_down(os.path.dirname(data)):
            pools = parts.load_topology().pools
            over = (str(one.name) for one in pools if data.startswith(f"{one.path}/"))
            if name := device.pool or next(over, ""):
                record_shutdown(name)


def record_shutdown(pool: str) -> None:
    """Note durably, and not in the pool, that its copies may lack acknowledged writes.

    Where the node's own disk takes no writes either, nothing is left to note it on: that is said,
    and what follows is done all the same.
    """
    try:
        if pool_notes.exists(pool, pool_notes.SHUT_DOWN):
            return
        pool_notes.write(pool, pool_notes.SHUT_DOWN)
    except OSError as error:
        _tell(f"pool {pool}: that it has shut itself down cannot be noted: {error}", step="unnoted")
        return
    _tell(f"pool {pool}: its filesystem has shut itself down", step="noted")


def _is_usable(device: Device) -> bool:
    where = parts.load_topology().pool(device.pool)
    if where is None or _mount_note(device.pool).exists():
        return False
    try:
        check_marker(str(where.path), where.uuid)
    except SanctlError:
        return False
    return not pool_mount.is_shut_down(str(where.path))


@contextlib.contextmanager
def usable_for_start(runner: Runner, pool: Pool) -> Iterator[None]:
    """Start a replica in a pool: get it off a filesystem that has shut itself down, before.

    Nobody unmounts it in here: what is made in a folder that nothing is mounted on would be a new
    replica on the node's own disk. Not waited for long: what the others here have to do may come
    after this start, a demotion for one. It is made again once the pool is there (retry.py).

    Raises:
        SanctlError, OSError: it takes no writes, and cannot be mounted anew in time.
    """
    deadline = time.monotonic() + _WAIT_S
    while True:
        try:
            remount(runner, pool)
        except (SanctlError, OSError):
            # Other replicas here are still letting go of it.
            if time.monotonic() > deadline:
                raise
        else:
            with state_files.locked(_lock(pool), wait_s=0.0, shared=True) as is_held:
                if is_held:
                    yield
                    return
            if time.monotonic() > deadline:
                raise CommandError(shut_down_problem(str(pool.name), "somebody is at it"))
        time.sleep(_POLL_S)


def _lock(pool: Pool) -> str:
    return state_files.pool_lock(str(pool.name), "aground")


def trust_only_copy(pool: Pool, device: Device) -> None:
    """Call an only copy good again after that: there is none that it could be filled from.

    Raises:
        OSError: the pool takes no writes.
    """
    if len(device.nodes) == 1:
        lost_writes.clear_shutdown_marker(files_of(str(pool.path), device.name, device.uuid).data)


def remount(runner: Runner, pool: Pool, *, most_a_day: int | None = None) -> None:
    """Mount a pool's filesystem anew if it has shut itself down and nothing uses it.

    Args:
        runner: starts umount and mount.
        pool: the pool.
        most_a_day: how often in a day; None: an operator has stopped and started what is on it.

    Raises:
        SanctlError, OSError: it is still shut down; the next call goes on.
    """
    path, name = str(pool.path), str(pool.name)
    is_noted = pool_notes.exists(name, pool_notes.SHUT_DOWN)
    is_shut = pool_mount.is_shut_down(path)
    if not is_shut and not is_noted and not _mount_note(name).exists():
        return
    with state_files.locked(_lock(pool), wait_s=0.0) as is_mine:
        if not is_mine:
            raise CommandError(shut_down_problem(name, "somebody is at it"))
        if is_shut and pool_mount.is_shut_down(path):
            record_shutdown(name)
            _unmount(runner, pool, most_a_day)
        known = _known(name)
        if known is not None and not is_mount_point(known.path):
            pool_mount.mount(runner, known)
            _tell(f"pool {name}: its filesystem is mounted anew", step="mounted")
            if pool_mount.is_shut_down(path):
                raise CommandError(
                    shut_down_problem(name, f"{known.source} is mounted elsewhere, too")
                )
        _distrust(pool)
        _mount_note(name).remove()


def _unmount(runner: Runner, pool: Pool, most_a_day: int | None) -> None:
    name, path = str(pool.name), str(pool.path)
    found = pool_mount.mount_of(path)
    if found is None or found.path != path or found.root != "/":
        raise CommandError(shut_down_problem(name, f"{path} is not a filesystem's only mount"))
    if users := sorted(file for file in loop.backing_files() if file.startswith(f"{path}/")):
        raise CommandError(shut_down_problem(name, f"{users[0]} is in use"))
    if not pool_mount.is_readable(found.source):
        raise CommandError(shut_down_problem(name, f"{found.source} does not answer"))
    if pool_mount.is_damaged(found):
        raise CommandError(shut_down_problem(name, "it is damaged, and has to be checked (fsck)"))
    now_s = int(time.time())
    before = [at for at in map(int, pool_notes.read(name, _TIMES).split()) if now_s - at < _DAY_S]
    if most_a_day is not None and len(before) >= most_a_day:
        raise CommandError(
            shut_down_problem(name, f"that was done {len(before)} times within a day")
        )
    with contextlib.suppress(OSError):
        pool_notes.write(name, _TIMES, " ".join(map(str, (*before, now_s))))
    text = json.dumps([*found[:5], sorted(found.options)])
    _mount_note(name).write(text)
    ocf.crash_point("aground-noted")
    pool_mount.unmount(runner, found.path)
    ocf.crash_point("aground-unmounted")


def _distrust(pool: Pool) -> None:
    """Mark the copies in a pool that has shut itself down, before any of them is started."""
    name, folder = str(pool.name), f"{pool.path}/devices"
    if not pool_notes.exists(name, pool_notes.SHUT_DOWN):
        return
    check_marker(str(pool.path), pool.uuid)
    used = set(loop.backing_files())
    with contextlib.suppress(FileNotFoundError):  # a pool that no device was made in
        for entry in sorted(os.listdir(folder)):
            # One that is in use has been so since before: nothing was unmounted below it.
            if entry.endswith(".data") and f"{folder}/{entry}" not in used:
                lost_writes.set_shutdown_marker(f"{folder}/{entry}")
    ocf.crash_point("aground-distrusted")
    pool_notes.clear(name, pool_notes.SHUT_DOWN)
    _tell(f"pool {name}: its copies may lack writes; they are filled anew", step="distrusted")


def shut_down_problem(pool: str, why: str) -> Problem:
    """Say that a pool's filesystem has shut itself down."""
    return Problem(
        "SAN-POOL-023",
        f"pool {pool}: its filesystem has shut itself down, and is not mounted anew yet: {why}",
        "see docs/howto/night-page.md, SAN-POOL-023",
    )


def _known(pool: str) -> pool_mount.Mount | None:
    """Return what was mounted, of a pool that was unmounted here and is to be mounted again."""
    with contextlib.suppress(ValueError):
        told = json.loads(_mount_note(pool).read())
        path, number, root, source, kind, options = told
        return pool_mount.Mount(path, number, root, source, kind, frozenset(options), frozenset())
    return None


def _mount_note(pool: str) -> state_files.StateFile:
    """What was mounted, while it is not."""
    return state_files.of_pool(pool, "mount")


def _tell(text: str, *, step: str, device: str = "") -> None:
    journal.write(text, priority=journal.WARNING, device=device, action="aground", step=step)
