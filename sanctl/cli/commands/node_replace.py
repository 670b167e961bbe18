# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl node replace`."""

from __future__ import annotations

import click

from sanctl.cli.commands.device_replicas import WAIT_S, step_context
from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.replica_change import print_replica_change, replica_change_data
from sanctl.model.names import NodeName
from sanctl.ops.node_replace import replace_node


@click.command(short_help="Move all replicas of a node to another.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@accept_option
@timeout_option(WAIT_S)
@output_option
def replace(
    *, old: str, new: str, accepted: tuple[str, ...], timeout_s: float, output: str
) -> None:
    """Move all replicas that OLD holds, or has lost, to NEW, one device after the other.

    OLD may be dead or alive. The command refuses as long as OLD has the last good replica of a
    device. Run again after an interruption, it goes on. Devices that lack a replica get one.
    """
    env = environment()
    leaving, joining = NodeName.parse(old), NodeName.parse(new)
    topology = env.topology()
    command_line = f"node replace {old} {new}"
    with env.session() as session, env.logged("replace", command_line=command_line):
        outcomes = replace_node(
            session,
            leaving,
            joining,
            step_context(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {command_line}",
        )

    def text() -> None:
        for outcome in outcomes:
            print_replica_change(outcome, topology)
        print(f"node {leaving} holds no replicas" + ("" if outcomes else ": nothing to do"))

    finish(
        output,
        data={
            "old": leaving.value,
            "new": joining.value,
            "devices": [replica_change_data(outcome, topology) for outcome in outcomes],
        },
        text=text,
    )
