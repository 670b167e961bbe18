# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl pool list`, `cache` and `prepare`; values: cli.views.node."""

from __future__ import annotations

from typing import Annotated, TypedDict


class PoolCache(TypedDict):
    """A pool's flash cache on one node."""

    wanted: Annotated[str, "`none`, `write-through` or `write-back`"]
    mode: Annotated[str | None, "the mode in effect; null: not known"]
    reason: Annotated[
        str | None,
        "why another mode is in effect: `flash-lost`, `no-flash`, `no-bcache`, `flushing`, "
        "`changing`; or why the mode is not known: `not-prepared`, of an older release; `standby`, "
        "`offline`, `unclean`, `maintenance`, `pending`, `unknown`: state of the node; `no-agent`: "
        "its pool agent does not run; `untold`: not reported; an error code",
    ]
    dirty: Annotated[int | None, "bytes on flash alone, approximately"]
    flush_s: Annotated[int | None, "seconds the slow disk would need for them; null: not known"]
    hit_percent: Annotated[
        int | None,
        "percent of reads since the boot found on flash, in steps of five; null: too few reads",
    ]
    words: Annotated[str, "all of this as text"]


class Pool(TypedDict):
    """A pool on one node."""

    name: Annotated[str, "its name"]
    total: Annotated[int | None, "bytes of its filesystem; null: not usable, or not reported"]
    free: Annotated[int | None, "bytes free in its filesystem"]
    room: Annotated[
        int | None,
        "bytes left for new devices: free less a reserve and what devices may still write",
    ]
    error: Annotated[str | None, "why it is not usable; null: it is, or has not reported"]
    cache: Annotated[PoolCache | None, "its flash cache; null: it has none"]


class PoolOnNode(Pool):
    """A pool on one node, with the node's name."""

    node: Annotated[str, "the node"]


class PoolModeSet(TypedDict):
    """How a pool's flash is used."""

    name: Annotated[str, "the pool"]
    mode: Annotated[str | None, "the mode that is wanted; null: the nodes' differ"]
    changed: Annotated[bool, "false: it was the mode already, or the mode was only shown"]
    duration_s: Annotated[float, "seconds until all nodes that are online were in the mode"]
    nodes: Annotated[list[PoolOnNode], "the pool on each of its nodes"]


class PoolPrepared(TypedDict):
    """A pool that was prepared on this node."""

    name: Annotated[str, "the pool"]
    node: Annotated[str, "this node"]
    done: Annotated[list[str], "what was done; empty: nothing was left to do"]
    left: Annotated[
        list[str],
        "what stays as it is, and what to do about it: flash that has failed, an only replica",
    ]
