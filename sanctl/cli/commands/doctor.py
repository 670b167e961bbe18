# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl doctor`: list of checks, findings with advice."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option
from sanctl.cli.output import finish
from sanctl.cli.views.finding import finding_data
from sanctl.errors import ConfigError, ExitStatus
from sanctl.model.findings import is_degraded
from sanctl.model.topology import Topology
from sanctl.ops.doctor import examine


@click.command(short_help="Check this node and the cluster, with advice.")
@output_option
def doctor(output: str) -> None:
    """Check this node and the cluster; exit status 1: a check failed.

    Fencing devices are asked from here and, on a storage node, the other nodes, second sites and
    repositories for backups, too: what is silent is waited for, up to two minutes.
    """
    env = environment()
    topology: Topology | None = None
    config_error: ConfigError | None = None
    try:
        topology = env.topology()
    except ConfigError as error:
        config_error = error
    with env.session() as session:
        result = examine(
            session,
            env.host,
            env.stonith,
            remote=env.remote_services(),
            topology=topology,
            config_error=config_error,
        )

    def text() -> None:
        for name, count in result.checks:
            verdict = "not checked" if count is None else "ok" if not count else f"{count} wrong"
            print(f"{name + ':':<16}{verdict}")
        for finding in result.findings:
            print()
            print(f"{finding.code} {finding.severity.value}: {finding.subject}: {finding.what}")
            if finding.why:
                print(f"  why: {finding.why}")
            if finding.do:
                print(f"  do:  {finding.do}")

    finish(
        output,
        data={
            "node": env.host.node_name(),
            "checks": [{"name": name, "wrong": count} for name, count in result.checks],
            "findings": [finding_data(finding) for finding in result.findings],
        },
        text=text,
        status=ExitStatus.DEGRADED if is_degraded(result.findings) else ExitStatus.OK,
    )
