# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent publishes of the node, with each pool: memory, own disk, clocks, SBD.

Read by sanctl/parse/published_state.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.agents import pool_duties
from sanctl.agents.node import clocks, links, own_disk, reservations_service
from sanctl.drivers import cluster_files, drbd_kernel, sbd
from sanctl.errors import CommandError
from sanctl.model.drbd import bitmaps_per_replica
from sanctl.system import memory

if TYPE_CHECKING:
    from sanctl.system.runner import Runner


def of_node(runner: Runner) -> str:
    """Return the published fields that are about the node, each after a blank.

    An error of one of sanctl's own says nothing of the pools, and keeps nothing else from being
    published.
    """
    found = ""
    for what, fields in (
        ("the node's memory", _memory),
        ("the node's own disk", lambda: own_disk.fields(runner)),
        ("Corosync's links", lambda: links.field(runner)),
        ("other nodes' clocks", clocks.field),
        ("cluster.toml and DRBD's secret", _files),
        ("the reservations' service", reservations_service.field),
    ):
        try:
            found += fields()
        except Exception as error:
            pool_duties.log_failed(what, error)
    return found


def _memory() -> str:
    """Return the published fields from which follows whether a replica's bitmap has room.

    None where DRBD is not loaded, or which one is not known.
    """
    try:
        bitmaps = bitmaps_per_replica(drbd_kernel.generation())
        return f" memory={memory.total_bytes()} bitmaps={bitmaps}"
    except (CommandError, OSError):
        return ""


def _files() -> str:
    """Return the fields by which nodes see whether files differ; empty: there are none."""
    topology, secret = cluster_files.topology_digest(), cluster_files.secret_digest()
    return (f" toml={topology}" if topology else "") + (f" drbd-secret={secret}" if secret else "")


def of_sbd() -> str:
    """Return the published field that says how SBD runs here; empty: not known."""
    try:
        mode = sbd.mode()
    except OSError:
        return ""
    return f" sbd={mode}" if mode else ""
