# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl demo` prints and writes: table of pauses, summary.md, timeline.json."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from sanctl.lab.measure import latency_chart, ledger_latency
from sanctl.lab.measure.ledger_writer import Record
from sanctl.lab.measure.timeline import Milestone, Stage
from sanctl.lab.measure.trial import Claim, Trial, TrialKind, mib


def print_trial(console: Console, trial: Trial) -> None:
    """Print one failover: its milestones, the slowest agent steps, the resync."""
    table = Table(
        title=f"{trial.kind} {trial.from_node} → {trial.to_node}: "
        f"{trial.pause.seconds:.2f} s without an answer",
        title_justify="left",
    )
    for heading in ("after", "took"):
        table.add_column(heading, justify="right")
    for heading in ("event", "node", "spent in"):
        table.add_column(heading)
    for stage in trial.stages:
        table.add_row(
            f"{stage.after_s:.2f} s", f"{stage.took_s:.2f}", stage.mark, stage.node, stage.spent_in
        )
    console.print(table)
    if trial.agent_steps:
        slowest = sorted(trial.agent_steps, key=lambda step: -step[2])[:6]
        console.print(
            "  agent: " + ", ".join(f"{step} {took_s:.2f} s" for _, step, took_s in slowest)
        )
    if trial.resync is not None:
        console.print(
            f"  return: {mib(trial.resync.copied_bytes)} of {mib(trial.resync.device_bytes)} copied"
            f" in {trial.resync.seconds:.1f} s; the host had written"
            f" {mib(trial.resync.written_bytes)} meanwhile"
        )


def print_verdict(console: Console, claims: Sequence[Claim]) -> None:
    """Print what was claimed, what was measured, and whether it held."""
    table = Table(title="verdict", title_justify="left")
    table.add_column("")
    table.add_column("claim")
    table.add_column("measured")
    for claim in claims:
        # The word carries the meaning; the colour only draws the eye to it.
        word = "[green]held[/]" if claim.is_held else "[bold red]BROKEN[/]"
        table.add_row(word, claim.text, claim.measured)
    console.print(table)


def write_folder(
    folder: Path,
    trials: Sequence[Trial],
    checks: Sequence[dict[str, Any]],
    claims: Sequence[Claim],
    records: Sequence[Record],
) -> None:
    """Write timeline.json, the picture and summary.md; the caller puts the raw ledger there."""
    folder.mkdir(parents=True, exist_ok=True)
    data = {
        "schema": 1,
        "verdict": [
            {"claim": claim.text, "measured": claim.measured, "held": claim.is_held}
            for claim in claims
        ],
        "ledgers": list(checks),
        "trials": [trial.as_json() for trial in trials],
    }
    (folder / "timeline.json").write_text(json.dumps(data, indent=2) + "\n")
    latency_chart.draw(ledger_latency.pair_writes(records), trials, folder / "latency")
    (folder / "summary.md").write_text(summary(trials, claims))


def summary(trials: Sequence[Trial], claims: Sequence[Claim]) -> str:
    """Return the measurement as a page of Markdown, fit for docs/."""
    lines = [
        "# Failover, measured",
        "",
        f"Host: {os.cpu_count()} CPUs, Linux {platform.release()}.",
        "",
    ]
    lines += ["| | claim | measured |", "| --- | --- | --- |"]
    lines += [
        f"| {'held' if claim.is_held else '**broken**'} | {claim.text} | {claim.measured} |"
        for claim in claims
    ]
    for kind in TrialKind:
        runs = [trial for trial in trials if trial.kind is kind]
        if runs:
            lines += ["", f"## {kind}", "", *_pauses(runs), "", *_breakdown(runs)]
    lines += ["", "![write latency over time](latency.png)", ""]
    return "\n".join(lines)


def _pauses(runs: Sequence[Trial]) -> list[str]:
    pauses = [trial.pause.seconds for trial in runs]
    each = ", ".join(f"{pause:.2f}" for pause in pauses)
    return [f"Pause: {statistics.median(pauses):.2f} s by median of {len(runs)} ({each})."]


def _breakdown(runs: Sequence[Trial]) -> list[str]:
    """Return a table of the medians of each stage, by the order of their medians."""
    stages: dict[Milestone, list[Stage]] = {}
    for trial in runs:
        for stage in trial.stages:
            stages.setdefault(stage.mark, []).append(stage)
    # A milestone that most runs lack (a second fencing request, say) would confuse the order.
    rows = sorted(
        (
            statistics.median(stage.after_s for stage in seen),
            statistics.median(stage.took_s for stage in seen),
            mark,
            seen[0].spent_in,
        )
        for mark, seen in stages.items()
        if len(seen) * 2 > len(runs)
    )
    return [
        "| after, s | took, s | event | spent in |",
        "| ---: | ---: | --- | --- |",
        *(
            f"| {after_s:.2f} | {took_s:.2f} | {mark} | {spent_in} |"
            for after_s, took_s, mark, spent_in in rows
        ),
    ]
