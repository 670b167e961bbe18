# SPDX-License-Identifier: GPL-2.0-or-later
"""What devices of an older version lack, and today's have from their creation."""

from __future__ import annotations

from sanctl.errors import Refused
from sanctl.model.cib_change import Change, CompleteDevice
from sanctl.model.cluster import Cluster, clone_id
from sanctl.plan.device.creation import no_quorum_problem


def plan_completion(cluster: Cluster) -> tuple[Change, ...]:
    """Return the changes that give every device what it lacks; nothing where none does.

    Raises:
        Refused: no quorum.
    """
    lacking = tuple(
        CompleteDevice(device=device)
        for device in cluster.cib.devices
        if not {f"{clone_id(device.name)}-reach", f"{clone_id(device.name)}-meta-priority"}
        <= cluster.cib.ids
    )
    if lacking and not cluster.mon.has_quorum:
        raise Refused(no_quorum_problem())
    return lacking
