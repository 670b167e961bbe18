# SPDX-License-Identifier: GPL-2.0-or-later
"""Finding on a device whose hosts wait for a request that gets no answer, and its node goes on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.findings import Finding, Severity
from sanctl.model.hung_io import HungCause, HungIo
from sanctl.model.names import NodeName
from sanctl.plan.cluster.standby import ACCEPT_STOP

_WHAT = {
    HungCause.FORGOTTEN: "DRBD on {} has forgotten a request of its hosts, which wait for it",
    HungCause.DISK: "its disk on {} does not answer requests of its hosts, which wait",
}

_END = {
    HungCause.FORGOTTEN: "the end of that node alone lets it go",
    HungCause.DISK: "they wait until it answers, or that node ends",
}


def hung_io_findings(cluster: Cluster, device: DeviceSpec) -> Iterator[Finding]:
    """Return what hangs on the node that serves a device while that node is not rebooted for it."""
    for node in device.nodes:
        replica = cluster.replica(device.name, node)
        if cluster.mon.state(node) not in MEMBER_STATES or replica.hung is None:
            continue
        since = datetime.fromtimestamp(replica.hung.since_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield Finding(
            code="SAN-HLT-125",
            severity=Severity.CRITICAL,
            subject=f"device {device.name}",
            what=_WHAT[replica.hung.cause].format(node),
            why=f"since {since} UTC; {_END[replica.hung.cause]}, and {_why(replica.hung)}",
            do=_advice(replica.hung, node),
        )


def _why(hung: HungIo) -> str:
    if hung.needed_by == ():
        return "no other node can serve the device"
    if hung.needed_by is None:
        return "it could not be seen whether others are served there alone"
    return f"it alone serves {hung.who}, for which it goes on"


def _advice(hung: HungIo, node: NodeName) -> str:
    if hung.needed_by is None:
        return f"journalctl SANCTL_ACTION=hung-io on {node}; each monitor looks again"
    if hung.needed_by:
        come_back = "bring the nodes with their other replicas back and let those resync"
    else:
        come_back = "bring another node with a replica back and let it resync"
    come_back += f": {node} reboots by itself then"
    if hung.cause is HungCause.DISK and not hung.needed_by:
        # The next boot finds the same disk.
        return f"see to the disk (journalctl -k on {node}), or {come_back}"
    return (
        f"{come_back}; or, when the hosts of all its devices can "
        f"wait for a boot, 'sanctl node fence {node} --no-drain --accept {ACCEPT_STOP}' on another "
        "node (docs/howto/night-page.md, 'Hosts hang')"
    )
