# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether the CIB, with devices or hosts that are added, still fits Pacemaker's messages.

Pacemaker hands the CIB as one message to each command, agent and daemon that asks for it. A message
that exceeds the IPC buffer (`PCMK_ipc_buffer`, 128 KiB) is compressed by bzip2 each time, and one
that exceeds it compressed is not sent at all (lib/common/ipc_server.c, pcmk__ipc_prepare_iov, up to
3.0.0): then no scheduler runs and nothing fails over. Since 3.0.1 a message is sent in parts.
"""

from __future__ import annotations

from collections.abc import Iterable

from sanctl.errors import Problem
from sanctl.model.cib_change import (
    Change,
    SetBackupFailure,
    SetCopy,
    SetCopySchedule,
    SetGroupRecord,
    SetGroupsOfDevice,
    SetHost,
    SetHostGroup,
    SetParameter,
    SetPoint,
    SetPruneFailure,
    SetSchedule,
    SetSite,
    SetTakeover,
)
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.point_hook import HookResult
from sanctl.model.restore_point import PointOrder, RestorePoint

#: PCMK_ipc_buffer where it is not set.
DEFAULT_IPC_BUFFER_BYTES = 128 << 10
# What a device adds, compressed, with the history of its actions (measured with Pacemaker 3.0.0).
_DEVICE_BYTES = 280
_DEVICE_BYTES_PER_NODE = 60
#: The share of the buffer that the compressed CIB may fill: a failover adds to the history.
USABLE_SHARE = 0.8
_SENT_IN_PARTS_SINCE = (3, 0, 1)


def has_size_limit(pacemaker_version: str) -> bool:
    """Whether a Pacemaker of that version limits the CIB's size; an unknown version does.

    The version is the property `dc-version`, such as 3.0.0-3+deb13u1-1.
    """
    words = pacemaker_version.partition("-")[0].partition("+")[0].split(".")
    if len(words) < 3 or not all(word.isascii() and word.isdecimal() for word in words):
        return True
    return tuple(int(word) for word in words) < _SENT_IN_PARTS_SINCE


def usable_bytes(ipc_buffer_bytes: int) -> int:
    """Return how large the compressed CIB may become with an IPC buffer of that size."""
    return int(ipc_buffer_bytes * USABLE_SHARE)


def cib_size_problem(
    *, compressed_bytes: int, new_devices: int, nodes: int, ipc_buffer_bytes: int
) -> Problem | None:
    """Return why the CIB would be too large, with devices that are to be created; None if not.

    `compressed_bytes` is the CIB's size by bzip2 before the change; the IPC buffer is that of the
    Pacemaker that runs.
    """
    expected = compressed_bytes + new_devices * (_DEVICE_BYTES + _DEVICE_BYTES_PER_NODE * nodes)
    limit = usable_bytes(ipc_buffer_bytes)
    if expected <= limit:
        return None
    return Problem(
        "SAN-CLU-006",
        f"the CIB would have about {expected >> 10} KiB compressed, and Pacemaker's messages "
        f"have room for {limit >> 10} KiB",
        "raise sanctl_corosync_devices in the inventory, run the playbook, then restart Pacemaker "
        "node by node: 'sanctl node standby NODE', 'systemctl restart pacemaker' there, "
        "'sanctl node online NODE'",
    )


def added_text(cluster: Cluster, changes: Iterable[Change]) -> str:
    """Return what a change of hosts, access lists or restore points adds; empty: nothing grows.

    Values that grow are returned whole, as if the old ones stayed: an upper bound. An order for a
    restore point counts with the point that it leads to.
    """
    values = []
    for change in changes:
        if isinstance(change, SetHost):
            found = cluster.cib.host(change.host.name)
            old, new = "" if found is None else str(found), str(change.host)
        elif isinstance(change, SetHostGroup):
            group = cluster.cib.host_group(change.group.name)
            old, new = "" if group is None else group.value, change.group.value
        elif isinstance(change, SetGroupsOfDevice):
            device = cluster.cib.device(change.name)
            old = "" if device is None else " ".join(map(str, device.host_groups))
            new = " ".join(map(str, change.groups))
        elif isinstance(change, SetPoint):
            is_new = all(point.id != change.point.id for point in cluster.cib.points)
            old, new = "", _text_of(change.point) if is_new else ""
        elif isinstance(change, SetSchedule):
            known = cluster.cib.schedules.get(change.name.value)
            old, new = "" if known is None else known.value, change.schedule.value
        elif isinstance(change, SetSite):
            old, new = "", change.site.value
        elif isinstance(change, SetBackupFailure | SetPruneFailure):
            old, new = "", change.failure.value
        elif isinstance(change, SetTakeover):
            old, new = "", change.takeover.value
        elif isinstance(change, SetGroupRecord):
            old, new = "", change.record.value
        elif isinstance(change, SetCopySchedule):
            old, new = "", change.schedule.value
        elif isinstance(change, SetCopy):
            copy = cluster.cib.copy(change.record.device, change.record.site)
            old = "" if copy is None else f"{copy.value}{copy.read_value}"
            new = f"{change.record.value}{change.record.read_value}"
        elif isinstance(change, SetParameter) and change.parameter == "point":
            device = cluster.cib.device(change.name)
            order = PointOrder.parse(change.value)
            point = point_of_order(device, order) if device and order else None
            old, new = "", "" if point is None else f"{change.value} {_text_of(point)}"
        elif isinstance(change, SetParameter) and change.parameter == "restore":
            old, new = "", change.value
        elif isinstance(change, SetParameter):
            device = cluster.cib.device(change.name)
            new = change.value
            old = (
                ""
                if device is None
                else " ".join(map(str, device.hosts))
                if change.parameter == "hosts"
                else " ".join(iqn.value for iqn in device.initiators)
            )
        else:
            continue
        if len(new) > len(old):
            values.append(new)
    return "\n".join(values)


def point_of_order(device: DeviceSpec, order: PointOrder) -> RestorePoint:
    """Return the restore point that an order leads to if all replicas are in sync."""
    return RestorePoint(
        device=device.name.value,
        name=order.name,
        token=order.token,
        uuid=device.uuid,
        pool=device.pool.value,
        made_s=order.given_s,
        size_bytes=device.size.bytes,
        pause_ms=0,
        nodes=tuple(node.value for node in device.nodes),
        hook=HookResult(order.hook.name) if order.hook else None,
    )


def _text_of(point: RestorePoint) -> str:
    """Return what a restore point adds, with what each of its nodes publishes of its size."""
    sizes = (f"{point.token}={point.size_bytes}" for _ in point.nodes)
    return " ".join((point.id, point.id, point.value, *sizes))
