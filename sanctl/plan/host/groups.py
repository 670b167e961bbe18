# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: host groups and the devices that are given to them; else the CIB's changes.

A device's access list (parameter `hosts`) is what agents read: the hosts that have the device by
themselves, and those of its groups. So each change of a group, or of a device's groups, is one
change of the CIB with that of every access list that it calls for. Where a list lacks a host of a
group all the same, someone took it off on purpose, who did not know of the group: it is let in
again only by a command that names both (`target allow NAME --host-group GROUP`).
"""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    Change,
    RemoveHostGroup,
    SetGroupsOfDevice,
    SetHostGroup,
)
from sanctl.model.cib_names import host_group_id
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.names import DeviceName
from sanctl.plan.cluster.preconditions import (
    existing_device,
    refuse_unless_changeable,
    refuse_unless_deniable,
    refuse_without_quorum,
)
from sanctl.plan.host.access_list import (
    hosts_given,
    hosts_parameter,
    hosts_taken,
    initiators_parameter,
    iqns_of,
)
from sanctl.plan.host.definition import (
    existing_host,
    member_problem,
    no_host_problem,
    refuse_if_any,
    unreadable_device_problems,
    unreadable_group_problems,
    unreadable_host_problems,
)


def existing_group(cluster: Cluster, name: HostGroupName) -> HostGroup:
    """Return the host group of that name.

    Raises:
        Refused: there is none, or it cannot be read.
    """
    group = cluster.cib.host_group(name)
    if group is None:
        raise Refused(*group_problems(cluster, name))
    return group


def group_problems(cluster: Cluster, name: HostGroupName) -> list[Problem]:
    """Return why a device cannot be given to a group: it, or a host of it, is not there."""
    group = cluster.cib.host_group(name)
    if group is not None:
        return _missing_problems(cluster, group.hosts)
    if name.value in cluster.cib.unreadable_groups:
        return unreadable_group_problems(cluster, name)
    known = ", ".join(each.name.value for each in cluster.cib.host_groups[:8])
    more = " ..." if len(cluster.cib.host_groups) > 8 else ""
    return [
        Problem(
            "SAN-HOST-013",
            f"there is no host group {name}",
            f"host groups are: {known}{more}" if known else "'sanctl host group create' makes one",
        )
    ]


def devices_of_group(cluster: Cluster, name: HostGroupName) -> tuple[DeviceSpec, ...]:
    """Return the devices that are given to a group."""
    return tuple(device for device in cluster.cib.devices if name in device.host_groups)


def group_on(cluster: Cluster, device: DeviceSpec, host: HostName) -> HostGroup | None:
    """Return the group through which a host has a device, or would have it; None: none."""
    found = (each for each in cluster.cib.groups_with(host) if each.name in device.host_groups)
    return next(found, None)


def lacking_hosts(device: DeviceSpec, group: HostGroup) -> tuple[HostName, ...]:
    """Return the hosts of a group that a device of it does not let in."""
    return tuple(host for host in group.hosts if device.host(host) is None)


def hosts_of_groups(cluster: Cluster, names: Collection[HostGroupName]) -> tuple[Host, ...]:
    """Return the hosts of some groups, as far as there are such hosts and groups."""
    members = {
        host for group in cluster.cib.host_groups if group.name in names for host in group.hosts
    }
    return tuple(host for host in cluster.cib.hosts if host.name in members)


def plan_group_creation(cluster: Cluster, group: HostGroup) -> tuple[Change, ...]:
    """Return the change that creates a group; nothing where it is there just so.

    Raises:
        Refused: there is one of that name with other hosts, a host does not exist, or is, or may
            be, in another group.
    """
    refuse_without_quorum(cluster)
    found = cluster.cib.host_group(group.name)
    if found == group:
        return ()
    problems = [] if found is None else [_taken_problem(group.name)]
    if found is None and host_group_id(group.name) in cluster.cib.ids:
        problems.append(
            Problem(
                "SAN-HOST-018",
                f"the CIB has an entry {host_group_id(group.name)} that cannot be read as a group",
                f"see: cibadmin --query --xpath \"//*[@id='{host_group_id(group.name)}']\"",
            )
        )
    refuse_if_any([*problems, *_member_problems(cluster, group.name, group.hosts)])
    return (SetHostGroup(group=group),)


def plan_group_deletion(cluster: Cluster, name: HostGroupName) -> tuple[Change, ...]:
    """Return the change that deletes a group; its hosts stay.

    Raises:
        Refused: there is none, or a device is, or may be, given to it.
    """
    refuse_without_quorum(cluster)
    existing_group(cluster, name)
    refuse_if_any(unreadable_device_problems(cluster))
    devices = devices_of_group(cluster, name)
    if devices:
        raise Refused(
            Problem(
                "SAN-HOST-017",
                f"host group {name} has {', '.join(device.name.value for device in devices)}",
                "take them from it first, device by device: 'sanctl target deny "
                f"{devices[0].name} --host-group {name}'",
            )
        )
    return (RemoveHostGroup(name=name),)


def plan_group_rename(
    cluster: Cluster, name: HostGroupName, new: HostGroupName
) -> tuple[Change, ...]:
    """Return the changes that give a group another name; no access list changes.

    Raises:
        Refused: there is no such group, the new name is taken, or a device cannot be read.
    """
    refuse_without_quorum(cluster)
    group = existing_group(cluster, name)
    if name == new:
        return ()
    if cluster.cib.host_group(new) is not None or host_group_id(new) in cluster.cib.ids:
        raise Refused(_taken_problem(new))
    # A device that names a group of the new name would be this one's from then on.
    stray = devices_of_group(cluster, new)
    refuse_if_any(
        [
            *unreadable_device_problems(cluster),
            *([_taken_problem(new)] if stray else ()),
        ]
    )
    return (
        RemoveHostGroup(name=name),
        SetHostGroup(group=HostGroup(name=new, hosts=group.hosts)),
        *(
            _groups_of(device, {*device.host_groups} - {name} | {new})
            for device in devices_of_group(cluster, name)
        ),
    )


def plan_group_addition(
    cluster: Cluster, name: HostGroupName, more: Collection[HostName]
) -> tuple[Change, ...]:
    """Return the changes by which hosts come into a group and get its devices.

    A host that is in the group already gets nothing: a device that does not let it in stays so.

    Raises:
        Refused: there is no such group or host, a host is, or may be, in another group, or a
            device cannot be changed.
    """
    refuse_without_quorum(cluster)
    group = existing_group(cluster, name)
    new = {*more} - {*group.hosts}
    refuse_if_any(
        [
            *_member_problems(cluster, name, more),
            *(unreadable_device_problems(cluster) if new else ()),
        ]
    )
    if not new:
        return ()
    hosts = tuple(existing_host(cluster, host) for host in sorted(new))
    changes: list[Change] = [
        SetHostGroup(group=HostGroup(name=name, hosts=tuple(sorted({*group.hosts, *new}))))
    ]
    for device in devices_of_group(cluster, name):
        refuse_unless_changeable(cluster, device)
        changes += hosts_given(device, hosts)
    return tuple(changes)


def plan_group_removal(
    cluster: Cluster, name: HostGroupName, fewer: Collection[HostName]
) -> tuple[Change, ...]:
    """Return the changes by which hosts leave a group and lose its devices.

    Raises:
        Refused: there is no such group or host, or a device cannot be read or changed: for another
            reason than a node in maintenance.
    """
    refuse_without_quorum(cluster)
    group = existing_group(cluster, name)
    gone = {*fewer} & {*group.hosts}
    refuse_if_any(
        [
            *_missing_problems(cluster, {*fewer} - gone),
            *(unreadable_device_problems(cluster) if gone else ()),
        ]
    )
    if not gone:
        return ()
    changes: list[Change] = [
        SetHostGroup(group=HostGroup(name=name, hosts=tuple(sorted({*group.hosts} - gone))))
    ]
    for device in devices_of_group(cluster, name):
        refuse_unless_deniable(cluster, device)
        changes += _without(cluster, device, name, gone)
    return tuple(changes)


def plan_allow_group(
    cluster: Cluster, name: DeviceName, group_name: HostGroupName
) -> tuple[Change, ...]:
    """Return the changes that give a device to a group; nothing when all of it may use it so.

    Hosts of the group that had the device by themselves, or by their IQNs, have it through the
    group from then on: their sessions stay.

    Raises:
        Refused: there is no such device or group, a host of the group does not exist, or the
            device cannot be changed.
    """
    device = existing_device(cluster, name)
    refuse_unless_changeable(cluster, device)
    refuse_if_any(group_problems(cluster, group_name))
    changes: list[Change] = []
    if group_name not in device.host_groups:
        changes.append(_groups_of(device, {*device.host_groups, group_name}))
    return (*changes, *hosts_given(device, hosts_of_groups(cluster, (group_name,))))


def plan_deny_group(
    cluster: Cluster, name: DeviceName, group_name: HostGroupName
) -> tuple[Change, ...]:
    """Return the changes that take a device from a group; nothing when it was not given to it.

    IQNs of its hosts that are on the device's list by themselves go, too. Of a group that does not
    exist any more nothing but the note is left; who its hosts were is not known, and they stay on
    the list by themselves.

    Raises:
        Refused: there is no such device or group, the group cannot be read, the device cannot be
            changed, or lets hosts of the group in without being given to it.
    """
    device = existing_device(cluster, name)
    refuse_unless_deniable(cluster, device)
    group = cluster.cib.host_group(group_name)
    is_gone = group is None and group_name.value not in cluster.cib.unreadable_groups
    if group_name not in device.host_groups:
        # The exit status 0 would say that they are out.
        refuse_if_any(_by_themselves_problems(cluster, device, existing_group(cluster, group_name)))
        return ()
    if not is_gone:
        group = existing_group(cluster, group_name)
    return (
        _groups_of(device, {*device.host_groups} - {group_name}),
        *(_without(cluster, device, group_name, group.hosts) if group else ()),
    )


def plan_deny_all(cluster: Cluster, name: DeviceName) -> tuple[Change, ...]:
    """Return the changes that keep all hosts from a device; nothing where none may use it.

    Raises:
        Refused: there is no such device, or it cannot be changed.
    """
    device = existing_device(cluster, name)
    refuse_unless_deniable(cluster, device)
    changes: list[Change] = []
    if device.host_groups:
        changes.append(_groups_of(device, ()))
    if device.hosts:
        changes.append(hosts_parameter(device, ()))
    if device.initiators:
        changes.append(initiators_parameter(device, ()))
    return tuple(changes)


def _without(
    cluster: Cluster, device: DeviceSpec, name: HostGroupName, gone: Collection[HostName]
) -> tuple[Change, ...]:
    """Return the changes that take a device from hosts that had it through a group alone."""
    lost = {
        host
        for host in gone
        if not any(
            other.name in device.host_groups and other.name != name
            for other in cluster.cib.groups_with(host)
        )
    }
    return hosts_taken(cluster, device, lost)


def _by_themselves_problems(
    cluster: Cluster, device: DeviceSpec, group: HostGroup
) -> list[Problem]:
    """Return which hosts of a group a device lets in that is not given to the group."""
    return [
        Problem(
            "SAN-HOST-020",
            f"device {device.name} is not given to host group {group.name}, and lets host {host} "
            "of it in all the same",
            f"deny the host by its name: 'sanctl target deny {device.name} --host {host}'",
        )
        for host in group.hosts
        if device.host(host) is not None
        or not iqns_of(cluster, device, (host,)).isdisjoint(device.initiators)
    ]


def _groups_of(device: DeviceSpec, groups: Collection[HostGroupName]) -> Change:
    return SetGroupsOfDevice(name=device.name, groups=tuple(sorted(groups)))


def _taken_problem(name: HostGroupName) -> Problem:
    return Problem(
        "SAN-HOST-014",
        f"host group {name} exists already, or a device names one",
        f"choose another name; 'sanctl host group show {name}' shows what is there",
    )


def _missing_problems(cluster: Cluster, hosts: Collection[HostName]) -> list[Problem]:
    """Return which hosts do not exist, or cannot be read."""
    return [
        problem
        for host in sorted({*hosts})
        if cluster.cib.host(host) is None
        for problem in (
            unreadable_host_problems(cluster, host) or (no_host_problem(cluster, host),)
        )
    ]


def _member_problems(
    cluster: Cluster, name: HostGroupName, hosts: Collection[HostName]
) -> list[Problem]:
    """Return why hosts cannot be in a group: there is none such, or it is or may be in another."""
    return [
        *_missing_problems(cluster, hosts),
        *(
            member_problem(host, other.name)
            for host in sorted({*hosts})
            for other in cluster.cib.groups_with(host)
            if other.name != name
        ),
        *unreadable_group_problems(cluster),
    ]
