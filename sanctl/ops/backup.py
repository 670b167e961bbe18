# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup run`; a backup's own restore point."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from sanctl.drivers import backup_notes, point_files, pool_files
from sanctl.drivers.borg import Borg
from sanctl.errors import Busy, CommandError, Problem, Refused, SanctlError
from sanctl.model.backup import OWN_POINT, WRITING, BackupName, is_own_point, own_point_name
from sanctl.model.backup_failure import BackupSuccess
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName, PoolName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.model.topology import Topology
from sanctl.ops.backup_prune import busy_in_repository, no_turn
from sanctl.ops.backup_result import (
    note_broken_off,
    note_success,
    noting_failure,
    tell_successes,
)
from sanctl.ops.session import Session
from sanctl.ops.snapshot import create_point_patiently
from sanctl.parse.borg import Writer, number_of
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.backup_failures import plan_succeeded
from sanctl.plan.device.backups import (
    check_reader,
    device_uuids,
    left_over,
    may_run_elsewhere,
    open_archives,
    own_point,
    plan_own_point_removed,
    point_problem,
)
from sanctl.plan.device.restore_points import existing_point
from sanctl.system import files

#: For how long a pool agent may take to remove what a backup has left.
_LEFT_S = 40.0
_POLL_S = 1.0
_SHOW_BYTES = 256 << 20


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


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupOutcome:
    """A backup that was made.

    Attributes:
        name: its name.
        uuid: the device's UUID.
        size_bytes: the size of the device at the restore point.
        digest: the SHA-256 of what was read.
        stored_bytes: what it added to the repository, compressed; None: not known.
        duration_s: how long reading and storing took.
        succeeded_s: when it was done, in seconds since 1970.
        left: why something of it is still to be removed; empty: nothing is.
    """

    name: BackupName
    uuid: str
    size_bytes: int
    digest: str
    stored_bytes: int | None
    duration_s: float
    succeeded_s: int
    left: str = ""


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
    with backup_notes.running(name) as is_mine:
        if not is_mine:
            raise _busy(request.device, "this node")
        noting = noting_failure(session, name, into, here=request.here)
        # A command that a person typed wrongly is no backup that failed; a timer's is one.
        with noting if request.may_be_elsewhere else contextlib.nullcontext():
            found = _find(session, request)
        if found is None:
            return None
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
    if point is not None:
        if str(_name_of(point)) in archives:
            raise Refused(
                Problem(
                    "SAN-BKP-017",
                    f"repository {borg.repository.name} has backup {_name_of(point)} already",
                    "'sanctl backup list' shows it",
                )
            )
        begun = f"{_name_of(point)}{WRITING}"
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
        return _store(session, topology, borg, point, request, before=archives)
    _remove_own(session, device, request.here)
    outcome = None
    try:
        with _made_point(session, request, ipc_buffer_bytes, timeout_s) as made:
            outcome = _store(session, topology, borg, made, request, before=archives)
    except _NotRemoved as error:
        if outcome is None:
            raise
        return _with_left(outcome, str(error))
    return outcome


class _NotRemoved(CommandError):
    """The backup's own restore point is still there; the pool agent removes it."""


def _with_left(outcome: BackupOutcome, left: str) -> BackupOutcome:
    return replace(outcome, left=left)


@contextlib.contextmanager
def _made_point(
    session: Session, request: BackupRequest, ipc_buffer_bytes: int, timeout_s: float
) -> Iterator[RestorePoint]:
    """Have a restore point made for the backup, and remove it in any case."""
    order = PointOrder(own_point_name(request.token), request.token, int(session.clock.wall_s()))
    try:
        session.reporter.update(f"making a restore point of device {request.device}")
        made = create_point_patiently(
            session,
            request.device,
            order,
            ipc_buffer_bytes=ipc_buffer_bytes,
            timeout_s=timeout_s,
            begins=lambda given: backup_notes.write(request.device.value, given.token),
        )
        if request.here not in made.nodes:
            raise CommandError(
                Problem(
                    "SAN-BKP-003",
                    f"{request.here} took no part in the restore point: its replica is not in sync",
                    f"run it on {' or '.join(made.nodes)}, or when it is",
                )
            )
        yield made
    except BaseException:
        # The error that led here is the one to tell; the pool agent tries again.
        with contextlib.suppress(SanctlError, OSError):
            _forget_own(session, request.device.value)
        raise
    try:
        _forget_own(session, request.device.value)
    except (SanctlError, OSError) as error:
        raise _NotRemoved(Problem("SAN-BKP-007", str(error))) from error


def _forget_own(session: Session, device: str) -> None:
    """Remove what is left of the restore point that this node has noted for a device.

    The same change notes the backup's success: one of its own would cost the cluster another one.
    """
    token = backup_notes.read(device)
    done = backup_notes.successes(device)
    if token:
        session.change(
            lambda seen: (
                *plan_own_point_removed(seen, device, token),
                *(
                    change
                    for each in done
                    for change in plan_succeeded(seen, each, now_s=session.clock.wall_s())
                ),
            )
        )
    backup_notes.remove(device)


