# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON documents about syncing; see sanctl/cli/documents/by_command.py."""

from __future__ import annotations

from typing import Annotated, TypedDict


class SyncPolicy(TypedDict):
    """How a device is synced; see docs/howto/sync.md."""

    full_above: Annotated[int | None, "percent that differ, above which all is sent; null: never"]
    csums: Annotated[bool, "compare checksums first, always; false: only after a crash"]
    rate_min: Annotated[int, "bytes a second that a resync may take from hosts"]
    rate_max: Annotated[int | None, "bytes a second it may take at all; null: the network's"]
    window: Annotated[str | None, "hours of the day in which it may run; null: always"]
    priority: Annotated[int, "0-100, the higher one first"]
    verify: Annotated[str | None, "when replicas are compared by themselves; null: never"]


class Running(TypedDict):
    """A resync or a verify that runs, or waits."""

    kind: Annotated[str, "`fast` (what differs), `full` (everything) or `verify`"]
    waits: Annotated[str | None, "what it waits for, in words; null: it runs"]
    left_bytes: Annotated[int, "what is left"]
    total_bytes: Annotated[int, "what there was to do"]
    rate: Annotated[int, "bytes a second"]
    done_percent: Annotated[float, "how much is done"]
    left_s: Annotated[int | None, "seconds that are left at this rate; null: cannot be told"]
    began: Annotated[str | None, "when, UTC"]


class Resync(TypedDict):
    """The latest resync of a copy, as the copy that was behind saw it."""

    kind: Annotated[str, "`fast` (what differs) or `full` (everything)"]
    why: Annotated[str, "why that kind, in words"]
    began: Annotated[str | None, "when, UTC"]
    ended: Annotated[str | None, "when, UTC; null: it has not"]
    changed_bytes: Annotated[int, "what was marked as different when it began"]
    received_bytes: Annotated[
        int | None, "data that came meanwhile, hosts' writes included; null: it has not ended"
    ]


class Range(TypedDict):
    """A part of a device."""

    first: Annotated[int, "its first byte"]
    bytes: Annotated[int, "its length"]


class Verification(TypedDict):
    """A comparison of a device's copies."""

    result: Annotated[str, "`running`, `same`, `differs`, `interrupted`, `repairing` or `repaired`"]
    began: Annotated[str | None, "when, UTC"]
    ended: Annotated[str | None, "when, UTC; null: it has not"]
    different_bytes: Annotated[int, "how much differed"]
    ranges: Annotated[list[Range], "where: the first ones; the node's history has all"]


class Verified(TypedDict):
    """What a verify has found."""

    name: Annotated[str, "the device"]
    node: Annotated[str, "the node that compared: the one that serves"]
    verify: Annotated[Verification, "what it found"]
    repaired_bytes: Annotated[int | None, "what was sent anew; null: nothing was"]


class ReplicaSync(TypedDict):
    """What goes on with one copy of a device."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "the node that keeps the copy"]
    disk: Annotated[str | None, "DRBD's disk state; null: not known"]
    replication: Annotated[str | None, "`Established`, or what a resync is at; null: not known"]
    running: Annotated[Running | None, "what runs there now"]
    latest: Annotated[Resync | None, "its latest resync"]
    verify: Annotated[Verification | None, "the latest verify that this node took part in"]
