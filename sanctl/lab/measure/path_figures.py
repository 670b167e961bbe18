# SPDX-License-Identifier: GPL-2.0-or-later
"""I/O of four layers of the data path, measured in turns: medians, ratios, judgement, chart."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sanctl.lab.measure import fio_result

RAW, LIO, BY_HAND, OURS = "raw disk", "LIO", "DRBD and LIO by hand", "sanctl"
#: In the order in which they are measured, each standing on one thing more; the last two compete.
LAYERS = (RAW, LIO, BY_HAND, OURS)
#: How much of the I/O of the hand-made stack sanctl is to do, by median of all cells.
GOAL = 0.97
#: fio's pattern by the kind of load. Random throughout: a region is small, and read ahead of.
KINDS = {"read": "randread", "write": "randwrite", "mixed": "randrw"}
MIXED_READ_PERCENT = 70
_COLOURS = ("#cbd5e1", "#94a3b8", "#64748b", "#1d4ed8")
_SECTION = re.compile(r"^\s*([\w-]+)\b.*\{\s*$")
_OPTION = re.compile(r"^\s*([\w-]+)\s+(.+?);")
_SECTIONS_WITH_OPTIONS = frozenset({"options", "net", "disk"})


class Cell(NamedTuple):
    """One kind of load: what is done, in blocks of which size, with how many requests in flight."""

    kind: str
    block_bytes: int
    depth: int

    def __str__(self) -> str:
        """Return it as text, such as `read 4k, 32 in flight`."""
        return f"{self.kind} {block_text(self.block_bytes)}, {self.depth} in flight"


class Figures(NamedTuple):
    """What fio found: requests a second, and latency by median and 99 %."""

    iops: float
    p50_s: float
    p99_s: float


class Run(NamedTuple):
    """One run of fio."""

    turn: int
    cell: Cell
    layer: str
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """All runs of a cell.

    Attributes:
        cell: the load.
        medians: by layer, the median of each figure over the turns.
        ratios: for each turn, the requests of sanctl by those of the hand-made stack just before.
    """

    cell: Cell
    medians: Mapping[str, Figures]
    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the turns."""
        return statistics.median(self.ratios)

    def megabytes_s(self, layer: str) -> float:
        """Return the throughput of a layer in MB (10^6 bytes) a second."""
        return self.medians[layer].iops * self.cell.block_bytes / 1e6


def block_text(block_bytes: int) -> str:
    """Return a size as fio takes it: `4k`, `1M`."""
    for unit, shift in (("M", 20), ("k", 10)):
        if block_bytes % (1 << shift) == 0:
            return f"{block_bytes >> shift}{unit}"
    return str(block_bytes)


def cells(block_sizes: Sequence[int], depths: Sequence[int]) -> list[Cell]:
    """Return all combinations."""
    return [Cell(kind, size, depth) for kind in KINDS for size in block_sizes for depth in depths]


def parse(text: str) -> Figures:
    """Read fio's document of one job, reads and writes together.

    Raises:
        ValueError: fio reported an error, or did nothing.
    """
    sides = fio_result.parse(text)
    return Figures(
        iops=sum(side.iops for side in sides),
        p50_s=fio_result.percentile_s(sides, 50),
        p99_s=fio_result.percentile_s(sides, 99),
    )


def summarize(runs: Iterable[Run]) -> list[CellResult]:
    """Return the result of each cell that all layers have run, from the turns that are complete."""
    turns: dict[Cell, dict[int, dict[str, Figures]]] = {}
    for run in runs:
        turns.setdefault(run.cell, {}).setdefault(run.turn, {})[run.layer] = run.figures
    results = []
    for cell, by_turn in turns.items():
        whole = [found for found in by_turn.values() if found.keys() == set(LAYERS)]
        if whole:
            medians = {
                layer: Figures(
                    *map(statistics.median, zip(*(each[layer] for each in whole), strict=True))
                )
                for layer in LAYERS
            }
            ratios = tuple(each[OURS].iops / each[BY_HAND].iops for each in whole)
            results.append(CellResult(cell=cell, medians=medians, ratios=ratios))
    return results


def overall(results: Sequence[CellResult]) -> float:
    """Return the median of all cells' ratios."""
    return statistics.median(each.ratio for each in results)


def is_held(results: Sequence[CellResult]) -> bool:
    """Whether sanctl does as much of the hand-made stack's I/O as the goal wants."""
    return bool(results) and overall(results) >= GOAL


