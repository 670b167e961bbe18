# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench failover`: pauses of many devices when their node loses power."""

from __future__ import annotations

import json
import os
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import print_table
from sanctl.errors import CommandError, SanctlError
from sanctl.lab.bench.bench_lab import lab_option, scenario_without, versions
from sanctl.lab.bench.ledger_result import finish_bench
from sanctl.lab.bench.ledger_set import SILENT_S, TOTALS, LedgerSet
from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.measure import cpu_cost, failover_figures
from sanctl.lab.measure.failover_figures import (
    Crash,
    Summary,
    cpu_of_survivors,
    limit_warnings,
    summaries,
)
from sanctl.system.files import write_atomically

if TYPE_CHECKING:
    from sanctl.lab.documents import host_pauses as documents

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
_LOOK = f"cat /proc/sys/kernel/random/boot_id\n{cpu_cost.CPU_SCRIPT}"


class Devices:
    """Some devices of one host, a ledger on each."""

    def __init__(self, scenario: Scenario, count: int, serving: str, standby: str) -> None:
        self.scenario = scenario
        self.bed = scenario.bed
        self.names = tuple(f"{_PREFIX}{number}" for number in range(count))
        self.serving, self.standby = serving, standby
        self.ledgers = LedgerSet(scenario.host)
        self.created_s = 0.0

    def create(self) -> None:
        """Create them in one go, and have the host log in to each and write."""
        host = self.scenario.host
        within_s = _CREATE_S_PER_DEVICE * (len(self.names) + 2)
        await_members_online(self.bed)
        begin_s = time.monotonic()
        self.scenario.sanctl(
            "device", "create", *self.names, "--size", _SIZE, "--replicas", "2",
            "--nodes", f"{self.serving},{self.standby}", "--prefer", self.serving,
            "--initiator", host.iqn, "--timeout", f"{within_s:.0f}", timeout_s=within_s + 60,
        )  # fmt: skip
        self.created_s = time.monotonic() - begin_s
        portals = self.scenario.portals((self.serving, self.standby))
        prefix = self.scenario.iqn_prefix()
        paths = host.login_all([f"{prefix}.{name}" for name in self.names], portals)
        for name, path in zip(self.names, paths, strict=True):
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
        existing = self.scenario.device_names()
        names = [name for name in self.names if name in existing]
        prefix = self.scenario.iqn_prefix()
        for name in names:
            self.scenario.host.logout(f"{prefix}.{name}")
        if names:
            self.scenario.delete_together(names)


def crash(devices: Devices, print_line: Callable[[str], None]) -> Crash:
    """Cut the power of the node that serves them; return when all replicas are in sync again."""
    bed, standby, lost = devices.bed, devices.standby, devices.serving
    others = [node.name for node in bed.cluster if node.name != lost]
    wait_for("all ledgers to write", devices.ledgers.are_written, within_s=120)
    before = {node: bed.sh(node, _LOOK).stdout for node in others}
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
    except SanctlError as error:
        problem = str(error)
        print_line(problem)
        bed.ensure_power(lost)
    whole_s = time.time() - cut_s
    cpu = cpu_of_survivors(before, {node: _look(bed, node) for node in others})
    pauses = devices.ledgers.pauses_so_far(cut_s - 1.0)
    is_same = standby in cpu
    grown = _grown(_ticks, bed, standby, ticks) if is_same else None
    return Crash(
        pauses_s=tuple(sorted(pause.seconds for pause in pauses)),
        whole_s=whole_s,
        errors=sum(pause.errors for pause in pauses),
        is_another_fenced=set(cpu) != set(others),
        cib_changes=_grown(_epoch, bed, standby, epoch) if is_same else None,
        cib_cpu_s=None if grown is None else grown / _TICKS_PER_S,
        cpu=cpu,
        problem=problem,
    )


def _look(bed: LabSession, node: str) -> str:
    """Return what _LOOK prints; empty: no answer, as of a node that is being fenced."""
    try:
        return bed.sh(node, _LOOK).stdout
    except CommandError:
        return ""


def _grown(
    read: Callable[[LabSession, str], int], bed: LabSession, node: str, before: int
) -> int | None:
    """Return what has been added to a figure; None: the node's Pacemaker gives no answer."""
    try:
        return read(bed, node) - before
    except CommandError:
        return None


def _epoch(bed: LabSession, node: str) -> int:
    found = _EPOCH.search(bed.sh(node, "cibadmin --query --no-children --xpath /cib").stdout)
    return int(found[1]) if found else 0


def _ticks(bed: LabSession, node: str) -> int:
    return int(bed.sh(node, _DAEMON_TICKS).stdout)


def _action_limit(bed: LabSession) -> int | None:
    """Return the CIB's node-action-limit; None: not set, which 0 means, too."""
    query = "crm_attribute --type crm_config --name node-action-limit --query --quiet"
    text = bed.sh(bed.storage[0].name, query, ok=range(256)).stdout.strip()
    return (int(text) or None) if text.isdecimal() else None


@click.command("failover")
@lab_option()
@click.option("--devices", "counts", default="1,5,15", show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: _counts(text),
              help="How many devices the node serves, one run after the other.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True,
              help="Crashes with each number.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path),
              default=Path("bench-failover"), show_default=True,
              help="Folder for figures and chart, written after each crash.")  # fmt: skip
