# SPDX-License-Identifier: GPL-2.0-or-later
"""Which JSON document each command prints: the contract in docs/reference/json.md is made from it.

The views (sanctl/cli/views) and the commands build exactly these documents; a test compares what
the commands print with them. Fields may be added at any time; a field that is here keeps its name,
type and meaning for as long as `schema` is the same number.
"""

from __future__ import annotations

from collections.abc import Mapping

from sanctl.cli.documents.backup import (
    Backup,
    BackupForgotten,
    BackupMade,
    BackupRestored,
    BackupsExpected,
    BackupSkipped,
    BackupsPruned,
    BackupVerified,
    RepositoryMade,
)
from sanctl.cli.documents.cluster import Cluster, StrategySet, StrategyShown
from sanctl.cli.documents.device import (
    CacheSet,
    Completed,
    Deleted,
    Device,
    DeviceFound,
    DeviceSet,
    DeviceShown,
    Followed,
    Moved,
    Placed,
    PolicyChanged,
    ReplicasChanged,
    Resized,
    Restored,
)
from sanctl.cli.documents.device_heal import HealCase, Healed
from sanctl.cli.documents.doctor import Examination
from sanctl.cli.documents.explain import Meaning
from sanctl.cli.documents.host import (
    Host,
    HostChanged,
    HostDeleted,
    HostGroup,
    HostGroupChanged,
    HostGroupDeleted,
    HostGroupReduced,
    HostShown,
)
from sanctl.cli.documents.node import (
    Drained,
    Fenced,
    FenceTest,
    Node,
    NodeChanged,
    NodeConfirmed,
    NodeInStandby,
    NodeRemoved,
    Replaced,
)
from sanctl.cli.documents.pool import PoolModeSet, PoolOnNode, PoolPrepared
from sanctl.cli.documents.report import Rpo
from sanctl.cli.documents.site import (
    CopyMade,
    CopyRestored,
    CopyScheduleShown,
    CopyState,
    FailedBack,
    GivenBack,
    HoldSet,
    Released,
    Site,
    SiteCopy,
    SiteRemoved,
    SiteSet,
    TakenOver,
)
from sanctl.cli.documents.snapshot import (
    Export,
    Point,
    PointDeleted,
    PointsPruned,
    ScheduleShown,
    Unexported,
)
from sanctl.cli.documents.status import Status
from sanctl.cli.documents.sync import ReplicaSync, Verified
from sanctl.cli.documents.target import Access, Reservations, ReservationsCleared, Target

#: What `data` holds when a command succeeds, by the command's words.
DOCUMENTS: Mapping[str, object] = {
    "backup expect": BackupsExpected,
    "backup forget": BackupForgotten,
    "backup init": RepositoryMade,
    "backup list": list[Backup],
    "backup prune": BackupsPruned,
    "backup restore": BackupRestored,
    "backup run": BackupMade | BackupSkipped,
    "backup verify": BackupVerified,
    "cluster show": Cluster,
    "cluster strategy set": StrategySet,
    "cluster strategy show": StrategyShown,
    "device cache": CacheSet,
    "device complete": Completed,
    "device create": Device | list[Device],
    "device delete": Deleted | list[Deleted],
    "device find": list[DeviceFound],
    "device heal": HealCase | Healed,
    "device list": list[Device],
    "device move": Moved,
    "device follow": Followed,
    "device place": Placed,
    "device replicas": ReplicasChanged,
    "device resize": Resized,
    "device restore": Restored,
    "device set": DeviceSet,
    "device show": DeviceShown,
    "device sync": PolicyChanged,
    "device verify": Verified | PolicyChanged,
    "doctor": Examination,
    "explain": Meaning,
    "host create": HostChanged,
    "host delete": HostDeleted,
    "host group add": HostGroupChanged,
    "host group create": HostGroupChanged,
    "host group delete": HostGroupDeleted,
    "host group list": list[HostGroup],
    "host group remove": HostGroupReduced,
    "host group rename": HostGroupChanged,
    "host group show": HostGroup,
    "host list": list[Host],
    "host rename": HostChanged,
    "host set": HostChanged,
    "host show": HostShown,
    "node confirm-off": NodeConfirmed,
    "node drain": Drained,
    "node fence": FenceTest | Fenced,
    "node list": list[Node],
    "node online": NodeChanged,
    "node replace": Replaced,
    "node remove": NodeRemoved,
    "node standby": NodeInStandby,
    "pool cache": PoolModeSet,
    "pool list": list[PoolOnNode],
    "pool prepare": PoolPrepared,
    "node undrain": NodeChanged,
    "replicate failback": FailedBack,
    "replicate giveback": GivenBack | list[GivenBack],
    "replicate release": Released,
    "replicate restore": CopyRestored,
    "replicate run": CopyMade | list[CopyMade],
    "replicate schedule": CopyScheduleShown | list[CopyScheduleShown],
    "replicate set": HoldSet,
    "replicate status": list[CopyState],
    "replicate takeover": TakenOver | list[TakenOver],
    "report rpo": Rpo,
    "site add": Site,
    "site copies": list[SiteCopy],
    "site list": list[Site],
    "site remove": SiteRemoved,
    "site set": SiteSet,
    "snapshot create": Point | list[Point],
    "snapshot delete": PointDeleted,
    "snapshot export": Export,
    "snapshot exports": list[Export],
    "snapshot list": list[Point],
    "snapshot prune": PointsPruned,
    "snapshot schedule": ScheduleShown | list[ScheduleShown],
    "snapshot show": Point,
    "snapshot unexport": Unexported,
    "status": Status,
    "sync status": list[ReplicaSync],
    "target allow": Access,
    "target deny": Access,
    "target reservations": Reservations | ReservationsCleared,
    "target show": list[Target] | Target,
}
