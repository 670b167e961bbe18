# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on access lists: an IQN of a host that a device also, or only, lets in by itself."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.host import Host
from sanctl.plan.host.groups import group_on


def access_findings(cluster: Cluster) -> Iterator[Finding]:
    """Yield which devices let IQNs in by themselves that are hosts'."""
    for device in cluster.cib.devices:
        for host in cluster.cib.hosts:
            iqns = [iqn.value for iqn in host.iqns if iqn in device.initiators]
            if iqns:
                yield _finding(cluster, device, host, ", ".join(iqns))


def _finding(cluster: Cluster, device: DeviceSpec, host: Host, iqns: str) -> Finding:
    is_on_list = device.host(host.name) is not None
    if is_on_list:
        why = "a release before this one that takes the device from the host leaves it in by that"
    elif host.chap_user:
        why = "it needs no CHAP there, which the host has"
    else:
        why = "'sanctl host show' does not name the device"
    group = group_on(cluster, device, host.name)
    whom = f"--host {host.name}" if group is None else f"--host-group {group.name}"
    return Finding(
        code="SAN-HLT-123",
        severity=Severity.WARNING if is_on_list or host.chap_user else Severity.NOTE,
        subject=f"device {device.name}",
        what=f"it lets {iqns} of host {host.name} in by IQN alone",
        why=why,
        do=f"'sanctl target allow {device.name} {whom}' lets it in as the host, and no session "
        f"ends; 'sanctl target deny {device.name} {whom}' keeps it out",
    )
