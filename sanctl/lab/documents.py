# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON documents of `sanctl lab` and `sanctl bench` (--output json): fields and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypedDict

from sanctl.cli.documents.by_command import DOCUMENTS


class LabNode(TypedDict):
    """A node of a laboratory."""

    name: Annotated[str, "its name"]
    role: Annotated[str, "`storage`, `witness` or `initiator`"]
    power: Annotated[str, "`on` or `off`"]
    address: Annotated[str, "its address on the heartbeat network"]
    bmc: Annotated[str | None, "its BMC's address; hosts have none"]
    unplugged: Annotated[list[str], "networks whose cable is pulled"]


class LabCut(TypedDict):
    """Packets dropped between two nodes of a laboratory."""

    network: Annotated[str, "the network"]
    source: Annotated[str, "the node that sends"]
    target: Annotated[str, "the node that does not get all of it"]
    loss_pct: Annotated[float, "how much is lost; 100: everything"]
    is_udp_only: Annotated[bool, "of Corosync's packets (UDP) alone"]


class Lab(TypedDict):
    """A laboratory."""

    name: Annotated[str, "its name"]
    up: Annotated[bool, "whether it runs"]
    release: Annotated[str, "its nodes' Debian"]
    directory: Annotated[str, "where its files are"]
    cuts: Annotated[list[LabCut], "what was cut between nodes"]
    nodes: Annotated[list[LabNode], "its nodes"]


class LabName(TypedDict):
    """A laboratory in short."""

    name: Annotated[str, "its name"]
    up: Annotated[bool, "whether it runs"]


class Labs(TypedDict):
    """All laboratories of this machine."""

    labs: Annotated[list[LabName], "each of them"]


class LabPower(TypedDict):
    """A laboratory node's power."""

    node: Annotated[str, "the node"]
    power: Annotated[str, "`on` or `off`"]


class MissingOption(TypedDict):
    """An option that a kernel lacks."""

    name: Annotated[str, "the option"]
    wanted: Annotated[str, "the value it should have"]
    reason: Annotated[str, "what it is for"]


class KernelCheck(TypedDict):
    """What a kernel lacks."""

    missing: Annotated[list[MissingOption], "empty: nothing"]


class ProgramCost(TypedDict):
    """What one program cost, by median."""

    program: Annotated[str, "what was run"]
    cpu_s: Annotated[float, "processor time, kernel and children included"]
    wall_s: Annotated[float, "time from start to end"]
    runs: Annotated[int, "how often it was run"]


class NodeCpu(TypedDict):
    """What a node's processors did in some time."""

    node: Annotated[str, "the node"]
    seconds: Annotated[float, "for how long"]
    cpu_s: Annotated[float, "processor time of all that ran, kernel included"]
    actions_s: Annotated[float, "of that, in sanctl-actions.service: agents' actions and handlers"]
    pacemaker_s: Annotated[
        float, "of that, in pacemaker.service: its daemons, and the clients that they start"
    ]


class Costs(TypedDict):
    """What sanctl costs beside what people run today."""

    device: Annotated[str, "the device that was monitored"]
    node: Annotated[str, "where"]
    devices: Annotated[int, "how many devices the status had to show"]
    costs: Annotated[list[ProgramCost], "each program"]
    monitor_ratio: Annotated[
        float, "processor time of our monitor, where nothing has changed, by that of the stock one"
    ]
    whole_ratio: Annotated[
        float, "processor time of our monitor that does all of its work by that of the stock one"
    ]
    minute_ratio: Annotated[
        float,
        "processor time of a minute of our monitors, one of twelve a whole one, by that of the"
        " stock one's",
    ]
    goal: Annotated[float, "what `minute_ratio` may be at most"]
    idle: Annotated[
        list[NodeCpu], "each storage node, with nothing asked of it; empty without `--idle`"
    ]
    status_ratio: Annotated[float, "processor time of `sanctl status` by that of `crm_mon -1`"]


