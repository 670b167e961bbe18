# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: of which devices the extents of the data files are counted, and when they are many.

A restore point is refused where a data file has more than MAX_EXTENTS (agents/points/local_copy).
Nothing makes them fewer but a new file, so that is said before.
"""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.point_schedule import SCHEDULE_PREFIX
from sanctl.model.restore_point import MAX_EXTENTS, POINT_PREFIX, extents_key
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX

#: From so many extents on `sanctl status` warns.
MANY_EXTENTS = MAX_EXTENTS * 3 // 4

#: Of the cluster's properties those that name a device with restore points; DEVICE follows, and
#: for all but the schedule a dot. The copies of a group have an entry for each of its devices.
_PREFIXES = (POINT_PREFIX, SCHEDULE_PREFIX, COPY_PREFIX, COPY_SCHEDULE_PREFIX)


def devices_counted(properties: Iterable[str]) -> frozenset[str]:
    """Return the devices that have restore points, a schedule of them, or copies at a site.

    Args:
        properties: the ids of the cluster's properties; others than of these are ignored.
    """
    return frozenset(
        identifier.removeprefix(prefix).partition(".")[0]
        for identifier in properties
        for prefix in _PREFIXES
        if identifier.startswith(prefix)
    )


def extents_by_node(cluster: Cluster, device: DeviceSpec) -> dict[str, int]:
    """Return how many extents the data file of a device has, by node; only what is known."""
    key = extents_key(device.name.value, device.uuid)
    known = ((str(node), cluster.cib.data_extents.get((key, str(node)))) for node in device.nodes)
    return {node: count for node, count in known if count is not None}
