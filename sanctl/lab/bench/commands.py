# SPDX-License-Identifier: GPL-2.0-or-later
"""The group `sanctl bench`, and `sanctl bench cost`: processor time of monitor and status."""

from __future__ import annotations

import shlex
import time
import xml.etree.ElementTree as ET
from collections.abc import Mapping

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus, Problem, Refused
from sanctl.lab.bench.cache_throughput import cache_command
from sanctl.lab.bench.many_devices import failover_command
from sanctl.lab.bench.replica_changes import levels_command
from sanctl.lab.bench.standby_loss import partner_command
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.machines.spec import DEFAULT_NAME
from sanctl.lab.measure import cpu_cost
from sanctl.lab.measure.cpu_cost import Cost, Program

_OURS = "/usr/lib/ocf/resource.d/sanctl/device"
# What the agent becomes where the service does not answer.
_DIRECT = "/usr/lib/sanctl/program"
_SERVICE = "sanctl-actions.service"
_STOCK = "/usr/lib/ocf/resource.d/linbit/drbd"
# The stock agent sets a promotion score: for a resource of this name, which the cluster lacks.
_STOCK_INSTANCE = "sanctl-bench"
_RUN_DEADLINE_S = 60.0
# OCF_SUCCESS and OCF_RUNNING_PROMOTED: a healthy standby, a healthy active replica.
_HEALTHY = frozenset({0, 8})

# A monitor that finds nothing changed since the latest whole one (docs/adr/0053), and a whole one.
# Our program, and the stock one that does the same work.
PAIRS = {
    "whole monitor": ("ocf:sanctl:device monitor, a whole one", "ocf:linbit:drbd monitor"),
    "monitor": ("ocf:sanctl:device monitor", "ocf:linbit:drbd monitor"),
    "status": ("sanctl status", "crm_mon -1"),
}
WITHOUT_SERVICE = "ocf:sanctl:device monitor, a whole one, without its service"


@click.group(no_args_is_help=False)
def bench() -> None:
    """Measurements in a laboratory."""


bench.add_command(cache_command)
bench.add_command(failover_command)
bench.add_command(levels_command)
bench.add_command(partner_command)


@bench.command("cost")
@click.option("--name", envvar="SANCTL_LAB", default=DEFAULT_NAME, show_default=True,
              help="The lab it runs in.")  # fmt: skip
@click.option("--device", default="", help="The device to monitor. [the first one]")
@click.option(
    "--node", default="", help="The node to measure on. [the node that serves the device]"
)
@click.option("--repeat", type=click.IntRange(3), default=20, show_default=True,
              help="Runs of each; medians are shown.")  # fmt: skip
@click.option(
    "--idle",
    "idle_s",
    type=click.IntRange(10),
    default=None,
    metavar="SECONDS",
    help="Also measure what each storage node does in that time, with all devices.",
)
@output_option
def cost_command(
    *, name: str, device: str, node: str, repeat: int, idle_s: int | None, output: str
) -> None:
    """Processor time of a monitor and of `sanctl status`.

    Compared, in turns in the same run, with the stock DRBD agent's monitor of the same DRBD
    resource, and with crm_mon -1. Time in the kernel and in all child processes is counted.
    Exits with 0 if the monitor costs less than the stock one.
    """
    bed = LabSession(name)
    devices = _devices(bed)
    if not devices or (device and device not in devices):
        raise Refused(
            Problem("SAN-DEV-002", f"lab {name} has no device {device}", "create one first")
        )
    device = device or min(devices)
    node = node or collect.active_node(bed, device)
    programs = _programs(device, devices[device])
    idle = {} if idle_s is None else measure_idle(bed, idle_s)
    found = measure(bed, node, programs, repeat)
    ratios = {what: found[ours].cpu_s / found[stock].cpu_s for what, (ours, stock) in PAIRS.items()}

    def text() -> None:
        click.echo(f"{device} on {node}, {len(devices)} devices, {repeat} runs of each, medians")
        print_table(
            ("PROGRAM", "CPU", "WALL"),
            [(what, f"{it.cpu_s:.3f} s", f"{it.wall_s:.3f} s") for what, it in found.items()],
        )
        for what, (ours, stock) in PAIRS.items():
            click.echo(f"{what}: {ours} costs {ratios[what]:.2f} times the CPU of {stock}")
        if idle:
            print_table(
                ("NODE", "SECONDS", "CPU", "ACTIONS", "PACEMAKER"),
                [(where, *(f"{each:.1f} s" for each in it)) for where, it in idle.items()],
            )

    finish(
        output,
        data={
            "device": device,
            "node": node,
            "devices": len(devices),
            "costs": [
                {"program": what, "cpu_s": it.cpu_s, "wall_s": it.wall_s, "runs": it.runs}
                for what, it in found.items()
            ],
            "monitor_ratio": ratios["monitor"],
            "whole_ratio": ratios["whole monitor"],
            "status_ratio": ratios["status"],
            "idle": [{"node": where, **it._asdict()} for where, it in idle.items()],
        },
        text=text,
        status=ExitStatus.OK if ratios["monitor"] < 1 else ExitStatus.DEGRADED,
    )


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


