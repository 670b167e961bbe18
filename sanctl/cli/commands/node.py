# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl node list`, `standby`, `online`, `fence`, `drain`, `undrain`."""

from __future__ import annotations

import click

from sanctl.cli.commands.node_confirm import confirm
from sanctl.cli.commands.node_remove import remove
from sanctl.cli.commands.node_replace import replace
from sanctl.cli.environment import environment
from sanctl.cli.help_sections import SectionedGroup
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import finish, finish_change, print_table
from sanctl.cli.views.node import NODE_COLUMNS, node_data, node_rows
from sanctl.errors import ExitStatus
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.ops.node_drain import DrainOutcome, drain_node, undrain_node
from sanctl.ops.node_fence import FencingAnswer, fence_node, query_fencing_of_node
from sanctl.ops.node_standby import bring_online, put_in_standby
from sanctl.plan.cluster.standby import refuse_fencing

#: Of the devices that a node serves, so many are named in a question.
_NAMED = 32


@click.group(
    cls=SectionedGroup,
    no_args_is_help=False,
    sections={
        "See": ("list",),
        "Maintenance": ("standby", "online", "drain", "undrain"),
        "Failures": ("fence", "confirm-off", "replace"),
        "Leaving": ("remove",),
    },
)
def node() -> None:
    """Nodes: take them out of service and back, test fencing, replace one."""


node.add_command(confirm)
node.add_command(remove)
node.add_command(replace)


@node.command("list")
@output_option
def list_nodes(output: str) -> None:
    """List all nodes."""
    env = environment()
    topology = env.topology()
    with env.session() as session:
        data = node_data(session.observe(), topology)
    finish(output, data=data, text=lambda: print_table(NODE_COLUMNS, node_rows(data)))


@node.command(short_help="Move all devices off a node and keep it free.")
@click.argument("name", metavar="NODE")
@accept_option
@timeout_option(180)
@output_option
def standby(name: str, accepted: tuple[str, ...], timeout_s: float, output: str) -> None:
    """Move all devices off a node and keep it free until 'sanctl node online'."""
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as session, env.logged("standby", command_line=f"node standby {name}"):
        outcome = put_in_standby(session, wanted, accepted=accepted, timeout_s=timeout_s)
    data = {
        "name": wanted.value,
        "changed": outcome.is_changed,
        "stopped": [{"device": s.device.value, "reason": s.reason} for s in outcome.stopped],
    }
    stopped = "".join(
        f"device {each.device} is not served: {each.reason}\n" for each in outcome.stopped
    )
    finish_change(output, data, f"{stopped}node {wanted} is in standby")


@node.command()
@click.argument("name", metavar="NODE")
@timeout_option(600)
@output_option
def online(name: str, timeout_s: float, output: str) -> None:
    """End a node's standby and wait until its replicas are up to date."""
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as session, env.logged("online", command_line=f"node online {name}"):
        changed = bring_online(session, wanted, timeout_s=timeout_s)
    data = {"name": wanted.value, "changed": changed}
    finish_change(output, data, f"node {wanted} is online, its replicas are up to date")


