# SPDX-License-Identifier: GPL-2.0-or-later
"""What DRBD says of a device's replicas in the hold, where no process is started.

DRBD 8.4 in /proc/drbd; DRBD 9 by netlink (sanctl/drivers/drbd_netlink.py).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from sanctl.drivers import drbd_kernel, drbd_netlink
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.parse.drbd import ProcState
from sanctl.plan.device.hold import ONLY_PEER, active_problem, standby_problem, standbys_in_sync


def standbys(device: DeviceSpec) -> tuple[str, ...]:
    """Return the nodes whose replicas are in sync, as this node sees them, which serves the device.

    Raises:
        CommandError: this node does not serve it from a good disk of its own, or that is not known.
    """
    check_active(device, ())
    here = os.uname().nodename
    others = tuple(node.value for node in device.nodes if node.value != here)
    return standbys_in_sync(_by_peer(device.name.value, device.minor), others)


def check_active(device: DeviceSpec, copied: Collection[str]) -> None:
    """Check that this node serves the device from its disk, and that those copied are the same.

    Args:
        device: the device.
        copied: the standbys whose replicas are copied, too.

    Raises:
        CommandError: it does not, or they are not, or that is not known.
    """
    why = active_problem(_by_peer(device.name.value, device.minor), standbys=copied)
    if why:
        raise CommandError(
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
    """Return what DRBD says of each connection, by the peer; of 8.4's of `ONLY_PEER`.

    Of `ONLY_PEER` as well where DRBD 9 has no connection, as of a device with one replica. Empty:
    the device is not up.
    """
    if drbd_kernel.generation() < 9:
        state = drbd_kernel.proc_state(minor)
        return {} if state is None else {ONLY_PEER: state}
    found = drbd_netlink.observe(name)
    if found is None:
        return {}
    lone = ProcState(
        "StandAlone", found.role, "Unknown", found.disk, "DUnknown", found.is_suspended, 0
    )
    return found.peers or {ONLY_PEER: lone}
