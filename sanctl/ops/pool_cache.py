# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl pool cache`: changes the mode of a pool's flash cache on all nodes, while hosts write."""

from __future__ import annotations

from sanctl.errors import NotConverged
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import PoolName
from sanctl.model.topology import Topology
from sanctl.ops.session import Session
from sanctl.plan.pool.flash_mode import (
    absent_node_problems,
    existing_cached_pool,
    flash_mode_progress,
    plan_flash_mode,
)


def change_flash_mode(
    session: Session, topology: Topology, name: PoolName, mode: CacheMode, *, timeout_s: float
) -> tuple[Cluster, bool]:
    """Change how a pool's flash is used on all its nodes; return the cluster, and whether changed.

    Away from write-back this returns when, on every node of the pool, the slow disk has all data
    that was on flash alone.

    Raises:
        Refused: there is no such pool, or it has no flash; no quorum, or maintenance mode.
        NotConverged: the mode is stored, and a node is not in it yet, or is away.
    """
    pool = existing_cached_pool(topology, name)

    def decide(cluster: Cluster) -> tuple[Change, ...]:
        return plan_flash_mode(cluster, pool, mode)

    changes = session.change(decide)
    cluster = session.wait(
        lambda seen: flash_mode_progress(seen, pool, mode),
        waiting_for=f"pool {name} to be in {mode.value} on its nodes",
        timeout_s=timeout_s,
        look="the mode is stored and the nodes go on by themselves: "
        "'journalctl SANCTL_ACTION=pool-cache' on them",
    )
    problems = absent_node_problems(cluster, pool, mode)
    if problems:
        raise NotConverged(*problems)
    return cluster, bool(changes)