@node.command(short_help="Power-cycle a node by its fencing device, or test that.")
@click.argument("name", metavar="NODE")
@click.option(
    "--test", is_flag=True, help="Only ask the node's fencing devices whether they answer."
)
@yes_option
@click.option("--no-drain", is_flag=True, help="Do not move the node's devices away first.")
@accept_option
@timeout_option(180)
@output_option
def fence(
    *,
    name: str,
    test: bool,
    yes: bool,
    no_drain: bool,
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Cut a node's power and give it back, by its fencing device; or test that this would work.

    The node's devices are moved away first; the command refuses if no other node can serve one of
    them, without quorum, and on NODE itself. If the command dies before the cut the node stays
    drained: 'sanctl node undrain' ends that, as does the node's next stop. A test switches nothing:
    it asks the fencing devices for their status from this node. Exit status 1: a fencing device did
    not answer.
    """
    env = environment()
    wanted = NodeName.parse(name)
    if test:
        with env.session() as session:
            answers = query_fencing_of_node(session, env.stonith, wanted)
        proven = any(answer.reason == "" for answer in answers) and not any(
            answer.reason for answer in answers
        )
        finish(
            output,
            data={
                "name": wanted.value,
                "asked_from": env.host.node_name(),
                "devices": [
                    {
                        "name": answer.device,
                        "answers": None if answer.reason is None else not answer.reason,
                        "reason": answer.reason or None,
                        "watched_by": list(answer.watched_by),
                    }
                    for answer in answers
                ],
            },
            text=lambda: _print_answers(env.host.node_name(), answers),
            status=ExitStatus.OK if proven else ExitStatus.DEGRADED,
        )
        return
    here = env.host.node_name()
    if not yes:
        with env.session() as session:
            cluster = session.observe()
        refuse_fencing(cluster, wanted, here, accepted=accepted)
        click.echo(_served_text(cluster, wanted), err=True)
        click.confirm(f"Cut the power of node {wanted}?", abort=True, err=True)
    with env.session() as session, env.logged("fence", command_line=f"node fence {name}"):
        drained = fence_node(
            session,
            env.stonith,
            wanted,
            here=here,
            accepted=accepted,
            drain=not no_drain,
            timeout_s=timeout_s,
        )
    finish(
        output,
        data={"name": wanted.value, "drained": drained},
        text=lambda: print(f"node {wanted} was fenced; it boots and rejoins by itself"),
    )


def _served_text(cluster: Cluster, node: NodeName) -> str:
    """Say which devices a node serves, also those that cannot be read."""
    names = [device.name.value for device in cluster.cib.devices]
    names += [identifier for identifier, _ in cluster.cib.unreadable]
    served = [name for name in names if cluster.serves(name, node)]
    if not served:
        return f"node {node} serves no device"
    more = f" and {len(served) - _NAMED} more" if len(served) > _NAMED else ""
    return f"node {node} serves {len(served)}: {', '.join(served[:_NAMED])}{more}"


def _print_answers(here: str, answers: tuple[FencingAnswer, ...]) -> None:
    for answer in answers:
        result = {None: "may not be used from here", "": "answers"}.get(
            answer.reason, f"does not answer: {answer.reason}"
        )
        monitors = ", ".join(answer.watched_by) or "no node"
        print(f"{answer.device}: asked from {here}: {result}; monitored by {monitors}")


@node.command(short_help="Let other nodes serve the devices of a node, as at its shutdown.")
@click.argument("name", metavar="NODE")
@timeout_option(90)
@output_option
def drain(name: str, timeout_s: float, output: str) -> None:
    """Let other nodes serve the devices of NODE, as when it is shut down.

    The node's replicas stay in sync. The drain ends with the node's next stop, or with 'sanctl node
    undrain'. The command refuses nothing: a device that no other node can serve is listed, and
    stops with the node (exit status 8); so is one that is still being moved, or of which what a
    resync wrote on another node is not flushed yet (7). With 0 the node is free of devices.
    """
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as session, env.logged("drain", command_line=f"node drain {name}"):
        result = drain_node(session, wanted, timeout_s=timeout_s)

    def text() -> None:
        for device, server in result.moved:
            print(f"device {device} is served by {server}")
        for each in result.stranded:
            print(f"device {each.device} stops with {wanted}: {each.reason}")
        for device in result.late:
            print(f"device {device} is still being moved after {timeout_s:g} s")
        for device in result.unflushed:
            print(
                f"device {device} is not flushed on another node yet, after a resync there: should "
                f"that one lose its power, {wanted} alone has all of it; 'journalctl -u "
                "sanctl-resync' there says more"
            )
        if not (result.moved or result.stranded or result.late):
            print(f"node {wanted} serves no device")

    finish(
        output,
        data={
            "name": wanted.value,
            "moved": [{"device": d.value, "node": server} for d, server in result.moved],
            "stranded": [{"device": s.device.value, "reason": s.reason} for s in result.stranded],
            "late": [device.value for device in result.late],
            "unflushed": [device.value for device in result.unflushed],
        },
        text=text,
        status=_drain_status(result),
    )


def _drain_status(result: DrainOutcome) -> ExitStatus:
    """Whether a node is free of devices; a device that stays weighs more than one that is late."""
    if result.stranded:
        return ExitStatus.PARTIAL
    return ExitStatus.NOT_CONVERGED if result.late or result.unflushed else ExitStatus.OK


@node.command(short_help="Let a drained node serve devices again.")
@click.argument("name", metavar="NODE")
@timeout_option(60)
@output_option
def undrain(name: str, timeout_s: float, output: str) -> None:
    """Let a drained node serve devices again. Devices that it served before stay where they are."""
    env = environment()
    wanted = NodeName.parse(name)
    with env.session() as session, env.logged("undrain", command_line=f"node undrain {name}"):
        changed = undrain_node(session, wanted, timeout_s=timeout_s)
    data = {"name": wanted.value, "changed": changed}
    finish_change(output, data, f"node {wanted} may serve devices")
