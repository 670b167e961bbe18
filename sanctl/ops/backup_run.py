# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup run`: who reads, whose turn it is, what is read."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import NamedTuple

from sanctl.drivers import backup_notes
from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, Problem, Refused, SanctlError
from sanctl.model.backup import WRITING
from sanctl.model.backup_failure import BackupSuccess
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.topology import Topology
from sanctl.ops.backup_point import NotRemoved, busy_in_backup, made_point, remove_own
from sanctl.ops.backup_prune import busy_in_repository, no_turn
from sanctl.ops.backup_result import (
    note_broken_off,
    note_first_run,
    note_success,
    noting_failure,
)
from sanctl.ops.backup_store import BackupOutcome, backup_name, store_point
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.backup_record import repository_meant
from sanctl.plan.device.backups import check_reader, device_uuids, open_archives, point_problem
from sanctl.plan.device.restore_points import existing_point


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """What a command asks for.

    Attributes:
        device: the device.
        point: the name of the restore point to read; None: one is made, and removed afterwards.
        here: this node.
        token: 16 hex digits that no other order has.
        may_be_active: this node reads also where it serves the device.
        may_be_elsewhere: it is no error if another node is the one to read.
        every_s: the longest time between two runs of the timer that asks; 0: it does not say.
    """

    device: DeviceName
    point: str | None
    here: str
    token: str
    may_be_active: bool = False
    may_be_elsewhere: bool = False
    every_s: int = 0

    @property
    def is_timers(self) -> bool:
        """Whether a timer asks, of whose failures nobody is told but by the cluster."""
        return self.may_be_elsewhere or self.every_s > 0


def note_not_begun(
    session: Session, request: BackupRequest, repository: str | None, error: SanctlError
) -> None:
    """Note in the cluster that a timer's backup failed before it had its repository.

    Not where another node is the one to read: that one makes the backup, or tells why not.

    Args:
        session: the cluster.
        request: what is wanted.
        repository: its name; None: the only one that the device's backups are known to go into.
        error: what the backup failed with.

    Raises:
        SanctlError: the error, or that the cluster cannot be asked.
        UsageError: that is no name of a repository.
    """
    name = request.device.value
    with backup_notes.running(name) as is_first:
        if is_first:
            with contextlib.suppress(SanctlError, OSError):
                note_broken_off(session, name)
        into = repository_meant(session.observe(), name, repository)
        if into is None:
            return
        with contextlib.suppress(SanctlError):
            if _find(session, request) is None:
                return
        with noting_failure(session, name, into, here=request.here, has_note=is_first):
            raise error


