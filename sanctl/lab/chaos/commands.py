# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl chaos`."""

from __future__ import annotations

import random
import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from sanctl.errors import ExitStatus, SanctlError
from sanctl.lab.chaos import loads as ledgers
from sanctl.lab.chaos import report
from sanctl.lab.chaos.fault import Fault, describe
from sanctl.lab.chaos.fault_choice import SCENARIOS, partitions, random_faults
from sanctl.lab.chaos.matrix import table
from sanctl.lab.chaos.run import Bench, Step, shape_of
from sanctl.lab.harness.initiator import Host
from sanctl.lab.harness.lab_session import Bed, run_sanctl
from sanctl.lab.harness.scenario import Scene, await_cluster
from sanctl.lab.machines import lab_state
from sanctl.lab.machines import requirements as lab_host
from sanctl.lab.machines.spec import Role
from sanctl.model.cache_policy import Mode

_NAME = "chaos"
_DEVICES = ("chaos1", "chaos2", "chaos3")
# Steady and well below what the lab can do: the processors are left to the faults.
_WRITES_PER_S = 40.0
_REGION_BYTES = 8 * 2**20
_SIZE = "128M"
_LAB_DEADLINE_S = 1800.0
_SEED_LIMIT = 1_000_000


def numbers(text: str) -> range:
    """Read the numbers of faults: `7`, or `3-9` with both ends.

    Raises:
        ValueError: it is neither.
    """
    first, dash, last = text.partition("-")
    if not first.isdecimal() or (dash and not last.isdecimal()):
        raise ValueError(text)
    return range(int(first), int(last if dash else first) + 1)


