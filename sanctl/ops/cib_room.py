# SPDX-License-Identifier: GPL-2.0-or-later
"""Refuses changes by which the CIB would outgrow Pacemaker's messages (plan/cluster/cib_size)."""

from __future__ import annotations

from collections.abc import Callable

from sanctl.errors import Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.ops.session import Session
from sanctl.plan.cluster.cib_size import added_text, cib_size_problem, has_size_limit


def within_room(
    session: Session, plan: Callable[[Cluster], tuple[Change, ...]], ipc_buffer_bytes: int
) -> Callable[[Cluster], tuple[Change, ...]]:
    """Return the plan, which raises Refused where the CIB would become too large.

    What takes something away is never refused. `ipc_buffer_bytes` is the IPC buffer of the
    Pacemaker that runs here.
    """

    def checked(cluster: Cluster) -> tuple[Change, ...]:
        changes = plan(cluster)
        added = added_text(cluster, changes)
        if added and has_size_limit(cluster.cib.properties.get("dc-version", "")):
            problem = cib_size_problem(
                compressed_bytes=session.compressed_cib_bytes(added),
                new_devices=0,
                nodes=len(cluster.cib.nodes),
                ipc_buffer_bytes=ipc_buffer_bytes,
            )
            if problem is not None:
                raise Refused(problem)
        return changes

    return checked
