# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl device follow`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment, topology_or_none
from sanctl.cli.options import output_option
from sanctl.cli.output import finish
from sanctl.cli.views.device import device_data
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.device.following import guest_nodes, plan_follow


@click.command("follow", short_help="Have a device served where a guest of Pacemaker runs.")
@click.argument("name")
@click.option("--resource", metavar="RSC", help="The guest: a primitive or group of Pacemaker.")
@click.option("--none", "is_none", is_flag=True, help="Follow no guest any more.")
@output_option
def follow(name: str, resource: str | None, is_none: bool, output: str) -> None:
    """Have device NAME served by the node on which a guest runs, if its replica there is in sync.

    The guest runs where Pacemaker or an operator wants it; the device moves after it, with the
    pause of a planned move. It goes on elsewhere, over the network, where it cannot.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    if is_none == (resource is not None):
        raise click.UsageError("Give either '--resource RSC' or '--none'.")
    option = "--none" if is_none else f"--resource {resource}"
    made: list[bool] = [False]

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        changes = plan_follow(cluster, wanted, resource)
        made[0] = bool(changes)
        return changes

    with (
        env.session() as session,
        env.logged("follow", device=name, command_line=f"device follow {name} {option}"),
    ):
        session.change(decide)
        cluster = session.observe()
    nodes = guest_nodes(cluster, resource) if resource is not None else ()
    finish(
        output,
        data={
            "changed": made[0],
            "follows": resource,
            "guest_nodes": list(nodes),
            **device_data(cluster, existing_device(cluster, wanted), topology_or_none(env)),
        },
        text=lambda: print(
            (
                f"device {wanted} follows no guest"
                if resource is None
                else f"device {wanted} follows {resource}, which "
                + (f"runs on {', '.join(nodes)}" if nodes else "is stopped")
            )
            + ("" if made[0] else ": nothing to do")
        ),
    )
