# SPDX-License-Identifier: GPL-2.0-or-later
"""The command `sanctl node replace`: every replica of one node goes to another."""

from __future__ import annotations

import click

from sanctl.cli.commands.device_replicas import _PATIENCE_S, _setting
from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.replica_change import print_replica_change, replica_change_data
from sanctl.model.names import NodeName
from sanctl.ops.node_replace import replace_node


@click.command(short_help="Give all copies of a node to another.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@accept_option
@timeout_option(_PATIENCE_S)
@output_option
def replace(
    *, old: str, new: str, accepted: tuple[str, ...], timeout_s: float, output: str
) -> None:
    """Give all copies that OLD keeps, or has lost, to NEW, one device after the other.

    OLD may be dead or alive. Refused as long as OLD has the last good copy of a device. Run again
    after an interruption it goes on. Devices that lack a copy get it as well.
    """
    env = environment()
    gone, comer = NodeName.parse(old), NodeName.parse(new)
    topology = env.topology()
    command_line = f"node replace {old} {new}"
    with env.session() as session, env.logged("replace", command_line=command_line):
        outcomes = replace_node(
            session,
            gone,
            comer,
            _setting(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {command_line}",
        )

    def text() -> None:
        for outcome in outcomes:
            print_replica_change(outcome, topology)
        print(f"node {gone} keeps no copies" + ("" if outcomes else ": nothing to do"))

    finish(
        output,
        data={
            "old": gone.value,
            "new": comer.value,
            "devices": [replica_change_data(outcome, topology) for outcome in outcomes],
        },
        text=text,
    )
