# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench peers`: the stock agents and sanctl, in turns in one laboratory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import print_table
from sanctl.lab.bench import bench_lab, monitor_cost, peer_config
from sanctl.lab.bench.bench_lab import lab_option
from sanctl.lab.bench.ledger_result import finish_bench
from sanctl.lab.bench.ledger_set import SILENT_S, TOTALS, LedgerSet
from sanctl.lab.bench.peer_stacks import OurStack, Stack, StockStack
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario, require
from sanctl.lab.measure import peer_figures
from sanctl.lab.measure.peer_figures import Comparison, MonitorCost, PeerTrial

if TYPE_CHECKING:
    from sanctl.lab.documents import stock_agents as documents

_OPTIONS = ("--rate", "25", "--depth", "2", "--region", str(4 * 2**20))
_SERVED_DEADLINE_S = 600.0
_WHOLE_DEADLINE_S = 900.0

PrintLine = Callable[[str], None]


@dataclass(slots=True)
class Found:
    """What was measured so far, and the ledgers' totals of each stack."""

    trials: list[PeerTrial] = field(default_factory=list)
    checks: dict[str, dict[str, int]] = field(default_factory=dict)

    def add_check(self, stack: str, check: dict[str, int]) -> None:
        """Add the result of a turn's ledgers."""
        total = self.checks.setdefault(stack, dict.fromkeys(TOTALS, 0))
        for key, value in check.items():
            total[key] += value


def _trial(stack: Stack, kind: str, ledgers: LedgerSet, began_s: float) -> PeerTrial:
    # A gap begins with the last answer before the fault.
    pauses = ledgers.pauses(began_s - 1.0, time.time())
    return PeerTrial(
        stack=stack.name,
        kind=kind,
        pauses_s=tuple(sorted(pause.seconds for pause in pauses)),
        errors=sum(pause.errors for pause in pauses),
    )


def crash(bed: LabSession, stack: Stack, ledgers: LedgerSet, lost: str, other: str) -> PeerTrial:
    """Cut the power of the node that serves; return when all replicas are in sync again."""
    wait_for("all ledgers to write", ledgers.are_written, within_s=120)
    began_s = bed.cut_power(lost)
    time.sleep(SILENT_S + 1)
    wait_for(
        f"{stack.name} to serve again",
        ledgers.are_written,
        within_s=_SERVED_DEADLINE_S,
        every_s=1.0,
    )
    trial = _trial(stack, "crash", ledgers, began_s)
    bed.ensure_power(lost)
    wait_for(
        f"{stack.name} to be whole again",
        lambda: stack.is_whole(other),
        within_s=_WHOLE_DEADLINE_S,
        every_s=3.0,
    )
    return trial


def move(stack: Stack, ledgers: LedgerSet, to: str) -> PeerTrial:
    """Move all devices to another node; return when they are served there."""
    wait_for("all ledgers to write", ledgers.are_written, within_s=120)
    began_s = time.time()
    stack.move(to)
    wait_for(
        f"{stack.name} to serve on {to}",
        lambda: all(stack.serving(name) == to for name in stack.devices),
        within_s=_SERVED_DEADLINE_S,
        every_s=1.0,
    )
    # The host may notice only now that its session is gone: answers from after this moment count.
    since_s = ledgers.now_s() + SILENT_S
    wait_for(
        f"{stack.name} to answer from {to}",
        lambda: ledgers.are_written(since_s=since_s),
        within_s=_SERVED_DEADLINE_S,
        every_s=1.0,
    )
    trial = _trial(stack, "planned move", ledgers, began_s)
    stack.settle()
    return trial


def _trials(
    bed: LabSession, stack: Stack, ledgers: LedgerSet, home: str, other: str
) -> Iterator[PeerTrial]:
    yield crash(bed, stack, ledgers, home, other)
    yield move(stack, ledgers, home)


