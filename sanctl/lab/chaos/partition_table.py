# SPDX-License-Identifier: GPL-2.0-or-later
"""The Markdown table of `sanctl chaos matrix`: what each partition of the networks cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.lab.chaos.fault import Partition
from sanctl.lab.chaos.fault_choice import MEMBERSHIP, NETWORKS, NodesByRole
from sanctl.lab.chaos.fault_runner import FaultResult

_NAMES = {"iscsi": "iscsi", "sync": "sync", "hb": "heartbeat"}


def table(results: Sequence[FaultResult], *, roles: NodesByRole, strategy: str) -> str:
    """Return the table in Markdown, a row for each partition that was tried."""
    nodes = f"{len(roles.storage)} storage nodes"
    if roles.witnesses:
        nodes += f" and {len(roles.witnesses)} witness"
    if roles.qnetd_hosts:
        nodes += f" and a quorum device on {roles.qnetd_hosts[0]}"
    lines = [
        f"Strategy `{strategy}`, {nodes}. The networks were cut between the first column and all"
        " other machines, hosts included.",
        "",
        "| cut off | networks | served before | served after | fenced | restarted"
        " | longest pause | lost | errors | recovered after | two serving |",
        "| --- | --- | --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    count = 0
    for result in results:
        if not isinstance(result.fault, Partition):
            continue
        count += 1
        lost = sum(check.get("lost", 0) for check in result.checks.values())
        errors = sum(pause.errors for pause in result.pauses.values())
        recovered = (
            f"{result.recovered_s - result.undone_s:.0f} s" if result.recovered_s else "**never**"
        )
        two = [text for text in result.problems if "Primary on" in text or "Optimized on" in text]
        cells = (
            " ".join(result.fault.side),
            _networks(result.fault.networks),
            " ".join(result.serving_before.values()),
            " ".join(result.serving_after.values()),
            " ".join(result.fenced) or "-",
            " ".join(result.restarted) or "-",
            f"{result.longest_pause_s:.1f} s",
            str(lost) if result.checks else "?",
            str(errors),
            recovered,
            "**yes**" if two else "never",
        )
        lines.append(f"| {' | '.join(cells)} |")
    bad = [result for result in results if not result.is_good]
    lines += ["", f"{count} partitions, {len(bad)} with a problem."]
    lines += [f"* {result.number}: {problem}" for result in bad for problem in result.problems]
    return "\n".join(lines) + "\n"


def _networks(networks: tuple[str, ...]) -> str:
    if networks == NETWORKS:
        return "all"
    if networks == MEMBERSHIP:
        return "sync and heartbeat"
    return ", ".join(_NAMES[name] for name in networks)
