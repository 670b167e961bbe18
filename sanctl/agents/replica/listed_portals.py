# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps LIO's list of other nodes' portals (SendTargets) in step with cluster.toml and the CIB.

A note has what the kernel was given. Monitors compare the note, and read cluster.toml only after a
change of that file, of the device's replica nodes or of its access list.
"""

from __future__ import annotations

import os

from sanctl.agents import cluster_toml
from sanctl.agents.replica.parts import Device
from sanctl.drivers import lio_listing
from sanctl.errors import SanctlError
from sanctl.plan.device import discovery
from sanctl.system import journal, state_files

_NOTE = "listed-portals"


def list_anew(device: Device) -> None:
    """List the portals in a target that a start has just made, as no note may say that it has.

    A failure is logged and does not fail the start: hosts find this node's portals. The monitor
    tries again.
    """
    try:
        state_files.of_device(device.name, _NOTE).remove()
        update(device)
    except (SanctlError, OSError) as error:
        journal.write(
            f"{device.name}: portals of other nodes are not listed to hosts yet: {error}",
            priority=journal.ERROR,
            device=device.name,
            action="start",
        )


def update(device: Device) -> bool:
    """Apply what has changed since the latest call that succeeded; return whether that was done.

    Raises:
        SanctlError: cluster.toml is wrong, or the kernel refused.
        OSError: the same.
    """
    here = os.uname().nodename
    if here not in device.nodes:
        return False  # The cluster is about to stop this replica.
    note = state_files.of_device(device.name, _NOTE)
    # Of the file before it is read: a change in between is seen by the next call.
    given = " ".join(
        (cluster_toml.topology_version(), ",".join(device.nodes), ",".join(device.all_initiators))
    )
    if note.read() == given:
        return False
    portals = discovery.listed_portals(cluster_toml.load_topology(), device.nodes, here)
    lio_listing.set_listed(device.name, portals, device.all_initiators)
    note.write(given)
    return True
