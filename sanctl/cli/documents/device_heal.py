# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl device heal`: the replicas, what keeping each loses."""

from __future__ import annotations

from typing import Annotated, TypedDict


class HealLoss(TypedDict):
    """What is lost if a replica is discarded."""

    node: Annotated[
        str | None, "the node of the discarded replica; of several the first; null: there is none"
    ]
    nodes: Annotated[list[str], "the nodes of all discarded replicas"]
    bytes_at_most: Annotated[
        int | None, "how much of its data is nowhere else; null: not known, or hosts write to it"
    ]
    text: Annotated[str, "the same in words"]


class HealRefusal(TypedDict):
    """Why a replica cannot be kept."""

    code: Annotated[str, "its code, as in [the list of codes](errors.md)"]
    text: Annotated[str, "the same in words"]


class HealVerdict(TypedDict):
    """What keeping a replica means: one of the two fields is null."""

    loses: Annotated[HealLoss | None, "what is lost"]
    refused: Annotated[HealRefusal | None, "why keeping it is refused"]


class HealReplica(TypedDict):
    """A replica of the device; null: not known."""

    node: Annotated[str, "the node that holds it"]
    node_state: Annotated[str, "that node's state, as in `Node`"]
    disk: Annotated[str | None, "DRBD's disk state"]
    serves: Annotated[bool, "whether hosts use it"]
    marked: Annotated[bool, "whether it is marked as outdated"]
    suspect: Annotated[
        bool, "whether it crashed with acknowledged writes in RAM, or before its resync was stable"
    ]
    untried: Annotated[
        bool,
        "whether it might be old: since its start it has not connected to another replica"
        " whose node has joined Pacemaker",
    ]
    served_last: Annotated[bool, "whether its node was Primary when it was last up"]
    only_there_bytes: Annotated[
        int | None, "what the other replica lacks; while it serves, as of up to a minute ago"
    ]
    apart_since: Annotated[str | None, "when the connection was first seen to be lost, UTC"]
    generation: Annotated[str | None, "DRBD's identifier of its data generation"]
    keeping_it: Annotated[HealVerdict, "what keeping it means"]


class HealCase(TypedDict):
    """The replicas of a device, for the decision which one to keep."""

    name: Annotated[str, "the device"]
    condition: Annotated[
        str,
        "`sound`; `waiting`: no node serves, and nothing can be decided yet; `diverged`; "
        "`unrelated`; or `blocked`: no replica may be served",
    ]
    waits_for: Annotated[str | None, "while `waiting`: for what; null: it is not"]
    copies: Annotated[list[HealReplica], "its replicas"]


class Healed(HealCase):
    """The decision, with the replicas as they were shown before."""

    kept: Annotated[str, "the node whose replica was kept"]
    lost: Annotated[HealLoss, "what was lost"]
