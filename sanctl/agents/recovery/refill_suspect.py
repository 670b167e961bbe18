# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the full resync of a suspect replica, once another one serves.

What makes a replica suspect is in sanctl/agents/replica/lost_writes.py. The resync does not begin
before: after a power cut of all nodes a suspect replica may be the best there is.
"""

from __future__ import annotations

from sanctl.agents.cache import write_cache_steps
from sanctl.agents.connections import primary_node
from sanctl.agents.replica import lost_writes, reinitialize
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import must_cut_connection
from sanctl.system.runner import Runner


def refill_if_suspect(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Give a suspect standby new metadata, so that its peer sends all data; return DRBD's state.

    Raises:
        SanctlError, OSError: a step failed, or it is not known whether the replica is suspect:
            nothing is discarded. The next monitor tries again.
    """
    data = lost_writes.data_file(device.name)
    if state.is_primary or data is None or not lost_writes.is_known_suspect(device.name, data):
        return state
    if not primary_node.find(runner, device):
        return state
    if must_cut_connection(state, may_be_write_back=True):
        drbdadm.force_disconnect(runner, device.name)
    write_cache_steps.log(
        device.name,
        "this replica may lack acknowledged writes: a full resync begins",
        step="replace",
    )
    reinitialize.reset(runner, device)
    return drbdsetup.observe(runner, device.name) or state
