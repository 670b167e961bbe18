# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what hosts have lost by a change of a device's access list, and what still lets them in.

Which IQNs those are is told rather than assumed: other entries of the list may let one in, and a
host whose entry cannot be read may have any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import HostName
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, Iqn
from sanctl.plan.host.access_list import iqns_of
from sanctl.plan.host.groups import group_on


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessLoss:
    """What the access list of a device has lost by a change.

    Attributes:
        device: the device.
        lost: the IQNs that it let in before and does not any more, sorted.
        left: in words, the entries by which it still lets in what was to be kept out; empty: none.
    """

    device: DeviceName
    lost: tuple[Iqn, ...]
    left: tuple[str, ...]


def access_loss(
    before: Cluster, after: Cluster, name: DeviceName, denied: Collection[HostName]
) -> AccessLoss:
    """Return what hosts have lost of a device by a change, and by which entries they still get in.

    Args:
        before: the cluster that the change was made of.
        after: the cluster after it.
        name: the device.
        denied: the hosts that were to be kept out.
    """
    old, new = before.cib.device(name), after.cib.device(name)
    left: list[str] = []
    if new is not None:
        iqns = iqns_of(before, old, denied) | iqns_of(after, new, denied)
        left += _entries_of(after, new, iqns)
        left += (
            # Which of them are its is not known.
            f"{iqn} by itself, which may be host {host}'s (SAN-HOST-012)"
            for host in sorted({*denied})
            if host.value in after.cib.unreadable_hosts
            for iqn in new.initiators
            if iqn not in iqns
        )
    return AccessLoss(device=name, lost=tuple(sorted(let_in(old) - let_in(new))), left=tuple(left))


def let_in_by_themselves(
    cluster: Cluster, iqns: Collection[Iqn]
) -> tuple[tuple[DeviceName, Iqn], ...]:
    """Return which devices let which of some IQNs in by themselves, whatever becomes of a host."""
    return tuple(
        (device.name, iqn)
        for device in cluster.cib.devices
        for iqn in device.initiators
        if iqn in iqns
    )


def hosts_denied(
    cluster: Cluster, name: DeviceName, group_name: HostGroupName
) -> tuple[HostName, ...]:
    """Return the hosts of a group that a device is to be taken from.

    Where the group does not exist any more they are not known: each that has the device by itself
    may be one.
    """
    group = cluster.cib.host_group(group_name)
    device = cluster.cib.device(name)
    if group is not None:
        return group.hosts
    if device is None:
        return ()
    return tuple(host.name for host in device.hosts if group_on(cluster, device, host.name) is None)


def _entries_of(cluster: Cluster, device: DeviceSpec, iqns: Collection[Iqn]) -> Iterator[str]:
    for host in device.hosts:
        group = group_on(cluster, device, host.name)
        through = "" if group is None else f" through host group {group.name}"
        for iqn in host.iqns:
            if iqn in iqns:
                yield f"{iqn} as host {host.name}{through}"
    for iqn in device.initiators:
        if iqn in iqns:
            yield f"{iqn} by itself"


def let_in(device: DeviceSpec | None) -> frozenset[Iqn]:
    """Return the initiators that a device lets in: by themselves, and as those of its hosts."""
    if device is None:
        return frozenset()
    return frozenset({*device.initiators, *(iqn for host in device.hosts for iqn in host.iqns)})