def measure_idle(bed: LabSession, seconds: int) -> dict[str, cpu_cost.Idle]:
    """Return what the storage nodes do in some time in which nothing is asked of them.

    Raises:
        CommandError: a node did not answer.
    """
    nodes = [node.name for node in bed.storage]
    before = {node: bed.sh(node, cpu_cost.IDLE_SCRIPT).stdout for node in nodes}
    time.sleep(seconds)
    after = {node: bed.sh(node, cpu_cost.IDLE_SCRIPT).stdout for node in nodes}
    return {node: cpu_cost.idle_between(before[node], after[node]) for node in nodes}


def _devices(bed: LabSession) -> dict[str, dict[str, str]]:
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


def _programs(device: str, parameters: Mapping[str, str]) -> dict[str, Program]:
    """Return the programs to measure; the agents with the environment that Pacemaker gives them."""
    common = {
        "OCF_ROOT": "/usr/lib/ocf",
        "OCF_RA_VERSION_MAJOR": "1",
        "OCF_RA_VERSION_MINOR": "1",
        "OCF_RESKEY_CRM_meta_interval": "10000",
        "OCF_RESKEY_CRM_meta_timeout": "30000",
        "OCF_RESKEY_CRM_meta_clone_max": "2",
        "OCF_RESKEY_CRM_meta_clone_node_max": "1",
        "OCF_RESKEY_CRM_meta_promoted_max": "1",
        "OCF_RESKEY_CRM_meta_promoted_node_max": "1",
        "OCF_RESKEY_CRM_meta_master_max": "1",
        "OCF_RESKEY_CRM_meta_master_node_max": "1",
        "OCF_RESKEY_CRM_meta_notify": "true",
        "__OCF_ACTION": "monitor",
    }
    ours = (
        common
        | {"OCF_RESOURCE_INSTANCE": device, "OCF_RESOURCE_TYPE": "device"}
        | {f"OCF_RESKEY_{key}": value for key, value in parameters.items()}
    )
    anew = f"rm -f /run/sanctl/devices/{device}/fingerprint"
    once = shlex.join(["env", *(f"{key}={value}" for key, value in ours.items()), _OURS, "monitor"])
    return {
        # The cluster's own monitors leave fingerprints by their own parameters.
        PAIRS["monitor"][0]: Program(
            argv=(_OURS, "monitor"), env=ours, ok=_HEALTHY, service=_SERVICE, before=once
        ),
        PAIRS["whole monitor"][0]: Program(
            argv=(_OURS, "monitor"), env=ours, ok=_HEALTHY, service=_SERVICE, before=anew
        ),
        WITHOUT_SERVICE: Program(
            argv=(_DIRECT, _OURS, "monitor"), env=ours, ok=_HEALTHY, before=anew
        ),
        PAIRS["monitor"][1]: Program(
            argv=(_STOCK, "monitor"),
            env=common
            | {"OCF_RESOURCE_INSTANCE": _STOCK_INSTANCE, "OCF_RESOURCE_TYPE": "drbd"}
            | {"OCF_RESOURCE_PROVIDER": "linbit", "OCF_RESKEY_drbd_resource": device},
            ok=_HEALTHY,
        ),
        PAIRS["status"][0]: Program(
            argv=("/usr/sbin/sanctl", "status"), env={}, ok=frozenset({0, 1})
        ),
        PAIRS["status"][1]: Program(argv=("/usr/sbin/crm_mon", "-1"), env={}, ok=frozenset({0})),
    }
