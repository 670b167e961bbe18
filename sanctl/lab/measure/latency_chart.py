# SPDX-License-Identifier: GPL-2.0-or-later
"""Draws each write's latency over time and the failover's milestones (matplotlib)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sanctl.lab.measure.ledger_latency import Write
from sanctl.lab.measure.timeline import Milestone
from sanctl.lab.measure.trial import Trial, TrialKind

# The colours of the milestones that a reader looks for; all others are grey.
_COLOURS = {
    Milestone.POWER_CUT: "#c1121f",
    Milestone.FIRST_WRITE: "#15803d",
    Milestone.MOVE_ASKED: "#1d4ed8",
}
_OTHER_COLOUR = "#94a3b8"
_PAUSE_COLOUR = "#fde68a"
_POINT_COLOUR = "#334155"
_SLOW_COLOUR = "#c1121f"
_SLOW_S = 0.5
# Labels closer together than this share of the panel's width go to different heights.
_LABEL_SHARE = 0.018
_LABEL_HEIGHTS = (0.985, 0.74, 0.49)
# Two heights, so that captions of neighbouring failovers do not overlap.
_CAPTION_HEIGHTS = (0.97, 0.83)


def draw(writes: Sequence[Write], trials: Sequence[Trial], stem: Path) -> tuple[Path, Path]:
    """Write the chart as STEM.svg and STEM.png and return both paths.

    The upper panel is the whole run; the lower ones show the crash and the move of median length.
    """
    # Imported here: it takes a second, which only a finished measurement should cost.
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    begin_s = min(write.issued_wall_s for write in writes)
    close_by = [median for kind in TrialKind if (median := _median_trial(trials, kind)) is not None]
    figure = plt.figure(figsize=(14, 10 if close_by else 5), layout="constrained")
    grid = figure.add_gridspec(2 if close_by else 1, max(1, len(close_by)), height_ratios=(
        (2, 3) if close_by else (1,)
    ))  # fmt: skip
    whole = figure.add_subplot(grid[0, :])
    whole.set_title("every 4 KiB write of the run")
    _draw_writes(whole, writes, begin_s)
    for number, trial in enumerate(trials):
        _shade(whole, trial, begin_s)
        whole.annotate(
            f"{trial.kind}\n{trial.pause.seconds:.2f} s",
            (trial.pause.gap_began_wall_s - begin_s, _CAPTION_HEIGHTS[number % 2]),
            xycoords=whole.get_xaxis_transform(),
            xytext=(6, 0),
            textcoords="offset points",
            va="top",
            fontsize=9,
        )
    for column, trial in enumerate(close_by):
        _draw_close(figure.add_subplot(grid[1, column]), writes, trial)
    svg, png = stem.with_suffix(".svg"), stem.with_suffix(".png")
    figure.savefig(svg)
    figure.savefig(png, dpi=110)
    plt.close(figure)
    return svg, png


def _median_trial(trials: Sequence[Trial], kind: TrialKind) -> Trial | None:
    pauses = [trial.pause.seconds for trial in trials if trial.kind is kind]
    if not pauses:
        return None
    wanted = statistics.median_low(pauses)
    return next(t for t in trials if t.kind is kind and t.pause.seconds == wanted)


def _draw_writes(axes: Any, writes: Sequence[Write], begin_s: float) -> None:
    """Draw each write at the time it was issued."""
    axes.set_yscale("log")
    for is_slow, size, colour in ((False, 4, _POINT_COLOUR), (True, 26, _SLOW_COLOUR)):
        chosen = [write for write in writes if (write.latency_s >= _SLOW_S) is is_slow]
        # Tens of thousands of points: as vectors they would make an SVG of many megabytes.
        axes.scatter(
            [write.issued_wall_s - begin_s for write in chosen],
            [write.latency_s for write in chosen],
            s=size,
            linewidths=0,
            color=colour,
            rasterized=not is_slow,
            zorder=3,
        )
    axes.yaxis.set_major_formatter(lambda value, _at: _duration(value))
    axes.set_ylabel("answered after")
    axes.set_xlabel("seconds")
    axes.grid(visible=True, which="major", alpha=0.3)


def _duration(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"


def _shade(axes: Any, trial: Trial, begin_s: float) -> None:
    """Shade the time without an answer."""
    pause = trial.pause
    axes.axvspan(
        pause.gap_began_wall_s - begin_s,
        pause.ended_wall_s - begin_s,
        color=_PAUSE_COLOUR,
        alpha=0.6,
        linewidth=0,
        zorder=0,
    )


def _draw_close(axes: Any, writes: Sequence[Write], trial: Trial) -> None:
    """Draw one failover from a little before the fault to a little after the first answer."""
    origin_s = trial.stages[0].after_s + trial.began_s
    span_s = trial.pause.ended_wall_s - origin_s
    left_s, right_s = -0.25 * span_s, 1.25 * span_s
    near = [write for write in writes if left_s <= write.issued_wall_s - origin_s <= right_s]
    _draw_writes(axes, near, origin_s)
    _shade(axes, trial, origin_s)
    axes.set_xlim(left_s, right_s)
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])
    axes.set_ylim(low, high * 1000)  # room for the labels above the points
    axes.minorticks_off()
    axes.set_title(
        f"{trial.kind} {trial.from_node} → {trial.to_node}: "
        f"{trial.pause.seconds:.2f} s without an answer"
    )
    level, last_s = 0, float("-inf")
    for stage in trial.stages:
        at_s = stage.after_s
        too_close = at_s - last_s < _LABEL_SHARE * 1.5 * span_s
        level = (level + 1) % len(_LABEL_HEIGHTS) if too_close else 0
        last_s = at_s
        colour = _COLOURS.get(stage.mark, _OTHER_COLOUR)
        axes.axvline(at_s, color=colour, linewidth=1, zorder=1)
        axes.text(
            at_s,
            _LABEL_HEIGHTS[level],
            f"{stage.mark} {stage.node} ",
            transform=axes.get_xaxis_transform(),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8,
            color=colour if stage.mark in _COLOURS else "#475569",
        )