def remove_abandoned(session: Session) -> tuple[str, ...]:
    """Remove the restore points of backups that run no longer on this node; note that they failed.

    Returns:
        The devices whose backups had left one, or had left the note of one.

    Raises:
        SanctlError: one of them cannot be removed now.
        OSError: the notes cannot be read, or one of them not removed.
    """
    done = []
    failure: SanctlError | OSError | None = None
    for device in backup_notes.noted():
        with backup_notes.running(device) as is_mine:
            if not is_mine:
                continue
            had_point = bool(backup_notes.read(device))
            try:
                if had_point:
                    _forget_own(session, device)
                tell_successes(session, device)
                note_broken_off(session, device)
            except (SanctlError, OSError) as error:
                failure = error  # Those of the other devices do not wait for it.
                continue
            done += [device] if had_point else []
    if failure is not None:
        raise failure
    return tuple(done)


def _remove_own(session: Session, device: DeviceSpec, here: str) -> None:
    """Remove the restore point that another backup has left; wait for one that may be under way.

    Raises:
        Busy: another node may be reading it.
    """
    # This process has the lock, so of this node none is running.
    _forget_own(session, device.name.value)
    deadline = session.clock.monotonic_s() + _LEFT_S
    while True:
        cluster = session.observe()
        found = own_point(cluster, existing_device(cluster, device.name))
        if found is None:
            return
        if not may_run_elsewhere(cluster, device, here):
            token = found.token
            session.change(
                lambda seen, token=token: plan_own_point_removed(seen, device.name.value, token)  # type: ignore[misc]
            )
            return
        if session.clock.monotonic_s() > deadline:
            raise _busy(device.name, "another node", found.name)
        session.reporter.update(f"waiting for the end of restore point {device.name}@{found.name}")
        session.clock.sleep(_POLL_S)


def _busy(device: DeviceName, where: str, point: str = "") -> Busy:
    hint = f". If none is: 'sanctl snapshot delete {device}@{point}'" if point else ""
    return Busy(
        Problem(
            "SAN-BKP-008",
            f"a backup of device {device} is under way on {where}",
            f"wait for its end{hint}",
        )
    )


def _name_of(point: RestorePoint) -> BackupName:
    name = OWN_POINT if is_own_point(point.name) else point.name
    return BackupName(device=point.device, taken_s=point.made_s, point=name)


def _store(
    session: Session,
    topology: Topology,
    borg: Borg,
    point: RestorePoint,
    request: BackupRequest,
    *,
    before: Mapping[str, str],
) -> BackupOutcome:
    name, began_s, here = _name_of(point), session.clock.monotonic_s(), request.here
    shown = -_SHOW_BYTES

    def progress(done_bytes: int) -> None:
        nonlocal shown
        if done_bytes - shown >= _SHOW_BYTES:
            shown = done_bytes
            percent = 100.0 * done_bytes / point.size_bytes
            session.reporter.update(f"backup {name}: {percent:.0f} % read")

    path = _file_of(topology, point)
    try:
        # Of one device one is stored at a time, so those before it are all there.
        number = max(map(number_of, before.values()), default=0) + 1
        writer = Writer(here, int(session.clock.wall_s()), number)
        digest, stored = borg.store(
            name, path, point.size_bytes, progress, uuid=point.uuid, writer=writer
        )
    except OSError as error:
        raise CommandError(
            Problem("SAN-BKP-009", f"{path} cannot be read: {error.strerror or error}")
        ) from error
    borg.keep(name)
    success = BackupSuccess(
        point.device,
        borg.repository.name,
        point.uuid,
        int(session.clock.wall_s()),
        request.every_s,
    )
    with contextlib.suppress(OSError):
        backup_notes.succeed(success)
    with contextlib.suppress(SanctlError):
        # Only now: what they hold did not have to be sent once more.
        archives, now_s = borg.archives(), session.clock.wall_s()
        own = device_uuids(session.observe())
        still_open = open_archives(archives, point.device, here=here, now_s=now_s, own_uuids=own)
        borg.delete(left_over(archives, point.device, still_open))
    return BackupOutcome(
        name=name,
        uuid=point.uuid,
        size_bytes=point.size_bytes,
        digest=digest,
        stored_bytes=stored,
        duration_s=session.clock.monotonic_s() - began_s,
        succeeded_s=success.succeeded_s,
    )


def _file_of(topology: Topology, point: RestorePoint) -> str:
    pool = topology.pool(PoolName.parse(point.pool))
    if pool is None:
        raise CommandError(Problem("SAN-AGENT-004", f"cluster.toml has no pool {point.pool} here"))
    pool_files.check_marker(str(pool.path), pool.uuid)
    final = point_files.final_path(str(pool.path), point.device, point.uuid, point.token)
    # A copy that has not got its name yet is the restore point all the same: the CIB says so.
    return final if files.exists(final) else point_files.unnamed_path(final)
