"""The JSON documents about syncing; see sanctl/cli/documents.py."""

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
