# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands `sanctl chaos run` and `sanctl chaos matrix`: options, progress, exit status."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from sanctl.cli.options import SECONDS
from sanctl.errors import ExitStatus, SanctlError
from sanctl.lab.chaos import beside, ledgers, replica_compare, report
from sanctl.lab.chaos.beside import Beside, BesidePlan
from sanctl.lab.chaos.fault import Fault, describe
from sanctl.lab.chaos.fault_choice import (
    FAULT_LISTS,
    KINDS,
    SITE_KINDS,
    partitions,
    random_faults,
)
from sanctl.lab.chaos.fault_runner import (
    RECOVERY_DEADLINE_S,
    FaultResult,
    FaultRunner,
    nodes_by_role,
)
from sanctl.lab.chaos.partition_table import table
from sanctl.lab.harness.initiator import Initiator
from sanctl.lab.harness.lab_session import LabSession, run_sanctl
from sanctl.lab.harness.scenario import Scenario, await_members_online
from sanctl.lab.machines import lab_state
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import XFS
from sanctl.model.cache_policy import CacheMode

_NAME = "chaos"
_DEVICES = 3
_MAX_DEVICES = 64
_IDLE_DEVICES = ("idle1", "idle2")
_REGION_BYTES = 8 * 2**20
_SIZE = "128M"
_LAB_DEADLINE_S = 1800.0
_RECOVERY_S = round(RECOVERY_DEADLINE_S)
_SEED_LIMIT = 1_000_000
_SITE = "site"


def parse_fault_numbers(text: str) -> range:
    """Read the numbers of faults: `7`, or `3-9` with both ends.

    Raises:
        ValueError: it is neither.
    """
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ValueError(text)
    return range(int(first), int(last if dash else first) + 1)


class TimedLines:
    """Prints lines, each with the time since the run began."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Print one line."""
        click.echo(f"{time.monotonic() - self._began_s:7.1f} s  {text}")


@click.group()
def chaos() -> None:
    """Break a laboratory on purpose, under load, and audit what is left."""


@chaos.command()
@click.option("--name", default=_NAME, show_default=True, help="The lab; created if there is none.")
@click.option("--faults", "count", type=click.IntRange(1), default=100, show_default=True,
              help="How many random faults.")  # fmt: skip
@click.option("--seed", type=int, help="Repeats the choice of an earlier run. [random]")
@click.option("--scenario", type=click.Choice(list(FAULT_LISTS)),
              help="A fixed list of faults instead of random ones.")  # fmt: skip
@click.option("--kind", "kinds", type=click.Choice(sorted(KINDS)), multiple=True,
              help="Random faults of this kind only; may be given more than once.")  # fmt: skip
@click.option("--only", type=parse_fault_numbers, multiple=True, metavar="NUMBER|FIRST-LAST",
              help="Only these faults of the list.")  # fmt: skip
@click.option("--devices", "device_count", type=click.IntRange(1, _MAX_DEVICES), default=_DEVICES,
              show_default=True, metavar="N",
              help="Devices that hosts write to. More than three share the writes a second of"
              " three.")  # fmt: skip
@click.option("--cache", "mode", type=click.Choice([mode.value for mode in CacheMode]),
              default=CacheMode.NONE.value, show_default=True,
              help="Cache policy of the devices. Write-back survives the loss of one node, and no"
              " fault that takes all power.")  # fmt: skip
@click.option("--points", "points_s", type=click.IntRange(2), metavar="SECONDS",
              help="Make restore points of the first device, at random moments, so often on"
              " average; judge each after the fault. [none]")  # fmt: skip
@click.option("--site", "site_s", type=click.IntRange(10), metavar="SECONDS",
              help="Make the last host a second site's server, copy the first device there so"
              " often; judge each copy after the fault. Faults of the site come, too."
              " [none]")  # fmt: skip
@click.option("--recovery", "recovery_s", type=click.IntRange(60), default=_RECOVERY_S,
              show_default=True, metavar="SECONDS",
              help="How long the cluster may take to be whole again. More nodes on few processors"
              " take longer.")  # fmt: skip
