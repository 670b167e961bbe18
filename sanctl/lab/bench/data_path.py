# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl bench path`: fio on raw disk, LIO, DRBD and LIO by hand, and sanctl."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.errors import ExitStatus, UsageError
from sanctl.lab.bench import path_config
from sanctl.lab.bench.bench_lab import lab_option, scenario_without
from sanctl.lab.bench.path_layers import Layers
from sanctl.lab.measure import path_figures
from sanctl.lab.measure.path_figures import LAYERS, Cell, CellResult, Run
from sanctl.model.names import parse_bytes

if TYPE_CHECKING:
    from sanctl.lab.documents import throughput as documents

#: What a run of fio takes besides its time, and what making and removing the layers takes: of a
#: laboratory of two processors, for the estimate alone.
_FIO_OVERHEAD_S = 2.5
_SET_UP_S = 120.0
_BLOCKS = "4k,64k,1M"
_DEPTHS = "1,32"
_LARGEST_BLOCK = 4 << 20
_DEEPEST = 128
_VERSIONS = (
    "echo kernel $(uname -r); echo drbd-module $(head -n1 /proc/drbd | cut -d' ' -f2);"
    " echo filesystem $(findmnt -n -o FSTYPE /srv/sanctl/main)"
)


@click.command("path")
@lab_option()
@click.option("--seconds", type=click.IntRange(1), default=3, show_default=True,
              help="Time of each run of fio.")  # fmt: skip
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True,
              help="Turns: in each, every load runs on every layer.")  # fmt: skip
@click.option("--block-sizes", "blocks", default=_BLOCKS, show_default=True, metavar="SIZE,SIZE,…",
              callback=lambda _context, _option, text: _block_sizes(text),
              help="Sizes of a request.")  # fmt: skip
@click.option("--depths", default=_DEPTHS, show_default=True, metavar="N,N,…",
              callback=lambda _context, _option, text: _depths(text),
              help="Requests in flight.")  # fmt: skip
@click.option("--report", "folder", type=click.Path(path_type=Path), default=Path("bench-path"),
              show_default=True, help="Folder for figures, configuration and chart.")  # fmt: skip
@output_option
def path_command(
    *,
    name: str,
    seconds: int,
    repeat: int,
    blocks: tuple[int, ...],
    depths: tuple[int, ...],
    folder: Path,
    output: str,
) -> None:
    """The data path: raw disk, LIO on it, DRBD and LIO made by hand, and sanctl, beside each other.

    In the same laboratory, in turns: each load runs on all four before the next one does. Random
    reads, writes and both mixed (70 % reads). What is made by hand is written to the report and
    removed again. Exits with 0 if sanctl answers at least 0.97 times as many requests as DRBD and
    LIO made by hand: the median of all loads, each the median of its turns.
    """
    layers = Layers(scenario_without(name, path_config.NAME))
    bed = layers.bed
    cells = path_figures.cells(blocks, depths)
    fios = len(cells) * len(LAYERS) * repeat

    def print_line(text: str) -> None:
        click.echo(f"  {text}", err=True)

    estimate_s = fios * (seconds + _FIO_OVERHEAD_S) + _SET_UP_S
    print_line(f"{fios} runs of {seconds} s: about {max(1, round(estimate_s / 60))} min")
    runs: list[Run] = []
    versions = bed.sh(layers.home, _VERSIONS).stdout.splitlines()
    with ExitStack() as up:
        layers.set_up(up, print_line)
        differences = layers.differences()
        for turn in range(repeat):
            for cell in cells:
                for layer in LAYERS:
                    figures = layers.measure(layer, cell, seconds)
                    runs.append(Run(turn, cell, layer, figures))
                print_line(f"turn {turn + 1} of {repeat}, {_line(cell, runs[-len(LAYERS) :])}")
            layers.check()
            # After each turn: a run that is interrupted leaves what it has measured.
            results = path_figures.summarize(runs)
            data = _data(seconds, versions, differences, runs, results)
            _write_report(folder, layers, results, data)

    def text() -> None:
        print_table(path_figures.COLUMNS, path_figures.rows(results))
        for line in (*path_config.CONDITIONS, *differences):
            click.echo(f"* {line}")
        click.echo(
            f"sanctl answers {path_figures.overall(results):.3f} times as many requests as DRBD "
            f"and LIO by hand, median of {len(results)} loads; goal {path_figures.GOAL}: "
            f"{'held' if path_figures.is_held(results) else 'missed'}"
        )
        click.echo(f"report: {folder}")

    finish(
        output,
        data=data,
        text=text,
        status=ExitStatus.OK if path_figures.is_held(results) else ExitStatus.DEGRADED,
    )