def drbd_options(text: str) -> dict[str, str]:
    """Return the options in what `drbdsetup show` prints, as `SECTION NAME`; without the secret."""
    found, sections = {}, [""]
    for line in text.splitlines():
        if opened := _SECTION.match(line):
            sections.append(opened[1])
        elif line.strip() == "}":
            sections.pop()
        elif (option := _OPTION.match(line)) and sections[-1] in _SECTIONS_WITH_OPTIONS:
            found[f"{sections[-1]} {option[1]}"] = option[2]
    found.pop("net shared-secret", None)
    return found


def settings(text: str) -> dict[str, str]:
    """Return what `grep . FILES` prints, `NAME:VALUE` in each line."""
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name: value for name, _, value in pairs}


def differences(what: str, ours: Mapping[str, str], by_hand: Mapping[str, str]) -> list[str]:
    """Return each setting that differs between sanctl and the hand-made stack, as a sentence."""
    return [
        f"{what} {name}: sanctl {ours.get(name, 'absent')}, by hand {by_hand.get(name, 'absent')}"
        for name in sorted(ours.keys() | by_hand.keys())
        if ours.get(name) != by_hand.get(name)
    ]


COLUMNS = ("LOAD", "LAYER", "IOPS", "MB/S", "50 %", "99 %", "OF RAW", "SANCTL BY HAND")


def rows(results: Sequence[CellResult]) -> list[tuple[str, ...]]:
    """Return the table: a row for each cell and layer; the last one has the cell's ratio."""
    return [
        (
            str(each.cell) if layer == LAYERS[0] else "",
            layer,
            f"{each.medians[layer].iops:.0f}",
            f"{each.megabytes_s(layer):.1f}",
            f"{each.medians[layer].p50_s * 1000:.2f} ms",
            f"{each.medians[layer].p99_s * 1000:.2f} ms",
            f"{each.medians[layer].iops / each.medians[RAW].iops:.2f}",
            _spread(each) if layer == OURS else "",
        )
        for each in results
        for layer in LAYERS
    ]


def _spread(each: CellResult) -> str:
    return f"{each.ratio:.2f} ({min(each.ratios):.2f}-{max(each.ratios):.2f})"


def markdown(results: Sequence[CellResult]) -> str:
    """Return the table of a report: a row for each cell."""
    head = ("load", *(f"{layer}: IOPS, 50 %, 99 %" for layer in LAYERS), "sanctl by hand")
    lines = [_line(head), _line(["---", *["---:"] * (len(LAYERS) + 1)])]
    for each in results:
        shown = [
            f"{found.iops:.0f}, {found.p50_s * 1000:.2f} ms, {found.p99_s * 1000:.2f} ms"
            for found in (each.medians[layer] for layer in LAYERS)
        ]
        lines.append(_line([str(each.cell), *shown, _spread(each)]))
    return "\n".join(lines) + "\n"


def _line(words: Sequence[str]) -> str:
    return f"| {' | '.join(words)} |"


def draw(results: Sequence[CellResult], title: str, stem: Path) -> tuple[Path, Path]:
    """Write the chart as STEM.svg and STEM.png: throughput by layer, the ratio above sanctl's."""
    # Imported here: it takes a second, which only a finished measurement should cost.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    kinds = list(dict.fromkeys(each.cell.kind for each in results))
    depths = sorted({each.cell.depth for each in results})
    figure, panels = plt.subplots(
        len(depths),
        len(kinds),
        figsize=(4.5 * len(kinds), 3.8 * len(depths)),
        layout="constrained",
        squeeze=False,
    )
    figure.suptitle(title)
    for row, depth in enumerate(depths):
        for column, kind in enumerate(kinds):
            axes = panels[row][column]
            found = [each for each in results if (each.cell.kind, each.cell.depth) == (kind, depth)]
            if not found:
                axes.set_axis_off()
                continue
            for place, layer in enumerate(LAYERS):
                at = [number + (place - 1.5) * 0.2 for number in range(len(found))]
                bars = axes.bar(
                    at,
                    [each.megabytes_s(layer) for each in found],
                    0.2,
                    label=layer,
                    color=_COLOURS[place],
                )
                if layer == OURS:
                    axes.bar_label(bars, [f"{each.ratio:.2f}" for each in found], padding=2)
            axes.set_xticks(
                range(len(found)), [block_text(each.cell.block_bytes) for each in found]
            )
            axes.set_yscale("log")
            axes.margins(y=0.15)
            axes.set_title(f"{kind}, {depth} in flight")
            axes.set_ylabel("MB/s")
    panels[0][0].legend(fontsize=8)
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg)
    figure.savefig(png, dpi=110)
    plt.close(figure)
    return svg, png
