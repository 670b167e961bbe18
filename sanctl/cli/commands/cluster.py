# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl cluster ...`: votes, links, failover strategy."""

from __future__ import annotations

from typing import Any

import click

from sanctl.cli.environment import Environment, environment
from sanctl.cli.options import output_option, timeout_option
from sanctl.cli.output import UNKNOWN, finish, finish_change, print_table
from sanctl.drivers import corosync
from sanctl.errors import CommandError
from sanctl.model.cluster import Cluster
from sanctl.model.topology import LINK_NAMES, Strategy, Topology
from sanctl.model.vote_mode import Votes
from sanctl.ops import cluster_strategy as strategies

_VOTE_COLUMNS = ("NODE", "ROLE", "STRATEGY", "COUNTS BY", "AFTER A START", "DEVICE")
_LINK_COLUMNS = ("LINK", "TO", "STATE")


@click.group()
def cluster() -> None:
    """The cluster as a whole: votes, links and the failover strategy."""


@cluster.command()
@output_option
def show(output: str) -> None:
    """Show strategy, votes and links, as this node sees them."""
    env = environment()
    topology = env.topology()
    with env.session() as session:
        data = cluster_data(env, topology, session.observe())

    def text() -> None:
        votes = data["votes"]
        print(f"cluster {data['cluster']}: {data['strategy']}, counts by {data['counts_by']}")
        print(
            f"quorum: {'yes' if data['has_quorum'] else 'NO'}"
            f" ({_or_unknown(votes['total'])} of {_or_unknown(votes['expected'])} votes,"
            f" {_or_unknown(votes['needed'])} needed)"
        )
        if data["qdevice"]:
            print(f"quorum device: {data['qdevice']['host']}, {data['qdevice']['state']}")
        for code in data["accepted_risks"]:
            print(f"accepted risk: {code} ('sanctl explain {code}')")
        print()
        print_table(_VOTE_COLUMNS, (_vote_row(node) for node in data["nodes"]))
        print()
        print_table(_LINK_COLUMNS, ((e["link"], e["to"], e["state"]) for e in data["links"]))

    finish(output, data=data, text=text)


@cluster.group()
def strategy() -> None:
    """The strategy: which nodes may go on serving when nodes lose contact."""


@strategy.command("show")
@output_option
def show_strategy(output: str) -> None:
    """Show the strategy of the cluster."""
    topology = environment().topology()
    data = {"strategy": topology.strategy.value, "counts_by": str(topology.vote_mode)}
    finish(
        output,
        data=data,
        text=lambda: print(f"{data['strategy']}, counts by {data['counts_by']}"),
    )


@strategy.command("set")
@click.argument("name", metavar="STRATEGY", type=click.Choice([each.value for each in Strategy]))
@timeout_option(180)
@output_option
def set_strategy(name: str, timeout_s: float, output: str) -> None:
    """Change the strategy while the cluster serves.

    All storage nodes have to be online. An interrupted change is safe, and goes on when the command
    is run again. Set the same strategy in the inventory: the next rollout goes by the inventory.
    """
    env = environment()
    wanted = Strategy(name)
    with (
        env.session() as session,
        env.logged("strategy", command_line=f"cluster strategy set {name}"),
    ):
        changed = strategies.change_strategy(
            session, env.runner, env.topology(), wanted, timeout_s=timeout_s
        )
    finish_change(
        output,
        {"strategy": name, "changed": changed},
        f"the strategy is {name}",
        f"; put 'sanctl_strategy: {name}' into the inventory, too",
    )


def cluster_data(env: Environment, topology: Topology, seen: Cluster) -> dict[str, Any]:
    """Return the JSON data of `cluster show`."""
    membership = corosync.membership(env.runner)
    names = {node.id: node.name.value for node in topology.nodes}
    is_device = topology.vote_mode.votes is Votes.QDEVICE
    return {
        "cluster": topology.cluster,
        "strategy": topology.strategy.value,
        "counts_by": str(topology.vote_mode),
        "accepted_risks": list(topology.accepted_risks),
        "has_quorum": membership.is_quorate,
        "votes": {
            "expected": membership.expected,
            "total": membership.total,
            "needed": membership.quorum,
        },
        "qdevice": {"host": str(topology.qdevice), "state": _device_state(env)}
        if is_device
        else None,
        "nodes": [
            {
                "name": node.name.value,
                "role": node.role.value,
                "is_member": node.name.value in membership.members,
                "strategy": seen.votes_of(node.name).strategy or None,
                "live": _tally(seen.votes_of(node.name).live),
                "file": _tally(seen.votes_of(node.name).file),
                "has_device_vote": seen.votes_of(node.name).is_device_voting if is_device else None,
            }
            for node in topology.nodes
        ],
        "links": [
            {
                "link": LINK_NAMES.get(link.number, str(link.number)),
                "to": names.get(link.peer, str(link.peer)),
                "state": "connected" if link.is_connected else "disconnected",
            }
            for link in corosync.links(env.runner)
        ],
    }


def _device_state(env: Environment) -> str:
    try:
        return corosync.qdevice_state(env.runner) or "not asked"
    except CommandError:
        return "not asked"


def _tally(tally: object) -> str | None:
    return None if tally is None else str(tally)


def _vote_row(node: dict[str, Any]) -> tuple[str, ...]:
    if node["role"] == "witness":
        return (node["name"], node["role"], "-", "-", "-", "-")
    device = {True: "votes", False: "silent", None: "-"}[node["has_device_vote"]]
    return (
        node["name"],
        node["role"],
        _or_unknown(node["strategy"]),
        _or_unknown(node["live"]),
        _or_unknown(node["file"]),
        device,
    )


def _or_unknown(value: object) -> str:
    return UNKNOWN if value is None else str(value)
