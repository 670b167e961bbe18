# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which hosts and initiators may use a device: the CIB's changes of allow and deny."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.names import DeviceName, Iqn
from sanctl.plan.cluster.preconditions import (
    existing_device,
    refuse_unless_changeable,
    refuse_unless_deniable,
)
from sanctl.plan.host.access_list import hosts_given, hosts_taken, initiators_parameter
from sanctl.plan.host.definition import existing_host, unreadable_host_problems
from sanctl.plan.host.groups import group_on


def plan_allow(cluster: Cluster, name: DeviceName, iqn: Iqn) -> tuple[Change, ...]:
    """Return the change that allows an initiator; nothing when it is on the list already.

    Raises:
        Refused: the IQN is a host's, which is allowed as a whole, or may be that of a host whose
            entry cannot be read.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    if iqn in device.initiators:
        return ()
    problems = (*host_iqn_problems(cluster, (iqn,)), *unreadable_host_problems(cluster))
    if problems:
        raise Refused(*problems)
    return (initiators_parameter(device, {*device.initiators, iqn}),)


def plan_deny(cluster: Cluster, name: DeviceName, iqn: Iqn) -> tuple[Change, ...]:
    """Return the change that denies an initiator; nothing when it is not on the list.

    Raises:
        Refused: the initiator is let in as one of a host, which is denied as a whole.
    """
    device = existing_device(cluster, name)
    refuse_unless_deniable(cluster, device)
    # First: taken off the list of initiators, it would still get in as the host's.
    problems = [_host_iqn_problem(host, iqn) for host in device.hosts if iqn in host.iqns]
    if problems:
        raise Refused(*problems)
    if iqn in device.initiators:
        return (initiators_parameter(device, {*device.initiators} - {iqn}),)
    return ()


def plan_allow_host(cluster: Cluster, name: DeviceName, host_name: HostName) -> tuple[Change, ...]:
    """Return the changes that let a host use a device; nothing when it may already.

    IQNs of the host that are on the device's list by themselves are its from then on: their
    sessions stay.

    Raises:
        Refused: there is no such device or host, or it has the device through its group.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    host = existing_host(cluster, host_name)
    _refuse_through_group(cluster, device, host_name)
    return hosts_given(device, (host,))


def plan_deny_host(cluster: Cluster, name: DeviceName, host_name: HostName) -> tuple[Change, ...]:
    """Return the changes that keep a host from a device; nothing when it may not use it.

    IQNs of the host that are on the device's list by themselves go, too.

    Raises:
        Refused: there is no such device or host, or it has the device through its group.
    """
    device = existing_device(cluster, name)
    refuse_unless_deniable(cluster, device)
    _refuse_through_group(cluster, device, host_name)
    if device.host(host_name) is None:
        existing_host(cluster, host_name)
    return hosts_taken(cluster, device, (host_name,))


def host_iqn_problems(cluster: Cluster, iqns: Collection[Iqn]) -> tuple[Problem, ...]:
    """Return which of some IQNs are a host's, so that they are not used by themselves."""
    return tuple(
        _host_iqn_problem(host, iqn)
        for host in cluster.cib.hosts
        for iqn in iqns
        if iqn in host.iqns
    )


def _host_iqn_problem(host: Host, iqn: Iqn) -> Problem:
    return Problem(
        "SAN-HOST-010",
        f"{iqn} is an IQN of host {host.name}",
        f"name the host instead: --host {host.name}",
    )


def _refuse_through_group(cluster: Cluster, device: DeviceSpec, host: HostName) -> None:
    """Check that no group of the device has the host: it would have, or lack, it despite that.

    Raises:
        Refused: one has.
    """
    group = group_on(cluster, device, host)
    if group is not None:
        raise Refused(
            Problem(
                "SAN-HOST-016",
                f"host {host} has device {device.name} through its host group {group.name}",
                f"'sanctl target allow|deny {device.name} --host-group {group.name}' is for all "
                f"hosts of the group; 'sanctl host group remove {group.name} --host {host}' takes "
                "the host out, and the group's devices from it",
            )
        )
