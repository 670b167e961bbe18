# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl snapshot ...`: restore points and the nodes they are on."""

from __future__ import annotations

from typing import Annotated, TypedDict


class PointOnNode(TypedDict):
    """A restore point's file on a node."""

    node: Annotated[str, "the node"]
    own_bytes: Annotated[
        int | None, "what it alone holds there, and its deletion frees; null: not known yet"
    ]


class Point(TypedDict):
    """A restore point."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    made: Annotated[str, "when it was made, in UTC"]
    size_bytes: Annotated[int, "the size of the device then"]
    pause_ms: Annotated[int, "for how long the device's I/O waited"]
    file: Annotated[str | None, "its file on its nodes; null: not known here"]
    deleting: Annotated[bool, "it is being deleted"]
    nodes: Annotated[list[PointOnNode], "the nodes that it is on"]
    missing_on: Annotated[list[str], "nodes of the device's other replicas, which have none of it"]


class PointDeleted(TypedDict):
    """A restore point that was deleted."""

    device: Annotated[str, "its device"]
    name: Annotated[str, "its name"]
    away: Annotated[list[str], "nodes that are away; each removes its file when it is back"]
