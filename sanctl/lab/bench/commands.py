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
from sanctl.lab.bench.monitor_cost import Monitor
from sanctl.lab.bench.peers import peers_command
from sanctl.lab.bench.point_pauses import snapshot_command
from sanctl.lab.bench.range_copies import offload_command
from sanctl.lab.bench.replica_changes import levels_command
from sanctl.lab.bench.replication import replicate_command
from sanctl.lab.bench.site_failover import site_command
from sanctl.lab.bench.standby_loss import partner_command
from sanctl.lab.bench.status_cost import status_command
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession
from sanctl.lab.measure import peer_figures
from sanctl.lab.measure.cpu_cost import Program

_OURS = "sanctl"
_WITHOUT_SERVICE = "ocf:sanctl:device, a whole one, without its service"
_STATUS, _STOCK_STATUS = "sanctl status", "crm_mon -1"


@click.group(no_args_is_help=False)
def bench() -> None:
    """Measurements, most of them in a laboratory."""


bench.add_command(cache_command)
bench.add_command(failover_command)
bench.add_command(levels_command)
bench.add_command(offload_command)
bench.add_command(partner_command)
bench.add_command(path_command)
bench.add_command(peers_command)
bench.add_command(replicate_command)
bench.add_command(site_command)
bench.add_command(snapshot_command)
bench.add_command(status_command)


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
    Exits with 0 if a minute of the monitors of one active device, one of twelve a whole one, costs
    at most 0.1 of a minute of the stock DRBD agent's.
    """
    bed = LabSession(name)
    devices = monitor_cost.device_parameters(bed)
    if not devices or (device and device not in devices):
        raise Refused(
            Problem("SAN-DEV-002", f"lab {name} has no device {device}", "create one first")
        )
    device = device or min(devices)
    node = node or collect.active_node(bed, device)
    monitors = monitor_cost.our_monitors(device, devices[device])
    stock = {
        peer_figures.STOCK_MONITOR: Monitor(
            monitor_cost.drbd_monitor(device), monitor_cost.RUNS_A_MINUTE
        )
    }
    programs = _programs(device, devices[device], monitors | stock)
    idle = {} if idle_s is None else monitor_cost.measure_idle(bed, idle_s)
    found = monitor_cost.measure(bed, node, programs, repeat)
    costs = [
        *monitor_cost.costs_of(_OURS, monitors, found),
        *monitor_cost.costs_of("stock agents", stock, found),
    ]
    of_stock = peer_figures.of_stock_monitor(costs)
    short, whole = (of_stock[program] for program in monitors)
    minute = peer_figures.minute_of_stock_monitor(costs, _OURS)
    status_ratio = found[_STATUS].cpu_s / found[_STOCK_STATUS].cpu_s
    is_reached = minute <= peer_figures.MONITOR_GOAL

    def text() -> None:
        click.echo(f"{device} on {node}, {len(devices)} devices, {repeat} runs of each, medians")
        print_table(
            ("PROGRAM", "CPU", "WALL"),
            [(what, f"{it.cpu_s:.3f} s", f"{it.wall_s:.3f} s") for what, it in found.items()],
        )
        for program in monitors:
            click.echo(
                f"{program} costs {of_stock[program]:.2f} times the CPU of"
                f" {peer_figures.STOCK_MONITOR}"
            )
        click.echo(f"{_STATUS} costs {status_ratio:.2f} times the CPU of {_STOCK_STATUS}")
        click.echo(
            f"{peer_figures.minute_text(costs, _OURS)}; goal {peer_figures.MONITOR_GOAL:g}:"
            f" {'reached' if is_reached else 'missed'}"
        )
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
            "monitor_ratio": short,
            "whole_ratio": whole,
            "minute_ratio": minute,
            "goal": peer_figures.MONITOR_GOAL,
            "status_ratio": status_ratio,
            "idle": [{"node": where, **it._asdict()} for where, it in idle.items()],
        },
        text=text,
        status=ExitStatus.OK if is_reached else ExitStatus.DEGRADED,
    )


def _programs(
    device: str, parameters: Mapping[str, str], monitors: Mapping[str, Monitor]
) -> dict[str, Program]:
    """Return the programs to measure."""
    direct = monitor_cost.device_monitor(device, parameters, is_direct=True)
    return {
        **{name: monitor.program for name, monitor in monitors.items()},
        _WITHOUT_SERVICE: replace(direct, before=monitor_cost.without_fingerprint(device)),
        _STATUS: Program(argv=("/usr/sbin/sanctl", "status"), env={}, ok=frozenset({0, 1})),
        _STOCK_STATUS: Program(argv=("/usr/sbin/crm_mon", "-1"), env={}, ok=frozenset({0})),
    }
