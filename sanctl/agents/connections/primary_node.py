# SPDX-License-Identifier: GPL-2.0-or-later
"""Who serves a device with a good copy, by what the replicas have told the cluster."""

from __future__ import annotations

import os

from sanctl.agents.replica.parts import Device
from sanctl.drivers import cib, corosync
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0


def find(runner: Runner, device: Device) -> str | None:
    """Return the other node that serves the device; empty if none does.

    None without quorum, where what this node's CIB holds may be long past.

    Raises:
        SanctlError: the cluster gave no answer.
    """
    if not corosync.membership(runner).is_quorate:
        return None
    states = cib.query(
        runner,
        f"//node_state//nvpair[@name='sanctl-{device.name}']/ancestor::node_state",
        timeout_s=_QUERY_TIMEOUT_S,
    )
    if states is None:
        return ""  # No replica has published its state.
    for each in states.iter("node_state"):
        name = each.get("uname", "")
        if name in {"", os.uname().nodename}:
            continue
        for pair in each.iter("nvpair"):
            if pair.get("name") == f"sanctl-{device.name}":
                told = pair.get("value", "").split()
                if {"disk=UpToDate", "role=Primary"} <= set(told) and "suspect=1" not in told:
                    return name
    return ""
