# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl status`: summary line, findings, tables."""

from __future__ import annotations

from collections.abc import Sequence

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish, print_table
from sanctl.cli.views.device import (
    CACHE_COLUMNS,
    DEVICE_COLUMNS,
    cache_rows,
    device_data,
    device_row,
)
from sanctl.cli.views.finding import finding_data
from sanctl.cli.views.node import NODE_COLUMNS, node_data, node_rows
from sanctl.errors import ConfigError, ExitStatus, Problem
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.findings import (
    Finding,
    Severity,
    grouped,
    is_degraded,
    is_degraded_by,
    sorted_findings,
)
from sanctl.model.topology import Topology
from sanctl.ops.path_look import host_path_findings
from sanctl.ops.session import Session
from sanctl.plan.health.cluster_health import all_findings

_SHOWN_SUBJECTS = 4
_STATE = DEVICE_COLUMNS.index("STATE")
# Pacemaker learns the role again by the monitor after an agent's reload (docs/adr/0087).
_ROLE_NOT_SHOWN, _ROLE_SHOWN_WITHIN_S = "SAN-HLT-149", 2.5


@click.command(short_help="Show the health of nodes, devices and pools.")
@output_option
def status(output: str) -> None:
    """Show the health of nodes, devices and pools; exit status 0: healthy, 1: degraded."""
    env = environment()
    topology: Topology | None = None
    problems: tuple[Problem, ...] = ()
    try:
        topology = env.topology()
    except ConfigError as error:
        problems = error.problems
    with env.session() as session:
        cluster, findings = _look(session, topology)
        if is_degraded_by(findings, _ROLE_NOT_SHOWN) and not problems:
            # It would end the command with status 1 after each change of a device.
            session.clock.sleep(_ROLE_SHOWN_WITHIN_S)
            cluster, findings = _look(session, topology)
    degraded = is_degraded(findings) or bool(problems)
    nodes = node_data(cluster, topology)
    # Either for JSON or for a table: with hundreds of devices each takes most of the time.
    devices = cluster.cib.devices
    data = [device_data(cluster, d, topology) for d in devices] if output == "json" else []
    rows = [] if output == "json" else [device_row(cluster, device) for device in devices]
    states = [*(entry["state"] for entry in data), *(row[_STATE] for row in rows)]
    summary = _summary(cluster, topology, findings, states, degraded=degraded)

    def text() -> None:
        print(summary)
        for problem in problems:
            print(f"  {problem}")
        for finding, subjects in grouped(findings):
            print(
                f"  {finding.severity.value}: {_several(subjects)}: {finding.what} ({finding.code})"
            )
            if finding.do:
                print(f"    next: {finding.do}")
        print()
        print_table(NODE_COLUMNS, node_rows(nodes))
        if rows:
            print()
            print_table(DEVICE_COLUMNS, rows)
        caches = list(cache_rows(cluster, nodes))
        if caches:
            print()
            print_table(CACHE_COLUMNS, caches)

    finish(
        output,
        data={
            "summary": summary,
            "strategy": topology.strategy.value if topology else None,
            "has_quorum": cluster.mon.has_quorum,
            "nodes": nodes,
            "devices": data,
            "findings": [finding_data(finding) for finding in findings],
        },
        text=text,
        status=ExitStatus.DEGRADED if degraded else ExitStatus.OK,
        problems=problems,
    )


def _look(session: Session, topology: Topology | None) -> tuple[Cluster, tuple[Finding, ...]]:
    cluster = session.observe()
    return cluster, sorted_findings(
        [
            *all_findings(cluster, topology, now_s=session.clock.wall_s()),
            *host_path_findings(session, cluster),
        ]
    )


def _summary(
    cluster: Cluster,
    topology: Topology | None,
    findings: tuple[Finding, ...],
    states: Sequence[str],
    *,
    degraded: bool,
) -> str:
    online = sum(
        1 for node in cluster.cib.nodes if cluster.mon.state(node.name) is NodeState.ONLINE
    )
    critical = any(finding.severity is Severity.CRITICAL for finding in findings)
    word = "critical" if critical else "degraded" if degraded else "healthy"
    quorum = "" if cluster.mon.has_quorum else ", NO QUORUM"
    strategy = f" ({topology.strategy})" if topology else ""
    return (
        f"{word}: {online} of {len(cluster.cib.nodes)} nodes online{strategy}{quorum}, "
        f"{states.count('ok')} of {len(states)} devices ok"
    )


def _several(subjects: tuple[str, ...]) -> str:
    if len(subjects) == 1:
        return subjects[0]
    shown = ", ".join(subjects[:_SHOWN_SUBJECTS])
    more = len(subjects) - _SHOWN_SUBJECTS
    return f"{shown} and {more} more" if more > 0 else shown