@click.option("--keep-going", is_flag=True, help="Go on after a fault that ended in a problem.")
@click.option("--report", "folder", type=click.Path(path_type=Path), default="chaos-report",
              show_default=True, help="Folder for all that a run leaves.")  # fmt: skip
def run(
    *,
    name: str,
    count: int,
    seed: int | None,
    scenario: str | None,
    kinds: tuple[str, ...],
    only: tuple[range, ...],
    device_count: int,
    mode: str,
    points_s: int | None,
    site_s: int | None,
    recovery_s: int,
    keep_going: bool,
    folder: Path,
) -> None:
    """Inject faults one after the other; after each the cluster has to recover by itself.

    Exits with 0 only if every promise held after every fault: no acknowledged write lost, never
    two nodes that serve a device, nothing left over, no device that needs an operator, no I/O error
    at a host, and in the end no two replicas that differ. No restore point may be there, and no
    copy at the second site, that is not what the device held at one moment; after the faults one
    more of each has to be made, and be right. The devices have a replica on each
    storage node of the lab: with DRBD 9 that may be three or four, as in one that was made with
    --nodes 3 --witness none or --nodes 5.
    """
    if scenario and kinds:
        raise click.UsageError("--kind is for random faults, not for those of a --scenario")
    if site_s is None and (scenario == _SITE or SITE_KINDS & set(kinds)):
        raise click.UsageError("faults of a second site take --site SECONDS")
    lab_host.require_root()
    print_line = TimedLines()
    seed = random.randrange(_SEED_LIMIT) if seed is None else seed  # noqa: S311 - no secret
    repeat = repeat_command(
        seed=seed,
        count=count,
        scenario=scenario,
        kinds=kinds,
        devices=device_count,
        mode=mode,
        points_s=points_s,
        site_s=site_s,
        recovery_s=recovery_s,
    )
    print_line(repeat)
    bed = _lab(name)
    if (points_s or site_s) and bed.lab.spec.filesystem != XFS:
        raise click.UsageError(
            f"restore points take pools that are XFS, which those of {name} are not"
        )
    roles = nodes_by_role(bed, has_site=site_s is not None)
    faults = FAULT_LISTS[scenario](roles) if scenario else random_faults(roles, seed, count, kinds)
    numbered = select_faults(faults, only)
    for number, fault in numbered:
        print_line(f"planned {number}: {describe(fault)}")
    title = f"Fault bench: {scenario}" if scenario else f"Fault bench: seed {seed}"
    results, _ = run_faults(
        bed,
        numbered,
        title=title,
        repeat=repeat,
        folder=folder,
        keep_going=keep_going,
        print_line=print_line,
        devices=device_names(device_count),
        idle=_IDLE_DEVICES,
        cache=CacheMode(mode),
        recovery_s=recovery_s,
        plan=BesidePlan(seed=seed, points_s=points_s, site_s=site_s, server=roles.site_server),
    )
    print_line(
        f"written: {folder}/summary.md, timeline.txt, steps.json and a folder for each machine"
    )
    if len(results) < len(numbered) or not all(result.is_good for result in results):
        raise click.exceptions.Exit(ExitStatus.DEGRADED)


def device_names(count: int) -> tuple[str, ...]:
    """Return the names of the devices that hosts write to."""
    return tuple(f"chaos{number}" for number in range(1, count + 1))


def repeat_command(
    *,
    seed: int,
    count: int,
    scenario: str | None,
    kinds: Sequence[str],
    devices: int,
    mode: str,
    points_s: int | None = None,
    site_s: int | None = None,
    recovery_s: int = _RECOVERY_S,
) -> str:
    """Return the command that repeats a run, its faults and its devices."""
    words = ["sanctl", "chaos", "run"]
    if scenario is None:
        words += ["--seed", str(seed), "--faults", str(count)]
        for kind in kinds:
            words += ["--kind", kind]
    else:
        words += ["--scenario", scenario]
        if points_s or site_s:
            words += ["--seed", str(seed)]
    if devices != _DEVICES:
        words += ["--devices", str(devices)]
    if mode != CacheMode.NONE:
        words += ["--cache", mode]
    if points_s:
        words += ["--points", str(points_s)]
    if site_s:
        words += ["--site", str(site_s)]
    if recovery_s != _RECOVERY_S:
        words += ["--recovery", str(recovery_s)]
    return shlex.join(words)


