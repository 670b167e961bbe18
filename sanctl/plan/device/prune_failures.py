# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which failed prunes the CIB notes, and when a note goes.

Unlike a backup's, a prune's success is not noted: nothing tells of a failure later than at once.
"""

from __future__ import annotations

from sanctl.model.backup_failure import PruneFailure
from sanctl.model.cib_change import Change, RemovePruneFailure, SetPruneFailure
from sanctl.model.cluster import Cluster
from sanctl.plan.device.backup_record import noted_prune_failure


def plan_prune_failure(
    cluster: Cluster, device: str, repository: str, *, code: str, node: str, failed_s: int
) -> tuple[Change, ...]:
    """Return the change after a prune failed: it is noted, and since when none succeeds.

    None of a device that this cluster does not have: nobody would look for it there.

    Args:
        cluster: as observed.
        device: the device's name.
        repository: the repository's name.
        code: the code of the failure.
        node: the node on which it failed.
        failed_s: when, in seconds since 1970.
    """
    found = cluster.cib.device(device)
    if found is None:
        return ()
    before = noted_prune_failure(cluster, device, repository)
    is_its = before is not None and before.uuid == found.uuid
    since_s = min(before.since_s, failed_s) if before is not None and is_its else failed_s
    failure = PruneFailure(device, repository, found.uuid, code, node, failed_s, since_s)
    return (SetPruneFailure(failure=failure),)


def plan_prune_succeeded(cluster: Cluster, device: str, repository: str) -> tuple[Change, ...]:
    """Return the change after a prune succeeded, or where none is to follow: none has failed."""
    before = noted_prune_failure(cluster, device, repository)
    return () if before is None else (RemovePruneFailure(failure=before),)
