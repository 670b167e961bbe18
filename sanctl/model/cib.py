# SPDX-License-Identifier: GPL-2.0-or-later
"""The content of the CIB at one moment: what is wanted, and what nodes have published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from sanctl.model.backup_failure import BackupFailure, BackupSuccess, ExpectedBackup, PruneFailure
from sanctl.model.device import DeviceSpec, OutdatedMark, PoolUsage, ReplicaState, Tombstone
from sanctl.model.device_follow import DeviceFollow, ForeignTie
from sanctl.model.device_restore import RestoreReport
from sanctl.model.foreign_constraint import ForeignConstraint
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.meta_attribute import MetaAttribute
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.point_schedule import PointSchedule
from sanctl.model.restore_point import PointFailure, RestorePoint
from sanctl.model.site import CopyRecord, CopySchedule, Site
from sanctl.model.site_group import GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.model.site_takeover import Takeover
from sanctl.model.verify_result import VerifyRecord, VerifyResult
from sanctl.model.vote_mode import NodeVotes
from sanctl.model.watch_clone import WatchClone

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveConstraint:
    """A `sanctl-NAME-move` constraint: there only while a move runs, and expires by itself."""

    device: str
    node: str
    until: str

    def is_over(self, now_s: float) -> bool:
        """Whether its time has passed: Pacemaker keeps to it no more, and it stays in the CIB.

        One whose end cannot be read is not over.
        """
        try:
            end = datetime.fromisoformat(self.until.replace("Z", "+00:00"))
        except ValueError:
            return False
        if end.tzinfo is None:
            end = end.replace(tzinfo=UTC)
        return end.timestamp() < now_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CibNode:
    """A node in the CIB's configuration."""

    name: NodeName
    id: str
    wants_standby: bool
    wants_maintenance: bool
    """Pacemaker leaves it alone, also while Pacemaker itself does not run there."""
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FencingResource:
    """A configured fencing device.

    Attributes:
        id: its name.
        targets: the nodes that it can fence by its own parameters; none named: unknown.
        banned: the nodes that may never run it.
        agent: its agent, such as `fence_ipmilan`.
        disabled_by: the meta attributes target-role=Stopped, its own, of what it lies in, or of all
            resources: Pacemaker does not use it to fence. Empty: none.
    """

    id: str
    targets: tuple[str, ...]
    banned: tuple[str, ...] = ()
    agent: str = ""
    disabled_by: tuple[MetaAttribute, ...] = ()


class _Index(NamedTuple):
    """What a Cib has, by what it is asked for: the first one, where several have the same key."""

    devices: Mapping[str, DeviceSpec]
    moves: Mapping[str, MoveConstraint]
    marks: frozenset[tuple[str, str, str]]
    """Device, node and UUID."""
    points: Mapping[str, tuple[RestorePoint, ...]]
    constraints: Mapping[str, tuple[ForeignConstraint, ...]]
    follows: Mapping[str, DeviceFollow]
    ties: Mapping[str, tuple[ForeignTie, ...]]
    copies: Mapping[tuple[str, str], CopyRecord]
    copy_schedules: Mapping[tuple[str, str], CopySchedule]
    takeovers: Mapping[tuple[str, str], tuple[Takeover, ...]]
    replica_counts: Counter[str]
    waiting_counts: Counter[str]


