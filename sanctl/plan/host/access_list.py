# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: one device's access list: the changes of the CIB that let hosts in or keep them out.

A host gets in by its entry, and by each of its IQNs that is on the list by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sanctl.model.cib_change import Change, ClearParameter, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.names import Iqn


def hosts_parameter(device: DeviceSpec, hosts: Iterable[Host]) -> Change:
    """Return the change that gives a device these hosts."""
    value = " ".join(map(str, sorted(hosts)))
    if not value:
        return ClearParameter(name=device.name, parameter="hosts")
    return SetParameter(name=device.name, parameter="hosts", value=value)


def hosts_given(device: DeviceSpec, hosts: Iterable[Host]) -> tuple[Change, ...]:
    """Return the changes by which a device also lets these hosts in; nothing where it does.

    Their IQNs that are on its list by themselves are theirs from then on: the sessions stay, and a
    host with CHAP does not get in without.
    """
    given = tuple(hosts)
    iqns = {iqn for host in given for iqn in host.iqns}
    names = {host.name for host in given}
    wanted = (*(each for each in device.hosts if each.name not in names), *given)
    changes: list[Change] = []
    if {*wanted} != {*device.hosts}:
        changes.append(hosts_parameter(device, wanted))
    if not iqns.isdisjoint(device.initiators):
        changes.append(initiators_parameter(device, {*device.initiators} - iqns))
    return tuple(changes)


def hosts_taken(
    cluster: Cluster, device: DeviceSpec, names: Collection[HostName]
) -> tuple[Change, ...]:
    """Return the changes by which a device lets none of these hosts in; nothing where it does not.

    Their IQNs that are on its list by themselves go, too: the hosts would get in by these.
    """
    changes: list[Change] = []
    kept = tuple(host for host in device.hosts if host.name not in names)
    if kept != device.hosts:
        changes.append(hosts_parameter(device, kept))
    iqns = iqns_of(cluster, device, names)
    if not iqns.isdisjoint(device.initiators):
        changes.append(initiators_parameter(device, {*device.initiators} - iqns))
    return tuple(changes)


def iqns_of(
    cluster: Cluster, device: DeviceSpec | None, names: Collection[HostName]
) -> frozenset[Iqn]:
    """Return the IQNs of hosts, as the CIB has them and as a device's parameter repeats them.

    They differ only where somebody has changed the CIB by hand, or where an entry cannot be read.
    """
    known = (*cluster.cib.hosts, *(device.hosts if device is not None else ()))
    return frozenset(iqn for host in known if host.name in names for iqn in host.iqns)


def initiators_parameter(device: DeviceSpec, initiators: Collection[Iqn]) -> Change:
    """Return the change that gives a device these initiators by themselves."""
    return SetParameter(
        name=device.name,
        parameter="initiators",
        value=" ".join(iqn.value for iqn in sorted(initiators)),
    )
