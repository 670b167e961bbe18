# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on disks that DRBD drops at errors, also while they are attached, and in sync."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES
from sanctl.model.device import DeviceSpec
from sanctl.model.disk_drops import is_kept
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import NodeName

#: So many within a day, and the disk is not to be relied on. One may have been a cable.
_FAILING = 2


def dropped_disk_findings(
    cluster: Cluster, device: DeviceSpec, *, now_s: float
) -> Iterator[Finding]:
    """Return which replicas' disks were dropped and attached again within the last day."""
    for node in device.nodes:
        drops = cluster.replica(device.name, node).drops
        if drops is None or cluster.mon.state(node) not in MEMBER_STATES:
            continue
        # Short monitors publish nothing: what is older is told until the next whole one.
        if not is_kept(drops, int(now_s)):
            continue
        is_failing = drops.times >= _FAILING
        last = datetime.fromtimestamp(drops.last_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        first = datetime.fromtimestamp(drops.first_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
        yield Finding(
            code="SAN-HLT-160",
            severity=Severity.WARNING if is_failing else Severity.NOTE,
            subject=f"device {device.name}",
            what=f"DRBD dropped its disk on {node} {drops.times} times since {first} UTC, and it "
            f"was attached again, last at {last} UTC"
            if is_failing
            else f"DRBD dropped its disk on {node} at an error, and it was attached again at "
            f"{last} UTC",
            why="from each error to the end of the resync one replica less protects the data"
            + ("; a disk that goes on like that fails when it is needed" if is_failing else ""),
            do=f"journalctl -k on {node} says whether the disk failed or the pool was full"
            + (
                f"; replace a disk that fails, after 'sanctl node standby {node}': "
                "docs/howto/night-page.md, 'A device is degraded'"
                if is_failing
                else ""
            ),
        )


def retry_advice(node: NodeName) -> str:
    """Return when a disk that was dropped is attached again, and what tries that at once."""
    return (
        "once it answers it is attached again by itself, tried at growing intervals, an hour at "
        f"most; 'sanctl node standby {node}', then 'sanctl node online {node}', tries at once"
    )
