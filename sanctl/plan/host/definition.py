# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a host may be created, changed, renamed or deleted; else the CIB's changes.

A device's parameters repeat what they need of its hosts, as agents get nothing else. So every
change of a host is one change of the CIB with that of each device that the host uses.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    Change,
    RemoveHost,
    SetHost,
    SetHostGroup,
)
from sanctl.model.cib_names import GROUP_PREFIX, HOST_PREFIX, host_id
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.names import Iqn
from sanctl.plan.cluster.preconditions import (
    refuse_unless_changeable,
    refuse_unless_deniable,
    refuse_without_quorum,
)
from sanctl.plan.host.access_list import hosts_parameter, initiators_parameter


def existing_host(cluster: Cluster, name: HostName) -> Host:
    """Return the host of that name.

    Raises:
        Refused: there is none.
    """
    host = cluster.cib.host(name)
    if host is not None:
        return host
    raise Refused(no_host_problem(cluster, name))


def no_host_problem(cluster: Cluster, name: HostName) -> Problem:
    """Return that there is no host of that name."""
    known = ", ".join(host.name.value for host in cluster.cib.hosts[:8])
    more = " ..." if len(cluster.cib.hosts) > 8 else ""
    return Problem(
        "SAN-HOST-001",
        f"there is no host {name}",
        f"hosts are: {known}{more}" if known else "'sanctl host create' makes one",
    )


def unreadable_host_problems(cluster: Cluster, wanted: HostName | None = None) -> list[Problem]:
    """Return which hosts, or that one of them, cannot be read: an IQN of theirs would look free.

    Given away, it would log in as another host, or without CHAP.
    """
    return [
        Problem(
            "SAN-HOST-012",
            f"the CIB's entry of host {name} cannot be read: it may have any IQN",
            "upgrade sanctl on this node if a later release made it; else correct it: "
            f"cibadmin --query --xpath \"//nvpair[@name='{HOST_PREFIX}{name}']\"",
        )
        for name in cluster.cib.unreadable_hosts
        if wanted is None or wanted.value == name
    ]


def unreadable_device_problems(cluster: Cluster) -> list[Problem]:
    """Return which devices cannot be read.

    Such a device may let any IQN in by itself, and its hosts would not change with the others.
    """
    return [
        Problem(
            "SAN-HOST-012",
            f"the CIB's entry of device {name} cannot be read: it may have any host or IQN",
            f"upgrade sanctl on this node if a later release made it; else correct it: "
            f"cibadmin --query --xpath \"//clone[@id='sanctl-{name}']\"",
        )
        for name, _ in cluster.cib.unreadable
    ]


def unreadable_group_problems(cluster: Cluster, name: HostGroupName | None = None) -> list[Problem]:
    """Return which host groups cannot be read, or that one of them: it may have any host."""
    return [
        Problem(
            "SAN-HOST-018",
            f"the CIB's entry of host group {each} cannot be read: it may have any host",
            "upgrade sanctl on this node if a later release made it; else correct it: cibadmin "
            f"--query --xpath \"//nvpair[@name='{GROUP_PREFIX}{each}']\"; until then each host "
            "can be taken off a device by itself",
        )
        for each in cluster.cib.unreadable_groups
        if name is None or each == name.value
    ]


def member_problem(host: HostName, group: HostGroupName) -> Problem:
    """Return that a host is in a group already."""
    return Problem(
        "SAN-HOST-015",
        f"host {host} is in host group {group}",
        f"a host is in one group at most: 'sanctl host group remove {group} --host {host}' takes "
        "it from there, and that group's devices from it",
    )


def _unreadable_problems(cluster: Cluster) -> list[Problem]:
    return [*unreadable_host_problems(cluster), *unreadable_device_problems(cluster)]


def devices_of(cluster: Cluster, name: HostName) -> tuple[DeviceSpec, ...]:
    """Return the devices that a host may use."""
    return tuple(device for device in cluster.cib.devices if device.host(name) is not None)


