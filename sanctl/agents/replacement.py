"""Fills a suspect replica anew (sanctl/agents/suspicion.py), once another one serves.

Not before: after a power cut of all nodes a suspect replica may be the best there is.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET

from sanctl.agents import cache, renewal, suspicion
from sanctl.agents.replica import Device
from sanctl.drivers import corosync, drbd
from sanctl.model.drbd import ResourceState
from sanctl.plan.caching import must_cut
from sanctl.system.runner import Runner

_QUERY_TIMEOUT_S = 8.0


def replace_if_suspect(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Fill a replica anew that lost writes, once another one serves; return DRBD's state then.

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
    """
    if state.is_primary or not suspicion.is_suspect(device.name, suspicion.data_file(device.name)):
        return state
    if not _another_serves(runner, device):
        return state
    if must_cut(state, may_be_write_back=True):
        drbd.cut(runner, device.name)
    cache.tell(
        device.name, "this replica lost writes that were in RAM; it is filled anew", "replace"
    )
    renewal.begin_anew(runner, device)
    return drbd.observe(runner, device.name) or state


def _another_serves(runner: Runner, device: Device) -> bool:
    """Whether a quorate cluster shows another replica that is good and serves."""
    if not corosync.membership(runner).is_quorate:
        return False
    here = os.uname().nodename
    answer = runner.run(
        ["cibadmin", "--query", "--xpath",
         f"//node_state//nvpair[@name='sanctl-{device.name}']/ancestor::node_state"],
        timeout_s=_QUERY_TIMEOUT_S,
        ok=(0, 6, 105),  # no such object: nobody has told anything
    )  # fmt: skip
    if answer.status != 0:
        return False
    for node in ET.fromstring(answer.stdout).iter("node_state"):  # noqa: S314 - our own CIB
        if node.get("uname") in {None, here}:
            continue
        for pair in node.iter("nvpair"):
            if pair.get("name") == f"sanctl-{device.name}":
                told = pair.get("value", "").split()
                if {"disk=UpToDate", "role=Primary"} <= set(told) and "suspect=1" not in told:
                    return True
    return False