def one_turn(
    bed: LabSession, host: Initiator, stack: Stack, found: Found, print_line: PrintLine
) -> None:
    """Set a stack up, crash its node, move it back, and tear it down."""
    home, other = (node.name for node in bed.storage[:2])
    ledgers = LedgerSet(host)
    with ExitStack() as up:
        up.callback(stack.tear_down)
        up.callback(ledgers.stop)
        stack.set_up()
        stack.login(ledgers, *_OPTIONS)
        wait_for(
            f"{stack.name} to be whole",
            lambda: stack.is_whole(other),
            within_s=_WHOLE_DEADLINE_S,
        )
        for trial in _trials(bed, stack, ledgers, home, other):
            found.trials.append(trial)
            print_line(f"{trial.stack}, {trial.kind}: {peer_figures.each(trial.pauses_s)} s")
        found.add_check(stack.name, ledgers.check())


def measure_monitors(bed: LabSession, stacks: Sequence[Stack], repeat: int) -> list[MonitorCost]:
    """Return what each monitor of both stacks costs, run in turns where the devices are active."""
    with ExitStack() as up:
        for stack in stacks:
            up.callback(stack.tear_down)
            stack.set_up()
        home = bed.storage[0].name
        for stack in stacks:
            require(
                stack.serving(stack.devices[0]) == home, f"{stack.name} does not serve on {home}"
            )
        monitors = {stack.name: stack.monitors() for stack in stacks}
        programs = {
            name: each.program for found in monitors.values() for name, each in found.items()
        }
        costs = monitor_cost.measure(bed, home, programs, repeat)
    return [
        each
        for stack, found in monitors.items()
        for each in monitor_cost.costs_of(stack, found, costs)
    ]


@click.command("peers")
@lab_option()
@click.option("--devices", "count", type=click.IntRange(1, 20), default=1, show_default=True,
              help="Devices that fail over together.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True,
              help="Crashes, and as many moves, of each stack.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path), default=Path("bench-peers"),
              show_default=True,
              help="Folder for figures, configuration and chart.")  # fmt: skip
@output_option
def peers_command(*, name: str, count: int, repeat: int, folder: Path, output: str) -> None:
    """The usual stack of stock agents beside sanctl: pauses of crash and move, and monitors.

    In turns, in the same laboratory with the same fencing and timers, under the same ledger:
    ocf:linbit:drbd, portblock, IPaddr2, iSCSITarget and iSCSILogicalUnit (lio-t) behind a floating
    address; then sanctl. The stock configuration is made for the run, written to the report, and
    removed again. Exits with 0 if a crash of sanctl is 3 times and a move 10 times as short, no
    acknowledged write was lost and no request failed.
    """
    bed = LabSession(name)
    scenario = Scenario(bed, Initiator(bed, "i1"))
    ours, stock = OurStack(scenario, count), StockStack(scenario, count)
    require(not scenario.exists(ours.devices[0]), f"the lab has a device {ours.devices[0]}")
    found = Found()

    def print_line(text: str) -> None:
        click.echo(f"  {text}", err=True)

    versions = bench_lab.versions(bed)
    costs: list[MonitorCost] = []
    comparisons: list[Comparison] = []

    def totals() -> dict[str, int]:
        return {key: sum(each[key] for each in found.checks.values()) for key in TOTALS}

    def write_report() -> dict[str, object]:
        data = totals() | _data(count, versions, found, comparisons, costs)
        _write_report(folder, stock, versions, comparisons, data)
        return data

    for _ in range(repeat):
        for stack in (ours, stock):
            one_turn(bed, scenario.host, stack, found, print_line)
        # After each round: a run that is interrupted leaves what it has measured.
        comparisons = peer_figures.compare(found.trials, ours.name, stock.name)
        write_report()
    costs = measure_monitors(bed, (ours, stock), max(3, repeat))
    data = write_report()
    click.echo(f"report: {folder}", err=True)
    if output == "text":
        _print_text(versions, costs)
    finish_bench(
        output,
        totals(),
        columns=_COLUMNS,
        rows=[row for each in comparisons for row in _rows(each, ours.name, stock.name)],
        data=data,
        is_good=all(each.is_reached for each in comparisons),
    )


_COLUMNS = ("", "STACK", "MEDIAN", "EACH RUN", "RATIO", "GOAL")