def plan_host_creation(cluster: Cluster, host: Host) -> tuple[Change, ...]:
    """Return the change that creates a host; nothing where it is there just so.

    Raises:
        Refused: the name or an IQN is another host's or may be, or there is no quorum.
    """
    refuse_without_quorum(cluster)
    found = cluster.cib.host(host.name)
    if found == host:
        return ()
    problems = [_taken_problem(host.name)] if found is not None else []
    if found is None and host_id(host.name) in cluster.cib.ids:
        problems.append(
            Problem(
                "SAN-HOST-009",
                f"the CIB has an entry {host_id(host.name)} that cannot be read as a host",
                f"see: cibadmin --query --xpath \"//*[@id='{host_id(host.name)}']\"",
            )
        )
    refuse_if_any(
        [
            *problems,
            # It would be in a group that named it before there was such a host.
            *(
                member_problem(host.name, group.name)
                for group in cluster.cib.groups_with(host.name)
            ),
            *_unreadable_problems(cluster),
            *_iqn_problems(cluster, host),
            *_bypass_problems(cluster, host),
        ]
    )
    return (SetHost(host=host),)


def plan_host_deletion(cluster: Cluster, name: HostName) -> tuple[Change, ...]:
    """Return the change that deletes a host.

    Raises:
        Refused: there is none, or it may still use a device or be in a group, as far as can be
            read.
    """
    refuse_without_quorum(cluster)
    existing_host(cluster, name)
    refuse_if_any(
        [
            *_unreadable_problems(cluster),
            *unreadable_group_problems(cluster),
            *(_in_group_problem(name, group) for group in cluster.cib.groups_with(name)),
        ]
    )
    devices = devices_of(cluster, name)
    if devices:
        first = devices[0].name
        raise Refused(
            Problem(
                "SAN-HOST-004",
                f"host {name} may use {', '.join(device.name.value for device in devices)}",
                f"take it off first, device by device: 'sanctl target deny {first} --host {name}'",
            )
        )
    return (RemoveHost(name=name),)


def plan_host_rename(cluster: Cluster, name: HostName, new: HostName) -> tuple[Change, ...]:
    """Return the changes that give a host another name; its sessions stay.

    Raises:
        Refused: there is no such host, or one with the new name, or an entry cannot be read.
    """
    refuse_without_quorum(cluster)
    if name == new:
        existing_host(cluster, name)
        return ()
    host = existing_host(cluster, name)
    if cluster.cib.host(new) is not None or host_id(new) in cluster.cib.ids:
        raise Refused(_taken_problem(new))
    refuse_if_any(
        [
            *_unreadable_problems(cluster),
            *unreadable_group_problems(cluster),
            *(member_problem(new, group.name) for group in cluster.cib.groups_with(new)),
        ]
    )
    return (
        RemoveHost(name=name),
        SetHost(host=replace(host, name=new)),
        *(
            SetHostGroup(group=replace(group, hosts=tuple(sorted({*group.hosts} - {name} | {new}))))
            for group in cluster.cib.groups_with(name)
        ),
        *_in_devices(cluster, name, replace(host, name=new), ()),
    )


