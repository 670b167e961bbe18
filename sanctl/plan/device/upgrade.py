# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which CIB entries a device of an older release lacks (iscsi-reach, priority, timeouts)."""

from __future__ import annotations

from sanctl.model.cib_change import Change, CompleteDevice
from sanctl.model.cib_names import clone_id
from sanctl.model.cluster import Cluster
from sanctl.plan.cluster.preconditions import refuse_without_quorum
from sanctl.render.device_elements import short_timeouts


def plan_upgrade(cluster: Cluster) -> tuple[Change, ...]:
    """Return the changes that complete every device's CIB entries; nothing where none lacks any.

    Raises:
        Refused: no quorum.
    """
    lacking = tuple(
        CompleteDevice(device=device)
        for device in cluster.cib.devices
        if not {f"{clone_id(device.name)}-reach", f"{clone_id(device.name)}-meta-priority"}
        <= cluster.cib.ids
        or short_timeouts(device.name.value, cluster.cib.operation_timeouts)
    )
    if lacking:
        refuse_without_quorum(cluster)
    return lacking
