# SPDX-License-Identifier: GPL-2.0-or-later
"""A device is taken down on this node: the order of steps of stop, and what must not be left.

A stop succeeds only when no part of the device is left on the node. A failed stop makes the cluster
fence this node, and that is right. Without quorum no node can fence, and this node reboots itself.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from sanctl.agents import device_role, ocf
from sanctl.agents.cache import write_cache
from sanctl.agents.connections import standby_first
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.replica import device_files, parts, resource_file
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import unit as restore_unit
from sanctl.agents.sync import settling, verify_history
from sanctl.drivers import (
    backing_device,
    drbd_kernel,
    drbdadm,
    drbdsetup,
    gate,
    lio,
    ram_cache,
)
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.runner import DeadlineRunner

if TYPE_CHECKING:
    from sanctl.agents.replica.parts import Device
    from sanctl.system.runner import Runner

#: What a stop keeps of its time for its last look: loop devices that go late (5 s), drbdsetup
#: (20 s), and a publication of the node's states that has the lock (8 s).
_LAST_LOOK_S = 33.0


def take_down(runner: Runner, device: Device) -> None:
    """Take down every part of a replica that is up, in the order that keeps data safe.

    Raises:
        SanctlError: a part of the replica is left.
    """
    # Its own end comes before Pacemaker's timeout: without quorum it is followed by a reboot.
    runner = _until(runner, ocf.remaining_s(math.inf))
    steps = ocf.Steps(device.name, "stop")
    fs_shutdown.before_stop(device)
    device_role.demote(runner, device, steps)
    # One that had looked before the gate was closed may have opened the device.
    restore_unit.end(runner, device.name)
    lio.remove(device.name, device.minor)
    steps.done("target", "target removed")
    gate.remove(device.name)
    steps.done("gate", "gate removed")
    write_cache.before_stop(runner, device)
    is_whole = standby_first.is_whole(runner, device)
    try:
        drbdsetup.down(runner, device.name)
    except CommandError:
        if drbd_kernel.generation() < 9:
            raise
        # With quorum-minimum-redundancy a Primary refuses to let the last other UpToDate replica
        # disconnect.
        drbdadm.force_disconnect(runner, device.name)
        drbdsetup.down(runner, device.name)
    steps.done("drbd", "DRBD down")
    settling.settle_when_down(device.name)
    resource_file.let_disk_go(device.name)
    device_files.detach(device)
    resource_file.remove(device.name)
    # None of it is a part of the device: a cluster that does not answer must not have the node
    # fenced for a stop that has taken everything down.
    telling = _until(runner, ocf.remaining_s(math.inf) - _LAST_LOOK_S)
    replica_state.withdraw(telling, device)
    if is_whole:
        standby_first.keep(telling, device.name)
    hooks.at_stop(telling, device)
    # Before remove_device: the device's share of the dirty limit is one of its state files.
    write_cache.after_stop(device.name)
    state_files.remove_device(device.name)
    verify_history.withdraw(telling, device)
    device_files.wait_until_detached(device)
    left = parts.observe(runner, device)
    if (
        not left.is_absent
        or gate.exists_any(device.name)
        or backing_device.exists(device.name)
        or ram_cache.exists_any(device.name)
        or lio.exists_any(device.name, device.minor)
        or device_files.attached(device)
    ):
        raise CommandError(
            Problem("SAN-AGENT-006", f"{device.name} could not be stopped, left over: {left}")
        )
    steps.ended("stopped")


def _until(runner: Runner, left_s: float) -> Runner:
    return DeadlineRunner(runner, time.monotonic() + left_s)