def plan_host_change(
    cluster: Cluster,
    name: HostName,
    *,
    more: Collection[Iqn] = (),
    fewer: Collection[Iqn] = (),
    chap_user: str | None = None,
    is_mutual: bool | None = None,
) -> tuple[Change, ...]:
    """Return the changes of a host's IQNs and of how it logs in; nothing where it is just so.

    Args:
        cluster: as observed.
        name: the host.
        more: IQNs that it gets. Devices of the host that let them in by themselves let them in as
            the host's from then on.
        fewer: IQNs that it loses: sessions of these with devices of the host end.
        chap_user: the user name of CHAP; empty: without CHAP; None: as it is.
        is_mutual: whether the target authenticates, too; None: as it is, and not without CHAP.

    Raises:
        UsageError: what is left is no host: it has no IQN, or mutual CHAP without CHAP.
        Refused: there is no such host, or an IQN is another host's or may be, or a device cannot be
            changed; of one that loses IQNs alone for another reason than a node in maintenance.
    """
    refuse_without_quorum(cluster)
    found = existing_host(cluster, name)
    user = found.chap_user if chap_user is None else chap_user
    mutual = (found.is_mutual and bool(user)) if is_mutual is None else is_mutual
    host = Host(
        name=name,
        iqns=tuple(sorted({*found.iqns, *more} - {*fewer})),
        chap_user=user,
        is_mutual=mutual,
    )
    if host == found:
        return ()
    refuse_if_any(
        [
            *_unreadable_problems(cluster),
            *_iqn_problems(cluster, host),
            *_bypass_problems(cluster, host),
        ]
    )
    only_loses = replace(found, iqns=host.iqns) == host and {*host.iqns} < {*found.iqns}
    lost = {*found.iqns} & {*fewer}
    return (
        SetHost(host=host),
        *_in_devices(cluster, name, host, lost, only_loses=only_loses),
    )


def _in_devices(
    cluster: Cluster,
    name: HostName,
    host: Host,
    lost: Collection[Iqn],
    *,
    only_loses: bool = False,
) -> tuple[Change, ...]:
    """Return the changes by which a host's devices let it in as it is now.

    IQNs of it, and those that it has lost, are on no such list by themselves any more. Where it
    only loses some, the nodes that can keep them out do so, whichever are in maintenance.
    """
    changes: list[Change] = []
    for device in devices_of(cluster, name):
        if only_loses:
            refuse_unless_deniable(cluster, device)
        else:
            refuse_unless_changeable(cluster, device)
        others = (each for each in device.hosts if each.name != name)
        changes.append(hosts_parameter(device, (*others, host)))
        initiators = {*device.initiators} - {*host.iqns} - {*lost}
        if initiators != {*device.initiators}:
            changes.append(initiators_parameter(device, initiators))
    return tuple(changes)


def refuse_if_any(problems: list[Problem]) -> None:
    """Check that there are no problems.

    Raises:
        Refused: there are; all of them are listed.
    """
    if problems:
        raise Refused(*problems)


def _in_group_problem(name: HostName, group: HostGroup) -> Problem:
    return Problem(
        "SAN-HOST-019",
        f"host {name} is in host group {group.name}",
        f"take it out first, and the group's devices from it: 'sanctl host group remove "
        f"{group.name} --host {name}'",
    )


def _taken_problem(name: HostName) -> Problem:
    return Problem(
        "SAN-HOST-002",
        f"host {name} exists already",
        f"choose another name; 'sanctl host show {name}' shows what is there",
    )


def _iqn_problems(cluster: Cluster, host: Host) -> list[Problem]:
    return [
        Problem(
            "SAN-HOST-003",
            f"{iqn} is an IQN of host {other.name}",
            f"an initiator belongs to one host: 'sanctl host set {other.name} --remove-iqn {iqn}' "
            "takes it from there",
        )
        for other in cluster.cib.hosts
        if other.name != host.name
        for iqn in host.iqns
        if iqn in other.iqns
    ]


def _bypass_problems(cluster: Cluster, host: Host) -> list[Problem]:
    """Return where an IQN of a host with CHAP is let in by itself, without authentication.

    Not by the devices of the host: these let it in as the host's by the same change.
    """
    if not host.chap_user:
        return []
    return [
        Problem(
            "SAN-HOST-005",
            f"device {device.name} lets {iqn} in by its IQN alone, without CHAP",
            f"give the device to the host first, without CHAP: 'sanctl target allow {device.name} "
            f"--host {host.name}' takes the IQN's place; or 'sanctl target deny {device.name} "
            f"{iqn}'",
        )
        for device in cluster.cib.devices
        if device.host(host.name) is None
        for iqn in host.iqns
        if iqn in device.initiators
    ]
