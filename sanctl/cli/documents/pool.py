# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON documents about pools; see sanctl/cli/documents/by_command.py."""

from __future__ import annotations

from typing import Annotated, TypedDict


class PoolCache(TypedDict):
    """The flash before a pool on one node."""

    wanted: Annotated[str, "`none`, `write-through` or `write-back`"]
    mode: Annotated[str | None, "what it is in; null: not known"]
    reason: Annotated[
        str | None,
        "why that is another one: `flash-lost`, `no-flash`, `not-prepared`, `flushing`, "
        "`changing`; or why it is not known: `standby`, `offline`, `unclean`, `maintenance`, "
        "`pending`, `unknown`: the node is; `no-agent`: its pool agent does not run; `untold`; an "
        "error code",
    ]
    dirty: Annotated[int | None, "bytes on flash alone, about"]
    flush_s: Annotated[int | None, "how long the slow disk would take for them; null: not known"]
    hit_percent: Annotated[
        int | None, "of the reads since the boot, found on flash, in steps of five; null: too few"
    ]
    words: Annotated[str, "all of it for people"]


class Pool(TypedDict):
    """A pool on one node."""

    name: Annotated[str, "its name"]
    total: Annotated[int | None, "bytes of its file system; null: not usable, or not reported"]
    free: Annotated[int | None, "bytes free in it"]
    room: Annotated[
        int | None, "bytes left for new devices: free less what devices may still write"
    ]
    error: Annotated[str | None, "why it is not usable"]
    cache: Annotated[PoolCache | None, "the flash before it; null: it has none"]


class PoolOnNode(Pool):
    """A pool on one node, with the node's name."""

    node: Annotated[str, "the node"]


class PoolModeSet(TypedDict):
    """How a pool's flash is used."""

    name: Annotated[str, "the pool"]
    mode: Annotated[str | None, "the mode that is wanted; null: the nodes' differ"]
    changed: Annotated[bool, "something was to be changed"]
    duration_s: Annotated[float, "seconds until all nodes that can follow were there"]
    nodes: Annotated[list[PoolOnNode], "the pool on each of its nodes"]


class PoolPrepared(TypedDict):
    """A pool made on this node."""

    name: Annotated[str, "the pool"]
    node: Annotated[str, "this node"]
    done: Annotated[list[str], "what was done; empty: nothing was to do"]