@chaos.command()
@click.option("--name", default=_NAME, show_default=True, help="The lab; created if there is none.")
@click.option("--only", type=parse_fault_numbers, multiple=True, metavar="NUMBER|FIRST-LAST",
              help="Only these partitions of the table.")  # fmt: skip
@click.option("--hold", type=SECONDS, default=15.0, show_default=True, metavar="SECONDS",
              help="How long each partition lasts.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path), default="chaos-matrix",
              show_default=True, help="Folder for the table and the rest.")  # fmt: skip
def matrix(*, name: str, only: tuple[range, ...], hold: float, folder: Path) -> None:
    """Try every bipartition on every network; write the table for docs/explanation.

    The strategy is the one the lab's cluster has.
    """
    from dataclasses import replace  # noqa: PLC0415

    lab_host.require_root()
    print_line = TimedLines()
    bed = _lab(name)
    strategy = bed.sh(bed.storage[0].name, "grep -h '^strategy' /etc/sanctl/cluster.toml").stdout
    strategy = strategy.partition("=")[2].strip().strip('"') or "unknown"
    faults = [replace(fault, hold_s=hold) for fault in partitions(nodes_by_role(bed))]
    numbered = select_faults(faults, only)
    results, _ = run_faults(bed, numbered, title=f"Partitions, strategy {strategy}",
                           repeat="sanctl chaos matrix", folder=folder, keep_going=True,
                           print_line=print_line)  # fmt: skip
    text = table(results, roles=nodes_by_role(bed), strategy=strategy)
    (folder / "matrix.md").write_text(text)
    click.echo(text)
    if len(results) < len(numbered) or not all(result.is_good for result in results):
        raise click.exceptions.Exit(ExitStatus.DEGRADED)


def select_faults(faults: Sequence[Fault], only: Sequence[range]) -> list[tuple[int, Fault]]:
    """Return the faults that are to be injected, each with its number in the list.

    Raises:
        click.UsageError: there is none; a run without a fault would report success of nothing.
    """
    found = [
        (number, fault)
        for number, fault in enumerate(faults, start=1)
        if not only or any(number in each for each in only)
    ]
    if not found:
        raise click.UsageError(f"--only names none of the {len(faults)} faults")
    return found


def run_faults(
    bed: LabSession,
    numbered: Sequence[tuple[int, Fault]],
    *,
    title: str,
    repeat: str,
    folder: Path,
    keep_going: bool,
    print_line: Callable[[str], None],
    devices: Sequence[str] = device_names(_DEVICES),
    idle: Sequence[str] = (),
    cache: CacheMode = CacheMode.NONE,
    recovery_s: float = RECOVERY_DEADLINE_S,
    plan: BesidePlan = beside.NOTHING,
) -> tuple[list[FaultResult], int]:
    """Start the ledgers, inject the faults, write the folder; return results and writes."""
    await_members_online(bed)
    began_s = time.time()
    hosts = nodes_by_role(bed, has_site=plan.site_s is not None).hosts
    scenarios = [Scenario(bed, Initiator(bed, host)) for host in hosts]
    loads = ledgers.start(
        scenarios,
        devices,
        region_bytes=_REGION_BYTES,
        size=_SIZE,
        cache=cache,
    )
    ledgers.create_idle(scenarios, idle, size=_SIZE, cache=cache)
    with beside.opened(bed, loads, plan, print_line) as besides:
        runner = FaultRunner(bed, loads, print_line, idle, besides.watches, recovery_s=recovery_s)
        runner.injector.site = besides.faults
        runner.await_recovery()
        print_line(
            f"{len(loads)} devices under load from {' and '.join(hosts)}, {len(idle)} idle:"
            f" {runner.serving()}"
        )
        run = _Run(runner, besides, title=title, repeat=repeat, folder=folder)
        try:
            run.inject(numbered, keep_going=keep_going)
        finally:
            runner.injector.heal()
            report.collect_logs(bed, folder / "nodes", began_s)
            run.save()
        if all(result.is_good for result in run.results):
            ledgers.finish(loads, idle, scenarios)
    return run.results, run.acknowledged


