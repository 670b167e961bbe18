# SPDX-License-Identifier: GPL-2.0-or-later
"""Cuts and makes the connections of a stale replica as plan.drbd.connection_limit says.

The reasons and the rules are in sanctl/plan/drbd/connection_limit.py. The limit is in the DRBD
resource file, which names one connection while the limit holds; so every `drbdadm adjust` keeps it.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents.connections import primary_node
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import (
    device_files,
    lost_writes,
    peer_contact,
    reinitialize,
    resource_file,
)
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import connection_limit as plan
from sanctl.plan.drbd.connection_limit import ConnectionLimit
from sanctl.plan.failover.promotion import NO_DISK
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner

_log = DeviceLog("connections")


def first_peer(runner: Runner, device: Device) -> str | None:
    """Return the only node that a starting replica connects to; empty: all nodes.

    None: the cluster does not say which node is Primary. Then the replica connects to no peer, and
    the monitor asks again. A start that failed would keep the replica down until an operator has
    cleaned up the failure.
    """
    if not _is_limit_needed(device):
        return ""
    try:
        found = primary_node.find(runner, device)
    except SanctlError as error:
        _log(device.name, f"not connecting yet: {error}")
        return None
    if found is None:
        _log(device.name, "not connecting yet: without quorum it is not known which node serves")
        return None
    only = plan.initial_limit(device.nodes, os.uname().nodename, found).only
    if only:
        _log(device.name, f"connecting only to {only}, which serves, until this replica is in sync")
    return only


def bring_up(
    runner: Runner,
    device: Device,
    files: pool_files.DeviceFiles,
    only: str | None,
    *,
    is_alone: bool,
) -> None:
    """Attach a starting replica, and connect it to the node that `first_peer` returned.

    With `is_alone` it is only attached: it is suspect, or others have their turn.

    A replica that another node had begun to fill gets new metadata and a full resync; the note of
    its source is written last. Where the note cannot be written, the replica connects to no peer,
    and the monitor tries again.
    """
    stays_disconnected = is_alone or only is None
    if only and not stays_disconnected:
        if _has_data_of_another_source(device, only):
            _log(
                device.name, f"another node had begun to fill this replica: full resync from {only}"
            )
            reinitialize.reset(runner, device)
            _write_source_note(device, only)
            return
        try:
            _write_source_note(device, only)
        except OSError as error:
            _log(device.name, f"not connecting yet: the note of the resync source failed: {error}")
            stays_disconnected = True
    resource_file.bring_up(runner, device, files, stays_disconnected=stays_disconnected)


def apply_rules(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Set the connection limit that the rules now ask for; return the state after that.

    Raises:
        SanctlError: the limit could not be set; the next monitor tries again.
    """
    if state.is_in_sync and _is_limit_needed(device):
        _write_source_note(device, "")
    now = ConnectionLimit(resource_file.only_peer(device.name))
    if not (now.only or (_is_limit_needed(device) and plan.is_isolated(state))):
        return state
    found = primary_node.find(runner, device)
    if found is None or lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return state
    here = os.uname().nodename
    wanted = plan.next_limit(device.nodes, here, found, state, now)
    if wanted == now and plan.is_limit_applied(wanted, device.nodes, here, state):
        return state
    if state.disk in NO_DISK:
        from sanctl.agents.cache import lost_flash  # noqa: PLC0415 - rarely needed

        lost_flash.note(device)
    _connect(runner, device, wanted)
    return drbdsetup.observe(runner, device.name) or state


def connect_all_peers(runner: Runner, device: Device, *, within_s: float) -> None:
    """Connect to all peers before a promotion: DRBD counts only peers that it knows.

    Raises:
        SanctlError: DRBD did not take it.
    """
    if resource_file.only_peer(device.name):
        _connect(runner, device, plan.ALL_PEERS)
        peer_contact.wait_until_settled(runner, device, within_s)


def _connect(runner: Runner, device: Device, wanted: ConnectionLimit) -> None:
    peers = f"{wanted.only} alone, which serves" if wanted.only else "all peers"
    must_reset = wanted.must_reinitialize or _has_data_of_another_source(device, wanted.only)
    reset = (
        "; full resync, because another node had begun to fill this replica" if must_reset else ""
    )
    _log(device.name, f"connecting to {peers}{reset}")
    if not resource_file.rewrite(runner, device, only=wanted.only):
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know the pool {device.pool}",
                "run the playbook again on every node",
            )
        )
    if must_reset:
        reinitialize.reset(runner, device)
        _write_source_note(device, wanted.only)
    else:
        if wanted.only:
            _write_source_note(device, wanted.only)
        drbdadm.adjust(runner, device.name)


def _has_data_of_another_source(device: Device, only: str) -> bool:
    """Whether a node other than the one that it is to connect to has begun to fill this replica."""
    path = _source_note_path(device)
    return bool(only) and path is not None and read_text_or(path, "") not in {"", only}


def _write_source_note(device: Device, node: str) -> None:
    """Note on disk which node fills this replica alone; empty: none, it is in sync."""
    path = _source_note_path(device)
    if path is None:
        return
    if node:
        write_atomically(path, node)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _source_note_path(device: Device) -> str | None:
    return device_files.note_path(device, "source")


def _is_limit_needed(device: Device) -> bool:
    return plan.is_limit_needed(device.nodes) and drbd_kernel.generation() >= 9
