# SPDX-License-Identifier: GPL-2.0-or-later
"""Pools with a flash cache: their mode, and making one on this node."""

from __future__ import annotations

from sanctl.drivers import bcache, flash_cache, loop, pool_notes
from sanctl.drivers.pool_problems import service_of
from sanctl.errors import NotConverged, Problem, Refused
from sanctl.model.cache_policy import Mode
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import mount_unit
from sanctl.model.topology import Pool, Topology
from sanctl.ops.pool_preparation import Preparation, look_at
from sanctl.ops.session import Session
from sanctl.plan.pool.flash_mode import (
    away_problems,
    existing_pool,
    mode_applied,
    plan_mode,
    renewal_problems,
)
from sanctl.plan.pool.preparation import Holds
from sanctl.system.files import is_mount_point
from sanctl.system.runner import Runner

_UNIT_TIMEOUT_S = 150.0
_TOOL_TIMEOUT_S = 60.0


def set_mode(
    session: Session, topology: Topology, name: PoolName, mode: Mode, *, timeout_s: float
) -> tuple[Cluster, bool]:
    """Change how a pool's flash is used on all its nodes; return the cluster and if it changed.

    Away from write-back this returns when the slow disks have all that was on flash alone, on
    every node of the pool.

    Raises:
        Refused: there is no such pool, or it has no flash; no quorum, or maintenance mode.
        NotConverged: it is stored, and a node is not there yet, or cannot follow before it is back.
    """
    pool = existing_pool(topology, name)

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        return plan_mode(cluster, pool, mode)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: mode_applied(seen, pool, mode),
        waiting_for=f"pool {name} to be in {mode.value} on its nodes",
        timeout_s=timeout_s,
        look="it is stored and goes on by itself: 'journalctl SANCTL_ACTION=pool-cache' on them",
    )
    problems = away_problems(cluster, pool, mode)
    if problems:
        raise NotConverged(*problems)
    return cluster, bool(changes)


def prepare(runner: Runner, topology: Topology, name: PoolName, node: str) -> tuple[str, ...]:
    """Make a pool with a flash cache on this node, or give one that is there its flash.

    What holds anything that is not the pool's is refused, and so is what cannot be read, and what
    is blank where the pool was. Run again after an interruption it goes on from what is there.

    Args:
        runner: starts programs.
        topology: what cluster.toml says.
        name: the pool.
        node: this node.

    Returns:
        What was done; nothing where all was there.

    Raises:
        Refused: the pool is not on this node; a device holds something else, or is not there, or
            cannot be read.
        SanctlError, OSError: a step failed.
    """
    return Preparation(runner, _pool_here(topology, name, node)).carry_out()


def refuse_renewal(cluster: Cluster, topology: Topology, name: PoolName, node: str) -> None:
    """Refuse to make a pool of this node anew while anything in it may be needed.

    Raises:
        Refused: the pool is not on this node; a device has no good copy elsewhere, or its replica
            is still up here.
    """
    pool = _pool_here(topology, name, node)
    problems = list(renewal_problems(cluster, pool, NodeName.parse(node)))
    if any(path.startswith(f"{pool.path}/") for path in loop.backing_files()):
        problems.append(
            Problem(
                "SAN-POOL-021",
                f"replicas in pool {name} are still up on {node}",
                f"'sanctl node standby {node}' first",
            )
        )
    if problems:
        raise Refused(*problems)


def clear(runner: Runner, topology: Topology, name: PoolName) -> None:
    """Throw away what a pool of this node holds; `prepare` then makes it anew.

    Interrupted, it is begun again: until its end nothing uses the disk.

    Raises:
        Refused: the slow disk or the flash holds something else, or cannot be read.
        SanctlError, OSError: the filesystem or the disk is still used.
    """
    pool = existing_pool(topology, name)
    cache = flash_cache.cached(pool)
    origin, unit = str(cache.origin), mount_unit(str(pool.path))
    for device, is_flash in ((origin, False), (str(cache.flash), True)):
        found = look_at(runner, pool, device, is_flash=is_flash)
        if found.holds not in {Holds.OURS, Holds.BLANK}:
            raise Refused(found.problem)
    runner.run(["systemctl", "stop", unit], timeout_s=_UNIT_TIMEOUT_S)
    if is_mount_point(pool.path):
        runner.run(["umount", str(pool.path)], timeout_s=_TOOL_TIMEOUT_S)
    runner.run(["systemctl", "stop", service_of(pool)], timeout_s=_UNIT_TIMEOUT_S)
    bcache.stop(origin, within_s=_TOOL_TIMEOUT_S)
    if bcache.set_of(str(cache.flash)) is not None:
        bcache.release_flash(str(cache.flash), within_s=_TOOL_TIMEOUT_S)
    # Both together: a disk of which only a part is zero yet is not used, whatever comes between.
    pool_notes.write(pool.name, pool_notes.MADE, pool.uuid)
    pool_notes.write(pool.name, pool_notes.MAKING, pool.uuid)
    bcache.format_origin(origin, flash_cache.origin_uuid(pool), flash_cache.label_of(pool))
    # The last step: until here the notes say that the disk alone must not be used.
    flash_cache.forget_notes(pool)
    flash_cache.forget_loss(pool)


def _pool_here(topology: Topology, name: PoolName, node: str) -> Pool:
    pool = existing_pool(topology, name)
    if node not in {each.value for each in pool.nodes}:
        raise Refused(
            Problem(
                "SAN-POOL-014",
                f"{node} is not among the nodes of pool {name}",
                f"run it on one that is: {', '.join(each.value for each in pool.nodes)}",
            )
        )
    return pool
