# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `pool prepare`: mkfs (which filesystem, options), bcache, mount, marker file.

Which step is next is decided in sanctl/plan/pool/preparation.py; this module carries it out.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from sanctl.drivers import bcache, bcache_superblock, flash_cache, pool_notes
from sanctl.drivers import pool_files as pools
from sanctl.drivers.pool_problems import (
    cache_unit,
    flash_missing_problem,
    other_disk_problem,
    unfinished_preparation_problem,
    unreadable_problem,
)
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.names import PoolName
from sanctl.model.pool_cache import mount_unit_name
from sanctl.model.topology import Pool, PoolFilesystem, Topology
from sanctl.plan.pool.flash_mode import (
    existing_cached_pool,
    existing_pool,
)
from sanctl.plan.pool.preparation import (
    DeviceContent,
    MarkerState,
    PoolEvidence,
    PrepareStep,
    leaves_flash,
    next_prepare_step,
)
from sanctl.system.files import exists, fsync_folder, is_mount_point, write_atomically
from sanctl.system.runner import Runner

_MKFS_TIMEOUT_S = 600.0
# reflink=1 is the default of Debian's xfsprogs, and said because restore points need it.
_MKFS = {
    PoolFilesystem.XFS: "mkfs.xfs -q -f -m uuid={uuid},reflink=1",
    PoolFilesystem.EXT4: "mkfs.ext4 -q -F -U {uuid}",
}
_UNIT_TIMEOUT_S = 150.0
_TOOL_TIMEOUT_S = 60.0
_NOTHING_FOUND = 2  # blkid(8)


class DiskContents(NamedTuple):
    """What a device holds, and the error for where the pool cannot use that."""

    holds: DeviceContent
    problem: Problem


def inspect_disk(runner: Runner, pool: Pool, device: str, *, is_flash: bool) -> DiskContents:
    """Find out what a device holds: the pool's own data, nothing, or something else.

    Raises:
        SanctlError: blkid did not answer.
    """
    foreign = Problem(
        "SAN-POOL-019",
        f"{device} holds something that is not pool {pool.name}'s",
        f"if nobody needs it: 'wipefs --all {device}' and "
        f"'blkdiscard --zeroout --length 1MiB {device}', then again",
    )
    try:
        found = bcache_superblock.read_superblock(device)
        if found is not None:
            is_ours = found.is_flash == is_flash and found.label == flash_cache.label_of(pool)
            return DiskContents(DeviceContent.OURS if is_ours else DeviceContent.FOREIGN, foreign)
        return DiskContents(
            DeviceContent.BLANK if is_blank(runner, device) else DeviceContent.FOREIGN, foreign
        )
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        holds = DeviceContent.ABSENT if is_gone else DeviceContent.UNREADABLE
        return DiskContents(holds, unreadable_problem(pool, device, error))


def is_blank(runner: Runner, device: str) -> bool:
    """Whether a device holds nothing: its first MiB is zero, and blkid finds nothing elsewhere.

    The first MiB is read because blkid(8) ends with the same status where it finds nothing and
    where it could not read.

    Raises:
        OSError: the device cannot be read.
        SanctlError: blkid did not answer.
    """
    if not bcache_superblock.begins_blank(device):
        return False
    found = runner.run(
        ["blkid", "--probe", device], timeout_s=_TOOL_TIMEOUT_S, ok=(0, _NOTHING_FOUND)
    )
    return found.status == _NOTHING_FOUND


