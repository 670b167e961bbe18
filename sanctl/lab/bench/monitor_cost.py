# SPDX-License-Identifier: GPL-2.0-or-later
"""Agents' monitors as Pacemaker calls them, and their processor time on a laboratory's node."""

from __future__ import annotations

import shlex
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure import cpu_cost
from sanctl.lab.measure.cpu_cost import Cost, Program
from sanctl.lab.measure.peer_figures import MonitorCost

OURS = "/usr/lib/ocf/resource.d/sanctl/device"
#: What the agent becomes where the service does not answer.
DIRECT = "/usr/lib/sanctl/program"
SERVICE = "sanctl-actions.service"
_STOCK = "/usr/lib/ocf/resource.d/linbit/drbd"
# The stock agent sets a promotion score: for a resource of this name, which the cluster lacks.
_STOCK_INSTANCE = "sanctl-bench"
_RUN_DEADLINE_S = 60.0
# OCF_SUCCESS and OCF_RUNNING_PROMOTED: a healthy standby, a healthy active replica.
_HEALTHY = frozenset({0, 8})
_ENVIRONMENT = {
    "OCF_ROOT": "/usr/lib/ocf",
    "OCF_RA_VERSION_MAJOR": "1",
    "OCF_RA_VERSION_MINOR": "1",
    "OCF_RESKEY_CRM_meta_interval": "10000",
    "OCF_RESKEY_CRM_meta_timeout": "30000",
    "__OCF_ACTION": "monitor",
}
_CLONE = {
    "OCF_RESKEY_CRM_meta_clone_max": "2",
    "OCF_RESKEY_CRM_meta_clone_node_max": "1",
    "OCF_RESKEY_CRM_meta_promoted_max": "1",
    "OCF_RESKEY_CRM_meta_promoted_node_max": "1",
    "OCF_RESKEY_CRM_meta_master_max": "1",
    "OCF_RESKEY_CRM_meta_master_node_max": "1",
    "OCF_RESKEY_CRM_meta_notify": "true",
}

# Both stacks' monitors run every 10 s. Every two minutes sanctl's is a whole one, where a node has
# fewer than twenty devices (docs/adr/0053).
RUNS_A_MINUTE = 6.0
_WHOLE_A_MINUTE = 0.5


class Monitor(NamedTuple):
    """A monitor of an active replica, and how often a minute it runs."""

    program: Program
    per_minute: float


def measure(
    bed: LabSession, node: str, programs: Mapping[str, Program], repeat: int
) -> dict[str, Cost]:
    """Run all programs in turns on a node of a laboratory and return their costs.

    Raises:
        CommandError: a program failed, the node did not answer, or it took too long.
    """
    try:
        done = bed.sh(
            node,
            f"python3 -I - {shlex.quote(cpu_cost.script_argument(programs, repeat))}",
            stdin=cpu_cost.SCRIPT,
            timeout_s=_RUN_DEADLINE_S * (repeat + 1),
        )
    finally:
        bed.sh(
            node,
            f"crm_attribute --node {node} --name master-{_STOCK_INSTANCE} --lifetime reboot"
            " --delete --quiet",
            ok=range(256),
        )
    return cpu_cost.parse_costs(programs, done.stdout)


def measure_idle(bed: LabSession, seconds: int) -> dict[str, cpu_cost.NodeCpu]:
    """Return what the storage nodes do in some time in which nothing is asked of them.

    Raises:
        CommandError: a node did not answer.
    """
    nodes = [node.name for node in bed.storage]
    before = {node: bed.sh(node, cpu_cost.CPU_SCRIPT).stdout for node in nodes}
    time.sleep(seconds)
    after = {node: bed.sh(node, cpu_cost.CPU_SCRIPT).stdout for node in nodes}
    return {node: cpu_cost.cpu_between(before[node], after[node]) for node in nodes}


def shell_command(program: Program) -> str:
    """Return a command line that runs the program once, with its environment."""
    return shlex.join(
        ["env", *(f"{key}={value}" for key, value in program.env.items()), *program.argv]
    )


