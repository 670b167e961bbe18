# SPDX-License-Identifier: GPL-2.0-or-later
"""The table of partitions: every bipartition, every network, one strategy. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.lab.chaos.fault import Partition
from sanctl.lab.chaos.fault_choice import MEMBERSHIP, NETWORKS, Shape
from sanctl.lab.chaos.run import Step

_NAMES = {"iscsi": "iscsi", "sync": "sync", "hb": "heartbeat"}


def table(steps: Sequence[Step], *, shape: Shape, strategy: str) -> str:
    """Return the table in Markdown, a row for each partition that was tried."""
    nodes = f"{len(shape.storage)} storage nodes"
    if shape.witnesses:
        nodes += f" and {len(shape.witnesses)} witness"
    if shape.voters:
        nodes += f" and a quorum device on {shape.voters[0]}"
    lines = [
        f"Strategy `{strategy}`, {nodes}. The networks were cut between the first column and all"
        " other machines, hosts included.",
        "",
        "| cut off | networks | served before | served after | fenced | restarted"
        " | longest pause | lost | errors | whole after | two serving |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    count = 0
    for step in steps:
        if not isinstance(step.fault, Partition):
            continue
        count += 1
        lost = sum(check.get("lost", 0) for check in step.checks.values())
        errors = sum(pause.errors for pause in step.pauses.values())
        whole = f"{step.whole_s - step.undone_s:.0f} s" if step.whole_s else "**never**"
        two = [text for text in step.problems if "Primary on" in text or "Optimized on" in text]
        cells = (
            " ".join(step.fault.side),
            _networks(step.fault.networks),
            " ".join(step.serving_before.values()),
            " ".join(step.serving_after.values()),
            " ".join(step.fenced) or "-",
            " ".join(step.restarted) or "-",
            f"{step.longest_pause_s:.1f} s",
            str(lost) if step.checks else "?",
            str(errors),
            whole,
            "**yes**" if two else "never",
        )
        lines.append(f"| {' | '.join(cells)} |")
    bad = [step for step in steps if not step.is_good]
    lines += ["", f"{count} partitions, {len(bad)} with a problem."]
    lines += [f"* {step.number}: {problem}" for step in bad for problem in step.problems]
    return "\n".join(lines) + "\n"


def _networks(networks: tuple[str, ...]) -> str:
    if networks == NETWORKS:
        return "all"
    if networks == MEMBERSHIP:
        return "sync and heartbeat"
    return ", ".join(_NAMES[name] for name in networks)