def run_backup(
    session: Session,
    topology: Topology,
    borg: Borg,
    request: BackupRequest,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> BackupOutcome | None:
    """Store a device as it is at a restore point; None: another node is the one to do it.

    Args:
        session: the cluster.
        topology: its nodes and pools.
        borg: the repository.
        request: what is wanted.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: seconds until the restore point has to be there.

    Raises:
        Refused: there is no such device or point, or this node should not read it.
        Busy: another backup of the device is under way.
        CommandError: no backup was made, and why; also where another node has become the one to
            read while this one waited for its turn.
        OSError: the restore point's file cannot be read.
    """
    name, into = request.device.value, borg.repository.name
    with contextlib.ExitStack() as locks:
        is_first = locks.enter_context(backup_notes.running(name))
        if is_first:
            # The note of one that broke off would be lost; it may be of another repository.
            with contextlib.suppress(SanctlError, OSError):
                note_broken_off(session, name)
        elif (backup_notes.begun(name) or ("",))[0] == into:
            raise busy_in_backup(request.device, "this node")
        noting = noting_failure(session, name, into, here=request.here, has_note=is_first)
        # A command that a person typed wrongly is no backup that failed; a timer's is one.
        with noting if request.may_be_elsewhere else contextlib.nullcontext():
            found = _find(session, request)
        # Also where another node is the one to read: each may leave it to another one.
        note_first_run(session, name, into, every_s=request.every_s)
        if found is None:
            return None
        if not is_first:
            # One into another repository, or the pool agent, which clears up after one.
            session.reporter.update(f"waiting for another backup of device {name}")
            with noting_failure(session, name, into, here=request.here, has_note=False):
                if not locks.enter_context(backup_notes.running(name, wait_s=borg.lock_s)):
                    raise busy_in_backup(request.device, "this node")
        session.reporter.update(f"waiting for other backups into repository {into}")
        # No reason to make no backup: a kill alone would not be told. The wait may be hours.
        with contextlib.suppress(OSError):
            backup_notes.begin(name, into, request.here, int(session.clock.wall_s()))
        with (
            noting_failure(session, name, into, here=request.here),
            backup_notes.turn(into, wait_s=borg.lock_s, device=name) as is_next,
        ):
            if not is_next:
                raise no_turn(into, borg.lock_s)
            outcome = _run(
                session,
                topology,
                borg,
                request,
                _find_again(session, request),
                ipc_buffer_bytes=ipc_buffer_bytes,
                timeout_s=timeout_s,
            )
            success = BackupSuccess(name, into, outcome.uuid, outcome.succeeded_s, request.every_s)
            note_success(session, success)
            return outcome


def _find_again(session: Session, request: BackupRequest) -> _Found:
    """Return what is to be read after the wait for a turn: hours may have passed.

    This node was the one to read it, and the others have left it to this one: so it stays the one
    while it can, also where one that comes first of several standbys is in sync again.
    """
    try:
        found = _find(session, replace(request, may_be_elsewhere=False))
    except Refused:
        # Where it runs on all nodes, a reader that has changed is no mistake of the one who asked.
        found = _find(session, request)
    if found is None:
        raise _moved(request)
    return found


def _moved(request: BackupRequest) -> CommandError:
    """Return that another node is the one to read by now.

    Each of the others has looked hours ago, and left it to this one: with a success here nobody
    would make the backup, and nobody be told.
    """
    return CommandError(
        Problem(
            "SAN-BKP-023",
            f"{request.here} was the node to read device {request.device}, and after the wait for "
            "its turn it is not: it serves the device by now, or its replica is not in sync. No "
            "backup was made here, and the other nodes have left it to this one",
            "'sanctl backup list' shows whether there is one; else 'sanctl backup run "
            f"{request.device}' on a node with a standby in sync",
        )
    )


class _Found(NamedTuple):
    """The device, and the restore point that the command names."""

    device: DeviceSpec
    point: RestorePoint | None


def _find(session: Session, request: BackupRequest) -> _Found | None:
    """Return what is to be read; None: another node is the one to do it."""
    cluster = session.observe()
    device = existing_device(cluster, request.device)
    point = None
    if request.point is not None:
        point = existing_point(cluster, request.device, request.point)
        problem = point_problem(point)
        if problem is not None:
            raise Refused(problem)
    is_reader = check_reader(
        cluster,
        device,
        point,
        request.here,
        may_be_active=request.may_be_active,
        may_be_elsewhere=request.may_be_elsewhere,
    )
    return _Found(device, point) if is_reader else None


def _run(
    session: Session,
    topology: Topology,
    borg: Borg,
    request: BackupRequest,
    found: _Found,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> BackupOutcome:
    device, point = found
    session.reporter.update(f"looking into repository {borg.repository.name}")
    archives = borg.archives()

    def store(read: RestorePoint) -> BackupOutcome:
        return store_point(
            session,
            topology,
            borg,
            read,
            here=request.here,
            every_s=request.every_s,
            before=archives,
        )

    if point is not None:
        if str(backup_name(point)) in archives:
            raise Refused(
                Problem(
                    "SAN-BKP-017",
                    f"repository {borg.repository.name} has backup {backup_name(point)} already",
                    "'sanctl backup list' shows it",
                )
            )
        begun = f"{backup_name(point)}{WRITING}"
        now_s = session.clock.wall_s()
        still_open = open_archives(
            archives,
            device.name.value,
            here=request.here,
            now_s=now_s,
            own_uuids=device_uuids(session.observe()),
        )
        if begun in still_open:
            raise busy_in_repository(device.name.value, begun, still_open[begun])
        if begun in archives:
            # Another attempt's, which died before it was a backup: borg would refuse the name.
            borg.delete((begun,))
        return store(point)
    remove_own(session, device, request.here)
    outcome = None
    try:
        with made_point(
            session,
            request.device,
            request.token,
            here=request.here,
            ipc_buffer_bytes=ipc_buffer_bytes,
            timeout_s=timeout_s,
        ) as made:
            outcome = store(made)
    except NotRemoved as error:
        if outcome is None:
            raise
        return replace(outcome, left=str(error))
    return outcome
