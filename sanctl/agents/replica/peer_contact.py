# SPDX-License-Identifier: GPL-2.0-or-later
"""Waits until a replica has met its peers, or they are known to stay away."""

from __future__ import annotations

import os
import time
from collections.abc import Collection

from sanctl.agents.replica.parts import Device
from sanctl.drivers import corosync, drbd_kernel, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import state_line
from sanctl.system.runner import Runner

_MEMBERS_LOOK_S = 2.0


def wait_until_settled(runner: Runner, device: Device, timeout_s: float) -> ResourceState | None:
    """Wait a moment until the peers are connected, so that the first promotion score is right.

    Not for long, and without an error: a peer may be away for good.
    """
    deadline = time.monotonic() + timeout_s
    if len(device.nodes) > 1:
        drbd_kernel.wait_while(device.minor, state_line.is_connecting, deadline)
    while True:
        before = drbd_kernel.state_line(device.minor)
        state = drbdsetup.observe(runner, device.name)
        if _is_settled(device, state) or time.monotonic() > deadline:
            return state
        drbd_kernel.wait_for_change(device.minor, before, deadline)


def await_starting_peers(
    runner: Runner, device: Device, state: ResourceState | None, within_s: float
) -> ResourceState | None:
    """Wait on for the peers of a new replica, while all their nodes are members of the cluster.

    Of many devices that are created together one node may start a replica long before the other
    does. Published without its peer it would be no candidate for the first promotion until the next
    monitor, and its peer, not the node that was chosen, would serve the device.

    `state` is from a wait until the peers are connected, which they may not be. Returns a newer one
    where it has waited.
    """
    deadline = time.monotonic() + within_s
    others = set(device.nodes) - {os.uname().nodename}
    while (
        not _is_settled(device, state)
        and time.monotonic() < deadline
        and _are_members(runner, others)
    ):
        left_s = deadline - time.monotonic()
        state = wait_until_settled(runner, device, min(_MEMBERS_LOOK_S, left_s))
    return state


def _are_members(runner: Runner, nodes: Collection[str]) -> bool:
    try:
        return set(nodes) <= set(corosync.membership(runner).members)
    except SanctlError:
        return False


def _is_settled(device: Device, state: ResourceState | None) -> bool:
    return len(device.nodes) == 1 or (
        state is not None
        and all(
            peer.connection in {"Connected", "StandAlone"} and peer.disk != "DUnknown"
            for peer in state.peers
        )
    )