def _block_sizes(text: str) -> tuple[int, ...]:
    try:
        found = tuple(parse_bytes(word) for word in text.split(","))
    except UsageError as error:
        raise click.BadParameter(str(error)) from error
    if not all(0 < size <= _LARGEST_BLOCK and size % 512 == 0 for size in found):
        raise click.BadParameter("multiples of 512 bytes up to 4M, such as 4k,64k,1M")
    return tuple(dict.fromkeys(found))


def _depths(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        found = (0,)
    if not all(1 <= depth <= _DEEPEST for depth in found):
        raise click.BadParameter(f"numbers from 1 to {_DEEPEST}, such as 1,32")
    return tuple(dict.fromkeys(found))


def _line(cell: Cell, runs: Sequence[Run]) -> str:
    return f"{cell}: " + ", ".join(f"{run.layer} {run.figures.iops:.0f}" for run in runs)


def _data(
    seconds: int,
    versions: list[str],
    differences: list[str],
    runs: Sequence[Run],
    results: Sequence[CellResult],
) -> documents.PathBench:
    return {
        "seconds": seconds,
        "versions": versions,
        "conditions": list(path_config.CONDITIONS),
        "differences": differences,
        "load_average": round(os.getloadavg()[2], 1),
        "ratio": round(path_figures.overall(results), 4),
        "goal": path_figures.GOAL,
        "loads": [
            {
                **_load(each.cell),
                "ratio": round(each.ratio, 4),
                "ratios": [round(ratio, 4) for ratio in each.ratios],
                "layers": [
                    {
                        "layer": layer,
                        "iops": round(found.iops, 1),
                        "mb_s": round(each.megabytes_s(layer), 2),
                        "p50_ms": round(found.p50_s * 1000, 3),
                        "p99_ms": round(found.p99_s * 1000, 3),
                    }
                    for layer, found in each.medians.items()
                ],
            }
            for each in results
        ],
        "runs": [
            {
                **_load(run.cell),
                "turn": run.turn + 1,
                "layer": run.layer,
                "iops": round(run.figures.iops, 1),
                "p50_ms": round(run.figures.p50_s * 1000, 3),
                "p99_ms": round(run.figures.p99_s * 1000, 3),
            }
            for run in runs
        ],
    }


def _load(cell: Cell) -> documents.PathLoad:
    return {"kind": cell.kind, "block_bytes": cell.block_bytes, "depth": cell.depth}


def _write_report(
    folder: Path, layers: Layers, results: Sequence[CellResult], data: documents.PathBench
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "path.json").write_text(json.dumps(data, indent=2) + "\n")
    said = (*data["versions"], *data["conditions"], *data["differences"])
    (folder / "path.md").write_text(
        f"Requests a second and latency, medians of {max(run['turn'] for run in data['runs'])} "
        f"turns of {data['seconds']} s. sanctl by hand: {data['ratio']} (goal: {data['goal']}).\n\n"
        + path_figures.markdown(results)
        + "\n"
        + "".join(f"* {line}\n" for line in said)
    )
    for file, text in layers.files().items():
        (folder / f"by-hand-{file}").write_text(text)
    path_figures.draw(
        results,
        "Throughput by layer, in turns in one laboratory; above sanctl's bar: by that of DRBD and "
        "LIO by hand",
        folder / "path",
    )
