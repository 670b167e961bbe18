# SPDX-License-Identifier: GPL-2.0-or-later
"""JSON documents of nodes, and of standby, drain, fence and replace."""

from __future__ import annotations

from typing import Annotated, TypedDict

from sanctl.cli.documents.device import (
    ReplicasChanged,
)
from sanctl.cli.documents.pool import Pool


class Replaced(TypedDict):
    """What `node replace` did."""

    old: Annotated[str, "the node that has no replicas any more"]
    new: Annotated[str, "the node that took its place"]
    devices: Annotated[list[ReplicasChanged], "the devices it was about"]


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
