# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device replicas`: number and nodes of a device's replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import (
    accept_option,
    ask_before_one_replica,
    output_option,
    timeout_option,
    yes_option,
)
from sanctl.cli.output import finish
from sanctl.cli.views.replica_change import print_replica_change, replica_change_data
from sanctl.model.names import DeviceName
from sanctl.ops.device_replicas import change_replicas
from sanctl.plan.replicas.replica_choice import parse_replica_request
from sanctl.plan.replicas.replica_count import StepContext

if TYPE_CHECKING:
    from sanctl.cli.environment import Environment
    from sanctl.model.topology import Topology

#: A day: a full resync of a large device takes hours, and Ctrl-C ends no step that was ordered.
WAIT_S = 86400


@click.command(short_help="Change how many replicas a device has, and where, under load.")
@click.argument("name")
@click.argument("count", metavar="1|2|3|4")
@click.option("--add", multiple=True, metavar="NODE", help="A node that is to get a replica.")
@click.option("--drop", multiple=True, metavar="NODE", help="A node whose replica is to go.")
@accept_option
@yes_option
@timeout_option(WAIT_S)
@output_option
def replicas(
    *,
    name: str,
    count: str,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    accepted: tuple[str, ...],
    yes: bool,
    timeout_s: float,
    output: str,
) -> None:
    """Change how many replicas a device has, and on which nodes, while hosts write to it.

    Nodes that are not named are chosen as for a new device. The command waits until every replica
    is in sync. Run again after an interruption, it goes on; 'sanctl device show' says what is
    unfinished and how to take it back. The last replica that is known to be up to date is never
    dropped. Before a change to one replica the command says what that means; on a terminal it asks.
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
    if request.replicas == 1:
        with env.session() as session:
            found = session.observe().cib.device(wanted)
        # One that has one replica is asked for nothing new; one that is not there is refused below.
        if found is not None and max(found.replicas, len(found.nodes)) > 1:
            ask_before_one_replica(name, found.cache.mode, yes=yes)
    with env.session() as session, env.logged("replicas", device=name, command_line=command_line):
        outcome = change_replicas(
            session,
            wanted,
            request,
            step_context(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {command_line}",
        )
    finish(
        output,
        data=replica_change_data(outcome, topology),
        text=lambda: print_replica_change(outcome, topology),
    )


def step_context(env: Environment, topology: Topology, accepted: tuple[str, ...]) -> StepContext:
    """Return what the steps of a change of replicas depend on besides the cluster's state."""
    return StepContext(
        topology=topology, drbd_version=env.drbd_version(), accepted=frozenset(accepted)
    )
