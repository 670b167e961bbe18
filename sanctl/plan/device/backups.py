# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules of backups: which node reads a device, what a backup's own restore point is, what is kept.

A standby reads: then hosts' I/O, which the active node serves, shares neither a disk nor the sync
network with the backup.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sanctl.errors import Problem, Refused, UsageError
from sanctl.model.backup import WRITING, BackupName, Repository, is_own_point
from sanctl.model.cib_change import Change, ClearParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import MEMBER_STATES, NodeState
from sanctl.model.device import DeviceSpec
from sanctl.model.restore_point import RestorePoint
from sanctl.parse.borg import Writer, uuid_of, writer_of
from sanctl.plan.cluster.preconditions import refuse_without_quorum
from sanctl.plan.device.restore_points import plan_point_deletion
from sanctl.plan.device.restore_refusals import unknown_content_problem

#: What `keep_counts` knows, in the order in which they keep (backup_pruning.py).
KEEP_UNITS = ("last", "hourly", "daily", "weekly", "monthly", "yearly")

#: After that no backup is under way any more: it waits for its turn, reads as long as data come,
#: and waits for the repository. A first one of 25 TB at 45 MB/s takes six days and a half.
_ENDS_WITHIN_S = 7 * 24 * 3600.0


def find_repository(known: Sequence[Repository], name: str | None) -> Repository:
    """Return the repository of that name; without a name the only one that there is.

    Raises:
        Refused: there is none, or several and none was named.
    """
    names = ", ".join(each.name for each in known)
    if not known:
        raise Refused(
            Problem(
                "SAN-BKP-002",
                "this node knows no repository for backups",
                "name one in sanctl_backup_repositories, and run the playbook",
            )
        )
    if name is None and len(known) > 1:
        raise Refused(
            Problem(
                "SAN-BKP-002", f"there are several repositories: {names}", "say --repository NAME"
            )
        )
    for each in known:
        if name is None or each.name == name:
            return each
    raise Refused(Problem("SAN-BKP-002", f"there is no repository {name}", f"known: {names}"))


def readers(cluster: Cluster, device: DeviceSpec, point: RestorePoint | None) -> tuple[str, ...]:
    """Return the nodes that could read a device for a backup: standbys first, by name.

    Args:
        cluster: as observed.
        device: the device.
        point: the restore point that is read; None: one is made, on each replica in sync.
    """
    active = cluster.serving_node(device.name)
    able = [
        node.value
        for node in device.nodes
        if cluster.mon.state(node) in MEMBER_STATES
        and (
            node.value in point.nodes
            if point is not None
            else cluster.is_in_sync(device, node) or node.value == active
        )
    ]
    return tuple(sorted(able, key=lambda node: (node == active, node)))


def check_reader(
    cluster: Cluster,
    device: DeviceSpec,
    point: RestorePoint | None,
    here: str,
    *,
    may_be_active: bool,
    may_be_elsewhere: bool,
) -> bool:
    """Return whether this node reads the device; False: another node does.

    Args:
        cluster: as observed.
        device: the device.
        point: the restore point that is read; None: one is made.
        here: this node.
        may_be_active: it reads also where it serves the device.
        may_be_elsewhere: the command runs on each node, and one of them is to do it.

    Raises:
        Refused: this node cannot read it, or should not; or what is on the device is not known.
    """
    # A restore point of before is what it was.
    problem = unknown_content_problem(cluster, device) if point is None else None
    if problem is not None:
        raise Refused(problem)
    able = readers(cluster, device, point)
    active = cluster.serving_node(device.name)
    standbys = [node for node in able if node != active]
    what = f"restore point {device.name}@{point.name}" if point else f"device {device.name}"
    if here in able and (here != active or may_be_active):
        # Of several standbys the first, where the command runs on all of them.
        return not may_be_elsewhere or here == able[0]
    if may_be_elsewhere and (able if may_be_active else standbys):
        return False
    if may_be_elsewhere and _is_left_to_others(cluster, device, here):
        return False
    if here == active and here in able:
        raise Refused(
            Problem(
                "SAN-BKP-004",
                f"{here} serves device {device.name}, and a backup would read from its disks",
                f"run it on {standbys[0]}"
                if standbys
                else "no other node can read it now; --on-active reads it here all the same",
            )
        )
    raise Refused(
        Problem(
            "SAN-BKP-003",
            f"{here} cannot read {what}",
            f"run it on {' or '.join(able)}" if able else "no node that is there can",
        )
    )


def _is_left_to_others(cluster: Cluster, device: DeviceSpec, here: str) -> bool:
    """Whether this node has no replica, and one that has is there: that one says why it fails."""
    return all(node.value != here for node in device.nodes) and any(
        cluster.mon.state(node) in MEMBER_STATES for node in device.nodes
    )


