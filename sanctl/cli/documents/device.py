# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of a device, its replicas and caches, and of `device create`, ..."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.snapshot import Schedule
from sanctl.cli.documents.sync import Resync, SyncPolicy


class ReplicaCache(TypedDict):
    """State of a replica's caches, as its own node has reported it; null: not known."""

    mode: Annotated[str | None, "`none`, `write-through` or `write-back`"]
    reason: Annotated[
        str | None,
        "why not the wanted one: `one-copy`, `comparing`, `no-flush`, `suspect` or `changing`; "
        "null: it is in the wanted mode",
    ]
    dirty: Annotated[int | None, "bytes in RAM alone, rounded up a little; only in write-back"]
    node_limit: Annotated[
        int | None,
        "bytes that all devices of the node together may have there; null: no such limit",
    ]
    flush_s: Annotated[
        int | None, "seconds that a flush of them would take, as the kernel estimates"
    ]
    read: Annotated[
        int | None,
        "bytes of RAM in which reads are cached; only where it serves and one is wanted",
    ]
    read_reason: Annotated[
        str | None,
        "why not: `not-good`, `compared`, `no-ram`, `waits`, `failed` or `restart`; null: it is on",
    ]
    read_held: Annotated[int | None, "bytes of the device that are in it, rounded up a little"]
    read_hit_percent: Annotated[int | None, "percent of reads found in it since it was set up"]
    suspect: Annotated[bool, "the replica may lack acknowledged writes, and is kept from serving"]


class DeviceCache(TypedDict):
    """The cache policy that is wanted for a device."""

    mode: Annotated[str, "`none`, `write-through` or `write-back`"]
    dirty_limit: Annotated[int | None, "bytes that may be in RAM alone on a node, in write-back"]
    read_cache: Annotated[int, "bytes of RAM on the serving node in which reads may be cached"]


class Replica(TypedDict):
    """A replica of a device, as its own node has reported it; null: not known."""

    node: Annotated[str, "the node that holds the replica"]
    node_state: Annotated[str, "that node's state, as in `Node`"]
    role: Annotated[str | None, "`Promoted` (the node serves), `Unpromoted` or `Stopped`"]
    disk: Annotated[str | None, "DRBD's disk state; `UpToDate` is the good one"]
    marked: Annotated[bool, "the cluster has marked it as outdated, and it may not serve"]
    connection: Annotated[str | None, "DRBD's connection to the peer; `Connected` is the good one"]
    replication: Annotated[str | None, "`Established`, or the state of a resync"]
    peer_disk: Annotated[str | None, "the peer's disk state, as this node sees it"]
    out_of_sync_bytes: Annotated[int | None, "how much differs from the peer"]
    size: Annotated[int | None, "bytes that DRBD has of the replica and hosts reach there"]
    extents: Annotated[
        int | None,
        "extents of its file, about a minute ago; beyond 100000 no restore point is made; null: "
        "not known, or the device has no restore points, schedule of them or copies",
    ]
    resync: Annotated[Resync | None, "its latest resync; null: none is recorded"]
    unflushed: Annotated[
        bool, "what a resync wrote there is said not to be known to be on stable storage yet"
    ]
    cache: Annotated[ReplicaCache, "state of its caches"]


class Restore(TypedDict):
    """How far the restore of a device is; no host is let in meanwhile."""

    point: Annotated[
        str | None,
        "the restore point, `REPOSITORY::BACKUP`, or a copy, SITE:/DEVICE.UUID/POINT.TOKEN/DIGEST; "
        "null: another release wrote the order",
    ]
    copying: Annotated[bool, "false: nothing has been written yet, or it is held"]
    held: Annotated[bool, "it is that copy, and waits for a later one, or to be released"]
    done_bytes: Annotated[int | None, "bytes of the device compared so far; null: not known"]
    written_bytes: Annotated[int | None, "bytes that differed, and were written; null: not known"]
    problem: Annotated[str | None, "code and text of what keeps it from going on; null: nothing"]


class Hold(TypedDict):
    """Which second sites have to answer before hosts are let in, after a restart of the cluster."""

    sites: Annotated[list[str], "the sites"]
    held: Annotated[bool | None, "no host is let in now; null: no node says"]
    why: Annotated[
        str | None,
        "`asking`, or the code of what keeps hosts out; `SAN-SITE-021`: a site says that the "
        "device was taken over; null: nothing does",
    ]


