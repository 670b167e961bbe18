# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on host groups: they, their hosts and the devices' access lists do not agree."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cib_names import GROUP_PREFIX
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.plan.host.groups import lacking_hosts

WARNING = Severity.WARNING


def group_findings(cluster: Cluster) -> Iterator[Finding]:
    """Yield what a command of this release would not have left behind."""
    yield from _lacking_findings(cluster)
    yield from _contradictions(cluster)
    for name in cluster.cib.unreadable_groups:
        yield Finding(
            code="SAN-HLT-115",
            severity=WARNING,
            subject=f"host group {name}",
            what="its entry in the CIB cannot be read",
            why="its hosts are not known: who has a device stays so, and no host comes into a "
            "group (SAN-HOST-018)",
            do="upgrade sanctl on this node if a later release made it; else correct it: "
            f"cibadmin --query --xpath \"//nvpair[@name='{GROUP_PREFIX}{name}']\"",
        )


def _lacking_findings(cluster: Cluster) -> Iterator[Finding]:
    for device in cluster.cib.devices:
        for name in device.host_groups:
            group = cluster.cib.host_group(name)
            lacking = () if group is None else lacking_hosts(device, group)
            if lacking:
                hosts = ", ".join(host.value for host in lacking)
                yield Finding(
                    code="SAN-HLT-113",
                    severity=WARNING,
                    subject=f"device {device.name}",
                    what=f"it is given to host group {name} and does not let {hosts} in",
                    why="a command of a release without host groups, or somebody by hand, took "
                    "the host off: nothing lets it in again by itself",
                    do=f"'sanctl target allow {device.name} --host-group {name}' lets it in; to "
                    f"keep it out for good: 'sanctl host group remove {name} --host "
                    f"{lacking[0]}'",
                )


def _contradictions(cluster: Cluster) -> Iterator[Finding]:
    for device in cluster.cib.devices:
        for name in device.host_groups:
            if cluster.cib.host_group(name) is None and (
                name.value not in cluster.cib.unreadable_groups
            ):
                yield Finding(
                    code="SAN-HLT-114",
                    severity=WARNING,
                    subject=f"device {device.name}",
                    what=f"it is given to host group {name}, which does not exist",
                    why="hosts of that group that it lets in have it by themselves now",
                    do=f"'sanctl host group create {name} --host ...' makes the group again; or "
                    f"'sanctl target deny {device.name} --host-group {name}', and deny hosts that "
                    "should not have it",
                )
    for group in cluster.cib.host_groups:
        for host in group.hosts:
            others = [each.name for each in cluster.cib.groups_with(host) if each != group]
            is_unknown = cluster.cib.host(host) is None and (
                host.value not in cluster.cib.unreadable_hosts
            )
            if is_unknown or others:
                yield Finding(
                    code="SAN-HLT-114",
                    severity=WARNING,
                    subject=f"host group {group.name}",
                    what=f"it has host {host}, which does not exist"
                    if is_unknown
                    else f"it has host {host}, which is in {', '.join(map(str, others))}, too",
                    why="somebody changed the CIB by hand",
                    do=f"'sanctl host group remove {group.name} --host {host}' takes it out, with "
                    "the devices that it has through this group alone",
                )
