# SPDX-License-Identifier: GPL-2.0-or-later
"""The group `sanctl bench`, and `sanctl bench cost`: processor time of monitor and status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus, Problem, Refused
from sanctl.lab.bench import monitor_cost
from sanctl.lab.bench.bench_lab import lab_option
from sanctl.lab.bench.cache_throughput import cache_command
from sanctl.lab.bench.data_path import path_command
from sanctl.lab.bench.many_devices import failover_command
from sanctl.lab.bench.peers import peers_command
from sanctl.lab.bench.point_pauses import snapshot_command
from sanctl.lab.bench.replica_changes import levels_command
from sanctl.lab.bench.standby_loss import partner_command
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure.cpu_cost import Program

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
bench.add_command(path_command)
bench.add_command(peers_command)
bench.add_command(snapshot_command)


@bench.command("cost")
@lab_option()
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
    devices = monitor_cost.device_parameters(bed)
    if not devices or (device and device not in devices):
        raise Refused(
            Problem("SAN-DEV-002", f"lab {name} has no device {device}", "create one first")
        )
    device = device or min(devices)
    node = node or collect.active_node(bed, device)
    programs = _programs(device, devices[device])
    idle = {} if idle_s is None else monitor_cost.measure_idle(bed, idle_s)
    found = monitor_cost.measure(bed, node, programs, repeat)
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


def _programs(device: str, parameters: Mapping[str, str]) -> dict[str, Program]:
    """Return the programs to measure."""
    short = monitor_cost.device_monitor(device, parameters, is_direct=False)
    direct = monitor_cost.device_monitor(device, parameters, is_direct=True)
    anew = monitor_cost.without_fingerprint(device)
    return {
        # The cluster's own monitors leave fingerprints by their own parameters.
        PAIRS["monitor"][0]: replace(short, before=monitor_cost.shell_command(short)),
        PAIRS["whole monitor"][0]: replace(short, before=anew),
        WITHOUT_SERVICE: replace(direct, before=anew),
        PAIRS["monitor"][1]: monitor_cost.drbd_monitor(device),
        PAIRS["status"][0]: Program(
            argv=("/usr/sbin/sanctl", "status"), env={}, ok=frozenset({0, 1})
        ),
        PAIRS["status"][1]: Program(argv=("/usr/sbin/crm_mon", "-1"), env={}, ok=frozenset({0})),
    }
