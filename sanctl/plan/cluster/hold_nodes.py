# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which nodes would keep hosts out of a device that awaits its second sites.

One of an older release lets hosts in. One that does not know its run of the cluster software keeps
them out for good: no note and no order is of its run.
"""

from __future__ import annotations

from collections.abc import Sequence

from sanctl.errors import Problem
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName, PoolName


def unfit_for_hold(
    cluster: Cluster, pool: PoolName, nodes: Sequence[NodeName]
) -> tuple[Problem, ...]:
    """Return the problems of nodes with a replica; of one that has published nothing, too."""
    runs = {
        node: usage.holds_run if (usage := cluster.pool(pool, node)) else None for node in nodes
    }
    return (
        *_older([node.value for node, run in runs.items() if run is None]),
        *_without_run([node.value for node, run in runs.items() if run == ""]),
    )


def asks_as_before(cluster: Cluster, *, without: Sequence[NodeName]) -> tuple[Problem, ...]:
    """Return the problem of other storage nodes whose release has no such devices.

    With the key of the site such a node asks it, too, and a takeover that the site has lost counts
    as ended for it.
    """
    return _older(
        sorted(_of_an_older_release(cluster, known_alone=False) - {n.value for n in without})
    )


def runs_of(cluster: Cluster, pool: PoolName, nodes: Sequence[NodeName]) -> tuple[str, ...]:
    """Return the runs of the cluster software on nodes, as far as they are known."""
    found = (cluster.pool(pool, node) for node in nodes)
    return tuple(sorted({usage.holds_run for usage in found if usage and usage.holds_run}))


def nodes_that_let_in(cluster: Cluster) -> frozenset[str]:
    """Return the storage nodes that are known to let hosts in to a device that awaits sites."""
    return _of_an_older_release(cluster, known_alone=True)


def _of_an_older_release(cluster: Cluster, *, known_alone: bool) -> frozenset[str]:
    """Return the nodes that publish pools, and for none of them that they keep hosts out.

    With `known_alone` without those whose pools are all in error, and those whose pool agent does
    not run, as in standby: what it published last is of the release before.
    """
    published = {
        (node, usage.holds_run, usage.error)
        for (_, node), usage in cluster.cib.pools.items()
        if not known_alone or cluster.is_pool_agent_running(node)
    }
    return frozenset(node for node, _, error in published if error is None or not known_alone) - {
        node for node, run, _ in published if run is not None
    }


def _older(nodes: Sequence[str]) -> tuple[Problem, ...]:
    if not nodes:
        return ()
    return (
        Problem(
            "SAN-SITE-025",
            f"the release of sanctl on {', '.join(nodes)} does not say that it keeps hosts out "
            "of a device that awaits a site",
            "run the playbook on all nodes, and try again after half a minute",
        ),
    )


def _without_run(nodes: Sequence[str]) -> tuple[Problem, ...]:
    if not nodes:
        return ()
    return (
        Problem(
            "SAN-SITE-025",
            f"{', '.join(nodes)} cannot tell one start of Pacemaker from another, so it would keep "
            "hosts out for good of a device that awaits a site",
            "run Pacemaker as the unit pacemaker.service in system.slice, with cgroup v2",
        ),
    )
