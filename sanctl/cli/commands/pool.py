# SPDX-License-Identifier: GPL-2.0-or-later
"""Options and output of `sanctl pool list`, `cache` (mode of the flash), `prepare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.options import accept_option, output_option, timeout_option, yes_option
from sanctl.cli.output import UNKNOWN, finish, print_table
from sanctl.cli.views.node import pool_data
from sanctl.errors import Refused, SanctlError
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.names import NodeName, PoolName, format_bytes
from sanctl.model.topology import Pool, Topology
from sanctl.ops.pool_cache import change_flash_mode
from sanctl.ops.pool_mark import (
    accept_filesystem,
    distrust_pool,
    is_another_filesystem,
    mark_pool,
    refuse_marking,
)
from sanctl.ops.pool_prepare import pool_of_node, prepare_pool
from sanctl.ops.pool_reformat import check_reformat, clear_pool, give_up_points
from sanctl.plan.pool.flash_mode import (
    absent_nodes,
    common_wanted_mode,
    existing_cached_pool,
    node_flash_text,
    without_good_replica_elsewhere,
)
from sanctl.plan.pool.marking import (
    ACCEPT_FILESYSTEM,
    accepting_node_problems,
    only_replicas,
)
from sanctl.system import journal

if TYPE_CHECKING:
    from sanctl.cli.documents import pool as pool_documents

#: Of restore points that a node has no more, so many are named.
_NAMED = 8
_MODE_COLUMNS = ("NODE", "FLASH", "WANTED")
_COLUMNS = ("POOL", "NODE", "SIZE", "FREE", "ROOM", "FLASH", "WANTED")


@click.group(no_args_is_help=False)
def pool() -> None:
    """Pools: filesystems that hold devices, and their flash caches."""


@pool.command("list")
@output_option
def list_pools(output: str) -> None:
    """List all pools, node by node.

    Hits are the reads since the node's boot that were found on flash, in percent.
    """
    env = environment()
    topology = env.topology()
    with env.session() as session:
        data = _pools(session.observe(), topology)

    def text() -> None:
        print_table(_COLUMNS, [_row(entry) for entry in data])

    finish(output, data=data, text=text)


@pool.command(short_help="Show or change how a pool's flash is used, under load.")
@click.argument("name", metavar="POOL")
@click.argument("mode", required=False, type=click.Choice([mode.value for mode in CacheMode]))
@timeout_option(600)
@output_option
def cache(name: str, mode: str | None, timeout_s: float, output: str) -> None:
    """Change how a pool's flash cache is used, on all its nodes, while hosts use its devices.

    Without MODE the command shows the mode that is in effect and the mode that is wanted.

    none: the flash is not used, and can be taken out. write-through: for reads; a write ends when
    the slow disk has it. write-back: a write ends when flash has it, and goes to the slow disk
    later.

    A change away from write-back returns when the slow disks have all data that was on flash alone.
    A node in standby or away follows when it is back: until then the command ends with exit status
    7, unless MODE is write-back.
    """
    env = environment()
    topology, wanted = env.topology(), PoolName.parse(name)
    found = existing_cached_pool(topology, wanted)
    if mode is None:
        _show_flash_mode(found, output)
        return
    with (
        env.session() as session,
        env.logged("pool-cache", command_line=f"pool cache {name} {mode}"),
    ):
        began_s = session.clock.monotonic_s()
        cluster, changed = change_flash_mode(
            session, topology, wanted, CacheMode(mode), timeout_s=timeout_s
        )
        took_s = session.clock.monotonic_s() - began_s

    def text() -> None:
        result = f"after {took_s:.1f} s" if changed else "nothing to do"
        print(f"pool {wanted}: {mode}, {result}")
        for node in found.nodes:
            print(f"  {node}: {node_flash_text(cluster, found, node)}")
        for node in absent_nodes(cluster, found):
            print(f"node {node} follows when it is online again")
        if changed:
            print(f"put 'mode: {mode}' into the inventory, too: the next rollout goes by it")

    finish(
        output,
        data=_mode_data(cluster, found, CacheMode(mode), changed=changed, took_s=took_s),
        text=text,
    )


def _show_flash_mode(found: Pool, output: str) -> None:
    with environment().session() as session:
        cluster = session.observe()
    data = _mode_data(cluster, found, common_wanted_mode(cluster, found), changed=False, took_s=0.0)

    def text() -> None:
        print_table(_MODE_COLUMNS, [_mode_row(entry) for entry in data["nodes"]])

    finish(output, data=data, text=text)


def _mode_data(
    cluster: Cluster, found: Pool, mode: CacheMode | None, *, changed: bool, took_s: float
) -> pool_documents.PoolModeSet:
    return {
        "name": found.name.value,
        "mode": None if mode is None else mode.value,
        "changed": changed,
        "duration_s": round(took_s, 3),
        "nodes": [{"node": node.value, **pool_data(cluster, found, node)} for node in found.nodes],
    }


@pool.command(short_help="Make a pool with flash on this node, attach its flash, or begin anew.")
@click.argument("name", metavar="POOL")
@click.option(
    "--anew",
    is_flag=True,
    help="Discard the pool's replicas on this node; their peers fill them again.",
)
@click.option(
    "--distrust",
    is_flag=True,
    help="Count the pool's replicas on this node as suspect: fsck has repaired its filesystem.",
)
@click.option(
    "--leave-failed-flash",
    "leaves_failed_flash",
    is_flag=True,
    help="Flash that has failed stays out of use: for the rollout.",
)
@accept_option
@yes_option
@output_option
def prepare(
    *,
    name: str,
    anew: bool,
    distrust: bool,
    leaves_failed_flash: bool,
    accepted: tuple[str, ...],
    yes: bool,
    output: str,
) -> None:
    """Make a pool with a flash cache on this node, as cluster.toml describes it.

    Run again after an interruption, the command goes on. It refuses disks that hold anything else,
    and disks that cannot be read. A pool that is in use without its flash gets the flash, emptied.
    With --anew the pool's replicas on this node are discarded first: for flash that was lost with
    data on it, or a slow disk that was replaced by a blank one. Each of these replicas must have a
    good one on another node, and each restore point be on another node, too: this one loses its
    files of restore points.

    A pool without flash is made by the rollout. With --anew, a new and empty filesystem that is
    mounted at its path takes the place of a lost one; nothing is formatted.

    With --accept SAN-POOL-033 another filesystem of the pool, such as that of a disk that was
    replaced, is the pool's again: its replicas count as suspect, and are filled whole from the one
    that serves. A device that has its only replica there is served as old as that disk is: the
    command names such devices, and asks. The node has to be in standby.

    With --distrust each replica in the pool on this node counts as suspect, and is filled whole
    from the one that serves: for a filesystem that fsck has repaired. Put the node into standby
    first.
    """
    accepts = ACCEPT_FILESYSTEM in accepted
    if distrust:
        if anew or accepts or leaves_failed_flash:
            raise click.UsageError("--distrust goes with no other option.")
        _distrust(name, output)
        return
    if anew and accepts:
        raise click.UsageError(f"--anew begins a new pool: --accept {ACCEPT_FILESYSTEM} keeps one.")
    env = environment()
    topology, wanted = env.topology(), PoolName.parse(name)
    node = env.host.node_name()

    def check() -> None:
        with env.session() as session:
            check_reformat(session.observe(), topology, wanted, node)

    given_up: list[str] = []
    left: list[str] = []

    def tell(points: tuple[str, ...]) -> None:
        if points and list(points) != given_up:
            # Before the change: if the command dies, or gets no answer, nothing else names them.
            text = f"pool {wanted}: {node} is taken off restore points {', '.join(points)}"
            journal.write(text, action="pool-prepare", step="give-up")
            click.echo(text, err=True)
        given_up[:] = points

    def give_up() -> None:
        with env.session() as session:
            give_up_points(session, topology, wanted, node, tell)

    found = topology.pool(wanted)
    is_plain = anew and found is not None and found.cache is None
    if anew:
        check()
        if is_plain:
            refuse_marking(pool_of_node(topology, wanted, node), node)
        if not yes:
            click.confirm(_anew_question(wanted, node, is_plain=is_plain), abort=True, err=True)
    if accepts and is_another_filesystem(pool_of_node(topology, wanted, node), node):
        _ask_to_accept(pool_of_node(topology, wanted, node), node, yes=yes)
    options = f"{' --anew' if anew else ''}{f' --accept {ACCEPT_FILESYSTEM}' if accepts else ''}"
    options += " --leave-failed-flash" if leaves_failed_flash else ""
    with env.logged("pool-prepare", command_line=f"pool prepare {name}{options}"):
        done: tuple[str, ...] = ()
        if accepts:
            done = accept_filesystem(pool_of_node(topology, wanted, node), node)
        if is_plain:
            here = pool_of_node(topology, wanted, node)
            done = mark_pool(here, node, give_up, env.new_uuid())
        elif not accepts or (found is not None and found.cache is not None):
            if anew:
                clear_pool(
                    env.runner,
                    topology,
                    wanted,
                    check,
                    give_up,
                    identifier=env.new_uuid(),
                    given_up=given_up,
                )
            done += prepare_pool(
                env.runner,
                topology,
                wanted,
                node,
                identifier=env.new_uuid(),
                leaves_failed_flash=leaves_failed_flash,
                tell=left.append,
            )
        if given_up:
            done = (*done, _given_up_text(given_up, node))
    if anew:
        _clean_up_failures(wanted)
    finish(
        output,
        data={"name": wanted.value, "node": node, "done": list(done), "left": left},
        text=lambda: print(
            f"pool {wanted} on {node}: {'; '.join((*done, *left)) or 'nothing to do'}"
        ),
    )


def _ask_to_accept(found: Pool, node: str, *, yes: bool) -> None:
    """Say which devices would be served from a filesystem, and ask; the node stays in standby."""

    def observe() -> Cluster:
        with environment().session() as session:
            cluster = session.observe()
        problems = accepting_node_problems(cluster, found, NodeName.parse(node))
        if problems:
            raise Refused(*problems)
        return cluster

    cluster = observe()
    for device in only_replicas(cluster, found, NodeName.parse(node)):
        click.echo(
            f"device {device} has its only replica on {node}: hosts will get it as it is on this "
            "disk, however old that is, and no other replica says what it lacks.",
            err=True,
        )
    if not yes:
        click.confirm(
            f"Take the filesystem that is mounted at {found.path} for pool {found.name} on {node}, "
            "whatever its age?",
            abort=True,
            err=True,
        )
        observe()


def _distrust(name: str, output: str) -> None:
    """Have the pool's replicas on this node count as suspect; node and pool stay as they are."""
    env = environment()
    wanted, node = PoolName.parse(name), env.host.node_name()
    here = pool_of_node(env.topology(), wanted, node)
    with env.logged("pool-prepare", command_line=f"pool prepare {name} --distrust"):
        with env.session() as session:
            cluster = session.observe()
        is_standby = cluster.mon.state(node) is NodeState.STANDBY
        done = distrust_pool(here, node, is_standby=is_standby)
    name_here = NodeName.parse(node)
    left = [
        f"{device} has its only replica there: it is served as it is, as none can fill it"
        for device in only_replicas(cluster, here, name_here)
    ]
    left += [
        f"{device} has no other replica that is known to be good: nobody serves it before "
        f"'sanctl device heal {device}' has said which one counts"
        for device in without_good_replica_elsewhere(cluster, here, name_here)
    ]

    def text() -> None:
        print(f"pool {wanted} on {node}: {'; '.join((*done, *left))}")
        print(f"each is filled whole from the one that serves after 'sanctl node online {node}'")

    finish(
        output,
        data={"name": wanted.value, "node": node, "done": list(done), "left": left},
        text=text,
    )


