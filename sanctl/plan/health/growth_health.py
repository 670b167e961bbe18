# SPDX-License-Identifier: GPL-2.0-or-later
"""Finding on a device that has not grown to its size: a replica goes on in the one before.

A start, and each monitor, goes on where a file cannot grow; a resize that has waited in vain ends,
and nothing else would say that hosts do not reach what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import format_bytes


def growth_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return that replicas say a size below that of their device; what is not known is none.

    So it is for a moment after each resize, too: no clock of the CIB says how long.
    """
    small, files = {}, []
    for node in device.nodes:
        state, replica = cluster.mon.state(node), cluster.replica(device.name, node)
        if state not in MEMBER_STATES or state is NodeState.STANDBY or replica.size_bytes is None:
            continue
        if replica.size_bytes < device.size.bytes:
            small[node] = replica.size_bytes
            if replica.file_bytes is not None and replica.file_bytes < device.size.bytes:
                files.append(node)
    if not small:
        return
    sizes = ", ".join(
        f"on {node} it has {format_bytes(size)} ({device.size.bytes - size} bytes less)"
        for node, size in small.items()
    )
    name, first = device.name, (files or [*small])[0]
    yield Finding(
        code="SAN-HLT-130",
        severity=Severity.WARNING,
        subject=f"device {name}",
        what=f"it is to have {device.size}, and {sizes}",
        why=f"its file on {' and '.join(map(str, files))} has not grown, and DRBD grows once all "
        "have; hosts reach the size before"
        if files
        else "DRBD, or what hosts reach, has not grown to that: all replicas have to be connected",
        do=f"after a resize it is so for a moment. Else 'journalctl SANCTL_DEVICE={name}' on "
        f"{first} says why; the monitor tries again by itself. While no file has grown, 'sanctl "
        f"device resize {name}' to the size before takes it back",
    )
