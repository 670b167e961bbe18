# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of a node, and of `sanctl node standby`, `fence`, `remove`, ..."""

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
    devices: Annotated[list[ReplicasChanged], "the devices whose replicas were moved"]


class Node(TypedDict):
    """A node of the cluster."""

    name: Annotated[str, "its name"]
    id: Annotated[int | None, "its id in cluster.toml"]
    state: Annotated[
        str,
        "`online`, `standby`, `maintenance`, `pending`, `offline`, `unknown`, or `unclean`: its "
        "state is not known until it is fenced",
    ]
    standby_reason: Annotated[
        str | None,
        "why its state is `standby`: `ordered`; `until-reboot`: by a transient attribute; "
        "`failure`: an action failed there; `shutdown`: it is being stopped; null: it is not",
    ]
    wants_standby: Annotated[bool, "standby was ordered, whether it is reached yet or not"]
    role: Annotated[str | None, "`storage` or `witness`"]
    active_devices: Annotated[int, "devices that it serves"]
    replicas: Annotated[int, "replicas that it holds"]
    pools: Annotated[list[Pool], "its pools"]


class NodeChanged(TypedDict):
    """A node after `online` or `undrain`."""

    name: Annotated[str, "its name"]
    changed: Annotated[bool, "false: the node was in that state already"]


class Stranded(TypedDict):
    """A device that no other node can serve."""

    device: Annotated[str, "the device"]
    reason: Annotated[str, "why no other node can serve it"]


class NodeInStandby(TypedDict):
    """A node after `standby`."""

    name: Annotated[str, "its name"]
    changed: Annotated[bool, "false: the node was in that state already"]
    stopped: Annotated[list[Stranded], "devices that no node serves now, as was accepted"]


class NodeConfirmed(TypedDict):
    """A node after `confirm-off`."""

    name: Annotated[str, "the node"]
    changed: Annotated[bool, "false: the cluster did not wait for it to be fenced"]


class NodeRemoved(TypedDict):
    """A node after `remove`."""

    name: Annotated[str, "the node"]
    changed: Annotated[bool, "false: nothing of it was left in the cluster"]


class Served(TypedDict):
    """A device and the node that serves it."""

    device: Annotated[str, "the device"]
    node: Annotated[str, "the node that serves it"]


class Drained(TypedDict):
    """A drained node."""

    name: Annotated[str, "its name"]
    moved: Annotated[list[Served], "devices that it served, with the node that serves each now"]
    stranded: Annotated[list[Stranded], "devices that stop together with the node"]
    late: Annotated[list[str], "devices that were still being moved at the deadline"]
    unflushed: Annotated[
        list[str],
        "devices of which no other node had all on stable storage then, after a resync there",
    ]


class FenceAnswer(TypedDict):
    """The answer of a fencing device."""

    name: Annotated[str, "the fencing device"]
    answers: Annotated[bool | None, "null: this node may not use it"]
    reason: Annotated[str | None, "why it does not answer"]
    watched_by: Annotated[list[str], "nodes on which Pacemaker's monitor of it runs"]


class FenceTest(TypedDict):
    """`node fence --test`: whether a node could be fenced."""

    name: Annotated[str, "the node"]
    asked_from: Annotated[str, "the node that asked"]
    devices: Annotated[list[FenceAnswer], "its fencing devices"]


class Fenced(TypedDict):
    """A node that was fenced."""

    name: Annotated[str, "the node"]
    drained: Annotated[bool, "whether its devices were moved away first"]
