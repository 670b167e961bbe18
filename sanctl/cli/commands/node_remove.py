# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl node remove`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import finish_change
from sanctl.model.names import NodeName
from sanctl.ops.node_remove import remove_node


@click.command(short_help="Take a stopped node out of the cluster for good.")
@click.argument("name", metavar="NODE")
@yes_option
@accept_option
@timeout_option(120)
@output_option
def remove(
    *, name: str, yes: bool, accepted: tuple[str, ...], timeout_s: float, output: str
) -> None:
    """Take NODE, a witness or a storage node without replicas, out of the cluster for good.

    Before, on NODE: 'systemctl disable --now pacemaker.service corosync.service'. Afterwards take
    it out of the inventory and run the playbook, which does the rest. Run again after an
    interruption, the command goes on.
    """
    env = environment()
    wanted = NodeName.parse(name)
    topology = env.topology()
    if not yes:
        click.confirm(f"Take node {wanted} out of the cluster?", abort=True, err=True)
    with env.session() as session, env.logged("remove", command_line=f"node remove {name}"):
        changed = remove_node(
            session,
            env.runner,
            topology,
            wanted,
            here=env.host.node_name(),
            accepted=accepted,
            timeout_s=timeout_s,
        )
    finish_change(
        output,
        {"name": wanted.value, "changed": changed},
        f"node {wanted} is out of the cluster",
        f"\non {wanted}: rm /etc/corosync/corosync.conf /etc/corosync/authkey\n"
        "then take it out of the inventory and run site.yml",
    )
