# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `backup restore`: a new device that is made what a backup is before hosts get in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sanctl.drivers.borg import Borg
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.backup import BackupName
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.topology import Topology
from sanctl.ops.backup_verify import existing_backup
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.device_create import create_devices
from sanctl.ops.device_restore import order_progress
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.device.restore_progress import report_of


def restore_backup(
    session: Session,
    topology: Topology,
    borg: Borg,
    name: BackupName,
    wanted: DeviceArguments,
    *,
    new_uuid: Callable[[], str],
    drbd_version: str | None,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[DeviceOutcome, str]:
    """Create a device, and wait until it is what a backup is.

    The order to make it that comes with the device, in one change of the CIB: no host is let in,
    on whatever node, before the device has been read and has the digest that the backup has.

    Args:
        session: the cluster.
        topology: its nodes and pools.
        borg: the repository.
        name: the backup.
        wanted: the new device; its size is that of the backup.
        new_uuid: makes a UUID of 32 hex digits.
        drbd_version: the kernel's DRBD, None where that is not known.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: after so many seconds the wait is given up; the restore goes on.

    Returns:
        The outcome, and the SHA-256 that the device has been found to have.

    Raises:
        UsageError: an argument is malformed.
        Refused: there is no such backup, or such a device cannot be created.
        CommandError: the repository cannot be read; or the node that fills the device says why it
            cannot. Hosts are kept out then.
        NotConverged: it goes on.
    """
    session.reporter.update(f"looking into repository {borg.repository.name}")
    found = existing_backup(borg, name)
    if found.size_bytes is None:
        raise Refused(Problem("SAN-BKP-016", f"backup {name} does not say how long it is"))
    digest = borg.recorded_digest(name)
    began_s = session.clock.monotonic_s()
    order = RestoreOrder.from_backup(
        new_uuid()[-16:], borg.repository.name, str(name), int(session.clock.wall_s())
    )
    (created,) = create_devices(
        session,
        topology,
        (replace(wanted, size=str(found.size_bytes), restore=order),),
        new_uuid=new_uuid,
        drbd_version=drbd_version,
        ipc_buffer_bytes=ipc_buffer_bytes,
        timeout_s=timeout_s,
    )
    device = created.device.name

    def progress(cluster: Cluster) -> Progress:
        raise_reported(cluster, device)
        return order_progress(cluster, device, order.token)

    left_s = max(0.0, timeout_s - (session.clock.monotonic_s() - began_s))
    cluster = session.wait(
        progress,
        waiting_for=f"device {device} to hold backup {name}",
        timeout_s=left_s,
        look=f"it goes on by itself, and lets no host in before its end: 'sanctl device show "
        f"{device}' shows how far it is",
    )
    outcome = replace(
        created,
        cluster=cluster,
        device=existing_device(cluster, device),
        duration_s=session.clock.monotonic_s() - began_s,
    )
    return outcome, digest


def raise_reported(cluster: Cluster, name: DeviceName) -> None:
    """Raise CommandError if the node that fills a device says why it cannot."""
    report = report_of(cluster, existing_device(cluster, name))
    if report is not None and report.code:
        raise CommandError(
            Problem(
                report.code,
                report.text,
                f"device {name} lets no host in, and it is tried again each half minute: 'sanctl "
                f"device show {name}'; 'sanctl device delete {name}' gives up",
            )
        )