class Device(TypedDict):
    """A device."""

    name: Annotated[str, "its name"]
    state: Annotated[
        str,
        "`ok`: served, every replica in sync; `degraded`: served, and something is wrong; "
        "`down`: no node serves it; `deleting`; `stopped`: by somebody, not by a deletion; "
        "`restoring`: from a restore point or a backup, and no host is let in; `held`: served, and "
        "no host is let in before its second site has answered",
    ]
    uuid: Annotated[str, "32 hex digits that no other device has"]
    wwid: Annotated[str, "the name under which hosts see it, in /dev/mapper and /dev/disk/by-id"]
    size: Annotated[int, "the wanted size in bytes"]
    pool: Annotated[str, "the pool that holds its replicas"]
    made_from: Annotated[
        str | None,
        "the restore point that it was made from, which may be deleted by now; null: none",
    ]
    minor: Annotated[int, "DRBD minor; replicas connect on TCP port 7800 + minor"]
    cache: Annotated[DeviceCache, "its cache policy"]
    active_node: Annotated[
        str | None,
        "the node that serves it, by Pacemaker; where that shows none, as for a moment after a "
        "change, the one whose replica says so; null: none, or not known",
    ]
    prefer: Annotated[str | None, "the node that serves it at first"]
    moving_to: Annotated[str | None, "the node to which it is being moved"]
    target: Annotated[str | None, "its iSCSI target; null: cluster.toml cannot be read"]
    initiators: Annotated[list[str], "the initiators that may use it by their IQN alone"]
    hosts: Annotated[list[str], "the names of the hosts that may use it, through a group or not"]
    host_groups: Annotated[list[str], "the host groups that it is given to"]
    reservations: Annotated[bool, "hosts may make persistent reservations"]
    sync: Annotated[SyncPolicy, "how its replicas are resynced and verified"]
    replicas_wanted: Annotated[int, "how many replicas are wanted"]
    unfinished: Annotated[
        str | None, "what is left to do of a change of its replicas, in words; null: nothing"
    ]
    replicas: Annotated[list[Replica], "its replicas, one for each node"]
    restore: Annotated[Restore | None, "how far its restore is; null: none is under way"]
    hold: Annotated[
        Hold | None, "the sites that it awaits after a restart of the whole cluster; null: none"
    ]


class DeviceShown(Device):
    """A device, and its schedule of restore points."""

    schedule: Annotated[Schedule | None, "when restore points are made by themselves; null: never"]
    follows: Annotated[str | None, "the resource of Pacemaker that it follows; null: none"]


class CacheSet(Device):
    """A device, and the change of its cache policy."""

    changed: Annotated[bool, "false: it had that policy, or the policy was only shown"]
    duration_s: Annotated[float, "seconds the change took; hosts write on meanwhile"]
    in_effect: Annotated[
        bool, "false: write-back is stored, and `cache.reason` of a replica says what is missing"
    ]


class DeviceSet(Device):
    """A device, and whether the command switched anything."""

    changed: Annotated[bool, "false: it was like that already"]
    duration_s: Annotated[float, "seconds until the node that serves it had done so"]


class Resized(Device):
    """A device, and whether the command had anything to do."""

    changed: Annotated[bool, "false: it had that size"]


class PolicyChanged(TypedDict):
    """A device's sync policy, and whether the command changed it."""

    name: Annotated[str, "the device"]
    changed: Annotated[bool, "false: it was the policy already, or was only shown"]
    sync: Annotated[SyncPolicy, "how its replicas are resynced and verified"]


class Restored(Device):
    """A device that is back at a restore point, or of which a restore was withdrawn."""

    changed: Annotated[bool, "false: the same restore was under way already; `--cancel`: none was"]
    duration_s: Annotated[float, "seconds until hosts were let in again"]
    kept: Annotated[
        str | None, "the restore point that holds what was on it before; null: none was made"
    ]


class Moved(Device):
    """A device, and the move."""

    changed: Annotated[bool, "false: that node served it already"]
    duration_s: Annotated[float, "seconds the move took; not the pause that hosts see"]


class Followed(Device):
    """A device, and the guest that it follows."""

    changed: Annotated[bool, "false: it followed that one, or none, already"]
    follows: Annotated[str | None, "the resource of Pacemaker; null: none"]
    guest_nodes: Annotated[list[str], "nodes that it runs on; empty: it is stopped"]


class ReplicasChanged(Device):
    """A device, and the change of its replicas."""

    changed: Annotated[bool, "false: the replicas were as requested"]
    duration_s: Annotated[float, "seconds the change took, with the resync"]
    steps: Annotated[list[str], "what was done, in order"]
    away: Annotated[list[str], "nodes that remove their replica when they are back"]
    added: Annotated[
        list[str], "nodes that have a replica now and had none: hosts must log in there"
    ]


class PlacementVerdict(TypedDict):
    """Whether a node would hold a replica."""

    node: Annotated[str, "the node"]
    chosen: Annotated[bool, "whether the node would get a replica"]
    first: Annotated[bool, "whether the node would serve the device first"]
    site: Annotated[str | None, "its site; null: none is configured"]
    rack: Annotated[str | None, "its rack; null: none is configured"]
    room: Annotated[int | None, "bytes of room in its pool; null: not known"]
    active_devices: Annotated[int, "devices it serves"]
    reason: Annotated[str, "why the node was chosen, or why not"]


class Placed(TypedDict):
    """Where a new device would go."""

    nodes: Annotated[list[str], "the nodes; the first would serve"]
    verdicts: Annotated[list[PlacementVerdict], "every storage node of the pool"]


class Deleted(TypedDict):
    """A deleted device."""

    name: Annotated[str, "its name"]
    away: Annotated[list[str], "nodes that remove their replica when they are back"]


class Completed(TypedDict):
    """What `device complete` did."""

    changed: Annotated[bool, "false: no device lacked anything"]
    devices: Annotated[list[str], "devices to which CIB elements were added"]


class DeviceFound(TypedDict):
    """A device that a host's or a kernel's name means."""

    name: Annotated[str, "the device"]
    by: Annotated[str, "what matched: `wwid`, `serial`, `target`, `initiator` or `minor`"]
    wwid: Annotated[str, "as multipath on hosts shows it"]
    serial: Annotated[str, "the unit serial number"]
    minor: Annotated[int, "of /dev/drbdMINOR on its nodes"]
    target: Annotated[str, "the IQN of its target"]
    nodes: Annotated[list[str], "the nodes with a replica"]
    active_node: Annotated[str | None, "as in `Device`"]
