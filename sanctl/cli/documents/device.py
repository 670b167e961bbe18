# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON documents of devices, their replicas and caches, and of the `sanctl device` commands."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.sync import Resync, SyncPolicy


class ReplicaCache(TypedDict):
    """What a replica's cache is in, as its own node has reported it; null: not known."""

    mode: Annotated[str | None, "`none`, `write-through` or `write-back`"]
    reason: Annotated[
        str | None,
        "why not the wanted one: `one-copy`, `comparing`, `no-flush`, `suspect` or `changing`; "
        "null: it is",
    ]
    dirty: Annotated[int | None, "bytes in RAM alone, a little rounded up; only in write-back"]
    node_limit: Annotated[
        int | None,
        "bytes that its node lets all its devices have there together; null: as much as they want",
    ]
    flush_s: Annotated[int | None, "seconds the kernel reckons that takes to flush"]
    read: Annotated[
        int | None, "bytes of RAM that reads are cached in; told where it serves and one is wanted"
    ]
    read_reason: Annotated[
        str | None,
        "why not: `not-good`, `compared`, `no-ram`, `waits`, `failed` or `restart`; null: it is",
    ]
    read_held: Annotated[int | None, "bytes of the device that are in it, a little rounded up"]
    read_hit_percent: Annotated[int | None, "of what was read since it is there"]
    suspect: Annotated[bool, "it lost writes that it had acknowledged, and is kept from serving"]


class DeviceCache(TypedDict):
    """The cache policy that is wanted for a device."""

    mode: Annotated[str, "`none`, `write-through` or `write-back`"]
    dirty_limit: Annotated[int | None, "bytes that may be in RAM alone on a node, in write-back"]
    read_cache: Annotated[int, "bytes of RAM on the node that serves that reads may be cached in"]


class Replica(TypedDict):
    """One copy of a device, as its own node has reported it; null: not known."""

    node: Annotated[str, "the node that keeps it"]
    node_state: Annotated[str, "that node's state, as in `Node`"]
    role: Annotated[str | None, "`Promoted` (it serves), `Unpromoted` or `Stopped`"]
    disk: Annotated[str | None, "DRBD's disk state; `UpToDate` is the good one"]
    connection: Annotated[str | None, "DRBD's connection to the peer; `Connected` is the good one"]
    replication: Annotated[str | None, "`Established`, or what a resync is at"]
    peer_disk: Annotated[str | None, "the peer's disk state, as this node sees it"]
    out_of_sync_bytes: Annotated[int | None, "how much differs from the peer"]
    size: Annotated[int | None, "bytes that DRBD serves of it"]
    resync: Annotated[Resync | None, "its latest resync; null: none that is remembered"]
    cache: Annotated[ReplicaCache, "what its cache is in"]


class Device(TypedDict):
    """A device."""

    name: Annotated[str, "its name"]
    state: Annotated[
        str,
        "`ok`: served, every replica in sync; `degraded`: served; `down`: not served; `deleting`",
    ]
    uuid: Annotated[str, "32 hex digits that no other device has"]
    wwid: Annotated[str, "the name hosts see it under, in /dev/mapper and /dev/disk/by-id"]
    size: Annotated[int, "bytes, as it is wanted"]
    pool: Annotated[str, "the pool that holds its replicas"]
    minor: Annotated[int, "DRBD minor; replicas talk on TCP port 7800 + minor"]
    cache: Annotated[DeviceCache, "its cache policy"]
    active_node: Annotated[str | None, "the node that serves it; null: none, or not known"]
    prefer: Annotated[str | None, "the node that serves it when none does yet"]
    moving_to: Annotated[str | None, "the node it is on its way to"]
    target: Annotated[str | None, "its iSCSI target; null: cluster.toml cannot be read"]
    initiators: Annotated[list[str], "the hosts that may use it"]
    sync: Annotated[SyncPolicy, "how its replicas are brought into line"]
    replicas_wanted: Annotated[int, "how many replicas it is to have"]
    unfinished: Annotated[
        str | None, "what a change of its replicas has left to do, in words; null: nothing"
    ]
    replicas: Annotated[list[Replica], "its replicas, one for each node"]


class CacheSet(Device):
    """A device, and what changing its cache policy took."""

    changed: Annotated[bool, "false: it had that policy, or it was only shown"]
    duration_s: Annotated[float, "seconds the change took; hosts write on meanwhile"]
    in_effect: Annotated[
        bool, "false: write-back is stored, and `cache.reason` of a replica says what it waits for"
    ]


class Resized(Device):
    """A device, and whether the command had anything to do."""

    changed: Annotated[bool, "false: it had that size"]


class PolicyChanged(TypedDict):
    """How a device is synced, and whether the command changed it."""

    name: Annotated[str, "its name"]
    changed: Annotated[bool, "false: it was so, or was only shown"]
    sync: Annotated[SyncPolicy, "how its replicas are brought into line"]


class Moved(Device):
    """A device, and what the move took."""

    changed: Annotated[bool, "false: it was served there"]
    duration_s: Annotated[float, "seconds the move took; not the pause that hosts see"]


class ReplicasChanged(Device):
    """A device, and what a change of its replicas did."""

    changed: Annotated[bool, "false: all was as asked"]
    duration_s: Annotated[float, "seconds it took, with the sync"]
    steps: Annotated[list[str], "what was done, in order"]
    away: Annotated[list[str], "nodes that remove their replica when they are back"]
    added: Annotated[list[str], "nodes that have one now and had none: hosts log in there"]


class PlacementVerdict(TypedDict):
    """Whether a node would hold a replica."""

    node: Annotated[str, "the node"]
    chosen: Annotated[bool, "whether it would"]
    first: Annotated[bool, "whether it would serve the device first"]
    site: Annotated[str | None, "its site; null: not told"]
    rack: Annotated[str | None, "its rack; null: not told"]
    room: Annotated[int | None, "bytes its pool can promise; null: not known"]
    active_devices: Annotated[int, "devices it serves"]
    reason: Annotated[str, "why, or why not"]


class Placed(TypedDict):
    """Where a new device would go."""

    nodes: Annotated[list[str], "the nodes, the one that would serve first"]
    verdicts: Annotated[list[PlacementVerdict], "every storage node of the pool"]


class Deleted(TypedDict):
    """A device that is no more."""

    name: Annotated[str, "its name"]
    away: Annotated[list[str], "nodes that remove their copy when they are back"]


class Completed(TypedDict):
    """What `device complete` did."""

    changed: Annotated[bool, "false: nothing was lacking"]
    devices: Annotated[list[str], "devices that got what they lacked"]
