# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a copy that is behind, one of four, from meeting anybody but the node that serves.

Why, and the rules: sanctl/plan/drbd/connection_limit.py. Whom DRBD connects to is in the resource
file,
which names one connection while this goes on; so whatever else has DRBD adjusted goes by it, too.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents.connections import primary_node
from sanctl.agents.replica import lost_writes, parts, reinitialize, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import connection_limit as plan
from sanctl.plan.drbd.connection_limit import ConnectionLimit
from sanctl.system import journal
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner


def first_peer(runner: Runner, device: Device) -> str | None:
    """Return the only node that a replica which is being started connects to; empty: all.

    None: the cluster does not say who serves. Then it connects to nobody; the monitor asks again.
    A start that failed would keep the replica down until an operator has seen it.
    """
    if not _is_concerned(device):
        return ""
    try:
        found = primary_node.find(runner, device)
    except SanctlError as error:
        _tell(device, f"connecting to nobody yet: {error}")
        return None
    if found is None:
        _tell(device, "connecting to nobody yet: without quorum it is not known who serves")
        return None
    only = plan.initial_limit(device.nodes, os.uname().nodename, found).only
    if only:
        _tell(device, f"connecting to {only}, which serves, and to nobody else until in step")
    return only


def bring_up(
    runner: Runner,
    device: Device,
    files: pool_files.DeviceFiles,
    only: str | None,
    *,
    is_suspect: bool,
) -> None:
    """Attach a replica that is being started, and connect it to whom `first` has told.

    One that has a part of what another node sent is begun anew; the note of that goes last. Where
    the note cannot be written it connects to nobody, and the monitor tries again.
    """
    is_apart = is_suspect or only is None
    if only and not is_apart:
        if _is_of_another(device, only):
            _tell(device, f"another node had begun to fill it, {only} does from the beginning")
            reinitialize.reset(runner, device)
            _note_source(device, only)
            return
        try:
            _note_source(device, only)
        except OSError as error:
            _tell(device, f"connecting to nobody yet: who fills it cannot be noted: {error}")
            is_apart = True
    resource_file.bring_up(runner, device, files, is_apart=is_apart)


def apply_rules(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Connect to whom the rules now say; return the state after that.

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
    """
    if state.is_in_sync and _is_concerned(device):
        _note_source(device, "")
    now = ConnectionLimit(resource_file.only_peer(device.name))
    if not (now.only or (_is_concerned(device) and plan.is_isolated(state))):
        return state
    found = primary_node.find(runner, device)
    if found is None or lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return state
    here = os.uname().nodename
    wanted = plan.next_limit(device.nodes, here, found, state, now)
    if wanted == now and plan.is_limit_applied(wanted, device.nodes, here, state):
        return state
    _meet(runner, device, wanted)
    return drbdsetup.observe(runner, device.name) or state


def connect_all_peers(runner: Runner, device: Device, *, within_s: float) -> None:
    """Connect to all peers before a promotion: DRBD counts those that it knows of.

    Raises:
        SanctlError: DRBD did not take it.
    """
    if resource_file.only_peer(device.name):
        _meet(runner, device, plan.ALL_PEERS)
        parts.wait_until_settled(runner, device, within_s)


def _meet(runner: Runner, device: Device, wanted: ConnectionLimit) -> None:
    whom = f"{wanted.only} alone, which serves" if wanted.only else "all others"
    is_begun_anew = wanted.must_reinitialize or _is_of_another(device, wanted.only)
    anew = "; what it holds of another is given up" if is_begun_anew else ""
    _tell(device, f"connecting to {whom}{anew}")
    if not resource_file.rewrite(runner, device, only=wanted.only):
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know the pool {device.pool}",
                "run the playbook again on every node",
            )
        )
    if is_begun_anew:
        reinitialize.reset(runner, device)
        _note_source(device, wanted.only)
    else:
        if wanted.only:
            _note_source(device, wanted.only)
        drbdadm.adjust(runner, device.name)


def _is_of_another(device: Device, only: str) -> bool:
    """Whether this replica has a part of what another node than the one it is to meet sent."""
    path = _source(device)
    return bool(only) and path is not None and read_text_or(path, "") not in {"", only}


def _note_source(device: Device, node: str) -> None:
    """Note on disk who fills this replica alone; nobody when it is in step."""
    path = _source(device)
    if path is None:
        return
    if node:
        write_atomically(path, node)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _source(device: Device) -> str | None:
    return parts.note_path(device, "source")


def _is_concerned(device: Device) -> bool:
    return plan.is_limit_needed(device.nodes) and drbdsetup.generation() >= 9


def _tell(device: Device, text: str) -> None:
    journal.write(
        f"{device.name}: {text}", priority=journal.NOTICE, device=device.name, action="meeting"
    )
