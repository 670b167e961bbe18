# SPDX-License-Identifier: GPL-2.0-or-later
"""Processor time of programs and their children, run in turns on a node (`sanctl bench cost`).

Pure; `SCRIPT` runs on the node that has the programs.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sanctl.errors import CommandError, Problem

#: Run by python3 on a node with the JSON of `script_argument`; prints a line for each run. The
#: programs take turns, first to last and last to first, so that a machine which is getting busier
#: favours none. A service's time is that of its control group, with all that it did meanwhile; the
#: median leaves out what it did for Pacemaker. The first round is not printed: it reads from disk
#: what later ones find in memory.
SCRIPT = r"""
import json, os, subprocess, sys, time
order = json.loads(sys.argv[1])
null = os.open(os.devnull, os.O_RDWR)
def of_service(unit):
    if not unit:
        return 0
    time.sleep(0.1)
    with open(f"/sys/fs/cgroup/system.slice/{unit}/cpu.stat") as stat:
        return int(stat.readline().split()[1]) / 1e6
for turn in range(order["repeat"] + 1):
    names = list(order["programs"])
    for name in names[::-1] if turn % 2 else names:
        program = order["programs"][name]
        subprocess.run(program["before"], shell=True, stdout=null, stderr=null)
        own = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", **program["env"]}
        before_s = of_service(program["service"])
        begin = time.monotonic()
        child = subprocess.Popen(program["argv"], env=own, stdin=null, stdout=null, stderr=null)
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.monotonic() - begin
        cpu_s = usage.ru_utime + usage.ru_stime + of_service(program["service"]) - before_s
        if turn:
            print(name, os.waitstatus_to_exitcode(status), cpu_s, wall_s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program to be measured, the exit statuses it may end with, the unit that works for it.

    `before` is a shell command that is run before each of its runs, and not measured.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    ok: frozenset[int]
    service: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The medians of one program's runs, in seconds."""

    cpu_s: float
    wall_s: float
    runs: int


#: Run on a node: prints seconds since the boot, ticks of all processors that were not idle, and the
#: microseconds of the two services, 0 of one that a node does not have (proc_stat(5): user, nice,
#: system, then irq and softirq).
CPU_SCRIPT = """
awk '{print $1}' /proc/uptime
awk '$1 == "cpu" {print $2 + $3 + $4 + $7 + $8}' /proc/stat
for unit in sanctl-actions pacemaker; do
    awk '$1 == "usage_usec" {print $2}' /sys/fs/cgroup/system.slice/$unit.service/cpu.stat \\
        2>/dev/null || echo 0
done
"""
_TICKS_PER_S = 100


class NodeCpu(NamedTuple):
    """What the processors of a node did in some time, in seconds.

    Attributes:
        seconds: for how long.
        cpu_s: all that ran.
        actions_s: of that, sanctl-actions.service.
        pacemaker_s: of that, pacemaker.service with the clients that it starts.
    """

    seconds: float
    cpu_s: float
    actions_s: float
    pacemaker_s: float


def cpu_between(before: str, after: str) -> NodeCpu:
    """Return what a node did between two runs of CPU_SCRIPT."""
    uptime, ticks, actions, pacemaker = (
        float(late) - float(early)
        for early, late in zip(before.split(), after.split(), strict=True)
    )
    return NodeCpu(uptime, ticks / _TICKS_PER_S, actions / 1e6, pacemaker / 1e6)


def script_argument(programs: Mapping[str, Program], repeat: int) -> str:
    """Return the argument for SCRIPT."""
    return json.dumps(
        {
            "repeat": repeat,
            "programs": {
                name: {
                    "argv": program.argv,
                    "env": dict(program.env),
                    "service": program.service,
                    "before": program.before,
                }
                for name, program in programs.items()
            },
        }
    )


def parse_costs(programs: Mapping[str, Program], printed: str) -> dict[str, Cost]:
    """Return the cost of each program, from the lines that SCRIPT printed.

    Raises:
        CommandError: a program ended with a status that is not in its `ok`: it did other work than
            the one to be measured.
    """
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    for line in printed.splitlines():
        name, status, cpu_s, wall_s = line.rsplit(" ", 3)
        if int(status) not in programs[name].ok:
            raise CommandError(
                Problem(
                    "SAN-BENCH-001",
                    f"{name} ended with status {status}: it did not do the work to be measured",
                )
            )
        runs[name].append((float(cpu_s), float(wall_s)))
    return {name: _median(values) for name, values in runs.items()}


def _median(runs: Sequence[tuple[float, float]]) -> Cost:
    return Cost(
        cpu_s=statistics.median(cpu_s for cpu_s, _ in runs),
        wall_s=statistics.median(wall_s for _, wall_s in runs),
        runs=len(runs),
    )
