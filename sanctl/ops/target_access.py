# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `target allow` and `deny`: which hosts and IQNs may log in to a device's target."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.cib_room import within_room
from sanctl.ops.device_change import change_device
from sanctl.ops.session import Session
from sanctl.plan.cluster.convergence import Progress, access_progress
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.host.access import plan_allow, plan_allow_host, plan_deny, plan_deny_host
from sanctl.plan.host.access_lag import AccessLag, access_lags, not_waited_for
from sanctl.plan.host.access_loss import AccessLoss, access_loss, hosts_denied
from sanctl.plan.host.groups import plan_allow_group, plan_deny_all, plan_deny_group


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOutcome:
    """A device after a change of its access list.

    Attributes:
        device: the device.
        changed: whether there was anything to do.
        loss: who lost it, and by what else they still get in.
        not_in_force: the nodes in maintenance that have another list until that ends, or may have.
    """

    device: DeviceSpec
    changed: bool
    loss: AccessLoss
    not_in_force: tuple[AccessLag, ...] = ()


def allow_initiator(
    session: Session, name: DeviceName, iqn: Iqn, *, ipc_buffer_bytes: int, timeout_s: float
) -> AccessOutcome:
    """Let an initiator use a device."""
    return _change_access(
        session, name, lambda seen: plan_allow(seen, name, iqn), ipc_buffer_bytes, timeout_s
    )


def deny_initiator(
    session: Session, name: DeviceName, iqn: Iqn, *, ipc_buffer_bytes: int, timeout_s: float
) -> AccessOutcome:
    """Keep an initiator from a device; its sessions end."""
    return _change_access(
        session, name, lambda seen: plan_deny(seen, name, iqn), ipc_buffer_bytes, timeout_s
    )


def allow_host(
    session: Session, name: DeviceName, host: HostName, *, ipc_buffer_bytes: int, timeout_s: float
) -> AccessOutcome:
    """Let a host use a device by all its IQNs."""
    return _change_access(
        session, name, lambda seen: plan_allow_host(seen, name, host), ipc_buffer_bytes, timeout_s
    )


def deny_host(
    session: Session, name: DeviceName, host: HostName, *, ipc_buffer_bytes: int, timeout_s: float
) -> AccessOutcome:
    """Keep a host from a device; its sessions end."""
    return _change_access(
        session,
        name,
        lambda seen: plan_deny_host(seen, name, host),
        ipc_buffer_bytes,
        timeout_s,
        denied=lambda _: (host,),
    )


def allow_group(
    session: Session,
    name: DeviceName,
    group: HostGroupName,
    *,
    ipc_buffer_bytes: int,
    timeout_s: float,
) -> AccessOutcome:
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
) -> AccessOutcome:
    """Take a device from a host group; its hosts' sessions end."""
    return _change_access(
        session,
        name,
        lambda seen: plan_deny_group(seen, name, group),
        ipc_buffer_bytes,
        timeout_s,
        denied=lambda seen: hosts_denied(seen, name, group),
    )


def deny_all(
    session: Session, name: DeviceName, *, ipc_buffer_bytes: int, timeout_s: float
) -> AccessOutcome:
    """Keep all hosts from a device; their sessions end."""

    def denied(seen: Cluster) -> tuple[HostName, ...]:
        return tuple(host.name for host in existing_device(seen, name).hosts)

    return _change_access(
        session,
        name,
        lambda seen: plan_deny_all(seen, name),
        ipc_buffer_bytes,
        timeout_s,
        denied=denied,
    )


def _change_access(
    session: Session,
    name: DeviceName,
    plan: Callable[[Cluster], tuple[Change, ...]],
    ipc_buffer_bytes: int,
    timeout_s: float,
    *,
    denied: Callable[[Cluster], Collection[HostName]] = lambda _: (),
) -> AccessOutcome:
    before: list[Cluster] = []

    def noted(cluster: Cluster) -> tuple[Change, ...]:
        before[:] = [cluster]
        return plan(cluster)

    def progress(cluster: Cluster) -> Progress:
        device = existing_device(cluster, name)
        # Where that is refused the plan has said so: what is left is a denial.
        kept = not_waited_for(cluster, device)
        return access_progress(cluster, name, access_digest(device.access), but_on=kept)

    outcome = change_device(
        session,
        name,
        within_room(session, noted, ipc_buffer_bytes),
        progress,
        waiting_for=f"the access list of device {name} to be in force on its nodes",
        timeout_s=timeout_s,
        look=f"the list is stored; 'journalctl SANCTL_DEVICE={name}' on the device's nodes shows "
        "why it is not in force",
    )
    return AccessOutcome(
        device=outcome.device,
        changed=outcome.changed,
        loss=access_loss(before[0], outcome.cluster, name, denied(before[0])),
        not_in_force=access_lags(outcome.cluster, outcome.device),
    )
