# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench failover`: pauses of many devices when their node loses power."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.errors import NotConverged
from sanctl.lab.bench.bench_lab import lab_option, scenario_without
from sanctl.lab.bench.ledger_result import finish_bench
from sanctl.lab.bench.ledger_set import SILENT_S, TOTALS, LedgerSet
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online

if TYPE_CHECKING:
    from sanctl.lab import documents

_PREFIX = "bench-many"
_SIZE = "32M"
_REGION_BYTES = 4 * 2**20
# One write in flight and few a second: fifteen writers share the processor of one small host.
_WRITES_PER_S = 4
_CREATE_S_PER_DEVICE = 60.0
_SERVED_S_PER_DEVICE = 30.0
_WHOLE_DEADLINE_S = 900.0
_EPOCH = re.compile(r'\sepoch="(\d+)"')
MARK = re.compile(r'<rsc_location id="sanctl-outdated-[^"]*[.]')
PEER_DISK = re.compile(r"\bpeer-device name:(\S+) .*\bpeer-disk:(\w+)")
# Clock ticks of user and system mode of a daemon (proc_pid_stat(5), fields 14 and 15).
_DAEMON_TICKS = "awk '{print $14 + $15}' /proc/$(pgrep -o -x pacemaker-based)/stat"
_TICKS_PER_S = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """The crash of a node that served some devices.

    Attributes:
        pauses_s: for each device how long its host had no answer, sorted.
        whole_s: after how long all replicas were in sync again and none marked.
        errors: requests of the host that failed.
        is_another_fenced: whether another node of the cluster rebooted, too.
        cib_changes: changes of the CIB's configuration until then.
        cib_cpu_s: processor time of the survivor's pacemaker-based until then.
        problem: what did not happen in time; empty where all did.
    """

    pauses_s: tuple[float, ...]
    whole_s: float
    errors: int
    is_another_fenced: bool
    cib_changes: int
    cib_cpu_s: float
    problem: str

    @property
    def is_good(self) -> bool:
        """Whether all was whole again by itself, with no request failed and nobody else fenced."""
        return not (self.is_another_fenced or self.errors or self.problem)


class Devices:
    """Some devices of one host, a ledger on each."""

    def __init__(self, scenario: Scenario, count: int, serving: str, standby: str) -> None:
        self.scenario = scenario
        self.bed = scenario.bed
        self.names = tuple(f"{_PREFIX}{number}" for number in range(count))
        self.serving, self.standby = serving, standby
        self.ledgers = LedgerSet(scenario.host)

    def create(self) -> None:
        """Create them in one go, and have the host log in to each and write."""
        host = self.scenario.host
        within_s = _CREATE_S_PER_DEVICE * (len(self.names) + 2)
        await_members_online(self.bed)
        self.scenario.sanctl(
            "device", "create", *self.names, "--size", _SIZE, "--replicas", "2",
            "--nodes", f"{self.serving},{self.standby}", "--prefer", self.serving,
            "--initiator", host.iqn, "--timeout", f"{within_s:.0f}", timeout_s=within_s + 60,
        )  # fmt: skip
        portals = self.scenario.portals((self.serving, self.standby))
        for name in self.names:
            path = host.login(f"{self.scenario.iqn_prefix()}.{name}", portals)
            self.ledgers.start(
                name, path, "--rate", str(_WRITES_PER_S), "--depth", "1",
                "--region", str(_REGION_BYTES),
            )  # fmt: skip

    def move_home(self) -> None:
        """Move those that another node serves to the node whose power is to be cut."""
        for name in self.names:
            if collect.active_node(self.bed, name) != self.serving:
                self.scenario.sanctl("device", "move", name, "--to", self.serving, timeout_s=120)

    def await_whole(self, *, within_s: float = _WHOLE_DEADLINE_S) -> None:
        """Wait until all replicas are in sync, and none is marked as outdated.

        The node that serves alone is asked seldom: each question takes a good part of a second of
        its only processor. The CIB is the same on every node, so another one is asked for it.
        """
        witness = self.bed.cluster[-1].name
        observer = self.standby if witness == self.serving else witness
        wait_for("all devices whole", lambda: self._are_whole(observer), within_s=within_s,
                 every_s=5.0)  # fmt: skip

    def _are_whole(self, observer: str) -> bool:
        if MARK.search(self.bed.sh(observer, "cibadmin --query --scope constraints").stdout):
            return False
        states = self.bed.sh(self.standby, "drbdsetup events2 --now --statistics").stdout
        found = {name: set[str]() for name in self.names}
        for name, disk in PEER_DISK.findall(states):
            found.get(name, set()).add(disk)
        return all(disks == {"UpToDate"} for disks in found.values())

    def delete(self) -> None:
        """Delete them with their data, those that exist."""
        self.ledgers.stop()
        for name in self.names:
            if self.scenario.exists(name):
                self.scenario.delete(name)


