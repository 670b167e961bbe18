# SPDX-License-Identifier: GPL-2.0-or-later
"""Finds the node that is Primary with an UpToDate replica, by the replicas' promotion scores.

Only such a replica has the score PRIMARY (sanctl/plan/failover/promotion.py); one that is suspect
has none. The scores are in the CIB, which a node has before it starts anything; what nodes publish
of their replicas is not, and a pacemaker-attrd that has just started may not know it yet.
"""

from __future__ import annotations

import os

from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, corosync
from sanctl.model.promotion_score import PRIMARY
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0


def find(runner: Runner, device: Device) -> str | None:
    """Return the other node that serves the device; empty if none does.

    None without quorum: this node's CIB may be out of date then.

    Raises:
        SanctlError: the cluster did not answer.
    """
    if not corosync.membership(runner).is_quorate:
        return None
    score = f"@name='master-{device.name}'"
    states = cib.query(
        runner,
        f"//node_state//nvpair[{score}]/ancestor::node_state",
        timeout_s=_QUERY_TIMEOUT_S,
    )
    if states is None:
        return ""  # No replica has a score.
    for each in states.iter("node_state"):
        name = each.get("uname", "")
        if name in {"", os.uname().nodename}:
            continue
        if each.find(f".//nvpair[{score}][@value='{PRIMARY}']") is not None:
            return name
    return ""
