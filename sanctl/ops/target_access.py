# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `target allow` and `deny`: which hosts and IQNs may log in to a device's target."""

from __future__ import annotations

from collections.abc import Callable

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import access_digest
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.cib_room import within_room
from sanctl.ops.device_change import DeviceOutcome, change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress, access_progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.host.access import plan_allow, plan_allow_host, plan_deny, plan_deny_host
from sanctl.plan.host.groups import plan_allow_group, plan_deny_group


def allow_initiator(
    session: Session, name: DeviceName, iqn: Iqn, *, ipc_buffer_bytes: int, timeout_s: float
) -> DeviceOutcome:
    """Let an initiator use a device."""
    return _change_access(
        session, name, lambda seen: plan_allow(seen, name, iqn), ipc_buffer_bytes, timeout_s
    )


def deny_initiator(
    session: Session, name: DeviceName, iqn: Iqn, *, ipc_buffer_bytes: int, timeout_s: float
) -> DeviceOutcome:
    """Keep an initiator from a device; its sessions end."""
    return _change_access(
        session, name, lambda seen: plan_deny(seen, name, iqn), ipc_buffer_bytes, timeout_s
    )


def allow_host(
    session: Session, name: DeviceName, host: HostName, *, ipc_buffer_bytes: int, timeout_s: float
) -> DeviceOutcome:
    """Let a host use a device by all its IQNs."""
    return _change_access(
        session, name, lambda seen: plan_allow_host(seen, name, host), ipc_buffer_bytes, timeout_s
    )


def deny_host(
    session: Session, name: DeviceName, host: HostName, *, ipc_buffer_bytes: int, timeout_s: float
) -> DeviceOutcome:
    """Keep a host from a device; its sessions end."""
    return _change_access(
        session, name, lambda seen: plan_deny_host(seen, name, host), ipc_buffer_bytes, timeout_s
    )


def allow_group(
    session: Session,
    name: DeviceName,
    group: HostGroupName,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    """Give a device to a host group: all its hosts may use it."""
    return _change_access(
        session, name, lambda seen: plan_allow_group(seen, name, group), ipc_buffer_bytes, timeout_s
    )


def deny_group(
    session: Session,
    name: DeviceName,
    group: HostGroupName,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    """Take a device from a host group; its hosts' sessions end."""
    return _change_access(
        session, name, lambda seen: plan_deny_group(seen, name, group), ipc_buffer_bytes, timeout_s
    )


def _change_access(
    session: Session,
    name: DeviceName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> DeviceOutcome:
    def progress(cluster: Cluster) -> Progress:
        wanted = existing_device(cluster, name).access
        return access_progress(cluster, name, access_digest(wanted))

    return change_device(
        session,
        name,
        within_room(session, plan, ipc_buffer_bytes),
        progress,
        waiting_for=f"the access list of device {name} to be in force on its nodes",
        timeout_s=timeout_s,
        look=f"the list is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes shows "
        "why it is not in force",
    )