class Preparation:
    """One run of `sanctl pool prepare` on this node."""

    def __init__(
        self, runner: Runner, pool: Pool, identifier: str, *, leaves_failed_flash: bool
    ) -> None:
        self._runner = runner
        self._leaves_failed_flash = leaves_failed_flash
        self._identifier = identifier
        self._pool = pool
        cache = flash_cache.cache_of(pool)
        self._origin, self._flash = str(cache.origin), str(cache.flash)
        self._path = str(pool.path)
        self._is_started = False
        #: What was left as it was, and how to go on; empty: nothing.
        self.left = ""
        #: The error for each part of the pool, as it was last found.
        self._problems: dict[PrepareStep, Problem] = {}

    def carry_out(self) -> tuple[str, ...]:
        """Do one step after the other until nothing is left; return what was done.

        Raises:
            Refused: something is in the way, and nothing more was changed.
            SanctlError, OSError: a step failed, or what there is cannot be read.
        """
        bcache.load_module(self._runner)
        # Before the unit is started: without it the unit takes no missing note for an answer.
        pool_notes.make_folder()
        steps: dict[PrepareStep, Callable[[], str]] = {
            PrepareStep.FORMAT: self._format,
            PrepareStep.GIVE_FLASH: self._give_flash,
            PrepareStep.ATTACH_FLASH: self._attach_flash,
            PrepareStep.START: self._start,
            PrepareStep.MAKE_FILESYSTEM: self._make_filesystem,
            PrepareStep.FORGET_MAKING: self._forget_making,
            PrepareStep.MOUNT: self._mount,
            PrepareStep.MARK: self._mark,
            PrepareStep.NOTE_MADE: self._note_made,
        }
        done: list[str] = []
        while (act := next_prepare_step(found := self._observe())) is not PrepareStep.DONE:
            if act not in steps:
                raise Refused(self._problem(act))
            # Each step once: a step without effect would have none again.
            if said := steps.pop(act)():
                done.append(said)
        if leaves_flash(found):
            name = self._pool.name
            self.left = (
                f"its flash {self._flash} has failed and stays out of use: 'sanctl pool prepare "
                f"{name}' empties it and takes it into use"
            )
        return tuple(done)

    def _observe(self) -> PoolEvidence:
        try:
            return self._read_evidence()
        except OSError as error:
            where = str(error.filename or self._path)
            raise CommandError(unreadable_problem(self._pool, where, error)) from error

    def _read_evidence(self) -> PoolEvidence:
        is_mounted = is_mount_point(self._path)
        running = bcache.observe(self._origin)
        is_running = running is not None and bool(running.disk)
        has_flash = running is not None and running.has_flash
        origin = flash_device = filesystem = None
        if not is_mounted or running is None:
            origin = self._inspect(PrepareStep.REFUSE_ORIGIN, self._origin, is_flash=False)
        is_elsewhere = (
            is_mounted
            and origin in {DeviceContent.FOREIGN, DeviceContent.BLANK}
            and flash_cache.is_on_bcache(self._pool) is not False
        )
        if is_elsewhere:
            self._problems[PrepareStep.REFUSE_ORIGIN] = other_disk_problem(self._pool, self._origin)
        if not is_mounted or (is_running and not has_flash):
            flash_device = self._inspect(PrepareStep.REFUSE_FLASH, self._flash, is_flash=True)
        if running is not None and running.disk and self._is_started and not is_mounted:
            filesystem = self._inspect_filesystem(f"/dev/{running.disk}")
        name, uuid = self._pool.name, self._pool.uuid
        return PoolEvidence(
            is_mounted=is_mounted,
            is_running=is_running,
            has_flash=has_flash,
            origin=origin,
            flash=flash_device,
            filesystem=filesystem,
            marker=self._marker() if is_mounted else None,
            is_making=pool_notes.is_of(name, pool_notes.MAKING, uuid),
            is_made=pool_notes.is_of(name, pool_notes.MADE, uuid),
            is_noted_write_back=flash_cache.has_write_back_note(self._pool),
            leaves_flash=self._leaves_failed_flash and flash_cache.has_failed_flash(self._pool),
            is_on_other_bcache=is_elsewhere,
        )

    def _inspect(self, refusal: PrepareStep, device: str, *, is_flash: bool) -> DeviceContent:
        found = inspect_disk(self._runner, self._pool, device, is_flash=is_flash)
        self._problems[refusal] = found.problem
        return found.holds

    def _inspect_filesystem(self, disk: str) -> DeviceContent:
        try:
            return DeviceContent.BLANK if is_blank(self._runner, disk) else DeviceContent.OURS
        except OSError as error:
            self._problems[PrepareStep.REFUSE_FILESYSTEM] = unreadable_problem(
                self._pool, disk, error
            )
            return DeviceContent.UNREADABLE

    def _marker(self) -> MarkerState:
        has_folder = exists(f"{self._path}/devices", follow_symlinks=False)
        if not exists(f"{self._path}/{pools.MARKER}", follow_symlinks=False):
            return MarkerState.FOLDER_ALONE if has_folder else MarkerState.MISSING
        self._adopt_filesystem()
        pools.check_marker(self._path, self._pool.uuid)
        return MarkerState.THERE if has_folder else MarkerState.FOLDER_MISSING

    def _adopt_filesystem(self) -> None:
        """Note the filesystem's id on a node that has no note of the pool: its own disk is new."""
        name, uuid = self._pool.name, self._pool.uuid
        if pool_notes.is_of(name, pool_notes.MADE, uuid):
            return
        found = pools.filesystem_id(self._path)
        if found and not pool_notes.exists(uuid, pool_notes.FILESYSTEM):
            pool_notes.write(uuid, pool_notes.FILESYSTEM, found)

    def _problem(self, act: PrepareStep) -> Problem:
        name = self._pool.name
        if act is PrepareStep.REFUSE_UNFINISHED:
            return unfinished_preparation_problem(self._pool)
        if act is PrepareStep.REFUSE_MADE:
            return Problem(
                "SAN-POOL-029",
                f"pool {name} was made on this node before, and its data is gone: disk "
                f"{self._origin} may have been replaced, or read wrongly",
                "bring the right disk back; if it is lost, 'sanctl pool prepare "
                f"{name} --anew' makes an empty pool, and its replicas are filled from their peers",
            )
        if act is PrepareStep.REFUSE_MARKER:
            return Problem(
                "SAN-POOL-001",
                f"{self._path}/{pools.MARKER} is missing although {self._path}/devices exists: "
                "nothing was changed",
                "find out what removed the marker",
            )
        if act in self._problems:
            return self._problems[act]
        return Problem(
            "SAN-POOL-030",
            f"pool {name}: the step '{act.value}' was done and had no effect",
            "'journalctl -b' has the messages of the unit and of the kernel",
        )

    def _format(self) -> str:
        bcache_superblock.format_origin(
            self._origin, flash_cache.origin_uuid(self._pool), flash_cache.label_of(self._pool)
        )
        return f"{self._origin} is the pool's disk"

    def _give_flash(self) -> str:
        flash_cache.format_flash(self._pool, self._flash)
        return f"{self._flash} is the pool's flash"

    def _attach_flash(self) -> str:
        flash_cache.clear_flash_lost(self._pool)
        flash_cache.attach_flash(self._pool)
        return f"{self._flash} is the pool's flash"

    def _start(self) -> str:
        self._runner.run(
            ["systemctl", "restart", cache_unit(self._pool)], timeout_s=_UNIT_TIMEOUT_S
        )
        seen = bcache.observe(self._origin)
        if seen is None or not seen.disk:
            raise CommandError(flash_missing_problem(self._pool))
        self._is_started = True
        return ""

    def _make_filesystem(self) -> str:
        seen = bcache.observe(self._origin)
        disk = f"/dev/{seen.disk if seen else ''}"
        pool_notes.write(self._pool.name, pool_notes.MAKING, self._pool.uuid)
        # The filesystem gets the pool's uuid: in such a filesystem a missing marker is one that is
        # not written yet.
        cache = self._pool.cache
        filesystem = PoolFilesystem.XFS if cache is None else cache.filesystem
        self._runner.run(
            [*_MKFS[filesystem].format(uuid=self._pool.uuid).split(), disk],
            timeout_s=_MKFS_TIMEOUT_S,
        )
        self._forget_making()
        self._runner.run(
            ["udevadm", "trigger", "--action=change", "--settle", disk], timeout_s=_TOOL_TIMEOUT_S
        )
        return "a filesystem was made"

    def _forget_making(self) -> str:
        pool_notes.clear(self._pool.name, pool_notes.MAKING)
        return ""

    def _mount(self) -> str:
        os.makedirs(self._path, exist_ok=True)
        self._runner.run(
            ["systemctl", "start", mount_unit_name(self._path)], timeout_s=_UNIT_TIMEOUT_S
        )
        return ""

    def _mark(self) -> str:
        marker = f"{self._path}/{pools.MARKER}"
        if not exists(marker, follow_symlinks=False):
            # The pool begins here. The note first: from now on any filesystem that it had before
            # is refused. Also where `--anew` has noted an id: a run before may have used that.
            pool_notes.write(self._pool.uuid, pool_notes.FILESYSTEM, self._identifier)
            pools.write_filesystem_id(self._path, self._identifier)
            write_atomically(marker, f"{self._pool.uuid}\n")
        os.makedirs(f"{self._path}/devices", mode=0o700, exist_ok=True)
        fsync_folder(self._path)
        return "the pool's marker was written"

    def _note_made(self) -> str:
        pool_notes.write(self._pool.name, pool_notes.MADE, self._pool.uuid)
        return ""