def point_problem(point: RestorePoint) -> Problem | None:
    """Return why a restore point that was named is not read; None: it is."""
    if not point.is_deleting and not is_own_point(point.name):
        return None
    return Problem(
        "SAN-BKP-005",
        f"restore point {point.device}@{point.name} is being deleted, or is another backup's",
        f"'sanctl snapshot list {point.device}' shows those that stay",
    )


def own_point(cluster: Cluster, device: DeviceSpec) -> RestorePoint | None:
    """Return the restore point that a backup has made for itself, and that is not being deleted."""
    points = cluster.cib.points_of(device.name)
    return next((p for p in points if is_own_point(p.name) and not p.is_deleting), None)


def may_run_elsewhere(cluster: Cluster, device: DeviceSpec, here: str) -> bool:
    """Whether a backup of a device may be running on another node: one that is not known gone."""
    return any(
        node.value != here and cluster.mon.state(node) is not NodeState.OFFLINE
        for node in device.nodes
    )


def plan_own_point_removed(cluster: Cluster, name: str, token: str) -> tuple[Change, ...]:
    """Return the change after which nothing is left of the restore point a backup has ordered.

    Args:
        cluster: as observed.
        name: the device's name.
        token: the token of the order, which is that of the restore point.

    Raises:
        Refused: it cannot be deleted now.
    """
    device = cluster.cib.device(name)
    if device is None:
        return ()
    refuse_without_quorum(cluster)
    for point in cluster.cib.points_of(device.name):
        if point.token == token:
            return plan_point_deletion(cluster, device.name, point.name)
    order = device.point_order
    if order is not None and order.token == token:
        return (ClearParameter(name=device.name, parameter="point"),)
    return ()


def left_over(
    archives: Mapping[str, str], device: str, open_ones: Collection[str]
) -> tuple[str, ...]:
    """Return the archives that backups of a device have begun and will not end, and checkpoints.

    borg's own lock keeps the checkpoints of a backup that is under way.

    Args:
        archives: all archives of the repository, with their comments.
        device: the device.
        open_ones: the archives that may become backups, as `open_archives` says.
    """
    return tuple(
        sorted(
            archive
            for archive in archives
            if _begun(archive, device) is not None and archive not in open_ones
        )
    )


def open_archives(
    archives: Mapping[str, str],
    device: str,
    *,
    here: str,
    now_s: float,
    own_uuids: Collection[str],
) -> dict[str, str]:
    """Return the archives that others may be about to make backups of a device, and by which node.

    Between its last byte and its name an archive waits for the repository: it is whole, and took
    hours.

    Args:
        archives: all archives of the repository, with their comments.
        device: the device.
        here: this node, on which no other backup into the repository is under way.
        now_s: the time, in seconds since 1970.
        own_uuids: the UUIDs of this cluster's devices: a node of another cluster may have the name
            of this one.
    """
    found = {}
    for archive, comment in archives.items():
        name = _begun(archive, device)
        if name is None or archive != f"{name}{WRITING}":
            continue
        # An earlier release names no node: of it the time of the restore point has to do.
        node, begun_s, _ = writer_of(comment) or Writer("another node", name.taken_s)
        uuid = uuid_of(comment)
        is_own = node == here and (not uuid or uuid in own_uuids)
        # One that lies far ahead was begun by a wrong clock, and would be open for years.
        if not is_own and abs(now_s - begun_s) < _ENDS_WITHIN_S:
            found[archive] = node
    return found


def _begun(archive: str, device: str) -> BackupName | None:
    """Return of which backup of a device an archive is the begin; None: of none."""
    name, is_begun, _ = archive.partition(WRITING)
    return BackupName.read(name) if is_begun and archive.startswith(f"{device}@") else None


def device_uuids(cluster: Cluster) -> frozenset[str]:
    """Return the UUIDs of all devices of a cluster."""
    return frozenset(device.uuid for device in cluster.cib.devices)


def backups_in_use(cluster: Cluster) -> frozenset[str]:
    """Return the names of the backups that devices are being filled from.

    The repository's name is not asked: another node may know the same one by another name.

    Raises:
        Refused: what one of the devices is filled from is not known.
    """
    found = set()
    for device in cluster.cib.devices:
        if not device.is_restoring:
            continue
        if device.restore is None:
            raise Refused(
                Problem(
                    "SAN-REST-010",
                    f"device {device.name} is being filled, and this release cannot read from what",
                    "update this node; or prune when that has ended",
                )
            )
        if device.restore.backup is not None:
            found.add(device.restore.backup[1])
    return frozenset(found)


def keep_counts(numbers: dict[str, int | None]) -> dict[str, int]:
    """Return how many backups of each unit are kept.

    Raises:
        UsageError: nothing would be kept.
    """
    counts = {unit: number for unit in KEEP_UNITS if (number := numbers.get(unit))}
    if not counts:
        raise UsageError(
            Problem(
                "SAN-BKP-006",
                "no backup would be kept",
                "say how many, such as --keep-daily 14 --keep-weekly 8",
            )
        )
    return counts
