# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD says of a device's replicas in the hold, where no process is started: by files.

With DRBD 9 they are in debugfs. They name a state for each connection; of a replica without any, as
of a device with one replica, they tell that it has its disk, and drbdsetup says before the hold
that the disk is good.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from sanctl.drivers import drbd_kernel, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.parse.drbd import ProcState
from sanctl.plan.device.hold import ONLY_PEER, active_problem, standby_problem, standbys_in_sync
from sanctl.system.runner import Runner


def standbys(runner: Runner, device: DeviceSpec) -> tuple[str, ...]:
    """Return the nodes whose replicas are in sync, as this node sees them, which serves the device.

    Raises:
        CommandError: this node does not serve it from a good disk of its own, or that is not known.
    """
    check_active(device, ())
    states = _by_peer(device.name.value, device.minor)
    if not states:
        _check_without_peers(runner, device)
    here = os.uname().nodename
    others = tuple(node.value for node in device.nodes if node.value != here)
    return standbys_in_sync(states, others)


def _check_without_peers(runner: Runner, device: DeviceSpec) -> None:
    state = drbdsetup.observe(runner, device.name.value)
    if state is None or not state.is_primary or state.disk != "UpToDate":
        seen = "is not up" if state is None else f"is {state.role}, {state.disk}"
        raise _refused(device, f"it {seen} there")
    if any(peer.replication == "Established" for peer in state.peers):
        raise _unreadable("it has connections, and debugfs says nothing known of them")


def check_active(device: DeviceSpec, copied: Collection[str]) -> None:
    """Check that this node serves the device from its disk, and that those copied are the same.

    Args:
        device: the device.
        copied: the standbys whose replicas are copied, too.

    Raises:
        CommandError: it does not, or they are not, or that is not known.
    """
    name = device.name.value
    states = _by_peer(name, device.minor)
    if states or copied or drbd_kernel.generation() < 9:
        why = active_problem(states, standbys=copied)
    else:
        why = "" if _has_running_disk(name) else "it has no disk there, or DRBD holds its I/O back"
    if why:
        raise _refused(device, why)


def _refused(device: DeviceSpec, why: str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-SNAP-005",
            f"{os.uname().nodename} does not copy its replica of {device.name}: {why}",
            "'sanctl status' shows the replicas; try again when they are in sync",
        )
    )


def check_standby(name: str, minor: int) -> None:
    """Check that this replica holds every write that the active node has acknowledged.

    Raises:
        CommandError: it does not, or that is not known.
    """
    why = standby_problem(_by_peer(name, minor))
    if why:
        raise CommandError(Problem("SAN-SNAP-005", f"the replica of {name} is not copied: {why}"))


def _by_peer(name: str, minor: int) -> Mapping[str, ProcState]:
    """Return what DRBD says of each connection, by the peer; of 8.4's of `ONLY_PEER`."""
    if drbd_kernel.generation() < 9:
        state = drbd_kernel.proc_state(minor)
        return {} if state is None else {ONLY_PEER: state}
    try:
        return drbd_kernel.states_by_peer(name, minor)
    except OSError as error:
        raise _unreadable(error) from error


def _has_running_disk(name: str) -> bool:
    try:
        return drbd_kernel.has_running_disk(name)
    except OSError as error:
        raise _unreadable(error) from error


def _unreadable(error: OSError | str) -> CommandError:
    return CommandError(
        Problem(
            "SAN-SNAP-015",
            f"{os.uname().nodename} cannot read what DRBD 9 says in debugfs: {error}",
            "where it is not mounted: 'mount -t debugfs none /sys/kernel/debug'",
        )
    )
