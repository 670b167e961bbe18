# SPDX-License-Identifier: GPL-2.0-or-later
"""What the JSON documents about the cluster itself hold; see `sanctl.cli.documents.by_command`."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Votes(TypedDict):
    """What corosync counts; null: it did not say."""

    expected: Annotated[int | None, "all votes there are"]
    total: Annotated[int | None, "those that are here"]
    needed: Annotated[int | None, "how many make a quorum"]


class QuorumDevice(TypedDict):
    """The host that has a vote and is no node."""

    host: Annotated[str, "its address"]
    state: Annotated[str, "in the words of corosync-qdevice; `not asked`: it does not run here"]


class Voter(TypedDict):
    """How one node counts; null: it has not told."""

    name: Annotated[str, "the node"]
    role: Annotated[str, "`storage` or `witness`"]
    is_member: Annotated[bool, "whether it is in this part of the cluster"]
    strategy: Annotated[str | None, "what its cluster.toml says"]
    live: Annotated[str | None, "how its corosync counts"]
    file: Annotated[str | None, "how it will count after a start"]
    has_device_vote: Annotated[bool | None, "whether the quorum device votes for it"]


class Link(TypedDict):
    """A corosync link of this node."""

    link: Annotated[str, "`heartbeat` or `sync`"]
    to: Annotated[str, "the other node"]
    state: Annotated[str, "`connected` or `disconnected`"]


class Cluster(TypedDict):
    """The cluster as a whole, as one node sees it."""

    cluster: Annotated[str, "its name"]
    strategy: Annotated[str, "`node-majority` or `heartbeat`"]
    counts_by: Annotated[str, "how votes are counted"]
    accepted_risks: Annotated[list[str], "codes of the risks that were accepted"]
    has_quorum: Annotated[bool, "whether this part of the cluster may act"]
    votes: Annotated[Votes, "what is counted"]
    qdevice: Annotated[QuorumDevice | None, "the quorum device, if there is one"]
    nodes: Annotated[list[Voter], "all nodes"]
    links: Annotated[list[Link], "links of this node"]


class StrategyShown(TypedDict):
    """The strategy of the cluster."""

    strategy: Annotated[str, "as in `Cluster`"]
    counts_by: Annotated[str, "as in `Cluster`"]


class StrategySet(TypedDict):
    """The strategy after `cluster strategy set`."""

    strategy: Annotated[str, "as in `Cluster`"]
    changed: Annotated[bool, "false: it was so already"]
