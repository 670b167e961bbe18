# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `site copies`, `replicate restore` and `replicate failback`: a copy is used here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sanctl.drivers.site_link import SiteLink
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.site import ProvenCopy, Site
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.topology import Topology
from sanctl.ops.backup_restore import raise_reported
from sanctl.ops.device_change import DeviceOutcome
from sanctl.ops.device_create import create_devices
from sanctl.ops.device_restore import order_progress
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.creation_request import DeviceArguments
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.group_choice import Choice, choose_of_moment
from sanctl.plan.site.lost_copies import noted_at, refuse_lost


def list_copies(
    session: Session, site_name: str, connect: Callable[[Site], SiteLink]
) -> tuple[Site, dict[str, tuple[ProvenCopy, ...]], dict[str, tuple[str, ...]]]:
    """Ask a site for its proven copies; return it, and them by folder, DEVICE.UUID.

    Last come the names of the copies whose notes it cannot read, by folder.

    Raises:
        Refused: there is no such site, or this node does not have the key for it.
        CommandError: it cannot be reached, or is another one.
    """
    site = existing_site(session.observe(), site_name)
    session.reporter.update(f"connecting to site {site.name}")
    with connect(site) as link:
        folders = link.folders(site.path, site.mark)
        return site, folders, link.unread


def find_copy(
    session: Session,
    site_name: str,
    wanted: WantedCopy,
    connect: Callable[[Site], SiteLink],
    *,
    filled: DeviceName | None,
    allows_mix: bool,
) -> Choice:
    """Return the copy at a site that is meant.

    Args:
        session: the cluster.
        site_name: the site.
        wanted: what was typed.
        connect: makes a connection to a site.
        filled: the device that is to hold it; None: it is created.
        allows_mix: of a device that is copied with others any copy, also of no complete moment.

    Raises:
        Refused: there is no such site or copy, several copies may be meant, devices of a group
            would be of several moments, or none was named and the site lacks the newest one that
            this cluster has noted.
        CommandError: the site cannot be reached, is another one, or says another digest of the
            copy than this cluster has noted.
    """
    before = noted_at(session.observe(), site_name)
    site, folders, unread = list_copies(session, site_name, connect)
    cluster = session.observe()
    choice = choose_of_moment(
        cluster,
        site.name,
        folders,
        wanted,
        filled=filled,
        allows_mix=allows_mix,
        unread=unread,
    )
    if not wanted.point:
        after = noted_at(cluster, site.name)
        refuse_lost(site.name, choice.copy.folder, before, after, folders, unread=unread)
    return choice


def restore_copy(
    session: Session,
    topology: Topology,
    copy: SiteCopy,
    size_bytes: int,
    wanted: DeviceArguments,
    *,
    new_uuid: Callable[[], str],
    drbd_version: str | None,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    """Create a device, and wait until it is what a copy at a site is.

    The order to make it that comes with the device, in one change of the CIB: no host is let in,
    on whatever node, before the device has been read and has the copy's digest.

    Args:
        session: the cluster.
        topology: its nodes and pools.
        copy: the copy.
        size_bytes: its size.
        wanted: the new device; its size is that of the copy.
        new_uuid: makes a UUID of 32 hex digits.
        drbd_version: the kernel's DRBD, None where that is not known.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: after so many seconds the wait is given up; the restore goes on.

    Raises:
        UsageError: an argument is malformed.
        Refused: such a device cannot be created.
        CommandError: the node that fills the device says why it cannot. Hosts are kept out then.
        NotConverged: it goes on.
    """
    began_s = session.clock.monotonic_s()
    order = RestoreOrder.from_copy(new_uuid()[-16:], copy, int(session.clock.wall_s()))
    (created,) = create_devices(
        session,
        topology,
        (replace(wanted, size=str(size_bytes), restore=order),),
        new_uuid=new_uuid,
        drbd_version=drbd_version,
        ipc_buffer_bytes=ipc_buffer_bytes,
        timeout_s=timeout_s,
    )
    cluster = _await_copy(
        session,
        created.device.name,
        order,
        timeout_s=max(0.0, timeout_s - (session.clock.monotonic_s() - began_s)),
    )
    return replace(
        created,
        cluster=cluster,
        device=existing_device(cluster, created.device.name),
        duration_s=session.clock.monotonic_s() - began_s,
    )


def _await_copy(
    session: Session, device: DeviceName, order: RestoreOrder, *, timeout_s: float
) -> Cluster:
    def progress(cluster: Cluster) -> Progress:
        raise_reported(cluster, device)
        return order_progress(cluster, device, order.token)

    return session.wait(
        progress,
        waiting_for=f"device {device} to hold {order.source}",
        timeout_s=timeout_s,
        look=f"it goes on by itself, and lets no host in before its end: 'sanctl device show "
        f"{device}' shows how far it is",
    )
