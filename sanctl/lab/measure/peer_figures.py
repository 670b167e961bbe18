# SPDX-License-Identifier: GPL-2.0-or-later
"""Pauses and monitors of two stacks that were measured in turns: medians, ratios, chart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

#: How many times shorter the pause of sanctl is to be than that of the stock agents.
GOALS = {"crash": 3.0, "planned move": 10.0}
KINDS = tuple(GOALS)
#: What the monitors of both stacks are compared with.
STOCK_MONITOR = "ocf:linbit:drbd"
#: How much of a minute of that one a minute of sanctl's monitors is to cost at most.
MONITOR_GOAL = 0.1
_COLOURS = ("#1d4ed8", "#94a3b8")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerTrial:
    """One crash or move of all devices of a stack.

    Attributes:
        stack: the stack's name.
        kind: one of KINDS.
        pauses_s: for each device how long its host had no answer, sorted.
        errors: requests of the host that failed.
    """

    stack: str
    kind: str
    pauses_s: tuple[float, ...]
    errors: int

    @property
    def longest_s(self) -> float:
        """The pause of the device that was served last."""
        return self.pauses_s[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The pauses of two stacks in trials of one kind, and the ratio of their medians."""

    kind: str
    ours_s: tuple[float, ...]
    stock_s: tuple[float, ...]

    @property
    def ours_median_s(self) -> float:
        """The median pause of sanctl."""
        return statistics.median(self.ours_s)

    @property
    def stock_median_s(self) -> float:
        """The median pause of the stock agents."""
        return statistics.median(self.stock_s)

    @property
    def ratio(self) -> float:
        """How many times longer the stock agents' pause is."""
        return self.stock_median_s / self.ours_median_s

    @property
    def is_reached(self) -> bool:
        """Whether the ratio is that of the goal, or better."""
        return self.ratio >= GOALS[self.kind]


def compare(trials: Sequence[PeerTrial], ours: str, stock: str) -> list[Comparison]:
    """Return the comparison of each kind of which both stacks have trials.

    With several devices a trial's pause is that of the device that was served last.
    """
    found = []
    for kind in KINDS:
        values = {
            stack: tuple(
                trial.longest_s for trial in trials if (trial.stack, trial.kind) == (stack, kind)
            )
            for stack in (ours, stock)
        }
        if all(values.values()):
            found.append(Comparison(kind=kind, ours_s=values[ours], stock_s=values[stock]))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorCost:
    """What one run of an agent's monitor costs, medians, and how often a minute it runs."""

    stack: str
    program: str
    cpu_s: float
    wall_s: float
    per_minute: float


def per_minute_s(costs: Sequence[MonitorCost], stack: str) -> float:
    """Return the processor time that a stack's monitors of one active device take in a minute."""
    return sum(each.cpu_s * each.per_minute for each in costs if each.stack == stack)


def of_stock_monitor(costs: Sequence[MonitorCost]) -> dict[str, float]:
    """Return each monitor's processor time by that of the stock DRBD agent's monitor."""
    stock = _stock_monitor(costs)
    return {each.program: each.cpu_s / stock.cpu_s for each in costs}


def minute_of_stock_monitor(costs: Sequence[MonitorCost], stack: str) -> float:
    """Return a minute of a stack's monitors by a minute of the stock DRBD agent's alone."""
    stock = _stock_monitor(costs)
    return per_minute_s(costs, stack) / (stock.cpu_s * stock.per_minute)


def minute_text(costs: Sequence[MonitorCost], stack: str) -> str:
    """Return a line that says what a minute of a stack's monitors costs."""
    return (
        f"{stack}: {per_minute_s(costs, stack):.2f} s of processor a minute and active device,"
        f" {minute_of_stock_monitor(costs, stack):.2f} of {STOCK_MONITOR} alone"
    )


def _stock_monitor(costs: Sequence[MonitorCost]) -> MonitorCost:
    return next(each for each in costs if each.program == STOCK_MONITOR)


def each(values_s: Sequence[float]) -> str:
    """Return some pauses as text, in the order of the runs."""
    return ", ".join(f"{value:.2f}" for value in values_s)


def draw(
    comparisons: Sequence[Comparison], names: tuple[str, str], title: str, stem: Path
) -> tuple[Path, Path]:
    """Write the chart as STEM.svg and STEM.png: a bar for each median, a point for each run."""
    # Imported here: it takes a second, which only a finished measurement should cost.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, panels = plt.subplots(
        1,
        len(comparisons),
        figsize=(5 * len(comparisons), 4.5),
        layout="constrained",
        squeeze=False,
    )
    figure.suptitle(title)
    for axes, found in zip(panels[0], comparisons, strict=True):
        medians = [found.ours_median_s, found.stock_median_s]
        bars = axes.bar(names, medians, 0.6, color=_COLOURS)
        axes.bar_label(bars, [f"{value:.2f} s" for value in medians], padding=3)
        for place, values in enumerate((found.ours_s, found.stock_s)):
            axes.scatter([place] * len(values), values, s=22, color="#334155", zorder=3)
        axes.set_title(f"{found.kind}: {found.ratio:.1f} times")
        axes.set_ylabel("longest time without an answer, s")
        axes.margins(y=0.15)
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg)
    figure.savefig(png, dpi=110)
    plt.close(figure)
    return svg, png
