# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl sync status`: resyncs, verifies, and a sync policy."""

from __future__ import annotations

from typing import Annotated, TypedDict


class SyncPolicy(TypedDict):
    """A device's sync policy; see docs/howto/sync.md."""

    full_above: Annotated[
        int | None, "percent out of sync above which the whole device is resynced; null: never"
    ]
    csums: Annotated[bool, "compare checksums first, always; false: only after a crash"]
    rate_min: Annotated[int, "bytes a second that a resync keeps up while hosts read and write"]
    rate_max: Annotated[
        int | None, "highest rate in bytes a second; null: no limit but the network"
    ]
    window: Annotated[str | None, "hours of the day in which a resync may run; null: always"]
    priority: Annotated[int, "0-100, the higher goes first"]
    verify: Annotated[str | None, "schedule of verifies; null: none"]


class Running(TypedDict):
    """A resync or a verify that runs, or waits."""

    kind: Annotated[str, "`fast` (what differs), `full` (everything) or `verify`"]
    waits: Annotated[str | None, "what it waits for, as text; null: it runs"]
    left_bytes: Annotated[int, "bytes left to do"]
    total_bytes: Annotated[int, "bytes to do at its begin"]
    rate: Annotated[int, "bytes a second"]
    done_percent: Annotated[float, "percent done"]
    left_s: Annotated[int | None, "seconds left at this rate; null: not known"]
    began: Annotated[str | None, "when, UTC"]


class Resync(TypedDict):
    """The latest resync of a replica, as the replica that was behind recorded it."""

    kind: Annotated[str, "`fast` (what differs) or `full` (everything)"]
    why: Annotated[str, "why that kind, as text"]
    began: Annotated[str | None, "when, UTC"]
    ended: Annotated[str | None, "when, UTC; null: it has not"]
    changed_bytes: Annotated[int, "what was marked as different when it began"]
    received_bytes: Annotated[
        int | None, "data received meanwhile, hosts' writes included; null: it has not ended"
    ]


class Range(TypedDict):
    """A part of a device."""

    first: Annotated[int, "its first byte"]
    bytes: Annotated[int, "its length"]


class Verification(TypedDict):
    """A comparison of a device's replicas."""

    result: Annotated[str, "`running`, `same`, `differs`, `interrupted`, `repairing` or `repaired`"]
    began: Annotated[str | None, "when, UTC"]
    ended: Annotated[str | None, "when, UTC; null: it has not"]
    different_bytes: Annotated[int, "how much differed"]
    ranges: Annotated[list[Range], "the first ranges that differ; the node's history has all"]


class Verified(TypedDict):
    """The result of a verify."""

    name: Annotated[str, "the device"]
    node: Annotated[str, "the node that compared: the one that serves"]
    verify: Annotated[Verification, "what it found"]
    repaired_bytes: Annotated[int | None, "bytes sent again; null: nothing was"]


class ReplicaSync(TypedDict):
    """Resync and verify of one replica."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "the node that holds the replica"]
    disk: Annotated[str | None, "DRBD's disk state; null: not known"]
    replication: Annotated[str | None, "`Established`, or the state of a resync; null: not known"]
    running: Annotated[Running | None, "the resync or verify that runs now"]
    latest: Annotated[Resync | None, "its latest resync"]
    verify: Annotated[Verification | None, "the latest verify that this node took part in"]
