# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: what the cluster notes of a device that was made what a copy at a site is."""

from __future__ import annotations

from sanctl.model.cib_change import Change, RemoveRestored, SetRestored
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import RestoreOrder
from sanctl.model.site_restore import RestoreRecord

#: Of so many devices of other clusters, or deleted ones, it is kept: the CIB has little room.
_MOST_OTHERS = 50


def plan_restored(
    cluster: Cluster, name: str, order: RestoreOrder, now_s: float
) -> tuple[Change, ...]:
    """Return the changes that note a restore, with the one by which it ends; none of other orders.

    Args:
        cluster: the cluster.
        name: the device that was filled.
        order: the order that was carried out.
        now_s: seconds since 1970.
    """
    device, copy = cluster.cib.device(name), order.copy
    if device is None or copy is None:
        return ()
    record = RestoreRecord(
        copy.device,
        copy.uuid,
        copy.site,
        copy.point,
        name,
        order.given_s,
        int(now_s),
        device.size.bytes,
    )
    others = sorted(
        (each for each in other_restores(cluster) if each.id != record.id),
        key=lambda each: each.ended_s,
        reverse=True,
    )
    surplus = others[_MOST_OTHERS - 1 :]
    return (SetRestored(record=record), *(RemoveRestored(record=each) for each in surplus))


def restore_of(cluster: Cluster, name: str) -> RestoreRecord | None:
    """Return the last restore from a copy of a device of this cluster, if there was one here."""
    device = cluster.cib.device(name)
    return next(
        (
            each
            for each in cluster.cib.restored
            if device is not None and (each.device, each.uuid) == (name, device.uuid)
        ),
        None,
    )


def other_restores(cluster: Cluster) -> tuple[RestoreRecord, ...]:
    """Return the last restores from copies of devices that this cluster does not have."""
    own = {(each.name.value, each.uuid) for each in cluster.cib.devices}
    return tuple(each for each in cluster.cib.restored if (each.device, each.uuid) not in own)
