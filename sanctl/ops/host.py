# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out the changes of hosts and host groups: changes the CIB, waits for devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress, access_progress
from sanctl.plan.host.access_lag import AccessLag, access_lags, not_waited_for
from sanctl.plan.host.definition import devices_of
from sanctl.plan.host.groups import devices_of_group


def change_host(
    session: Session,
    name: HostName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    *,
    ipc_buffer_bytes: int,
    timeout_s: float = 0.0,
) -> tuple[Cluster, bool]:
    """Make the planned change of a host and wait until its devices' access lists are in force.

    Not on nodes in maintenance: what takes access away is not refused while there are some.

    Args:
        session: the cluster.
        name: the host's name after the change.
        plan: the changes that a state of the cluster calls for; empty: nothing to do.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.
        timeout_s: seconds until the wait is given up; the change stays.

    Returns:
        The cluster after that, and whether there was anything to do.

    Raises:
        SanctlError: what `plan` raises.
        Refused: the CIB would be too large for Pacemaker's messages.
        NotConverged: the change is stored, and not in force on every node yet.
    """
    return _change(
        session,
        f"host {name}",
        plan,
        lambda cluster: devices_of(cluster, name),
        ipc_buffer_bytes=ipc_buffer_bytes,
        timeout_s=timeout_s,
    )


def change_group(
    session: Session,
    name: HostGroupName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    *,
    ipc_buffer_bytes: int,
    timeout_s: float = 0.0,
    waits: bool = True,
) -> tuple[Cluster, bool]:
    """Make the planned change of a host group and wait, as `change_host` does.

    Waits for all devices of the group, whether or not there is anything to do: so a command that
    is run again after its death waits for what the first one has changed. Without `waits` no
    access list changes.
    """
    return _change(
        session,
        f"host group {name}",
        plan,
        lambda cluster: devices_of_group(cluster, name) if waits else (),
        ipc_buffer_bytes=ipc_buffer_bytes,
        timeout_s=timeout_s,
    )


def lags_of(cluster: Cluster, devices: Iterable[DeviceSpec]) -> tuple[AccessLag, ...]:
    """Return on which nodes in maintenance the access lists of devices are not in force."""
    return tuple(lag for device in devices for lag in access_lags(cluster, device))


def _change(
    session: Session,
    whose: str,
    plan: Callable[[Cluster], tuple[Change, ...]],
    devices: Callable[[Cluster], tuple[DeviceSpec, ...]],
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> tuple[Cluster, bool]:
    changes = session.change(within_room(session, plan, ipc_buffer_bytes))

    def progress(cluster: Cluster) -> Progress:
        for device in devices(cluster):
            # Where that is refused the plan has said so: what is left takes access away.
            kept = not_waited_for(cluster, device)
            digest = access_digest(device.access)
            found = access_progress(cluster, device.name, digest, but_on=kept)
            if not found.is_done:
                return Progress(is_done=False, seen=f"device {device.name}: {found.seen}")
        return Progress(is_done=True, seen="applied")

    cluster = session.wait(
        progress,
        waiting_for=f"the access lists of the devices of {whose} to be in force",
        timeout_s=timeout_s,
        look="the change is stored; 'sanctl status' shows where a CHAP secret is missing, and "
        "'journalctl SYSLOG_IDENTIFIER=sanctl' on the devices' nodes why a list is not in force",
    )
    return cluster, bool(changes)
