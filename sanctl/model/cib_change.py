# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of the CIB as values (add a device, set a parameter, ...), before they become XML."""

from __future__ import annotations

from dataclasses import dataclass

from sanctl.model.backup_failure import BackupFailure, BackupSuccess, ExpectedBackup, PruneFailure
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.point_schedule import PointSchedule
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import CopyRecord, CopySchedule, Site
from sanctl.model.site_group import GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.model.site_takeover import Takeover


@dataclass(frozen=True, slots=True, kw_only=True)
class AddDevice:
    """Add the clone and the constraints of a device."""

    device: DeviceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveDevice:
    """Remove a device's clone, its constraints, and its outdated marks and orders on nodes."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class CompleteDevice:
    """Add elements that a device of today is created with, and one of an older version lacks."""

    device: DeviceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SetStopped:
    """Ask Pacemaker to stop every instance of a device, and note that this is its deletion."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetParameter:
    """Change one instance attribute of a device."""

    name: DeviceName
    parameter: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearParameter:
    """Remove one instance attribute of a device; an absent attribute is fine."""

    name: DeviceName
    parameter: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodes:
    """Change which nodes have a device's replicas, and how many replicas it is to have.

    The parameters and the location rule change together: the nodes that an agent reads are the
    nodes on which Pacemaker runs it.
    """

    name: DeviceName
    nodes: tuple[NodeName, ...]
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePreference:
    """Forget which node is preferred to serve a device."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class AddMove:
    """Add a constraint that moves the promoted role to a node until a time (ISO 8601, UTC)."""

    name: DeviceName
    node: NodeName
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMove:
    """Remove the constraint of AddMove."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFollow:
    """Have a device served where a resource runs, if its replica there can serve."""

    name: DeviceName
    resource: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFollow:
    """Remove the constraints of AddFollow."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFailureExpiry:
    """Have Pacemaker forget failures of a device that are older than `after_s`.

    Attributes:
        until: no more from then on (ISO 8601, UTC), also where nobody takes it back.
    """

    name: DeviceName
    after_s: int
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFailureExpiry:
    """Take SetFailureExpiry back; without one fine."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetNodeAttribute:
    """Set a permanent attribute of a node."""

    node: NodeName
    attribute: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveNodeAttribute:
    """Remove a permanent attribute of a node."""

    node: NodeName
    attribute: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFencing:
    """Remove the fencing devices of a node that the rollout has made, and its fencing levels."""

    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMark:
    """Mark a device's replica on a node as outdated, so that it is never promoted."""

    name: DeviceName
    node: NodeName
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveMark:
    """Remove the outdated mark of a device's replica on a node; an absent one is fine."""

    name: DeviceName
    node: NodeName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHost:
    """Add a host, or change the one of that name."""

    host: Host


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveHost:
    """Remove a host."""

    name: HostName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetHostGroup:
    """Add a host group, or change the one of that name; devices' access lists do not change."""

    group: HostGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveHostGroup:
    """Remove a host group."""

    name: HostGroupName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupsOfDevice:
    """Note the host groups that a device is given to; its access list does not change."""

    name: DeviceName
    groups: tuple[HostGroupName, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPoint:
    """Add a restore point, or change the one of that device and name."""

    point: RestorePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePoint:
    """Remove a restore point."""

    point: RestorePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSchedule:
    """Give a device a schedule of restore points, or another one."""

    name: DeviceName
    schedule: PointSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSchedule:
    """Take a device's schedule of restore points away."""

    name: DeviceName


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSite:
    """Add a second site, or change the one of that name."""

    site: Site


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveSite:
    """Remove a second site."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCopy:
    """Note what is known of a device's copies at a site."""

    record: CopyRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCopy:
    """Forget a device's copies at a site."""

    record: CopyRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCopySchedule:
    """Have a device copied to a site by itself, or at other times."""

    schedule: CopySchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCopySchedule:
    """Have a device copied to a site by command alone."""

    schedule: CopySchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTakeover:
    """Note that a device was taken over at a site."""

    takeover: Takeover


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTakeover:
    """Forget that a device was taken over at a site."""

    takeover: Takeover


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGroupRecord:
    """Note what is known of the copies of a group at a site."""

    record: GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveGroupRecord:
    """Forget the copies of a group at a site."""

    record: GroupRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRestored:
    """Note the last restore from a copy of a device."""

    record: RestoreRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRestored:
    """Forget the last restore from a copy of a device."""

    record: RestoreRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBackupFailure:
    """Note that a device's last backup into a repository failed."""

    failure: BackupFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBackupFailure:
    """Forget that a device's backups into a repository failed."""

    failure: BackupFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBackupSuccess:
    """Note the newest success of a device's backups into a repository."""

    success: BackupSuccess


@dataclass(frozen=True, slots=True, kw_only=True)
class SetExpectedBackup:
    """Note that a timer is to make backups of a device, of which none has succeeded yet."""

    expected: ExpectedBackup


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveExpectedBackup:
    """Forget that a timer is to make backups of a device."""

    expected: ExpectedBackup


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPruneFailure:
    """Note that the last prune of a device's backups in a repository failed."""

    failure: PruneFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovePruneFailure:
    """Forget that prunes of a device's backups in a repository failed."""

    failure: PruneFailure


Change = (
    AddDevice
    | RemoveDevice
    | CompleteDevice
    | SetStopped
    | SetParameter
    | ClearParameter
    | SetNodes
    | RemovePreference
    | AddMove
    | RemoveMove
    | AddFollow
    | RemoveFollow
    | SetFailureExpiry
    | RemoveFailureExpiry
    | SetNodeAttribute
    | RemoveNodeAttribute
    | RemoveFencing
    | SetMark
    | RemoveMark
    | SetHost
    | RemoveHost
    | SetHostGroup
    | RemoveHostGroup
    | SetGroupsOfDevice
    | SetPoint
    | RemovePoint
    | SetSchedule
    | RemoveSchedule
    | SetSite
    | RemoveSite
    | SetCopy
    | RemoveCopy
    | SetCopySchedule
    | RemoveCopySchedule
    | SetTakeover
    | RemoveTakeover
    | SetGroupRecord
    | RemoveGroupRecord
    | SetRestored
    | RemoveRestored
    | SetBackupFailure
    | RemoveBackupFailure
    | SetBackupSuccess
    | SetExpectedBackup
    | RemoveExpectedBackup
    | SetPruneFailure
    | RemovePruneFailure
)