@output_option
def failover_command(
    *, name: str, counts: tuple[int, ...], repeat: int, folder: Path, output: str
) -> None:
    """The pause of each of many devices when the node that serves them all loses power.

    All have their replicas on the same two nodes, and a host writes to each. Exits with 0 if no
    acknowledged write was lost, no request failed, no other node was fenced, all was whole again by
    itself, and the device that was served last waited at most 2 times as long as one device alone
    in the same run, 3 times with more than 20 devices. That is a matter of medians of the repeats;
    of more than 50 devices, and without crashes of one device, it is not judged.
    """
    scenario = scenario_without(name, f"{_PREFIX}0")
    bed = scenario.bed
    standby, serving = (node.name for node in bed.storage[:2])
    found: list[Crash] = []
    check = dict.fromkeys(TOTALS, 0)
    limit = _action_limit(bed)
    about = {"versions": versions(bed).splitlines(), "node_action_limit": limit}

    def print_line(text: str) -> None:
        click.echo(f"  {text}", err=True)

    def write_report() -> dict[str, object]:
        data = _data(found) | about | {"load_average": round(os.getloadavg()[2], 1)}
        _write_report(folder, found, check | data)
        return data

    for text in limit_warnings(counts, limit):
        print_line(text)
    data: dict[str, object] = {}
    for count in counts:
        devices = Devices(scenario, count, serving, standby)
        with ExitStack() as stack:
            stack.callback(devices.delete)
            began_s = time.monotonic()
            devices.create()
            print_line(
                f"{count} created after {devices.created_s:.0f} s,"
                f" with their host after {time.monotonic() - began_s:.0f} s"
            )
            for _ in range(repeat):
                devices.move_home()
                devices.await_whole()
                found.append(crash(devices, print_line))
                print_line(", ".join(_row(found[-1])))
                # A run that is interrupted leaves what it has measured.
                write_report()
            for key, value in devices.ledgers.check().items():
                check[key] += value
            data = write_report()
    click.echo(f"report: {folder}", err=True)
    summary = summaries(found)
    if output == "text":
        print_table(_SUMMARY_COLUMNS, [_summary_row(each) for each in summary])
    finish_bench(
        output,
        check,
        columns=_COLUMNS,
        rows=[_row(each) for each in found],
        data=data,
        is_good=all(each.is_good for each in found) and not any(each.is_missed for each in summary),
    )


def _counts(text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(word) for word in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 1:
        raise click.BadParameter("numbers from 1, such as 1,5,15")
    return counts


_SUMMARY_COLUMNS = (
    "DEVICES", "CRASHES", "FIRST", "MEDIAN", "LAST", "SLOWEST", "ALL WHOLE", "LAST / ONE", "GOAL",
)  # fmt: skip
_COLUMNS = (
    "DEVICES", "FIRST", "MEDIAN", "LAST", "ALL WHOLE", "CIB CHANGES", "CPU OF THE CIB",
    "CPU OF NODES", "ALSO FENCED", "ERRORS",
)  # fmt: skip


def _summary_row(each: Summary) -> tuple[str, ...]:
    return (
        str(each.devices),
        str(each.crashes),
        f"{each.first_s:.1f} s",
        f"{each.median_s:.1f} s",
        f"{each.last_s:.1f} s",
        f"{each.slowest_s:.1f} s",
        "no" if each.whole_s is None else f"{each.whole_s:.0f} s",
        "-" if each.ratio is None else f"{each.ratio:.2f}",
        each.judgement,
    )


def _row(each: Crash) -> tuple[str, ...]:
    return (
        str(each.devices),
        f"{each.pauses_s[0]:.1f} s",
        f"{statistics.median(each.pauses_s):.1f} s",
        f"{each.pauses_s[-1]:.1f} s",
        "no" if each.problem else f"{each.whole_s:.0f} s",
        "?" if each.cib_changes is None else str(each.cib_changes),
        "?" if each.cib_cpu_s is None else f"{each.cib_cpu_s:.1f} s",
        " ".join(f"{node} {cpu.cpu_s:.0f} s" for node, cpu in each.cpu.items()) or "?",
        "yes" if each.is_another_fenced else "no",
        str(each.errors),
    )


def _data(found: Sequence[Crash]) -> dict[str, object]:
    crashes: list[documents.DevicesCrash] = [
        {
            "devices": each.devices,
            "pauses_s": [round(pause, 3) for pause in each.pauses_s],
            "whole_s": None if each.problem else round(each.whole_s, 1),
            "is_another_fenced": each.is_another_fenced,
            "cib_changes": each.cib_changes,
            "cib_cpu_s": each.cib_cpu_s,
            "cpu": [
                {
                    "node": node,
                    "seconds": round(cpu.seconds, 1),
                    "cpu_s": round(cpu.cpu_s, 2),
                    "actions_s": round(cpu.actions_s, 2),
                    "pacemaker_s": round(cpu.pacemaker_s, 2),
                }
                for node, cpu in each.cpu.items()
            ],
            "errors": each.errors,
            "problem": each.problem,
        }
        for each in found
    ]
    summary: list[documents.DevicesSummary] = [
        {
            "devices": each.devices,
            "crashes": each.crashes,
            "first_s": round(each.first_s, 3),
            "median_s": round(each.median_s, 3),
            "last_s": round(each.last_s, 3),
            "slowest_s": round(each.slowest_s, 3),
            "whole_s": None if each.whole_s is None else round(each.whole_s, 1),
            "ratio": None if each.ratio is None else round(each.ratio, 2),
            "goal": each.goal,
        }
        for each in summaries(found)
    ]
    return {"summary": summary, "crashes": crashes}


def _write_report(folder: Path, found: Sequence[Crash], data: Mapping[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(str(folder / "failover.json"), json.dumps(data, indent=2) + "\n")
    failover_figures.draw(summaries(found), found, folder / "failover")
