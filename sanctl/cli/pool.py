"""The commands `sanctl pool ...`: pools, and the flash before them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from sanctl.cli.environment import environment
from sanctl.cli.output import finish, output_option, print_table, timeout_option
from sanctl.cli.views import UNKNOWN, pool_data
from sanctl.errors import SanctlError
from sanctl.model.cache import Mode
from sanctl.model.cluster import Cluster
from sanctl.model.names import PoolName, format_bytes
from sanctl.model.topology import Topology
from sanctl.ops import pool as pools
from sanctl.plan.pool_cache import cache_words, existing_pool

if TYPE_CHECKING:
    from sanctl.cli import pool_documents

_COLUMNS = ("POOL", "NODE", "SIZE", "FREE", "ROOM", "FLASH", "WANTED")


@click.group(no_args_is_help=False)
def pool() -> None:
    """Pools: where devices lie, and the flash before them."""


@pool.command("list")
@output_option
def list_pools(output: str) -> None:
    """List all pools, node by node."""
    env = environment()
    topology = env.topology()
    with env.session() as it:
        data = _pools(it.observe(), topology)

    def text() -> None:
        print_table(_COLUMNS, [_row(entry) for entry in data])

    finish(output, data=data, text=text)


@pool.command(short_help="Change how a pool's flash is used, while hosts write.")
@click.argument("name", metavar="POOL")
@click.argument("mode", type=click.Choice([mode.value for mode in Mode]))
@timeout_option(600)
@output_option
def cache(name: str, mode: str, timeout_s: float, output: str) -> None:
    """Change how the flash before a pool is used, on all its nodes, while hosts use its devices.

    none: not at all; it can be taken out. write-through: for reads; a write ends when the slow disk
    has it. write-back: a write ends when flash has it, and the slow disk gets it later.

    Away from write-back it returns when the slow disks have all that was on flash alone.
    """
    env = environment()
    topology, wanted = env.topology(), PoolName.parse(name)
    found = existing_pool(topology, wanted)
    with env.session() as it, env.recorded("pool-cache", words=f"pool cache {name} {mode}"):
        began_s = it.clock.monotonic_s()
        cluster, changed = pools.set_mode(it, topology, wanted, Mode(mode), timeout_s=timeout_s)
        took_s = it.clock.monotonic_s() - began_s

    def text() -> None:
        told = f"after {took_s:.1f} s" if changed else "nothing to do"
        print(f"pool {wanted}: {mode}, {told}")
        for node in found.nodes:
            usage = cluster.pool(wanted, node)
            print(f"  {node}: {cache_words(usage.cache if usage else None)}")
        if changed:
            print(f"put mode: {mode} into the inventory, too")

    finish(
        output,
        data={
            "name": wanted.value,
            "mode": mode,
            "changed": changed,
            "duration_s": round(took_s, 3),
            "nodes": [
                {"node": node.value, **pool_data(cluster, found, node)} for node in found.nodes
            ],
        },
        text=text,
    )


@pool.command(short_help="Make a pool with flash on this node, or give it its flash.")
@click.argument("name", metavar="POOL")
@click.option("--anew", is_flag=True, help="Throw away what it holds; its peers fill it again.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@output_option
def prepare(name: str, anew: bool, yes: bool, output: str) -> None:
    """Make a pool with a flash cache on this node, as cluster.toml has it, or go on with that.

    Devices that hold anything else are refused. A pool that is in use without its flash gets it,
    emptied. With --anew the pool's copies here are thrown away first: for flash that was lost with
    data on it. Each of them has to be good on another node.
    """
    env = environment()
    topology, wanted = env.topology(), PoolName.parse(name)
    node = env.host.node_name()
    if anew:
        with env.session() as it:
            pools.refuse_renewal(it.observe(), topology, wanted, node)
        if not yes:
            click.confirm(
                f"Throw away all copies in pool {wanted} on {node}?", abort=True, err=True
            )
    with env.recorded("pool-prepare", words=f"pool prepare {name}{' --anew' if anew else ''}"):
        if anew:
            pools.clear(env.runner, topology, wanted)
        done = pools.prepare(env.runner, topology, wanted)
    if anew:
        _forget_failures(wanted)
    finish(
        output,
        data={"name": wanted.value, "node": node, "done": list(done)},
        text=lambda: print(f"pool {wanted} on {node}: {'; '.join(done) or 'nothing to do'}"),
    )


def _forget_failures(name: PoolName) -> None:
    """Let Pacemaker start again what could not start without the pool."""
    env = environment()
    with env.session() as it:
        for device in it.observe().cib.devices:
            if device.pool == name:
                try:
                    it.forget_failures(device.name)
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

    flash = entry["cache"]
    return (
        entry["name"],
        entry["node"],
        entry["error"] or size(entry["total"]),
        size(entry["free"]),
        size(entry["room"]),
        "-" if flash is None else flash["words"],
        "-" if flash is None else flash["wanted"],
    )
