# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl snapshot ...`: restore points, their nodes, schedules."""

from __future__ import annotations

from typing import Annotated, TypedDict


class PointOnNode(TypedDict):
    """A restore point's file on a node."""

    node: Annotated[str, "the node"]
    own_bytes: Annotated[
        int | None, "what it alone holds there, and its deletion frees; null: not known yet"
    ]


class PointHookResult(TypedDict):
    """What became of a restore point's hook."""

    name: Annotated[str, "its name, that of a file in `/etc/sanctl/hooks.d`"]
    before: Annotated[
        str | None, "the code of why it did not make the point application-consistent; null: it did"
    ]
    after: Annotated[
        str | None, "the code of why the application may have stayed quiet; null: it did not"
    ]


class ScheduleHook(TypedDict):
    """The hook of a schedule's restore points."""

    name: Annotated[str, "its name"]
    limit_s: Annotated[int, "for how many seconds the application is kept quiet at most"]
    or_crash: Annotated[bool, "where it fails, a crash-consistent point is made"]


class Point(TypedDict):
    """A restore point."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    made: Annotated[str, "when it was made, in UTC"]
    size_bytes: Annotated[int, "the size of the device then"]
    pause_ms: Annotated[int, "for how long the device's I/O waited"]
    file: Annotated[str | None, "its file on its nodes; null: not known here"]
    deleting: Annotated[bool, "it is being deleted"]
    group: Annotated[list[str], "restore points of other devices that were made at the same moment"]
    scheduled: Annotated[
        list[str], "the intervals of the schedule that it was made for; empty: an operator made it"
    ]
    consistency: Annotated[
        str,
        "`application`: a hook kept the application quiet; `crash`: as after a power cut",
    ]
    hook: Annotated[
        PointHookResult | None, "what became of its hook; null: it was made without one"
    ]
    nodes: Annotated[list[PointOnNode], "the nodes that it is on"]
    missing_on: Annotated[list[str], "nodes of the device's other replicas, which have none of it"]


class PointDeleted(TypedDict):
    """A restore point that was deleted."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    away: Annotated[list[str], "nodes that are away; each removes its file when it is back"]


class Export(TypedDict):
    """A restore point that a node exports read-only."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    node: Annotated[str, "the node"]
    target: Annotated[str, "the target's name; its LUN 0 is the restore point"]
    portals: Annotated[list[str], "where, as `address:port`"]
    initiators: Annotated[list[str], "the initiators that may log in"]


class Unexported(TypedDict):
    """A restore point that a node does not export any more."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    node: Annotated[str, "the node"]


class ScheduleRule(TypedDict):
    """A rule of a schedule of restore points."""

    every: Annotated[str, "the interval, such as `15m`"]
    every_s: Annotated[int, "the same in seconds"]
    keep: Annotated[int, "how many restore points of it are kept"]
    last_slot: Annotated[
        str | None, "the beginning of the latest interval that has a point, in UTC; null: none has"
    ]
    late: Annotated[bool, "it is behind by more than two intervals"]


class Schedule(TypedDict):
    """When restore points of a device are made by themselves."""

    text: Annotated[str, "its rules, as the command takes them"]
    since: Annotated[str, "when it was given, in UTC"]
    last: Annotated[str | None, "when its latest restore point was made, in UTC; null: none was"]
    next: Annotated[str, "when the next one is due, in UTC"]
    hook: Annotated[ScheduleHook | None, "the hook of its restore points; null: none"]
    group: Annotated[
        list[str], "the devices whose points are of the same moments, with this one; empty: alone"
    ]
    rules: Annotated[list[ScheduleRule], "its rules, the shortest interval first"]


class ScheduleShown(TypedDict):
    """A device's schedule of restore points, and whether the command changed it."""

    device: Annotated[str, "the device"]
    changed: Annotated[bool, "false: it had that schedule, or it was only shown"]
    schedule: Annotated[Schedule | None, "the schedule; null: it has none"]


class PointsPruned(TypedDict):
    """Restore points that a schedule no longer keeps."""

    device: Annotated[str, "the device"]
    deleted: Annotated[list[str], "the names of those that are being deleted, or would be"]
    dry_run: Annotated[bool, "nothing was changed"]
