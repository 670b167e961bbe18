# SPDX-License-Identifier: GPL-2.0-or-later
"""Removes one outdated mark where all replicas are marked, so that a device can be promoted again.

A Primary that is cut off marks its peer and is fenced before it has written anything; the peer's
handler, whose promotion was ordered before that mark was known there, marks the Primary and gets
no answer. Once the nodes share one CIB again, both marks are in it, and neither replica may be
promoted, though neither has a write that the other lacks. The rule is in
sanctl/plan/failover/fence_rules.py (peer_to_unmark), its exploration in sanctl/safety.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import outdate
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, outdated_marks
from sanctl.errors import CommandError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.system import journal
from sanctl.system.runner import Runner

_log = DeviceLog("unmark")


def unmark_peer(
    runner: Runner, device: Device, state: ResourceState, has_all: Callable[[str, str], bool]
) -> bool:
    """Remove one peer's mark where all replicas are marked; return whether one was removed.

    Asks nothing where a Primary is connected: a monitor of a device that is served costs no more.
    DRBD, quorum and marks are read under the lock of the handlers that mark, and the removal
    applies to the very version of the CIB that was read, or not at all: of two nodes that do this
    at once, one is refused.

    `has_all` says whether the peer's replica has what DRBD does not replicate, as this one has it
    (agents/reservations/keeper.py); it is given the device and the node.

    Raises:
        SanctlError: DRBD or the cluster did not answer; the next monitor tries again.
    """
    others = tuple(sorted(set(device.nodes) - {os.uname().nodename}))
    if not fence_rules.is_idle_in_sync(state, peers=len(others)):
        return False
    with outdate.locked(device.name, wait_s=0.0) as is_mine:
        now = drbdsetup.observe(runner, device.name) if is_mine else None
        if now is None or not fence_rules.is_idle_in_sync(now, peers=len(others)):
            return False
        seen = outdated_marks.read_device(runner, device.name)
        peer = fence_rules.peer_to_unmark(
            here=os.uname().nodename, others=others, marked=seen.devices[device.name].nodes()
        )
        if peer is None or outdate.peer_membership(runner, device.name, peer) != "member":
            return False
        if not has_all(device.name, peer):
            return False
        outdate.forget_found_mark(device.name, peer)
        try:
            outdated_marks.remove_at_version(runner, seen, device.name, peer)
        except CommandError as error:
            # Mostly that the CIB was changed first, for another device: the next monitor reads it.
            _log(
                device.name,
                f"the mark of {peer} is not removed yet: {error}",
                step="refused",
                priority=journal.INFO,
            )
            return False
    _log(
        device.name,
        "every replica was marked as outdated, and all are in contact and in sync: "
        f"the mark of {peer} is removed, so that {peer} may be promoted",
        step="removed",
    )
    return True
