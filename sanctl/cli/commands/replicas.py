# SPDX-License-Identifier: GPL-2.0-or-later
"""The commands about where copies are: `device replicas`, `device place` and `node replace`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import finish, output_option, print_table, timeout_option
from sanctl.cli.views import UNKNOWN, device_data
from sanctl.errors import ExitStatus
from sanctl.model.names import DeviceName, NodeName, format_bytes
from sanctl.ops.replicas import Levelled, change_level, replace_node
from sanctl.plan.device.creation import CreateRequest, read_request
from sanctl.plan.device.placement_preview import Site, survey
from sanctl.plan.replicas.replica_choice import read_level
from sanctl.plan.replicas.replica_count import Setting

if TYPE_CHECKING:
    from sanctl.cli.documents import contract
    from sanctl.cli.environment import Environment
    from sanctl.model.topology import Topology

_ACCEPT = click.option(
    "--accept",
    "accepted",
    multiple=True,
    metavar="CODE",
    help="Go on despite the refusal with this code, and no other.",
)
#: A day: a full sync of a large device takes hours, and whoever waits may stop waiting.
_PATIENCE_S = 86400


@click.command(short_help="Change how many copies a device has, and where, under load.")
@click.argument("name")
@click.argument("count", metavar="1|2|3|4")
@click.option("--add", multiple=True, metavar="NODE", help="A node that is to have a copy.")
@click.option("--drop", multiple=True, metavar="NODE", help="A node that is to have none.")
@_ACCEPT
@timeout_option(_PATIENCE_S)
@output_option
def replicas(
    *,
    name: str,
    count: str,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    accepted: tuple[str, ...],
    timeout_s: float,
    output: str,
) -> None:
    """Change how many copies a device has, and on which nodes, while hosts write to it.

    Nodes that are not named are chosen as for a new device. Waits until every copy is in sync. Run
    again after an interruption it goes on; 'sanctl device show' says what is unfinished and how it
    could be taken back. The last copy that is known to be up to date is never dropped.
    """
    env = environment()
    wanted = DeviceName.parse(name)
    request = read_level(count, add, drop)
    topology = env.topology()
    options = "".join(
        f" {option} {node}"
        for option, nodes in (("--add", add), ("--drop", drop))
        for node in nodes
    )
    words = f"device replicas {name} {count}{options}"
    with env.session() as it, env.recorded("replicas", device=name, words=words):
        outcome = change_level(
            it,
            wanted,
            request,
            _setting(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {words}",
        )
    finish(
        output,
        data=_levelled_data(outcome, topology),
        text=lambda: _print_levelled(outcome, topology),
    )


def _setting(env: Environment, topology: Topology, accepted: tuple[str, ...]) -> Setting:
    return Setting(topology=topology, drbd_version=env.drbd_version(), accepted=frozenset(accepted))


def _levelled_data(outcome: Levelled, topology: Topology) -> contract.Levelled:
    return {
        "changed": bool(outcome.steps),
        "duration_s": round(outcome.duration_s, 3),
        "steps": list(outcome.steps),
        "away": [node.value for node in outcome.away],
        "added": [node.value for node in outcome.added],
        **device_data(outcome.cluster, outcome.device, topology),
    }


def _print_levelled(outcome: Levelled, topology: Topology) -> None:
    made = outcome.device
    where = ", ".join(map(str, made.nodes))
    after = f", after {outcome.duration_s:.1f} s" if outcome.steps else ": nothing to do"
    print(f"device {made.name} has its copies on {where}{after}")
    for added in outcome.added:
        node = topology.node(added)
        portals = ", ".join(map(str, node.iscsi)) if node is not None else UNKNOWN
        print(
            f"hosts have to log in to {added} ({portals}): until then they cannot follow it there"
        )
    for away in outcome.away:
        print(f"node {away} is away: it removes its copy when it is back")


@click.command(short_help="Say where a new device would go, and why.")
@click.option("--size", required=True, metavar="SIZE", help="As for 'device create'.")
@click.option(
    "--replicas", default="2", show_default=True, metavar="N", help="How many nodes keep a copy."
)
@click.option("--pool", metavar="POOL", help="The pool; needed when there are several.")
@click.option("--nodes", metavar="A,B", help="Only these nodes.")
@click.option("--prefer", metavar="NODE", help="The node that is to serve it first.")
@click.option("--explain", is_flag=True, help="Say of every node why, or why not.")
@output_option
def place(
    *,
    size: str,
    replicas: str,
    pool: str | None,
    nodes: str | None,
    prefer: str | None,
    explain: bool,
    output: str,
) -> None:
    """Say where a new device would go. Nothing is made; exit status 1: it would not go anywhere."""
    env = environment()
    topology = env.topology()
    wish = read_request(
        CreateRequest(
            name="place",
            size=size,
            replicas=replicas,
            pool=pool,
            nodes=tuple(part.strip() for part in nodes.split(",")) if nodes is not None else (),
            prefer=prefer,
        )
    )
    with env.session() as it:
        sites = survey(wish, it.observe(), topology, drbd_version=env.drbd_version())
    chosen = [site for site in sites if site.is_chosen]

    def text() -> None:
        if chosen:
            print(f"it would go to {', '.join(str(site.node) for site in chosen)}")
        else:
            print("it would not go anywhere")
        if explain or not chosen:
            print_table(_COLUMNS, [_row(site) for site in sites])

    finish(
        output,
        data={
            "nodes": [site.node.value for site in chosen],
            "verdicts": [_verdict(site, is_first=site in chosen[:1]) for site in sites],
        },
        text=text,
        status=ExitStatus.OK if chosen else ExitStatus.DEGRADED,
    )


_COLUMNS = ("NODE", "CHOSEN", "SITE", "RACK", "ROOM", "ACTIVE", "WHY")


def _row(site: Site) -> tuple[str, ...]:
    return (
        site.node.value,
        "yes" if site.is_chosen else "no",
        site.site or "-",
        site.rack or "-",
        UNKNOWN if site.room_bytes is None else format_bytes(site.room_bytes),
        str(site.active_devices),
        site.reason,
    )


def _verdict(site: Site, *, is_first: bool) -> contract.PlacementVerdict:
    return {
        "node": site.node.value,
        "chosen": site.is_chosen,
        "first": is_first,
        "site": site.site or None,
        "rack": site.rack or None,
        "room": site.room_bytes,
        "active_devices": site.active_devices,
        "reason": site.reason,
    }


@click.command(short_help="Give all copies of a node to another.")
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@_ACCEPT
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
    words = f"node replace {old} {new}"
    with env.session() as it, env.recorded("replace", words=words):
        outcomes = replace_node(
            it,
            gone,
            comer,
            _setting(env, topology, accepted),
            timeout_s=timeout_s,
            again=f"sanctl {words}",
        )

    def text() -> None:
        for outcome in outcomes:
            _print_levelled(outcome, topology)
        print(f"node {gone} keeps no copies" + ("" if outcomes else ": nothing to do"))

    finish(
        output,
        data={
            "old": gone.value,
            "new": comer.value,
            "devices": [_levelled_data(outcome, topology) for outcome in outcomes],
        },
        text=text,
    )
