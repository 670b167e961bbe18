# SPDX-License-Identifier: GPL-2.0-or-later
"""What the JSON documents of the commands hold: the contract that docs/reference/json.md prints.

`sanctl.cli.views` and the commands build exactly these; a test holds what they print against them.
Fields are added at any time; one that is here keeps its name, its type and its meaning for as long
as `schema` has the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from sanctl.cli.documents.cluster import Cluster, StrategySet, StrategyShown
from sanctl.cli.documents.heal import HealCase, Healed
from sanctl.cli.documents.pool import Pool, PoolModeSet, PoolOnNode, PoolPrepared
from sanctl.cli.documents.sync import CopySync, Resync, SyncPolicy, Verified


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


class Levelled(Device):
    """A device, and what a change of its replicas did."""

    changed: Annotated[bool, "false: all was as asked"]
    duration_s: Annotated[float, "seconds it took, with the sync"]
    steps: Annotated[list[str], "what was done, in order"]
    away: Annotated[list[str], "nodes that remove their replica when they are back"]
    added: Annotated[list[str], "nodes that have one now and had none: hosts log in there"]


class Replaced(TypedDict):
    """What `node replace` did."""

    old: Annotated[str, "the node that has no replicas any more"]
    new: Annotated[str, "the node that took its place"]
    devices: Annotated[list[Levelled], "the devices it was about"]


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


class Node(TypedDict):
    """A node of the cluster."""

    name: Annotated[str, "its name"]
    id: Annotated[int | None, "its number in cluster.toml"]
    state: Annotated[
        str,
        "`online`, `standby`, `maintenance`, `pending`, `offline`, `unknown`, or `unclean`: it has "
        "to be fenced before anything is known of it",
    ]
    wants_standby: Annotated[bool, "it was put in standby, whether it is there yet or not"]
    role: Annotated[str | None, "`storage` or `witness`"]
    active_devices: Annotated[int, "devices that it serves"]
    replicas: Annotated[int, "replicas that it keeps"]
    pools: Annotated[list[Pool], "its pools"]


class NodeChanged(TypedDict):
    """A node after `standby` or `online`."""

    name: Annotated[str, "its name"]
    changed: Annotated[bool, "false: it was so already"]


class Served(TypedDict):
    """Who serves a device."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "the node that serves it"]


class Stranded(TypedDict):
    """A device that no other node can serve."""

    device: Annotated[str, "the device"]
    reason: Annotated[str, "why"]


class Drained(TypedDict):
    """A node that serves nothing any more."""

    name: Annotated[str, "its name"]
    moved: Annotated[list[Served], "what it served, and who does now"]
    stranded: Annotated[list[Stranded], "what stops together with the node"]
    late: Annotated[list[str], "devices that were still on their way at the deadline"]


class FenceAnswer(TypedDict):
    """What one fencing device said."""

    name: Annotated[str, "the fencing device"]
    answers: Annotated[bool | None, "null: this node may not use it"]
    reason: Annotated[str | None, "why it does not answer"]
    watched_by: Annotated[list[str], "nodes whose monitor asks it"]


class FenceTest(TypedDict):
    """`node fence --test`: whether a node could be fenced."""

    name: Annotated[str, "the node"]
    asked_from: Annotated[str, "the node this was asked from"]
    devices: Annotated[list[FenceAnswer], "its fencing devices"]


class Fenced(TypedDict):
    """A node that was fenced."""

    name: Annotated[str, "the node"]
    drained: Annotated[bool, "whether what it served was moved away first"]


class Portals(TypedDict):
    """Where a host reaches a device on one node."""

    node: Annotated[str, "the node"]
    group: Annotated[int, "its ALUA target port group"]
    addresses: Annotated[list[str], "address:port of each portal"]


class Target(TypedDict):
    """What a host needs to use a device."""

    device: Annotated[str, "the device"]
    target: Annotated[str, "the iSCSI target"]
    lun: Annotated[int, "always 0"]
    serial: Annotated[str, "the unit's serial number"]
    wwid: Annotated[str, "as in `Device`"]
    active_node: Annotated[str | None, "as in `Device`"]
    portals: Annotated[list[Portals], "for each node with a replica"]
    initiators: Annotated[list[str], "the hosts that may use it"]


class Access(TypedDict):
    """A device's access list after `allow` or `deny`."""

    changed: Annotated[bool, "false: it was so already"]
    device: Annotated[str, "the device"]
    initiators: Annotated[list[str], "the hosts that may use it now"]


class Finding(TypedDict):
    """Something that is not as it should be."""

    code: Annotated[str, "its code, as in [the list of codes](errors.md)"]
    severity: Annotated[str, "`critical`, `warning`, or `note`, which is nothing bad"]
    subject: Annotated[str, "what it is about, such as `device vol1`"]
    what: Annotated[str, "what was found"]
    why: Annotated[str, "why it matters; may be empty"]
    do: Annotated[str, "what to do; may be empty"]


class Status(TypedDict):
    """The health of everything."""

    summary: Annotated[str, "the first line of the text form"]
    strategy: Annotated[str | None, "as in `Cluster`; null: cluster.toml cannot be read"]
    has_quorum: Annotated[bool, "whether this part of the cluster may act"]
    nodes: Annotated[list[Node], "all nodes"]
    devices: Annotated[list[Device], "all devices"]
    findings: Annotated[list[Finding], "what is wrong, the worst first"]


class Check(TypedDict):
    """One check of `sanctl doctor`."""

    name: Annotated[str, "what was checked"]
    wrong: Annotated[int | None, "how much was found wrong; null: it could not be checked"]


class Examination(TypedDict):
    """What `sanctl doctor` found, seen from one node."""

    node: Annotated[str, "the node it ran on"]
    checks: Annotated[list[Check], "all checks"]
    findings: Annotated[list[Finding], "what is wrong, the worst first"]


class Meaning(TypedDict):
    """A code explained."""

    code: Annotated[str, "the code"]
    meaning: Annotated[str, "what it means"]


#: What `data` holds when a command succeeds, by the command's words.
DOCUMENTS: Mapping[str, object] = {
    "cluster show": Cluster,
    "cluster strategy set": StrategySet,
    "cluster strategy show": StrategyShown,
    "device cache": CacheSet,
    "device complete": Completed,
    "device create": Device,
    "device delete": Deleted,
    "device heal": HealCase | Healed,
    "device list": list[Device],
    "device move": Moved,
    "device place": Placed,
    "device replicas": Levelled,
    "device resize": Resized,
    "device show": Device,
    "device sync": PolicyChanged,
    "device verify": Verified | PolicyChanged,
    "doctor": Examination,
    "explain": Meaning,
    "node drain": Drained,
    "node fence": FenceTest | Fenced,
    "node list": list[Node],
    "node online": NodeChanged,
    "node replace": Replaced,
    "node standby": NodeChanged,
    "pool cache": PoolModeSet,
    "pool list": list[PoolOnNode],
    "pool prepare": PoolPrepared,
    "node undrain": NodeChanged,
    "status": Status,
    "sync status": list[CopySync],
    "target allow": Access,
    "target deny": Access,
    "target show": list[Target] | Target,
}
