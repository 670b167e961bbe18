# SPDX-License-Identifier: GPL-2.0-or-later
"""Finding on a device whose monitors have no answer in time, and are answered for (ADR 91)."""

from __future__ import annotations

from collections.abc import Iterator

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.utc_time import utc_text


def answered_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return on which nodes nobody can look at a device, and since when."""
    for node in device.nodes:
        found = cluster.replica(device.name, node).answered
        if cluster.mon.state(node) not in MEMBER_STATES or found is None:
            continue
        some = "one was" if found.at_least == 1 else f"{found.at_least} or more in a row were"
        yield Finding(
            code="SAN-HLT-168",
            severity=Severity.WARNING,
            subject=f"device {device.name}",
            what=f"its monitors on {node} have no answer in time: {some} answered for, since "
            f"{utc_text(found.since_s)} UTC",
            why="it is left as the kernel shows it, as no other node can serve a device that this "
            "one serves: what is wrong with it is neither seen nor put right",
            do=f"see on {node} what takes the time: 'journalctl --identifier=sanctl "
            "--grep=SAN-AGENT-022', 'top', and 'dmesg' for a disk or a process that hangs. Bring "
            f"the other replicas back and let them resync. Order no move, deletion or standby "
            f"before: a stop that is late, too, has {node} fenced",
        )