def _rows(each: Comparison, ours: str, stock: str) -> list[tuple[str, ...]]:
    return [
        (each.kind, ours, f"{each.ours_median_s:.2f} s", peer_figures.each(each.ours_s), "1", ""),
        (
            each.kind,
            stock,
            f"{each.stock_median_s:.2f} s",
            peer_figures.each(each.stock_s),
            f"{each.ratio:.1f}",
            f"{peer_figures.GOALS[each.kind]:g}: {'reached' if each.is_reached else 'missed'}",
        ),
    ]


def _print_text(versions: str, costs: Sequence[MonitorCost]) -> None:
    click.echo(versions)
    for line in peer_config.FAIRNESS:
        click.echo(f"* {line}")
    ratios = peer_figures.of_stock_monitor(costs)
    print_table(
        ("STACK", "MONITOR", "A MINUTE", "CPU", "WALL", "OF STOCK DRBD"),
        [
            (
                each.stack,
                each.program,
                f"{each.per_minute:g}",
                f"{each.cpu_s:.3f} s",
                f"{each.wall_s:.3f} s",
                f"{ratios[each.program]:.2f}",
            )
            for each in costs
        ],
    )
    for stack in dict.fromkeys(each.stack for each in costs):
        click.echo(peer_figures.minute_text(costs, stack))


def _watching(costs: Sequence[MonitorCost]) -> list[documents.PeerWatching]:
    return [
        {
            "stack": stack,
            "cpu_s_per_minute": round(peer_figures.per_minute_s(costs, stack), 3),
            "of_stock_drbd": round(peer_figures.minute_of_stock_monitor(costs, stack), 3),
        }
        for stack in dict.fromkeys(each.stack for each in costs)
    ]


def _data(
    count: int,
    versions: str,
    found: Found,
    comparisons: Sequence[Comparison],
    costs: Sequence[MonitorCost],
) -> dict[str, object]:
    pairs: list[documents.PeerComparison] = [
        {
            "kind": each.kind,
            "ours_median_s": round(each.ours_median_s, 3),
            "stock_median_s": round(each.stock_median_s, 3),
            "ratio": round(each.ratio, 2),
            "goal": peer_figures.GOALS[each.kind],
        }
        for each in comparisons
    ]
    trials: list[documents.PeerTrial] = [
        {
            "stack": trial.stack,
            "kind": trial.kind,
            "pauses_s": [round(pause, 3) for pause in trial.pauses_s],
            "errors": trial.errors,
        }
        for trial in found.trials
    ]
    # None before the monitors' turn.
    ratios = peer_figures.of_stock_monitor(costs) if costs else {}
    monitors: list[documents.PeerMonitor] = [
        {
            "stack": each.stack,
            "program": each.program,
            "per_minute": each.per_minute,
            "cpu_s": each.cpu_s,
            "wall_s": each.wall_s,
            "of_stock_drbd": round(ratios[each.program], 3),
        }
        for each in costs
    ]
    return {
        "devices": count,
        "versions": versions.splitlines(),
        "conditions": list(peer_config.FAIRNESS),
        "load_average": round(os.getloadavg()[2], 1),
        "comparisons": pairs,
        "trials": trials,
        "monitors": monitors,
        "watching": _watching(costs),
    }


def _write_report(
    folder: Path,
    stock: StockStack,
    versions: str,
    comparisons: Sequence[Comparison],
    data: dict[str, object],
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "peers.json").write_text(json.dumps(data, indent=2) + "\n")
    (folder / "versions.txt").write_text(versions)
    resources, constraints = stock.cib()
    cib = ET.fromstring(  # noqa: S314 - our own text
        f"<configuration><resources>{''.join(resources)}</resources>"
        f"<constraints>{''.join(constraints)}</constraints></configuration>"
    )
    ET.indent(cib)
    (folder / "stock-cib.xml").write_text(ET.tostring(cib, encoding="unicode") + "\n")
    for path, text in stock.files().items():
        (folder / f"stock-{Path(path).name}").write_text(text)
    peer_figures.draw(
        comparisons,
        ("sanctl", "stock agents"),
        f"Time without an answer, in turns in one laboratory; devices: {len(stock.devices)}",
        folder / "peers",
    )
