# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands about where copies are: `device replicas`, `device place` and `node replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.replica_change import print_replica_change, replica_change_data
from sanctl.model.names import DeviceName
from sanctl.ops.device_replicas import change_replicas
from sanctl.plan.replicas.replica_choice import parse_replica_request
from sanctl.plan.replicas.replica_count import StepContext

if TYPE_CHECKING:
    from sanctl.cli.environment import Environment
    from sanctl.model.topology import Topology

#: A day: a full sync of a large device takes hours, and whoever waits may stop waiting.
_PATIENCE_S = 86400


@click.command(short_help="Change how many copies a device has, and where, under load.")
@click.argument("name")
@click.argument("count", metavar="1|2|3|4")
@click.option("--add", multiple=True, metavar="NODE", help="A node that is to have a copy.")
@click.option("--drop", multiple=True, metavar="NODE", help="A node that is to have none.")
@accept_option
@timeout_option(_PATIENCE_S)
@output_option
def replicas(
    *,
    name: str,
    count: str,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Change how many copies a device has, and on which nodes, while hosts write to it.

    Nodes that are not named are chosen as for a new device. Waits until every copy is in sync. Run
    again after an interruption it goes on; 'sanctl device show' says what is unfinished and how it
    could be taken back. The last copy that is known to be up to date is never dropped.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    request = parse_replica_request(count, add, drop)
    topology = env.topology()
    options = "".join(
        f" {option} {node}"
        for option, nodes in (("--add", add), ("--drop", drop))
        for node in nodes
    )
    command_line = f"device replicas {name} {count}{options}"
    with env.session() as session, env.logged("replicas", device=name, command_line=command_line):
        outcome = change_replicas(
            session,
            wanted,
            request,
            _setting(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {command_line}",
        )
    finish(
        output,
        data=replica_change_data(outcome, topology),
        text=lambda: print_replica_change(outcome, topology),
    )


def _setting(env: Environment, topology: Topology, accepted: tuple[str, ...]) -> StepContext:
    return StepContext(
        topology=topology, drbd_version=env.drbd_version(), accepted=frozenset(accepted)
    )
