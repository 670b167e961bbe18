# SPDX-License-Identifier: GPL-2.0-or-later
"""What `sanctl lab` prints of laboratories, their nodes, and the kernel that they need."""

from __future__ import annotations

from typing import Annotated, TypedDict


class LabNode(TypedDict):
    """A node of a laboratory."""

    name: Annotated[str, "its name"]
    role: Annotated[str, "`storage`, `witness` or `initiator`"]
    power: Annotated[str, "`on` or `off`"]
    address: Annotated[str, "its address on the heartbeat network"]
    bmc: Annotated[str | None, "its BMC's address; hosts have none"]
    unplugged: Annotated[list[str], "networks whose cable is pulled"]


class LabCut(TypedDict):
    """Packets dropped between two nodes of a laboratory."""

    network: Annotated[str, "the network"]
    source: Annotated[str, "the node that sends"]
    target: Annotated[str, "the node that does not get all of it"]
    loss_pct: Annotated[float, "how much is lost; 100: everything"]
    is_udp_only: Annotated[bool, "of Corosync's packets (UDP) alone"]


class Lab(TypedDict):
    """A laboratory."""

    name: Annotated[str, "its name"]
    up: Annotated[bool, "whether it runs"]
    release: Annotated[str, "its nodes' Debian"]
    directory: Annotated[str, "where its files are"]
    cuts: Annotated[list[LabCut], "what was cut between nodes"]
    nodes: Annotated[list[LabNode], "its nodes"]


class LabName(TypedDict):
    """A laboratory in short."""

    name: Annotated[str, "its name"]
    up: Annotated[bool, "whether it runs"]


class Labs(TypedDict):
    """All laboratories of this machine."""

    labs: Annotated[list[LabName], "each of them"]


class LabPower(TypedDict):
    """A laboratory node's power."""

    node: Annotated[str, "the node"]
    power: Annotated[str, "`on` or `off`"]


class MissingOption(TypedDict):
    """An option that a kernel lacks."""

    name: Annotated[str, "the option"]
    wanted: Annotated[str, "the value it should have"]
    reason: Annotated[str, "what it is for"]


class KernelCheck(TypedDict):
    """What a kernel lacks."""

    missing: Annotated[list[MissingOption], "empty: nothing"]
