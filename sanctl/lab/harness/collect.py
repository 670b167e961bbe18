# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads a laboratory's nodes: DRBD and LIO state from the kernels, journals, sizes, logins."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from sanctl.errors import CommandError, NotConverged, Problem
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure import kernel_audit, timeline

_AL_EXTENT_BYTES = 4 * 2**20
_DEFAULT_AL_EXTENTS = 1237
_JOURNAL = (
    "journalctl --quiet --no-pager -o json --since=@{since:.3f}"
    " -t corosync -t pacemakerd -t pacemaker-controld -t pacemaker-fenced"
    " -t pacemaker-schedulerd -t sanctl -t kernel"
    " --output-fields=MESSAGE,SYSLOG_IDENTIFIER,_SOURCE_REALTIME_TIMESTAMP,"
    "SANCTL_DEVICE,SANCTL_ACTION,SANCTL_STEP,SANCTL_DURATION_MS"
)


def kernel_views(bed: LabSession) -> dict[str, kernel_audit.View]:
    """Return what the kernel of every storage node that answers says of the devices."""
    seen = {}
    for node in bed.storage:
        try:
            seen[node.name] = kernel_audit.parse_view(
                bed.sh(node.name, kernel_audit.SCRIPT, timeout_s=20).stdout
            )
        except CommandError:
            if bed.has_power(node.name):
                continue  # booting: no answer says nothing about its devices
    return seen


def active_node(bed: LabSession, device: str) -> str:
    """Return the one node that serves a device.

    Raises:
        NotConverged: no node serves it, or more than one.
    """
    active = kernel_audit.active_nodes(kernel_views(bed), device)
    if len(active) != 1:
        raise NotConverged(
            Problem("SAN-DEMO-002", f"{device} is active on {' and '.join(active) or 'no node'}")
        )
    return active[0]


def drbd_minor(bed: LabSession, node: str, device: str) -> int:
    """Return a device's DRBD minor."""
    out = bed.sh(node, f"drbdsetup events2 --now {device}").stdout
    found = re.search(rf"\bname:{re.escape(device)}\b.*\bminor:(\d+)", out)
    if found is None:
        raise NotConverged(Problem("SAN-DEMO-003", f"DRBD on {node} does not know {device}"))
    return int(found[1])


def activity_log_bytes(bed: LabSession, node: str, device: str) -> int:
    """Return how much the activity log of a device can mark out of sync after a crash."""
    found = re.search(r"al-extents\s+(\d+)", bed.sh(node, f"drbdsetup show {device}").stdout)
    return int(found[1] if found else _DEFAULT_AL_EXTENTS) * _AL_EXTENT_BYTES


def device_bytes(bed: LabSession, node: str, device: str) -> int:
    """Return a device's size, from the table of its dm device."""
    return int(bed.sh(node, f"dmsetup table sanctl-{device}").stdout.split()[1]) * 512


def accepted_logins(bed: LabSession, node: str, target: str) -> int:
    """Return how many logins a node's target has accepted since it exists."""
    counter = f"/sys/kernel/config/target/iscsi/{target}/fabric_statistics/iscsi_login_stats"
    return int(bed.sh(node, f"cat {counter}/accepts").stdout)


def is_in_sync(bed: LabSession, node: str, device: str) -> bool:
    """Whether a device's replicas are all connected and up to date, as one node's DRBD sees it."""
    out = bed.sh(node, f"drbdsetup events2 --now --statistics {device}").stdout
    states = re.findall(r"\b(connection|disk|peer-disk|replication):(\w+)", out)
    good = {"connection": "Connected", "replication": "Established"}
    return any(key == "peer-disk" for key, _ in states) and all(
        value == good.get(key, "UpToDate") for key, value in states
    )


def journals(bed: LabSession, nodes: Iterable[str], since_s: float) -> list[timeline.Entry]:
    """Return the journals of some nodes since a time, on the host's clock."""

    def read(node: str) -> list[timeline.Entry]:
        text = bed.sh(node, _JOURNAL.format(since=since_s), timeout_s=120, ok=(0, 1)).stdout
        return timeline.parse_journal(text, node, bed.skew_s(node))

    with ThreadPoolExecutor() as pool:
        return list(itertools.chain.from_iterable(pool.map(read, nodes)))
