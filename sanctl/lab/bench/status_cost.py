# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench status`: processor time of `sanctl status` of many devices, made up."""

from __future__ import annotations

import bz2
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import CommandError, ExitStatus, Problem
from sanctl.lab.bench import made_up_status
from sanctl.lab.bench.made_up_cluster import Situation, made_up_cluster
from sanctl.model.device import MINORS

if TYPE_CHECKING:
    from sanctl.lab.documents import processor_time as documents

#: What `sanctl status` of 500 devices may take.
GOAL_S = 1.0
# 1: degraded, which it says where n3 is lost.
_GOOD_STATUSES = frozenset({0, 1})
_COLUMNS = ("CLUSTER", "CPU", "WALL", "CIB", "COMPRESSED")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCost:
    """What `sanctl status` took, by median.

    Attributes:
        situation: of the cluster that is made up.
        cpu_s: processor time of the command and its programs.
        wall_s: the time from its start to its end.
        cib_bytes: the size of the CIB.
        compressed_bytes: the same, compressed as Pacemaker does it.
    """

    situation: str
    cpu_s: float
    wall_s: float
    cib_bytes: int
    compressed_bytes: int


@click.command("status")
@click.option("--devices", type=click.IntRange(1, len(MINORS)), default=500, show_default=True,
              help="How many devices, with two replicas each on three nodes.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=5, show_default=True,
              help="Runs of each; medians are shown.")  # fmt: skip
@output_option
def status_command(*, devices: int, repeat: int, output: str) -> None:
    """Processor time of `sanctl status` of many devices.

    Runs here and needs no laboratory: the cluster is made up. The start of Python is counted; what
    cibadmin, crm_mon and attrd_updater take is not, as programs that print a file stand for them.
    Exits with 0 if each takes at most a second.
    """
    costs = [_measure(devices, situation, repeat) for situation in Situation]

    def text() -> None:
        click.echo(f"{devices} devices on three nodes, {repeat} runs of each, medians")
        print_table(
            _COLUMNS,
            [
                (
                    each.situation,
                    f"{each.cpu_s:.2f} s",
                    f"{each.wall_s:.2f} s",
                    f"{each.cib_bytes >> 10} KiB",
                    f"{each.compressed_bytes >> 10} KiB",
                )
                for each in costs
            ],
        )

    is_good = all(each.cpu_s <= GOAL_S for each in costs)
    data: documents.StatusCosts = {
        "devices": devices,
        "runs": repeat,
        "costs": [
            {
                "situation": each.situation,
                "cpu_s": each.cpu_s,
                "wall_s": each.wall_s,
                "cib_bytes": each.cib_bytes,
                "compressed_bytes": each.compressed_bytes,
            }
            for each in costs
        ],
    }
    finish(output, data=data, text=text, status=ExitStatus.OK if is_good else ExitStatus.DEGRADED)


def _measure(devices: int, situation: Situation, repeat: int) -> StatusCost:
    cluster = made_up_cluster(devices, situation)
    with tempfile.TemporaryDirectory() as name:
        made_up_status.write_files(cluster, Path(name))
        # The first run reads from disk what later ones find in memory.
        runs = [_run(name) for _ in range(repeat + 1)][1:]
    return StatusCost(
        situation=situation.value,
        cpu_s=statistics.median(cpu_s for cpu_s, _ in runs),
        wall_s=statistics.median(wall_s for _, wall_s in runs),
        cib_bytes=len(cluster.cib.encode()),
        compressed_bytes=len(bz2.compress(cluster.cib.encode())),
    )


def _run(folder: str) -> tuple[float, float]:
    """Return the processor time and the wall time of one run, with the programs it starts."""
    begin_s = time.monotonic()
    child = subprocess.Popen(
        [sys.executable, "-m", made_up_status.__name__, folder, "status"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    _, ended, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(ended)
    if child.returncode not in _GOOD_STATUSES:
        raise CommandError(Problem("SAN-CMD-003", f"sanctl status: exit status {child.returncode}"))
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin_s
