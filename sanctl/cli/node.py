"""The commands `sanctl node ...`."""

from __future__ import annotations

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import finish, output_option, print_table, timeout_option
from sanctl.cli.views import NODE_COLUMNS, node_data, node_rows
from sanctl.model.names import NodeName
from sanctl.ops.node import bring_online, put_in_standby


@click.group(no_args_is_help=False)
def node() -> None:
    """Nodes: look at them, take them out of service and back."""


@node.command("list")
@output_option
def list_nodes(output: str) -> None:
    """List all nodes."""
    env = environment()
    topology = env.topology()
    with env.session() as it:
        data = node_data(it.observe(), topology)
    finish(output, data=data, text=lambda: print_table(NODE_COLUMNS, node_rows(data)))


@node.command(short_help="Move all devices off a node and keep it free.")
@click.argument("name", metavar="NODE")
@click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="CODE",
    help="Go on despite the refusal with this code, and no other.",
)
@timeout_option(180)
@output_option
def standby(name: str, accepted: tuple[str, ...], timeout_s: float, output: str) -> None:
    """Move all devices off a node and keep it free until it is put online again."""
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as it, env.recorded("standby", words=f"node standby {name}"):
        changed = put_in_standby(it, wanted, accepted=accepted, timeout_s=timeout_s)
    finish(
        output,
        data={"name": wanted.value, "changed": changed},
        text=lambda: print(f"node {wanted} is in standby" + ("" if changed else ": nothing to do")),
    )


@node.command()
@click.argument("name", metavar="NODE")
@timeout_option(600)
@output_option
def online(name: str, timeout_s: float, output: str) -> None:
    """End a node's standby and wait until its replicas are up to date."""
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as it, env.recorded("online", words=f"node online {name}"):
        changed = bring_online(it, wanted, timeout_s=timeout_s)
    finish(
        output,
        data={"name": wanted.value, "changed": changed},
        text=lambda: print(
            f"node {wanted} is online, its replicas are up to date"
            + ("" if changed else ": nothing to do")
        ),
    )