def crash(devices: Devices, print_line: Callable[[str], None]) -> Crash:
    """Cut the power of the node that serves them; return when all replicas are in sync again."""
    bed, standby, lost = devices.bed, devices.standby, devices.serving
    others = [node.name for node in bed.cluster if node.name != lost]
    wait_for("all ledgers to write", devices.ledgers.are_written, within_s=120)
    boots = {node: _boot_of(bed, node) for node in others}
    epoch, ticks = _epoch(bed, standby), _ticks(bed, standby)
    cut_s = bed.cut_power(lost)
    print_line(f"power of {lost} cut, which served {len(devices.names)}")
    # The node writes for a moment yet, and both times are whole seconds.
    time.sleep(SILENT_S + 3)
    problem = ""
    try:
        wait_for(
            "all devices served again",
            devices.ledgers.are_written,
            within_s=_SERVED_S_PER_DEVICE * (len(devices.names) + 4),
            every_s=1.0,
        )
        print_line(f"all served again after {time.time() - cut_s:.0f} s")
        bed.ensure_power(lost)
        devices.await_whole()
    except NotConverged as error:
        problem = str(error)
        print_line(problem)
    whole_s = time.time() - cut_s
    pauses = devices.ledgers.pauses(cut_s - 1.0, time.time())
    return Crash(
        pauses_s=tuple(sorted(pause.seconds for pause in pauses)),
        whole_s=whole_s,
        errors=sum(pause.errors for pause in pauses),
        is_another_fenced=boots != {node: _boot_of(bed, node) for node in others},
        cib_changes=_epoch(bed, standby) - epoch,
        cib_cpu_s=(_ticks(bed, standby) - ticks) / _TICKS_PER_S,
        problem=problem,
    )


def _boot_of(bed: LabSession, node: str) -> str:
    return bed.sh(node, "cat /proc/sys/kernel/random/boot_id").stdout


def _epoch(bed: LabSession, node: str) -> int:
    found = _EPOCH.search(bed.sh(node, "cibadmin --query --no-children --xpath /cib").stdout)
    return int(found[1]) if found else 0


def _ticks(bed: LabSession, node: str) -> int:
    return int(bed.sh(node, _DAEMON_TICKS).stdout)


@click.command("failover")
@lab_option()
@click.option("--devices", "counts", default="1,5,15", show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: _counts(text),
              help="How many devices the node serves, one run after the other.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True,
              help="Crashes with each number.")  # fmt: skip
@output_option
def failover_command(*, name: str, counts: tuple[int, ...], repeat: int, output: str) -> None:
    """The pause of each of many devices when the node that serves them all loses power.

    All have their replicas on the same two nodes, and a host writes to each. Exits with 0 if no
    acknowledged write was lost, no request failed, no other node was fenced, and all was whole
    again by itself.
    """
    scenario = scenario_without(name, f"{_PREFIX}0")
    bed = scenario.bed
    standby, serving = (node.name for node in bed.storage[:2])
    found: list[tuple[int, Crash]] = []
    check = dict.fromkeys(TOTALS, 0)

    def print_line(text: str) -> None:
        click.echo(f"  {text}", err=True)

    for count in counts:
        devices = Devices(scenario, count, serving, standby)
        with ExitStack() as stack:
            stack.callback(devices.delete)
            began_s = time.monotonic()
            devices.create()
            print_line(f"{count} created after {time.monotonic() - began_s:.0f} s, with their host")
            for _ in range(repeat):
                devices.move_home()
                devices.await_whole()
                found.append((count, crash(devices, print_line)))
                print_line(str(found[-1][1]))
            for key, value in devices.ledgers.check().items():
                check[key] += value
    finish_bench(
        output,
        check,
        columns=_COLUMNS,
        rows=[_row(count, each) for count, each in found],
        data={"crashes": [_data(count, each) for count, each in found]},
        is_good=all(each.is_good for _, each in found),
    )


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise click.BadParameter("numbers from 1, such as 1,5,15")
    return counts


_COLUMNS = (
    "DEVICES", "FIRST", "MEDIAN", "LAST", "ALL WHOLE", "CIB CHANGES", "CPU OF THE CIB",
    "ALSO FENCED", "ERRORS",
)  # fmt: skip


def _row(count: int, each: Crash) -> tuple[str, ...]:
    return (
        str(count),
        f"{each.pauses_s[0]:.1f} s",
        f"{statistics.median(each.pauses_s):.1f} s",
        f"{each.pauses_s[-1]:.1f} s",
        "no" if each.problem else f"{each.whole_s:.0f} s",
        str(each.cib_changes),
        f"{each.cib_cpu_s:.1f} s",
        "yes" if each.is_another_fenced else "no",
        str(each.errors),
    )


def _data(count: int, each: Crash) -> documents.DevicesCrash:
    return {
        "devices": count,
        "pauses_s": [round(pause, 3) for pause in each.pauses_s],
        "whole_s": None if each.problem else round(each.whole_s, 1),
        "is_another_fenced": each.is_another_fenced,
        "cib_changes": each.cib_changes,
        "cib_cpu_s": each.cib_cpu_s,
        "errors": each.errors,
        "problem": each.problem,
    }