class StatusCost(TypedDict):
    """What `sanctl status` of a cluster that is made up took, by median."""

    situation: Annotated[
        str, "`healthy`, `n3 lost`, or `n3 returned`: its replicas do not resync yet"
    ]
    cpu_s: Annotated[float, "processor time, kernel and children included"]
    wall_s: Annotated[float, "time from start to end"]
    cib_bytes: Annotated[int, "size of the CIB"]
    compressed_bytes: Annotated[int, "the same, by bzip2, as Pacemaker compresses it"]


class StatusCosts(TypedDict):
    """What `sanctl status` of many devices takes."""

    devices: Annotated[int, "how many"]
    runs: Annotated[int, "of each"]
    costs: Annotated[list[StatusCost], "each cluster"]


class LevelChange(TypedDict):
    """One change of a device's replicas under load, as measured at the host."""

    before: Annotated[list[str], "nodes that had replicas"]
    after: Annotated[list[str], "nodes that have replicas now"]
    took_s: Annotated[float, "seconds until the command was done, with the sync"]
    pause_s: Annotated[float, "the longest time the host had no answer"]
    errors: Annotated[int, "requests of the host that failed"]
    sessions_kept: Annotated[bool, "whether the sessions to nodes that stayed are the same ones"]
    written_bytes: Annotated[int, "of distinct blocks the host wrote meanwhile"]
    copied_bytes: Annotated[int, "what DRBD had to copy"]
    sent_bytes: Annotated[int, "what the serving node sent on the sync network meanwhile"]
    violations: Annotated[
        list[str], "broken invariants that the audit of the kernels found; empty: none"
    ]


class Levels(TypedDict):
    """What changes of the number of replicas cost the host."""

    device_bytes: Annotated[int, "size of the device"]
    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    changes: Annotated[list[LevelChange], "each change"]


class PointPause(TypedDict):
    """One restore point that was asked for under load."""

    goal_extents: Annotated[int, "for how many extents of the device's file it was made"]
    extents: Annotated[int, "how many there were, on the active node just before"]
    code: Annotated[str | None, "why it was not made; null: it was"]
    hold_s: Annotated[float, "how long the device's I/O was held; 0 if it was not made"]
    pause_s: Annotated[float, "the longest time the host had no answer during the command"]
    before_s: Annotated[float, "the same, in the five seconds before"]
    errors: Annotated[int, "requests of the host that failed"]
    took_s: Annotated[float, "seconds of the whole command"]
    faults: Annotated[
        list[str], "why its copies are no state of one moment, the same on each node; empty: none"
    ]


class PointPauses(TypedDict):
    """How long a host waits when restore points are made, by the extents of the device's file."""

    device_bytes: Annotated[int, "size of the device"]
    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    points: Annotated[list[PointPause], "each restore point"]


class CopyFigures(TypedDict):
    """One copy to a second site that was made while a host wrote."""

    is_first: Annotated[bool, "it was the first copy, of all that was ever written"]
    failed: Annotated[list[str], "why tries before it made none; empty: it was the first try"]
    changed_bytes: Annotated[
        int,
        "what differs from the copy before, as both are at the site, behind the ledger's blocks",
    ]
    ledger_bytes: Annotated[int, "what differs of the ledger's blocks, which compress"]
    sent_bytes: Annotated[int, "what was sent for it, compressed, as the copy says"]
    line_bytes: Annotated[int, "what the node's interface has sent, with ssh and TCP"]
    ratio: Annotated[float, "what was sent, for the ledger's blocks as well, by `changed_bytes`"]
    took_s: Annotated[float, "seconds of the whole command"]
    pause_s: Annotated[float, "the longest time the host had no answer during the command"]
    before_s: Annotated[float, "the same, in the five seconds before"]
    errors: Annotated[int, "requests of the host that failed"]
    faults: Annotated[
        list[str], "why it is not its restore point, or no state that the host's log allows"
    ]