def without_fingerprint(device: str) -> str:
    """Return a command line after which the device's next monitor is a whole one."""
    return f"rm -f /run/sanctl/devices/{device}/fingerprint"


def device_monitor(device: str, parameters: Mapping[str, str], *, is_direct: bool) -> Program:
    """Return the monitor of sanctl's agent.

    Args:
        device: the device.
        parameters: those of the resource in the CIB.
        is_direct: without the service that forks the actions.
    """
    env = (
        _ENVIRONMENT
        | _CLONE
        | {"OCF_RESOURCE_INSTANCE": device, "OCF_RESOURCE_TYPE": "device"}
        | {f"OCF_RESKEY_{key}": value for key, value in parameters.items()}
    )
    if is_direct:
        return Program(argv=(DIRECT, OURS, "monitor"), env=env, ok=_HEALTHY)
    return Program(argv=(OURS, "monitor"), env=env, ok=_HEALTHY, service=SERVICE)


def our_monitors(device: str, parameters: Mapping[str, str]) -> dict[str, Monitor]:
    """Return the monitors of sanctl's agent by name: one that finds nothing changed, a whole one.

    The cluster's own monitors leave fingerprints by their own parameters: without a run of its own
    before, it would be chance which of the two is measured.
    """
    program = device_monitor(device, parameters, is_direct=False)
    short = replace(program, before=shell_command(program))
    whole = replace(program, before=without_fingerprint(device))
    return {
        "ocf:sanctl:device": Monitor(short, RUNS_A_MINUTE - _WHOLE_A_MINUTE),
        "ocf:sanctl:device, a whole one": Monitor(whole, _WHOLE_A_MINUTE),
    }


def costs_of(
    stack: str, monitors: Mapping[str, Monitor], found: Mapping[str, Cost]
) -> list[MonitorCost]:
    """Return what each monitor of a stack costs, from the costs of programs by name."""
    return [
        MonitorCost(
            stack=stack,
            program=name,
            cpu_s=found[name].cpu_s,
            wall_s=found[name].wall_s,
            per_minute=monitor.per_minute,
        )
        for name, monitor in monitors.items()
    ]


def drbd_monitor(resource: str) -> Program:
    """Return the monitor of the stock DRBD agent."""
    return Program(
        argv=(_STOCK, "monitor"),
        env=_ENVIRONMENT
        | _CLONE
        | {"OCF_RESOURCE_INSTANCE": _STOCK_INSTANCE, "OCF_RESOURCE_TYPE": "drbd"}
        | {"OCF_RESOURCE_PROVIDER": "linbit", "OCF_RESKEY_drbd_resource": resource},
        ok=_HEALTHY,
    )


def heartbeat_monitor(name: str, agent: str, parameters: Mapping[str, str]) -> Program:
    """Return the monitor of a stock agent of the provider heartbeat, of a resource that runs."""
    return Program(
        argv=(f"/usr/lib/ocf/resource.d/heartbeat/{agent}", "monitor"),
        env=_ENVIRONMENT
        | {"OCF_RESOURCE_INSTANCE": name, "OCF_RESOURCE_TYPE": agent}
        | {"OCF_RESOURCE_PROVIDER": "heartbeat"}
        | {f"OCF_RESKEY_{key}": value for key, value in parameters.items()},
        ok=frozenset({0}),
    )


def device_parameters(bed: LabSession) -> dict[str, dict[str, str]]:
    """Return the parameters of every device in the CIB."""
    root = ET.fromstring(bed.sh(bed.storage[0].name, "cibadmin --query").stdout)  # noqa: S314 - our lab
    return {
        primitive.get("id", ""): {
            pair.get("name", ""): pair.get("value", "")
            for pair in primitive.findall("instance_attributes/nvpair")
        }
        for primitive in root.findall("configuration/resources/clone/primitive")
        if (primitive.get("provider"), primitive.get("type")) == ("sanctl", "device")
    }
