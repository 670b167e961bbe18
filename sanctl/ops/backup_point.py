# SPDX-License-Identifier: GPL-2.0-or-later
"""The restore point that a backup has made for itself: made, removed, found after one that died."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from sanctl.drivers import backup_notes
from sanctl.errors import Busy, CommandError, Problem, SanctlError
from sanctl.model.backup import own_point_name
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.ops.backup_result import note_broken_off, tell_successes
from sanctl.ops.session import Session
from sanctl.ops.snapshot import create_point_patiently
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.backup_failures import plan_succeeded
from sanctl.plan.device.backups import may_run_elsewhere, own_point, plan_own_point_removed

#: For how long a pool agent may take to remove what a backup has left.
_LEFT_S = 40.0
_POLL_S = 1.0


class NotRemoved(CommandError):
    """The backup's own restore point is still there; the pool agent removes it."""


@contextlib.contextmanager
def made_point(
    session: Session,
    device: DeviceName,
    token: str,
    *,
    here: str,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> Iterator[RestorePoint]:
    """Have a restore point made for the backup, and remove it in any case.

    Args:
        session: the cluster.
        device: the device.
        token: 16 hex digits that no other order has.
        here: this node.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: seconds until the restore point has to be there.

    Raises:
        CommandError: there is none, or this node has no part of it.
        NotRemoved: at the end it could not be removed.
    """
    order = PointOrder(own_point_name(token), token, int(session.clock.wall_s()))
    try:
        session.reporter.update(f"making a restore point of device {device}")
        made = create_point_patiently(
            session,
            device,
            order,
            ipc_buffer_bytes=ipc_buffer_bytes,
            timeout_s=timeout_s,
            begins=lambda given: backup_notes.write(device.value, given.token),
        )
        if here not in made.nodes:
            raise CommandError(
                Problem(
                    "SAN-BKP-003",
                    f"{here} took no part in the restore point: its replica is not in sync",
                    f"run it on {' or '.join(made.nodes)}, or when it is",
                )
            )
        yield made
    except BaseException:
        # The error that led here is the one to tell; the pool agent tries again.
        with contextlib.suppress(SanctlError, OSError):
            _forget_own(session, device.value)
        raise
    try:
        _forget_own(session, device.value)
    except (SanctlError, OSError) as error:
        raise NotRemoved(Problem("SAN-BKP-007", str(error))) from error


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


def remove_own(session: Session, device: DeviceSpec, here: str) -> None:
    """Remove the restore point that another backup has left; wait for one that may be under way.

    This process has the lock of the device's backups on this node.

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
            raise busy_in_backup(device.name, "another node", found.name)
        session.reporter.update(f"waiting for the end of restore point {device.name}@{found.name}")
        session.clock.sleep(_POLL_S)


def busy_in_backup(device: DeviceName, where: str, point: str = "") -> Busy:
    """Return that another backup of a device is under way, which may be reading its point."""
    hint = f". If none is: 'sanctl snapshot delete {device}@{point}'" if point else ""
    return Busy(
        Problem(
            "SAN-BKP-008",
            f"a backup of device {device} is under way on {where}",
            f"wait for its end{hint}",
        )
    )
