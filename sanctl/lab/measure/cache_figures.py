# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads fio's JSON into IOPS and latencies per cache mode, and draws them in a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sanctl.lab.measure import fio_result

PERCENTILES = (50.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FioFigures:
    """Random mixed I/O in one cache mode.

    Attributes:
        mode: the mode of the pool's flash, or `RAM`.
        iops: requests a second, reads and writes.
        mean_s: their mean latency.
        percentiles_s: latency by percentile.
        read_s: mean latency of reads.
        write_s: mean latency of writes.
        hit_percent: reads that the active node found in that cache; None: not reported.
    """

    mode: str
    iops: float
    mean_s: float
    percentiles_s: dict[float, float]
    read_s: float
    write_s: float
    hit_percent: int | None = None


#: The mode with no flash and a read cache in RAM.
RAM = "read cache in RAM"

#: For comparison: IOPS and mean latency of another storage's three modes.
REFERENCE = (
    ("none", 252.0, 0.0162),
    ("write-through", 1473.0, 0.0014),
    ("write-back", 4581.0, 0.0015),
)


def parse_fio(text: str, mode: str, *, hit_percent: int | None) -> FioFigures:
    """Read fio's JSON of one job with percentiles of latency (fio(1), lat_percentiles).

    Raises:
        ValueError: fio reported an error, or read or wrote nothing.
    """
    sides = fio_result.parse(text)
    if not all(side.total for side in sides):
        raise ValueError("fio read nothing, or wrote nothing")
    total = sum(side.total for side in sides)
    return FioFigures(
        mode=mode,
        iops=sum(side.iops for side in sides),
        mean_s=sum(side.mean_s * side.total for side in sides) / total,
        percentiles_s={wanted: fio_result.percentile_s(sides, wanted) for wanted in PERCENTILES},
        read_s=sides[0].mean_s,
        write_s=sides[1].mean_s,
        hit_percent=hit_percent,
    )


def factors(figures: Sequence[FioFigures]) -> list[float]:
    """Return the IOPS of each figure divided by those of the first."""
    return [each.iops / figures[0].iops for each in figures]


def draw(figures: Sequence[FioFigures], title: str, stem: Path) -> tuple[Path, Path]:
    """Write the chart as STEM.svg and STEM.png and return both paths."""
    # Imported here: it takes a second, which only a finished measurement should cost.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    figure.suptitle(title)
    places = [each.mode for each in figures]
    held_against = {mode: iops for mode, iops, _ in REFERENCE if mode in places}
    for shift, found, name, colour in (
        (-0.2, {each.mode: each.iops for each in figures}, "this run", "#1d4ed8"),
        (0.2, held_against, "the run for comparison", "#94a3b8"),
    ):
        values = list(found.values())
        at = [places.index(mode) + shift for mode in found]
        bars = left.bar(at, values, 0.4, label=name, color=colour)
        left.bar_label(bars, [f"{v:.0f}\nx{v / values[0]:.1f}" for v in values], fontsize=9)
    left.set_xticks(range(len(places)), places)
    left.set_ylabel("requests a second")
    left.margins(y=0.15)
    left.legend()
    for each in figures:
        right.plot(
            [f"{wanted:g} %" for wanted in PERCENTILES],
            [each.percentiles_s[wanted] * 1000 for wanted in PERCENTILES],
            marker="o",
            label=each.mode,
        )
    right.set_yscale("log")
    right.set_ylabel("answered within, ms")
    right.grid(visible=True, which="both", alpha=0.3)
    right.legend()
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg)
    figure.savefig(png, dpi=110)
    plt.close(figure)
    return svg, png