class _Run:
    """The course of all faults of a run, and what it has written so far."""

    def __init__(
        self, runner: FaultRunner, besides: Beside, *, title: str, repeat: str, folder: Path
    ) -> None:
        self._runner = runner
        self._besides = besides
        self._title = title
        self._repeat = repeat
        self._folder = folder
        self._wanted = 0
        self.results: list[FaultResult] = []
        self.acknowledged = 0

    def inject(self, numbered: Sequence[tuple[int, Fault]], *, keep_going: bool) -> None:
        """Inject one fault after the other, until one ends in a problem; then look at the whole."""
        runner, print_line, results = self._runner, self._runner.print_line, self.results
        self._wanted = len(numbered)
        is_whole = False
        for number, fault in numbered:
            result = runner.run_fault(number, fault)
            results.append(result)
            self.acknowledged = sum(c.get("acknowledged", 0) for c in result.checks.values()) or (
                self.acknowledged
            )
            _print_result(print_line, result)
            self.save()
            is_whole = result.is_good
            if result.problems:
                report.collect_logs(
                    runner.bed, self._folder / f"problem-{number}", result.began_s - 60
                )
                is_whole = keep_going and _repair(runner, print_line)
                if not is_whole:
                    break
        # After a problem that was repaired there is more reason to compare, not less.
        if is_whole:
            found = self._besides.finish()
            for problem in found:
                print_line(f"   PROBLEM {problem}")
            found += replica_compare.differences(runner.bed, runner.devices, print_line)
            results[-1].problems.extend(found)

    def save(self) -> None:
        """Write what is known so far."""
        told = self._besides.report()
        page = report.summary(
            self.results,
            title=self._title,
            repeat=self._repeat,
            wanted=self._wanted,
            acknowledged=self.acknowledged,
            beside=told,
        )
        report.write(self._folder, self.results, page, told)


def _print_result(print_line: Callable[[str], None], result: FaultResult) -> None:
    pauses = ", ".join(f"{name} {pause.seconds:.1f} s" for name, pause in result.pauses.items())
    recovered = f"{result.recovered_s - result.undone_s:.0f} s" if result.recovered_s else "never"
    fenced = " ".join(result.fenced) or "none"
    print_line(f"   recovered after {recovered}; pauses: {pauses}; fenced: {fenced}")
    for problem in result.problems:
        print_line(f"   PROBLEM {problem}")
    for device, why in result.need_operator.items():
        print_line(f"   PROBLEM {device} needs an operator: {why}")


def _repair(runner: FaultRunner, print_line: Callable[[str], None]) -> bool:
    """Repair the cluster as an operator would, so that the next fault finds a healthy one."""
    print_line("   repaired by hand: everything healed, failures cleaned up")
    runner.injector.heal()
    try:
        runner.bed.sh(runner.bed.cluster[0].name, "crm_resource --cleanup", timeout_s=90)
        runner.await_recovery(within_s=60)
    except SanctlError:
        print_line("   repaired by hand: the cluster's nodes switched off and on")
        for node in runner.bed.cluster:
            runner.bed.cut_power(node.name)
        for node in runner.bed.cluster:
            runner.injector.ensure_power(node.name)
        try:
            runner.await_recovery()
            ledgers.await_writing(runner.loads, within_s=120)
        except SanctlError as error:
            print_line(f"   not recovered even then: {error}")
            return False
    return True


def _lab(name: str) -> LabSession:
    if lab_state.find(name) is None:
        run_sanctl("lab", "up", "--name", name, "--initiators", "2", timeout_s=_LAB_DEADLINE_S)
    elif not lab_state.load(name).is_up():
        run_sanctl("lab", "up", "--name", name, timeout_s=_LAB_DEADLINE_S)
    return LabSession(name)
