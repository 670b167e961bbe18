# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device set`; `--reservations` of `device create`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.model.names import DeviceName
from sanctl.ops.reservations import switch_reservations

ON_OFF = click.Choice(["on", "off"])


@click.command("set", short_help="Switch persistent reservations, while no host is logged in.")
@click.argument("name")
@click.option(
    "--reservations",
    type=ON_OFF,
    required=True,
    help="Whether hosts may make persistent reservations, which clusters of hosts need.",
)
@timeout_option(60)
@output_option
def set_device(name: str, reservations: str, timeout_s: float, output: str) -> None:
    """Switch what device NAME offers to hosts, while no host is logged in to it.

    Nodes say about every 10 s which hosts have sessions with them. Off is refused while hosts are
    registered, too: 'target reservations' shows them, and breaks what dead hosts have left.
    """
    env = environment()
    wanted, is_on = DeviceName.parse(name), reservations == "on"
    command_line = f"device set {name} --reservations {reservations}"
    with env.session() as session, env.logged("set", device=name, command_line=command_line):
        outcome = switch_reservations(session, wanted, is_on=is_on, timeout_s=timeout_s)
    done = f", after {outcome.duration_s:.1f} s" if outcome.changed else ": nothing to do"
    finish(
        output,
        data={
            "changed": outcome.changed,
            "duration_s": round(outcome.duration_s, 3),
            **device_data(outcome.cluster, outcome.device, topology_or_none(env)),
        },
        text=lambda: print(f"device {wanted}: persistent reservations are {reservations}{done}"),
    )
