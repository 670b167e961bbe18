# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps a copy that is behind, one of four, from meeting anybody but the node that serves.

Why, and the rules: sanctl/plan/drbd/isolation.py. Whom DRBD connects to is in the resource file,
which names one connection while this goes on; so whatever else has DRBD adjusted goes by it, too.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents.publish import serving_node
from sanctl.agents.recovery import reinitialize
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import isolation as plan
from sanctl.plan.drbd.isolation import Meeting
from sanctl.system import journal
from sanctl.system.files import read_text_or, write_atomically
from sanctl.system.runner import Runner


def first(runner: Runner, device: Device) -> str | None:
    """Return the only node that a replica which is being started connects to; empty: all.

    None: the cluster does not say who serves. Then it connects to nobody; the monitor asks again.
    A start that failed would keep the replica down until an operator has seen it.
    """
    if not _is_concerned(device):
        return ""
    try:
        found = serving_node.node(runner, device)
    except SanctlError as error:
        _tell(device, f"connecting to nobody yet: {error}")
        return None
    if found is None:
        _tell(device, "connecting to nobody yet: without quorum it is not known who serves")
        return None
    only = plan.first_meeting(device.nodes, os.uname().nodename, found).only
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
            reinitialize.begin_anew(runner, device)
            _note_source(device, only)
            return
        try:
            _note_source(device, only)
        except OSError as error:
            _tell(device, f"connecting to nobody yet: who fills it cannot be noted: {error}")
            is_apart = True
    resource_file.bring_up(runner, device, files, is_apart=is_apart)


def follow(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Connect to whom the rules now say; return the state after that.

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
    """
    if state.is_in_sync and _is_concerned(device):
        _note_source(device, "")
    now = Meeting(resource_file.only_peer(device.name))
    if not (now.only or (_is_concerned(device) and plan.is_lonely(state))):
        return state
    found = serving_node.node(runner, device)
    if found is None or lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return state
    here = os.uname().nodename
    wanted = plan.next_meeting(device.nodes, here, found, state, now)
    if wanted == now and plan.is_met(wanted, device.nodes, here, state):
        return state
    _meet(runner, device, wanted)
    return drbd.observe(runner, device.name) or state


def complete(runner: Runner, device: Device, *, within_s: float) -> None:
    """Connect to all peers before a promotion: DRBD counts those that it knows of.

    Raises:
        SanctlError: DRBD did not take it.
    """
    if resource_file.only_peer(device.name):
        _meet(runner, device, plan.ALL)
        parts.wait_until_settled(runner, device, within_s)


def _meet(runner: Runner, device: Device, wanted: Meeting) -> None:
    whom = f"{wanted.only} alone, which serves" if wanted.only else "all others"
    is_begun_anew = wanted.is_begun_anew or _is_of_another(device, wanted.only)
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
        reinitialize.begin_anew(runner, device)
        _note_source(device, wanted.only)
    else:
        if wanted.only:
            _note_source(device, wanted.only)
        drbd.up(runner, device.name)


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
    return plan.is_concerned(device.nodes) and drbd.generation() >= 9


def _tell(device: Device, text: str) -> None:
    journal.write(
        f"{device.name}: {text}", priority=journal.NOTICE, device=device.name, action="meeting"
    )
