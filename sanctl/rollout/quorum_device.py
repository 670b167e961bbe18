# SPDX-License-Identifier: GPL-2.0-or-later
"""The quorum device's daemons: when a restart by the rollout takes a vote that a node needs."""

from __future__ import annotations

import re


def cut_off(listed: str, cluster: str, count: int) -> list[str]:
    """Say which clusters may need the vote that a restart of corosync-qnetd takes for a moment.

    A cluster needs it while a part of its nodes is connected: a node alone has its quorum by it.

    Args:
        listed: output of `corosync-qnetd-tool -lv`.
        cluster: the name of the cluster that is rolled out.
        count: how many nodes it has in the inventory.
    """
    found = []
    for part in re.split(r'^Cluster (?=")', listed, flags=re.MULTILINE)[1:]:
        name = part.split('"')[1]
        connected = {*re.findall(r"^\s*Node ID (\d+):", part, re.MULTILINE)}
        lists = re.findall(r"^\s*Configured node list:\s*(.*)$", part, re.MULTILINE)
        configured = {word for text in lists for word in re.findall(r"\d+", text)}
        total = count if name == cluster else len(configured | connected)
        if connected and len(connected) != total:
            found.append(f"{len(connected)} of {total} nodes of {name} are connected")
    return found


def may_restart_client(status: str, cmap: str, count: int) -> bool:
    """Tell whether a node can do without the device's vote while corosync-qdevice restarts.

    Args:
        status: output of `corosync-qdevice-tool -s` on that node.
        cmap: output of `corosync-cmapctl runtime.members.` there.
        count: how many nodes the cluster has.
    """
    joined = re.findall(r"\.status \(str\) = joined\s*$", cmap, re.MULTILINE)
    is_connected = re.search(r"^State:\s*Connected\s*$", status, re.MULTILINE) is not None
    return len(joined) >= count or not is_connected
