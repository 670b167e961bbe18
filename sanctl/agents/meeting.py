"""Keeps a copy that is behind, one of four, from meeting anybody but the node that serves.

Why, and the rules: sanctl/plan/meeting.py. Whom DRBD connects to is in the resource file, which
names one connection while this goes on; so whatever else has DRBD adjusted goes by it, too.
"""

from __future__ import annotations

import os

from sanctl.agents import renewal, resource_file, serving, suspicion
from sanctl.agents.replica import Device
from sanctl.drivers import drbd
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import ResourceState
from sanctl.plan import meeting as plan
from sanctl.plan.meeting import Meeting
from sanctl.system import journal
from sanctl.system.runner import Runner


def first(runner: Runner, device: Device) -> str:
    """Return the only node that a replica which is being started connects to; empty: all.

    Raises:
        SanctlError: the cluster did not say who serves the device.
    """
    if not _is_concerned(device):
        return ""
    found = serving.node(runner, device)
    if found is None:
        raise CommandError(
            Problem(
                "SAN-AGENT-013",
                f"{device.name}: without quorum nobody can say who serves it",
                "the cluster starts it again when it has quorum",
            )
        )
    only = plan.first_meeting(device.nodes, os.uname().nodename, found).only
    if only:
        _tell(device, f"connecting to {only}, which serves, and to nobody else until in step")
    return only


def follow(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Connect to whom the rules now say; return the state after that.

    Raises:
        SanctlError: it could not be done; the next monitor tries again.
    """
    now = Meeting(resource_file.only_peer(device.name))
    if not (now.only or (_is_concerned(device) and plan.is_lonely(state))):
        return state
    found = serving.node(runner, device)
    if found is None or suspicion.is_suspect(device.name, suspicion.data_file(device.name)):
        return state
    wanted = plan.next_meeting(device.nodes, os.uname().nodename, found, state, now)
    if wanted == now and plan.is_met(wanted, device.nodes, os.uname().nodename, state):
        return state
    _meet(runner, device, wanted)
    return drbd.observe(runner, device.name) or state


def complete(runner: Runner, device: Device) -> None:
    """Connect to all peers before a promotion: DRBD counts those that it knows of.

    Raises:
        SanctlError: DRBD did not take it.
    """
    if resource_file.only_peer(device.name):
        _meet(runner, device, plan.ALL)


def _meet(runner: Runner, device: Device, wanted: Meeting) -> None:
    whom = f"{wanted.only} alone, which serves" if wanted.only else "all others"
    _tell(device, f"connecting to {whom}")
    resource_file.rewrite(runner, device, only=wanted.only)
    if wanted.is_begun_anew:
        renewal.begin_anew(runner, device)
    else:
        drbd.up(runner, device.name)


def _is_concerned(device: Device) -> bool:
    return plan.is_concerned(device.nodes) and drbd.generation() >= 9


def _tell(device: Device, text: str) -> None:
    journal.write(
        f"{device.name}: {text}", priority=journal.NOTICE, device=device.name, action="meeting"
    )
