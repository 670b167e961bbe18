# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out what sanctl/plan/pool/preparation.py decides for a pool with a flash cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from sanctl.drivers import bcache, flash_cache, pool_notes
from sanctl.drivers import pool_files as pools
from sanctl.drivers.pool_problems import (
    lost_problem,
    service_of,
    unfinished_problem,
    unread_problem,
)
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.pool_cache import mount_unit
from sanctl.model.topology import Pool
from sanctl.plan.pool.preparation import Act, Holds, Marker, Seen, next_act
from sanctl.system.files import exists, is_mount_point, sync_folder, write_atomically
from sanctl.system.runner import Runner

_MKFS_TIMEOUT_S = 600.0
_UNIT_TIMEOUT_S = 150.0
_TOOL_TIMEOUT_S = 60.0
_NOTHING_FOUND = 2  # blkid(8)


class Look(NamedTuple):
    """What a device holds, and what there is to say where that is not to be used."""

    holds: Holds
    problem: Problem


def look_at(runner: Runner, pool: Pool, device: str, *, is_flash: bool) -> Look:
    """Look at what a device holds, seen from a pool.

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
        found = bcache.read_superblock(device)
        if found is not None:
            is_ours = found.is_flash == is_flash and found.label == flash_cache.label_of(pool)
            return Look(Holds.OURS if is_ours else Holds.FOREIGN, foreign)
        return Look(Holds.BLANK if is_blank(runner, device) else Holds.FOREIGN, foreign)
    except OSError as error:
        is_gone = isinstance(error, FileNotFoundError | NotADirectoryError)
        holds = Holds.ABSENT if is_gone else Holds.UNREADABLE
        return Look(holds, unread_problem(pool, device, error))


def is_blank(runner: Runner, device: str) -> bool:
    """Whether a device holds nothing: its first MiB is zero, and blkid finds nothing elsewhere.

    blkid(8) ends alike where it finds nothing and where it could not read.

    Raises:
        OSError: it cannot be read.
        SanctlError: blkid did not answer.
    """
    if not bcache.begins_blank(device):
        return False
    found = runner.run(
        ["blkid", "--probe", device], timeout_s=_TOOL_TIMEOUT_S, ok=(0, _NOTHING_FOUND)
    )
    return found.status == _NOTHING_FOUND


class Preparation:
    """One run of `sanctl pool prepare` on this node."""

    def __init__(self, runner: Runner, pool: Pool) -> None:
        self._runner = runner
        self._pool = pool
        cache = flash_cache.cached(pool)
        self._origin, self._flash = str(cache.origin), str(cache.flash)
        self._path = str(pool.path)
        self._is_started = False
        #: What there is to say of each part that was looked at last.
        self._problems: dict[Act, Problem] = {}

    def carry_out(self) -> tuple[str, ...]:
        """Do one thing after the other until nothing is left; return what was done.

        Raises:
            Refused: something is in the way, and nothing more was changed.
            SanctlError, OSError: a step failed, or what there is cannot be read.
        """
        bcache.load_module(self._runner)
        steps: dict[Act, Callable[[], str]] = {
            Act.FORMAT: self._format,
            Act.GIVE_FLASH: self._give_flash,
            Act.ATTACH_FLASH: self._attach_flash,
            Act.START: self._start,
            Act.MAKE_FILESYSTEM: self._make_filesystem,
            Act.FORGET_MAKING: self._forget_making,
            Act.MOUNT: self._mount,
            Act.MARK: self._mark,
            Act.NOTE_MADE: self._note_made,
        }
        done: list[str] = []
        while (act := next_act(self._look())) is not Act.DONE:
            if act not in steps:
                raise Refused(self._problem(act))
            # Each once: what had no effect would have none again.
            if said := steps.pop(act)():
                done.append(said)
        return tuple(done)

    def _look(self) -> Seen:
        try:
            return self._see()
        except OSError as error:
            where = str(error.filename or self._path)
            raise CommandError(unread_problem(self._pool, where, error)) from error

    def _see(self) -> Seen:
        is_mounted = is_mount_point(self._path)
        running = bcache.observe(self._origin)
        is_running = running is not None and bool(running.disk)
        has_flash = running is not None and running.has_flash
        origin = flash_device = filesystem = None
        if not is_mounted:
            origin = self._look_at(Act.REFUSE_ORIGIN, self._origin, is_flash=False)
        if not is_mounted or (is_running and not has_flash):
            flash_device = self._look_at(Act.REFUSE_FLASH, self._flash, is_flash=True)
        if running is not None and running.disk and self._is_started and not is_mounted:
            filesystem = self._filesystem(f"/dev/{running.disk}")
        name, uuid = self._pool.name, self._pool.uuid
        return Seen(
            is_mounted=is_mounted,
            is_running=is_running,
            has_flash=has_flash,
            origin=origin,
            flash=flash_device,
            filesystem=filesystem,
            marker=self._marker() if is_mounted else None,
            is_making=pool_notes.is_of(name, pool_notes.MAKING, uuid),
            is_made=pool_notes.is_of(name, pool_notes.MADE, uuid),
            is_noted_write_back=flash_cache.is_noted(self._pool),
        )

    def _look_at(self, refusal: Act, device: str, *, is_flash: bool) -> Holds:
        found = look_at(self._runner, self._pool, device, is_flash=is_flash)
        self._problems[refusal] = found.problem
        return found.holds

    def _filesystem(self, disk: str) -> Holds:
        try:
            return Holds.BLANK if is_blank(self._runner, disk) else Holds.OURS
        except OSError as error:
            self._problems[Act.REFUSE_FILESYSTEM] = unread_problem(self._pool, disk, error)
            return Holds.UNREADABLE

    def _marker(self) -> Marker:
        has_folder = exists(f"{self._path}/devices", follow_symlinks=False)
        if not exists(f"{self._path}/{pools.MARKER}", follow_symlinks=False):
            return Marker.FOLDER_ALONE if has_folder else Marker.MISSING
        pools.check(self._path, self._pool.uuid)
        return Marker.THERE if has_folder else Marker.FOLDER_MISSING

    def _problem(self, act: Act) -> Problem:
        name = self._pool.name
        if act is Act.REFUSE_UNFINISHED:
            return unfinished_problem(self._pool)
        if act is Act.REFUSE_MADE:
            return Problem(
                "SAN-POOL-029",
                f"pool {name} was made on this node before, and is not there: its disk "
                f"{self._origin} may have been replaced, or read wrongly",
                "the right disk? Bring it back; else 'sanctl pool prepare "
                f"{name} --anew' makes it anew, and the replicas are filled from their peers",
            )
        if act is Act.REFUSE_MARKER:
            return Problem(
                "SAN-POOL-001",
                f"{self._path}/{pools.MARKER} is missing, and {self._path}/devices is there: "
                "not touched",
                "find out what removed it",
            )
        if act in self._problems:
            return self._problems[act]
        return Problem(
            "SAN-POOL-030",
            f"pool {name}: '{act.value}' was done and had no effect",
            "'journalctl -b' says what the unit or the kernel had to say",
        )

    def _format(self) -> str:
        bcache.format_origin(
            self._origin, flash_cache.origin_uuid(self._pool), flash_cache.label_of(self._pool)
        )
        return f"{self._origin} is its disk"

    def _give_flash(self) -> str:
        flash_cache.empty(self._pool, self._flash)
        return f"{self._flash} is its flash"

    def _attach_flash(self) -> str:
        flash_cache.forget_loss(self._pool)
        flash_cache.attach_flash(self._pool)
        return f"{self._flash} is its flash"

    def _start(self) -> str:
        self._runner.run(
            ["systemctl", "restart", service_of(self._pool)], timeout_s=_UNIT_TIMEOUT_S
        )
        seen = bcache.observe(self._origin)
        if seen is None or not seen.disk:
            raise CommandError(lost_problem(self._pool))
        self._is_started = True
        return ""

    def _make_filesystem(self) -> str:
        seen = bcache.observe(self._origin)
        disk = f"/dev/{seen.disk if seen else ''}"
        pool_notes.write(self._pool.name, pool_notes.MAKING, self._pool.uuid)
        # Its uuid is the pool's: with it a marker that is missing is one not written yet.
        self._runner.run(
            ["mkfs.ext4", "-q", "-F", "-U", self._pool.uuid, disk], timeout_s=_MKFS_TIMEOUT_S
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
        self._runner.run(["systemctl", "start", mount_unit(self._path)], timeout_s=_UNIT_TIMEOUT_S)
        return ""

    def _mark(self) -> str:
        marker = f"{self._path}/{pools.MARKER}"
        if not exists(marker, follow_symlinks=False):
            write_atomically(marker, f"{self._pool.uuid}\n")
        os.makedirs(f"{self._path}/devices", mode=0o700, exist_ok=True)
        sync_folder(self._path)
        return "it is marked"

    def _note_made(self) -> str:
        pool_notes.write(self._pool.name, pool_notes.MADE, self._pool.uuid)
        return ""
