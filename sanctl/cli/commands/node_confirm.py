# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl node confirm-off`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import output_option, timeout_option, yes_option
from sanctl.cli.output import finish_change
from sanctl.model.names import NodeName
from sanctl.ops.node_confirm import Viewpoint, check_confirmation, confirm_off
from sanctl.plan.cluster.confirmation import needs_confirmation


@click.command("confirm-off", short_help="Tell the cluster that a node it cannot fence is off.")
@click.argument("name", metavar="NODE")
@yes_option
@timeout_option(60)
@output_option
def confirm(*, name: str, yes: bool, timeout_s: float, output: str) -> None:
    """Tell the cluster that NODE, which it cannot fence, is off.

    Other nodes then serve what it served. If it runs all the same, two nodes serve: what hosts
    write is lost. So somebody has to stand before the server, have switched it off, and have pulled
    its cords. The command refuses a node that is a member of Corosync's membership or answers a
    ping, and this node, and without quorum; a node that runs behind a broken network it cannot see.
    Of two nodes that each wait for the other, confirm one only. Asks for the node's name.
    """
    env = environment()
    wanted = NodeName.parse(name)
    viewpoint = Viewpoint(
        here=env.host.node_name(), runner=env.runner, topology=env.topology(), ping=env.ping
    )
    is_answered = yes
    if not yes:
        with env.session() as session:
            cluster = check_confirmation(session, viewpoint, wanted)
        if needs_confirmation(cluster, wanted):
            _ask(wanted)
            is_answered = True
    command_line = f"node confirm-off {name}"
    with env.session() as session, env.logged("confirm-off", command_line=command_line):
        changed = confirm_off(
            session, env.stonith, viewpoint, wanted, is_answered=is_answered, timeout_s=timeout_s
        )
    finish_change(
        output,
        {"name": wanted.value, "changed": changed},
        f"node {wanted} counts as fenced",
        "; other nodes take over what it served, if their replicas are good: 'sanctl status'.\n"
        f"Leave {wanted} off until it is repaired. When it starts again it joins by itself, and "
        "its replicas are filled.",
    )


def _ask(node: NodeName) -> None:
    """Say what a confirmation means, and have the node's name typed.

    Raises:
        click.Abort: something else was typed, or nothing.
    """
    click.echo(
        f"The cluster could not switch {node} off. If you confirm that it is off, other nodes "
        f"serve at once what it served.\nIf {node} runs all the same, also one that only seems "
        "dead, two nodes serve the same devices, and data is lost.\nSomebody must have switched "
        f"it off and pulled its cords, and nobody may have confirmed this node on {node}.",
        err=True,
    )
    typed = click.prompt(
        f"Type the node's name, {node}, if it is off; anything else ends this",
        err=True,
        default="",
        show_default=False,
    )
    if typed != node.value:
        raise click.Abort
