# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which restore point a device may be made from, and on which nodes it begins."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName
from sanctl.model.restore_point import RestorePoint


def origin_problems(
    cluster: Cluster, point: RestorePoint, *, pool: PoolName | None
) -> tuple[Problem, ...]:
    """Return why no device can be made from a restore point now.

    Args:
        cluster: as it is.
        point: the restore point.
        pool: the pool that was asked for, None: that of the restore point.
    """
    name = f"{point.device}@{point.name}"
    problems = []
    device = cluster.cib.device(point.device)
    if point.is_deleting or device is None or device.is_deleting:
        problems.append(
            Problem(
                "SAN-CLONE-002",
                f"restore point {name} is being deleted",
                f"'sanctl snapshot list {point.device}' shows those that stay",
            )
        )
    if pool is not None and pool.value != point.pool:
        problems.append(
            Problem(
                "SAN-CLONE-003",
                f"restore point {name} is in pool {point.pool}, and no device in pool {pool} can "
                "share its blocks",
                f"leave --pool away, or say --pool {point.pool}",
            )
        )
    return tuple(problems)


def node_choice_problems(
    point: RestorePoint,
    *,
    nodes: Collection[NodeName],
    prefer: NodeName | None,
    usable: Collection[NodeName],
) -> tuple[Problem, ...]:
    """Return what is wrong with the nodes of a clone: it begins where the restore point is.

    Args:
        point: the restore point.
        nodes: the nodes that were named for the replicas; none: sanctl chooses.
        prefer: the node that is to serve it at first, None: sanctl chooses.
        usable: the nodes that could take a replica now.
    """
    where = f"restore point {point.device}@{point.name} is on {', '.join(point.nodes)}"
    problems = []
    if prefer is not None and prefer.value not in point.nodes:
        problems.append(
            Problem(
                "SAN-CLONE-004",
                f"{where}: node {prefer} cannot serve the clone at first",
                "prefer a node that has the restore point",
            )
        )
    among = nodes or usable
    if not any(node.value in point.nodes for node in among):
        named = f"none of the nodes {', '.join(map(str, nodes))} has it" if nodes else "none is up"
        problems.append(
            Problem(
                "SAN-CLONE-004",
                f"{where}: {named}",
                "the first replica is made where the restore point is; others are resynced from it",
            )
        )
    return tuple(problems)


def clone_candidates(
    point: RestorePoint, usable: Sequence[NodeName], *, replicas: int
) -> tuple[tuple[NodeName, ...], tuple[NodeName, ...]]:
    """Return the nodes among which a clone's are chosen, and those that are chosen in any case.

    Nodes with the restore point come first: their replicas need no resync.
    """
    having = tuple(node for node in usable if node.value in point.nodes)
    if len(having) >= replicas:
        return having, ()
    return tuple(usable), having


def older_release_problem(
    cluster: Cluster, pool: PoolName, nodes: Sequence[NodeName]
) -> Problem | None:
    """Return the problem of a node whose release of sanctl makes no clones; None without one.

    Its agents would not know the parameter `origin`: an empty file would be the replica there, and
    be declared the same as the copies.
    """
    older = [node for node in nodes if not ((p := cluster.pool(pool, node)) and p.makes_clones)]
    if not older:
        return None
    return Problem(
        "SAN-CLONE-008",
        f"the release of sanctl on {', '.join(map(str, older))} does not say that it makes "
        "replicas from restore points and backups",
        "run the playbook on all nodes, and try again after half a minute",
    )
