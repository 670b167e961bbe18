# SPDX-License-Identifier: GPL-2.0-or-later
"""The JSON documents about data that has diverged; see sanctl/cli/documents/by_command.py."""

from __future__ import annotations

from typing import Annotated, TypedDict


class HealLoss(TypedDict):
    """What giving a copy up loses."""

    node: Annotated[str, "the node whose copy it is"]
    bytes_at_most: Annotated[int | None, "how much of it is nowhere else; null: not known"]
    text: Annotated[str, "the same in words"]


class HealRefusal(TypedDict):
    """Why a copy cannot be kept."""

    code: Annotated[str, "its code, as in [the list of codes](errors.md)"]
    text: Annotated[str, "the same in words"]


class HealVerdict(TypedDict):
    """What keeping a copy means: one of both is null."""

    loses: Annotated[HealLoss | None, "what it loses"]
    refused: Annotated[HealRefusal | None, "why it is refused"]


class HealReplica(TypedDict):
    """A copy of the device; null: not known."""

    node: Annotated[str, "the node that keeps it"]
    node_state: Annotated[str, "that node's state, as in `Node`"]
    disk: Annotated[str | None, "DRBD's disk state"]
    serves: Annotated[bool, "whether hosts use it"]
    marked: Annotated[bool, "whether it is marked as behind"]
    suspect: Annotated[bool, "whether it crashed with acknowledged writes in RAM"]
    untried: Annotated[bool, "whether it has met no other since it was started, and might be old"]
    served_last: Annotated[bool, "whether its node was Primary when it was last up"]
    only_there_bytes: Annotated[int | None, "what the other copy lacks"]
    apart_since: Annotated[str | None, "when contact was first seen to be lost, UTC"]
    generation: Annotated[str | None, "DRBD's identifier of its data"]
    keeping_it: Annotated[HealVerdict, "what keeping it means"]


class HealCase(TypedDict):
    """What is to be decided about a device."""

    name: Annotated[str, "the device"]
    condition: Annotated[
        str, "`sound`, `diverged`, `unrelated`, or `blocked`: no copy may be served"
    ]
    copies: Annotated[list[HealReplica], "its copies"]


class Healed(HealCase):
    """What was decided, with the case as it was shown before."""

    kept: Annotated[str, "the node whose copy was kept"]
    lost: Annotated[HealLoss, "what was lost"]