class CopyBench(TypedDict):
    """What copies of a device to a second site send, and what a host notices of them."""

    device_bytes: Annotated[int, "size of the device"]
    interval_s: Annotated[int, "how often a copy was begun"]
    conditions: Annotated[list[str], "what the figures depend on"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    goal: Annotated[float, "what the ratio of each copy should at most be"]
    worst_age_s: Annotated[float, "how old the newest copy was, just before the next one counted"]
    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    copies: Annotated[list[CopyFigures], "each copy"]


class SiteStage(TypedDict):
    """A part of a time."""

    stage: Annotated[str, "what was done"]
    took_s: Annotated[float, "for how many seconds"]


class SiteReturn(TypedDict):
    """What a failback has brought home."""

    changed_bytes: Annotated[int, "in how many bytes both devices differed, by blocks of 4 KiB"]
    came_bytes: Annotated[int, "what came over the line for it, as the node says"]


class SiteRoundFigures(TypedDict):
    """A failover to a copy at a second site, and the way home."""

    failover_s: Annotated[float, "from the command until the host had written to the new device"]
    failover_stages: Annotated[list[SiteStage], "what that time was of"]
    turn_s: Annotated[float, "from the last write answered there until the first one at home"]
    turn_stages: Annotated[list[SiteStage], "what that time was of"]
    running_s: Annotated[float, "how long the first copy and failback took, while the host wrote"]
    running_pause_s: Annotated[float, "the longest time the host had no answer meanwhile"]
    running: Annotated[SiteReturn, "what that failback brought home"]
    last: Annotated[SiteReturn, "what the last one did, while the roles turned"]
    ratio: Annotated[float, "what came home by what differed, of both"]
    tried_again: Annotated[list[str], "why commands were given again; empty: none was"]
    acknowledged: Annotated[int, "writes that were acknowledged there, and at home after it"]
    lost: Annotated[int, "of those, how many were not at home at the end"]
    errors: Annotated[int, "requests of the host that failed"]
    faults: Annotated[
        list[str],
        "why a copy is not its restore point, or no state that the host's log allows, or a device "
        "not its copy",
    ]


class SiteBench(TypedDict):
    """How long hosts wait when a device goes on from a copy at a second site, and comes home."""

    device_bytes: Annotated[int, "size of the device"]
    conditions: Annotated[list[str], "what the figures depend on"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    failover_goal_s: Annotated[float, "what a failover should at most take"]
    turn_goal_s: Annotated[
        float, "for how long a turn should at most leave the host without answer"
    ]
    came_goal: Annotated[float, "what the ratio of each round should at most be"]
    acknowledged: Annotated[int, "writes that were acknowledged there, and at home after it"]
    lost: Annotated[int, "of those, how many were not at home at the end"]
    errors: Annotated[int, "requests that failed"]
    rounds: Annotated[list[SiteRoundFigures], "each round"]


class PartnerLoss(TypedDict):
    """A standby lost its power while a host wrote."""

    limit_bytes: Annotated[int | None, "what was allowed to be dirty; null: write-through"]
    at_cut_bytes: Annotated[int, "what its page cache had yet to write just before"]
    dirty_bytes: Annotated[int, "what the node that serves flushed before it went on"]
    flush_s: Annotated[float, "what that took"]
    pause_s: Annotated[float, "the longest time the host had no answer"]
    errors: Annotated[int, "requests of the host that failed"]


class PartnerLosses(TypedDict):
    """What write-back costs when the standby is lost, by what is dirty."""

    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    losses: Annotated[list[PartnerLoss], "each loss"]


class DevicesCrash(TypedDict):
    """A node that served some devices lost its power while a host wrote to each."""

    devices: Annotated[int, "how many it served"]
    pauses_s: Annotated[list[float], "how long the host had no answer of each device, sorted"]
    whole_s: Annotated[
        float | None, "after how long all replicas were in sync again, none marked; null: too late"
    ]
    is_another_fenced: Annotated[
        bool, "whether another node rebooted, or gave no answer at the end"
    ]
    cib_changes: Annotated[
        int | None, "changes of the CIB's configuration until then; null: no answer"
    ]
    cib_cpu_s: Annotated[
        float | None,
        "processor time of `pacemaker-based` on the node that took over; null: it rebooted",
    ]
    cpu: Annotated[list[NodeCpu], "until then, of each node that did not reboot"]
    errors: Annotated[int, "requests of the host that failed"]
    problem: Annotated[str, "what did not happen in time; empty where all did"]


class DevicesSummary(TypedDict):
    """All crashes with one number of devices: medians of the crashes."""

    devices: Annotated[int, "how many the node served"]
    crashes: Annotated[int, "how many crashes"]
    first_s: Annotated[float, "pause of the device that was served first"]
    median_s: Annotated[float, "median pause of the devices"]
    last_s: Annotated[float, "pause of the device that was served last"]
    slowest_s: Annotated[float, "the longest pause of all crashes"]
    whole_s: Annotated[float | None, "until all was whole; null: once too late"]
    ratio: Annotated[
        float | None, "`last_s` by the median pause of one device; null: the run has none"
    ]
    goal: Annotated[float | None, "what the ratio may be at most; null: no goal"]


class DevicesCrashes(TypedDict):
    """Crashes of a node that serves many devices, by their number."""

    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    node_action_limit: Annotated[
        int | None, "how many actions the CIB allows a node at once; null: not set"
    ]
    summary: Annotated[list[DevicesSummary], "each number of devices"]
    crashes: Annotated[list[DevicesCrash], "each crash, in order"]


class PeerTrial(TypedDict):
    """A crash or a planned move of all devices of one stack."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    kind: Annotated[str, "`crash` or `planned move`"]
    pauses_s: Annotated[list[float], "how long the host had no answer of each device, sorted"]
    errors: Annotated[int, "requests of the host that failed"]


class PeerComparison(TypedDict):
    """Crashes or planned moves of both stacks; with several devices, of the last one served."""

    kind: Annotated[str, "`crash` or `planned move`"]
    ours_median_s: Annotated[float, "median pause of sanctl"]
    stock_median_s: Annotated[float, "median pause of the stock agents"]
    ratio: Annotated[float, "the second by the first"]
    goal: Annotated[float, "what the ratio should at least be"]


class PeerMonitor(TypedDict):
    """A monitor of an active replica, medians."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    program: Annotated[str, "the agent"]
    per_minute: Annotated[float, "how often it runs"]
    cpu_s: Annotated[float, "processor time of the kernel and of all children"]
    wall_s: Annotated[float, "from start to end"]
    of_stock_drbd: Annotated[float, "processor time by that of `ocf:linbit:drbd`"]


class PeerWatching(TypedDict):
    """What the monitors of one active device cost, one of each agent every 10 s."""

    stack: Annotated[str, "`sanctl` or `stock agents`"]
    cpu_s_per_minute: Annotated[float, "processor time of all of them"]
    of_stock_drbd: Annotated[float, "that, by what `ocf:linbit:drbd` alone costs in a minute"]


class Peers(TypedDict):
    """The stock agents beside sanctl, in turns in one laboratory."""

    acknowledged: Annotated[int, "writes that were acknowledged"]
    lost: Annotated[int, "of those, how many were not there at the end"]
    errors: Annotated[int, "requests that failed"]
    devices: Annotated[int, "how many failed over together"]
    versions: Annotated[list[str], "kernel, DRBD's module and packages of the nodes"]
    conditions: Annotated[list[str], "what both stacks share, and what the stock one is given"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    comparisons: Annotated[list[PeerComparison], "each kind"]
    trials: Annotated[list[PeerTrial], "each run, in order"]
    monitors: Annotated[list[PeerMonitor], "each agent's monitor"]
    watching: Annotated[list[PeerWatching], "of each stack"]


class CacheFigures(TypedDict):
    """Random mixed I/O in one mode of the pool's flash, or with a read cache instead."""

    mode: Annotated[str, "`none`, `write-through`, `write-back` or `read cache in RAM`"]
    iops: Annotated[float, "requests a second"]
    factor: Annotated[float, "that by those of `none`"]
    mean_ms: Annotated[float, "mean latency"]
    read_ms: Annotated[float, "mean latency of reads"]
    write_ms: Annotated[float, "mean latency of writes"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p95_ms: Annotated[float, "of twenty, all but one"]
    p99_ms: Annotated[float, "of a hundred, all but one"]
    hit_percent: Annotated[
        int | None, "reads that the serving node found there; null: not reported"
    ]


class ReferenceFigures(TypedDict):
    """The same mode in the run for comparison."""

    mode: Annotated[str, "`none`, `write-through` or `write-back`"]
    iops: Annotated[float, "requests a second"]
    mean_ms: Annotated[float, "mean latency"]


class CacheBench(TypedDict):
    """Random I/O on slow disks, by cache mode of flash or RAM."""

    what: Annotated[str, "what was done"]
    seconds: Annotated[int, "of each mode"]
    machine: Annotated[str, "where"]
    modes: Annotated[list[CacheFigures], "each mode"]
    reference: Annotated[list[ReferenceFigures], "the run for comparison"]


class PathLoad(TypedDict):
    """One kind of load on the data path."""

    kind: Annotated[str, "`read`, `write` or `mixed`, all random"]
    block_bytes: Annotated[int, "size of a request"]
    depth: Annotated[int, "requests in flight"]


class PathLayer(TypedDict):
    """A layer of the data path under one load, medians of all turns."""

    layer: Annotated[str, "`raw disk`, `LIO`, `DRBD and LIO by hand` or `sanctl`"]
    iops: Annotated[float, "requests a second"]
    mb_s: Annotated[float, "throughput in MB (10^6 bytes) a second"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p99_ms: Annotated[float, "of a hundred, all but one"]


class PathResult(PathLoad):
    """One kind of load on all layers."""

    ratio: Annotated[float, "requests of sanctl by those of DRBD and LIO by hand, median of turns"]
    ratios: Annotated[list[float], "that of each turn"]
    layers: Annotated[list[PathLayer], "each layer"]


class PathRun(PathLoad):
    """One run of fio."""

    turn: Annotated[int, "which turn it was in, from 1"]
    layer: Annotated[str, "the layer"]
    iops: Annotated[float, "requests a second"]
    p50_ms: Annotated[float, "half were answered within this time"]
    p99_ms: Annotated[float, "of a hundred, all but one"]


class PathBench(TypedDict):
    """Raw disk, LIO, DRBD and LIO by hand, and sanctl, in turns in one laboratory."""

    seconds: Annotated[int, "of each run"]
    versions: Annotated[list[str], "kernel, DRBD's module and filesystem of the nodes"]
    conditions: Annotated[list[str], "what the layers are, and what they share"]
    differences: Annotated[list[str], "settings of sanctl that differ from those by hand"]
    load_average: Annotated[float, "of this machine, over 15 minutes, at the end"]
    ratio: Annotated[float, "requests of sanctl by those of DRBD and LIO by hand, median of loads"]
    goal: Annotated[float, "what the ratio should at least be"]
    loads: Annotated[list[PathResult], "each load"]
    runs: Annotated[list[PathRun], "each run, in order"]


#: What `data` holds when a command succeeds, by the command's words: those of a checkout, which
#: has the laboratory's commands, too.
ALL_DOCUMENTS: Mapping[str, object] = {
    **DOCUMENTS,
    "bench cache": CacheBench,
    "bench cost": Costs,
    "bench failover": DevicesCrashes,
    "bench levels": Levels,
    "bench partner": PartnerLosses,
    "bench path": PathBench,
    "bench peers": Peers,
    "bench replicate": CopyBench,
    "bench site": SiteBench,
    "bench snapshot": PointPauses,
    "bench status": StatusCosts,
    "lab kernel-check": KernelCheck,
    "lab list": Labs,
    "lab power": LabPower,
    "lab status": Lab,
    "lab up": Lab,
}
