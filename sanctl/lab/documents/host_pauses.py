# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl bench failover`, `levels`, `partner` and `snapshot` print: how long hosts wait."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.lab.documents.processor_time import NodeCpu


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