class Clock:
    """Says lines with the time since the run began."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()

    def __call__(self, text: str) -> None:
        """Say one line."""
        click.echo(f"{time.monotonic() - self._began_s:7.1f} s  {text}")


@click.group()
def chaos() -> None:
    """Break a laboratory on purpose, under load, and audit what is left."""


@chaos.command()
@click.option("--name", default=_NAME, show_default=True, help="The lab; made if there is none.")
@click.option("--faults", "count", type=click.IntRange(1), default=100, show_default=True,
              help="How many random faults.")  # fmt: skip
@click.option("--seed", type=int, help="Repeats the choice of an earlier run. [random]")
@click.option("--scenario", type=click.Choice(list(SCENARIOS)),
              help="A fixed list of faults instead of random ones.")  # fmt: skip
@click.option("--only", type=numbers, multiple=True, metavar="NUMBER|FIRST-LAST",
              help="Only these faults of the list.")  # fmt: skip
@click.option("--cache", "mode", type=click.Choice([mode.value for mode in Mode]),
              default=Mode.NONE.value, show_default=True,
              help="Cache policy of the devices. Write-back survives the loss of one node, and no"
              " fault that takes all power.")  # fmt: skip
@click.option("--keep-going", is_flag=True, help="Go on after a fault that ended in a problem.")
@click.option("--report", "folder", type=click.Path(path_type=Path), default="chaos-report",
              show_default=True, help="Folder for all that a run leaves.")  # fmt: skip
def run(
    *,
    name: str,
    count: int,
    seed: int | None,
    scenario: str | None,
    only: tuple[range, ...],
    mode: str,
    keep_going: bool,
    folder: Path,
) -> None:
    """Inflict faults one after the other; after each the cluster has to be whole again.

    Exits with 0 only if every promise held after every fault: no acknowledged write lost, never
    two nodes that serve, nothing left over, no I/O error at a host, whole again by itself.
    """
    lab_host.require_root()
    tell = Clock()
    seed = random.randrange(_SEED_LIMIT) if seed is None else seed  # noqa: S311 - no secret
    words = ["sanctl", "chaos", "run"]
    if scenario is None:
        words += ["--seed", str(seed), "--faults", str(count)]
    else:
        words += ["--scenario", scenario]
    if mode != Mode.NONE:
        words += ["--cache", mode]
    repeat = shlex.join(words)
    tell(repeat)
    bed = _lab(name)
    shape = shape_of(bed)
    faults = SCENARIOS[scenario](shape) if scenario else random_faults(shape, seed, count)
    numbered = chosen(faults, only)
    for number, fault in numbered:
        tell(f"planned {number}: {describe(fault)}")
    title = f"Fault bench: {scenario}" if scenario else f"Fault bench: seed {seed}"
    steps, _ = inflict_all(bed, numbered, title=title, repeat=repeat, folder=folder,
                           keep_going=keep_going, tell=tell, cache=Mode(mode))  # fmt: skip
    tell(f"written: {folder}/summary.md, timeline.txt, steps.json and a folder for each machine")
    if len(steps) < len(numbered) or not all(step.is_good for step in steps):
        raise click.exceptions.Exit(ExitStatus.DEGRADED)


@chaos.command()
@click.option("--name", default=_NAME, show_default=True, help="The lab; made if there is none.")
@click.option("--only", type=numbers, multiple=True, metavar="NUMBER|FIRST-LAST",
              help="Only these partitions of the table.")  # fmt: skip
@click.option("--hold", type=float, default=15.0, show_default=True, metavar="SECONDS",
              help="How long each partition lasts.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path), default="chaos-matrix",
              show_default=True, help="Folder for the table and the rest.")  # fmt: skip
def matrix(*, name: str, only: tuple[range, ...], hold: float, folder: Path) -> None:
    """Try every bipartition on every network; write the table for docs/explanation.

    The strategy is the one the lab's cluster has.
    """
    from dataclasses import replace  # noqa: PLC0415

    lab_host.require_root()
    tell = Clock()
    bed = _lab(name)
    strategy = bed.sh(bed.storage[0].name, "grep -h '^strategy' /etc/sanctl/cluster.toml").stdout
    strategy = strategy.partition("=")[2].strip().strip('"') or "unknown"
    faults = [replace(fault, hold_s=hold) for fault in partitions(shape_of(bed))]
    numbered = chosen(faults, only)
    steps, _ = inflict_all(bed, numbered, title=f"Partitions, strategy {strategy}",
                           repeat="sanctl chaos matrix", folder=folder, keep_going=True,
                           tell=tell)  # fmt: skip
    text = table(steps, shape=shape_of(bed), strategy=strategy)
    (folder / "matrix.md").write_text(text)
    click.echo(text)
    if len(steps) < len(numbered) or not all(step.is_good for step in steps):
        raise click.exceptions.Exit(ExitStatus.DEGRADED)


def chosen(faults: Sequence[Fault], only: Sequence[range]) -> list[tuple[int, Fault]]:
    """Return the faults that are to be inflicted, each with its number in the list.

    Raises:
        click.UsageError: none is; a run without a fault would promise what nobody has tried.
    """
    found = [
        (number, fault)
        for number, fault in enumerate(faults, start=1)
        if not only or any(number in each for each in only)
    ]
    if not found:
        raise click.UsageError(f"--only names none of the {len(faults)} faults")
    return found


def inflict_all(
    bed: Bed,
    numbered: Sequence[tuple[int, Fault]],
    *,
    title: str,
    repeat: str,
    folder: Path,
    keep_going: bool,
    tell: Callable[[str], None],
    devices: Sequence[str] = _DEVICES,
    cache: Mode = Mode.NONE,
) -> tuple[list[Step], int]:
    """Set up the load, inflict the faults, leave the folder; return the steps and all acks."""
    await_cluster(bed)
    began_s = time.time()
    hosts = [node.name for node in bed.lab.machines if node.role is Role.INITIATOR]
    scenes = [Scene(bed, Host(bed, host)) for host in hosts]
    loads = ledgers.start(
        scenes,
        devices,
        rate=_WRITES_PER_S,
        region_bytes=_REGION_BYTES,
        size=_SIZE,
        cache=cache,
    )
    bench = Bench(bed, loads, tell)
    bench.await_whole()
    tell(f"{len(loads)} devices under load from {' and '.join(hosts)}: {bench.serving()}")
    steps: list[Step] = []
    acknowledged = 0

    def save() -> None:
        page = summary_of(steps, title, repeat, wanted=len(numbered), acknowledged=acknowledged)
        report.write(folder, steps, page)

    try:
        for number, fault in numbered:
            step = bench.run_step(number, fault)
            steps.append(step)
            acknowledged = sum(c.get("acknowledged", 0) for c in step.checks.values()) or (
                acknowledged
            )
            _tell_step(tell, step)
            save()
            if step.problems:
                report.collect(bed, folder / f"problem-{number}", step.began_s - 60)
                if not keep_going or not _repair(bench, tell):
                    break
    finally:
        bench.inflicter.heal()
        report.collect(bed, folder / "nodes", began_s)
        save()
    if all(step.is_good for step in steps):
        ledgers.finish(loads, scenes)
    return steps, acknowledged


def summary_of(
    steps: Sequence[Step], title: str, repeat: str, *, wanted: int, acknowledged: int
) -> str:
    """Return the summary page."""
    return report.summary(
        steps, title=title, repeat=repeat, wanted=wanted, acknowledged=acknowledged
    )


def _tell_step(tell: Callable[[str], None], step: Step) -> None:
    pauses = ", ".join(f"{name} {pause.seconds:.1f} s" for name, pause in step.pauses.items())
    whole = f"{step.whole_s - step.undone_s:.0f} s" if step.whole_s else "never"
    fenced = " ".join(step.fenced) or "nobody"
    tell(f"   whole after {whole}; pauses: {pauses}; fenced: {fenced}")
    for problem in step.problems:
        tell(f"   PROBLEM {problem}")


def _repair(bench: Bench, tell: Callable[[str], None]) -> bool:
    """Do what an operator would, so that the next fault finds a whole cluster."""
    tell("   repaired by hand: everything healed, failures cleaned up")
    bench.inflicter.heal()
    try:
        bench.bed.sh(bench.bed.cluster[0].name, "crm_resource --cleanup", timeout_s=90)
        bench.await_whole(within_s=60)
    except SanctlError:
        tell("   repaired by hand: the cluster's nodes switched off and on")
        for node in bench.bed.cluster:
            bench.bed.cut_power(node.name)
        for node in bench.bed.cluster:
            bench.inflicter.give_power_back(node.name)
        try:
            bench.await_whole()
            ledgers.await_writing(bench.loads, within_s=120)
        except SanctlError as error:
            tell(f"   it is not whole even then: {error}")
            return False
    return True


def _lab(name: str) -> Bed:
    if lab_state.find(name) is None:
        run_sanctl("lab", "up", "--name", name, "--initiators", "2", timeout_s=_LAB_DEADLINE_S)
    elif not lab_state.load(name).is_up():
        run_sanctl("lab", "up", "--name", name, timeout_s=_LAB_DEADLINE_S)
    return Bed(name)