def prepare_pool(
    runner: Runner,
    topology: Topology,
    name: PoolName,
    node: str,
    *,
    identifier: str,
    leaves_failed_flash: bool = False,
    tell: Callable[[str], None] = lambda _left: None,
) -> tuple[str, ...]:
    """Make a pool with a flash cache on this node, or attach the flash of one that exists.

    A disk that holds anything that is not the pool's is refused, and so is one that cannot be read,
    and one that is blank where the pool was. Run again after an interruption, the command goes on
    from what is there.

    Args:
        runner: runs the tools.
        topology: what cluster.toml says.
        name: the pool.
        node: this node.
        identifier: what the filesystem is known by if the pool begins in it; no other one has it.
        leaves_failed_flash: flash that has failed is left alone, under a pool that is in use.
        tell: is called with what was left alone, in words, if anything was.

    Returns:
        What was done; empty where all was there.

    Raises:
        Refused: the pool is not on this node; a disk holds something else, is absent, or cannot be
            read.
        SanctlError, OSError: a step failed.
    """
    existing_cached_pool(topology, name)
    preparation = Preparation(
        runner,
        pool_of_node(topology, name, node),
        identifier,
        leaves_failed_flash=leaves_failed_flash,
    )
    done = preparation.carry_out()
    if preparation.left:
        tell(preparation.left)
    return done


def pool_of_node(topology: Topology, name: PoolName, node: str) -> Pool:
    """Return a pool that this node is to have, with flash or without.

    Raises:
        Refused: there is no such pool, or it is not on this node.
    """
    pool = existing_pool(topology, name)
    if node not in {each.value for each in pool.nodes}:
        raise Refused(
            Problem(
                "SAN-POOL-014",
                f"{node} is not among the nodes of pool {name}",
                f"run the command on one of them: {', '.join(each.value for each in pool.nodes)}",
            )
        )
    return pool