def _grouped(pairs: Iterable[tuple[_Key, _Value]]) -> dict[_Key, tuple[_Value, ...]]:
    """Return the values with the same key together, in their order."""
    groups: dict[_Key, list[_Value]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return {key: tuple(values) for key, values in groups.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cib:
    """The content of one `cibadmin --query`."""

    properties: Mapping[str, str]
    nodes: tuple[CibNode, ...]
    devices: tuple[DeviceSpec, ...]
    unreadable: tuple[tuple[str, str], ...]
    """Resources of sanctl's device agent that cannot be read as a device: id and reason."""
    has_pools_clone: bool
    fencing: tuple[FencingResource, ...]
    moves: tuple[MoveConstraint, ...]
    tombstones: tuple[Tombstone, ...]
    outdated: tuple[OutdatedMark, ...]
    drained: frozenset[str]
    """Drained nodes: they serve nothing until they have left the cluster."""
    standby_until_reboot: frozenset[str]
    """Nodes in standby by a transient attribute, which ends with their membership."""
    replicas: Mapping[tuple[str, str], ReplicaState]
    """By device and node; only what has been published."""
    pools: Mapping[tuple[str, str], PoolUsage]
    """By pool and node; only what has been published."""
    reach: Mapping[str, int]
    """By node: how many of the watched addresses of the iscsi network answer it."""
    node_votes: Mapping[str, NodeVotes]
    """By node; only what has been published."""
    verifications: Mapping[tuple[str, str], VerifyResult]
    """By device and node: the latest verify that the node took part in."""
    ids: frozenset[str]
    """All ids in the configuration: a new id must not be among them."""
    operation_timeouts: Mapping[str, str]
    """By id: the timeouts of devices' operations, as they are written."""
    unreadable_origins: tuple[tuple[str, str], ...] = ()
    """Of the devices that cannot be read, those that are clones: id and parameter `origin`."""
    hosts: tuple[Host, ...] = ()
    """The hosts that have been created, by name; those who use a device by IQN alone are none."""
    unreadable_hosts: tuple[str, ...] = ()
    """Names of entries that should be hosts and cannot be read: each may have any IQN."""
    host_groups: tuple[HostGroup, ...] = ()
    """The host groups, by name."""
    unreadable_groups: tuple[str, ...] = ()
    """Names of entries that should be host groups and cannot be read: each may have any host."""
    points: tuple[RestorePoint, ...] = ()
    """Restore points, by device and the moment they were made; also those that are deleted now."""
    verify_records: Mapping[tuple[str, str], VerifyRecord] = field(default_factory=dict)
    """By device and node: the newest verify that came to an end, if the latest one did not."""
    schedules: Mapping[str, PointSchedule] = field(default_factory=dict)
    """By device: when restore points are made by themselves."""
    point_bytes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By token and node: what a restore point alone holds there; only what has been published."""
    lost_points: frozenset[tuple[str, str]] = frozenset()
    """Token and node of restore points whose file is gone there; only what has been published."""
    data_extents: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """By `extents_key` and node: of data files of devices that have restore points, a schedule of
    them or copies; only what has been published."""
    point_failures: Mapping[tuple[str, str], PointFailure] = field(default_factory=dict)
    """By device and node: the order for a restore point that failed there last."""
    restore_reports: Mapping[tuple[str, str], RestoreReport] = field(default_factory=dict)
    """By device and node: how far that node has come with going back to a restore point."""
    sites: tuple[Site, ...] = ()
    """The second sites, by name."""
    copies: tuple[CopyRecord, ...] = ()
    """What is known of devices' copies at sites, by device and site."""
    copy_schedules: tuple[CopySchedule, ...] = ()
    """Which devices are copied to which sites by themselves, by device and site."""
    copy_groups: tuple[GroupRecord, ...] = ()
    """Which devices are copied to which sites as they are at one moment, by device and site."""
    takeovers: tuple[Takeover, ...] = ()
    """Which devices were taken over at which sites, by device and site."""
    restored: tuple[RestoreRecord, ...] = ()
    """The last restore from a copy of each device that was copied, by device and UUID."""
    backup_failures: tuple[BackupFailure, ...] = ()
    """Which devices' last backups failed, by device and repository."""
    backup_successes: tuple[BackupSuccess, ...] = ()
    expected_backups: tuple[ExpectedBackup, ...] = ()
    prune_failures: tuple[PruneFailure, ...] = ()
    foreign_constraints: tuple[ForeignConstraint, ...] = ()
    """Location constraints of devices that are not sanctl's own."""
    follows: tuple[DeviceFollow, ...] = ()
    """Which devices follow which guests."""
    guests: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The primitives in each resource that a device can follow, by its id."""
    foreign_ties: tuple[ForeignTie, ...] = ()
    """Colocations and orders that are not sanctl's own, in which a device depends on another."""
    watch_clones: tuple[WatchClone, ...] = ()
    """The clones of the agents that only watch, and what keeps them from running."""
    _index: _Index = field(init=False, repr=False, compare=False, hash=False)

    def __post_init__(self) -> None:
        # `status` looks each of five hundred devices up in each of these, several times.
        index = _Index(
            devices={device.name.value: device for device in reversed(self.devices)},
            moves={move.device: move for move in reversed(self.moves)},
            marks=frozenset((mark.device, mark.node.value, mark.uuid) for mark in self.outdated),
            points=_grouped((point.device, point) for point in self.points),
            constraints=_grouped((each.device, each) for each in self.foreign_constraints),
            follows={each.device: each for each in self.follows},
            ties=_grouped((each.device, each) for each in self.foreign_ties),
            copies={(each.device, each.site): each for each in reversed(self.copies)},
            copy_schedules={
                (each.device, each.site): each for each in reversed(self.copy_schedules)
            },
            takeovers=_grouped(((each.device, each.site), each) for each in self.takeovers),
            replica_counts=Counter(node.value for each in self.devices for node in each.nodes),
            waiting_counts=Counter(
                node
                for (_, node), replica in self.replicas.items()
                if replica.waits_to_connect_since_s is not None
            ),
        )
        object.__setattr__(self, "_index", index)

    def points_of(self, name: DeviceName | str) -> tuple[RestorePoint, ...]:
        """Return the restore points of a device, the oldest first."""
        return self._index.points.get(str(name), ())

    def constraints_of(self, name: DeviceName | str) -> tuple[ForeignConstraint, ...]:
        """Return the location constraints of a device that are not sanctl's own."""
        return self._index.constraints.get(str(name), ())

    def follow(self, name: DeviceName | str) -> DeviceFollow | None:
        """Return which guest a device follows, if it follows one."""
        return self._index.follows.get(str(name))

    def ties_of(self, name: DeviceName | str) -> tuple[ForeignTie, ...]:
        """Return others' colocations and orders in which a device depends on another resource."""
        return self._index.ties.get(str(name), ())

    def site(self, name: str) -> Site | None:
        """Return the second site of that name, if there is one."""
        return next((site for site in self.sites if site.name == name), None)

    def copy(self, device: str, site: str) -> CopyRecord | None:
        """Return what is known of a device's copies at a site, if there is anything."""
        return self._index.copies.get((device, site))

    def copy_schedule(self, device: str, site: str) -> CopySchedule | None:
        """Return when a device is copied to a site by itself, if it is."""
        return self._index.copy_schedules.get((device, site))

    def takeover(self, device: str, site: str) -> Takeover | None:
        """Return who has taken a device over at a site, as far as its nodes have seen it.

        Not that of a device before it that had the name.
        """
        current = self.device(device)
        found = self._index.takeovers.get((device, site), ())
        return next((e for e in found if current is not None and e.uuid == current.uuid), None)

    def takeovers_of(self, device: DeviceSpec) -> tuple[Takeover, ...]:
        """Return who has taken a device over, at each site, as far as its nodes have seen it."""
        name = device.name.value
        return tuple(e for e in self.takeovers if e.device == name and e.uuid == device.uuid)

    def host(self, name: HostName) -> Host | None:
        """Return the host of that name, if there is one."""
        return next((host for host in self.hosts if host.name == name), None)

    def host_group(self, name: HostGroupName) -> HostGroup | None:
        """Return the host group of that name, if there is one that can be read."""
        return next((group for group in self.host_groups if group.name == name), None)

    def groups_with(self, host: HostName) -> tuple[HostGroup, ...]:
        """Return the groups that a host is in: one at most, unless someone else wrote them."""
        return tuple(group for group in self.host_groups if host in group.hosts)

    def device(self, name: DeviceName | str) -> DeviceSpec | None:
        """Return the device of that name, if there is one."""
        return self._index.devices.get(str(name))

    def move(self, name: DeviceName) -> MoveConstraint | None:
        """Return the device's move constraint, if one is there, also one that is over."""
        return self._index.moves.get(name.value)

    def move_under_way(self, name: DeviceName, now_s: float) -> MoveConstraint | None:
        """Return the device's move constraint, if Pacemaker keeps to one now."""
        move = self.move(name)
        return None if move is None or move.is_over(now_s) else move

    def is_marked(self, device: DeviceSpec, node: NodeName) -> bool:
        """Whether a node's replica has the outdated mark, so that it is never promoted."""
        return (device.name.value, node.value, device.uuid) in self._index.marks

    def replica_count(self, node: NodeName) -> int:
        """Return how many replicas a node is to have."""
        return self._index.replica_counts[node.value]

    def waiting_count(self, node: NodeName) -> int:
        """Return how many replicas on a node are published as waiting for their turn to connect."""
        return self._index.waiting_counts[node.value]

    def tombstones_of(self, name: DeviceName) -> tuple[Tombstone, ...]:
        """Return the tombstones of a deleted device of that name: data still to be removed."""
        return tuple(stone for stone in self.tombstones if stone.device == name.value)