def _anew_question(name: PoolName, node: str, *, is_plain: bool) -> str:
    if is_plain:
        return (
            f"Give up all replicas and files of restore points that pool {name} had on {node}, and "
            "begin an empty pool?"
        )
    return f"Discard all replicas and files of restore points in pool {name} on {node}?"


def _given_up_text(points: list[str], node: str) -> str:
    more = " ..." if len(points) > _NAMED else ""
    return f"{node} has no more of restore points {', '.join(points[:_NAMED])}{more}"


def _clean_up_failures(name: PoolName) -> None:
    """Clean up failures of the pool's devices, so that Pacemaker starts their replicas again."""
    env = environment()
    with env.session() as session:
        for device in session.observe().cib.devices:
            if device.pool == name:
                try:
                    session.clean_up_failures(device.name)
                except SanctlError as error:
                    print(f"{device.name}: {error}")


def _pools(cluster: Cluster, topology: Topology) -> list[pool_documents.PoolOnNode]:
    return [
        {"node": node.value, **pool_data(cluster, each, node)}
        for each in topology.pools
        for node in each.nodes
    ]


def _row(entry: pool_documents.PoolOnNode) -> tuple[str, ...]:
    def size(count: int | None) -> str:
        return UNKNOWN if count is None else format_bytes(count)

    return (
        entry["name"],
        entry["node"],
        entry["error"] or size(entry["total"]),
        size(entry["free"]),
        size(entry["room"]),
        *_flash(entry),
    )


def _mode_row(entry: pool_documents.PoolOnNode) -> tuple[str, ...]:
    return entry["node"], *_flash(entry)


def _flash(entry: pool_documents.PoolOnNode) -> tuple[str, str]:
    """Return the state of a pool's flash in words, and the mode that is wanted."""
    flash = entry["cache"]
    return ("-", "-") if flash is None else (flash["words"], flash["wanted"])
