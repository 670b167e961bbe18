# SPDX-License-Identifier: GPL-2.0-or-later
"""Declares the JSON fields of `sanctl cluster ...`: votes, links, strategy."""

from __future__ import annotations

from typing import Annotated, TypedDict


class Votes(TypedDict):
    """The votes that Corosync counts; null: it did not report."""

    expected: Annotated[int | None, "all votes of the cluster"]
    total: Annotated[int | None, "votes of this part"]
    needed: Annotated[int | None, "votes that make a quorum"]


class QuorumDevice(TypedDict):
    """The host that has a vote and is not a node (corosync-qnetd)."""

    host: Annotated[str, "its address"]
    state: Annotated[str, "as corosync-qdevice reports it; `not asked`: it does not run here"]


class Voter(TypedDict):
    """How one node counts votes; null: it has not reported."""

    name: Annotated[str, "the node"]
    role: Annotated[str, "`storage` or `witness`"]
    is_member: Annotated[bool, "whether the node is in this part of the cluster"]
    strategy: Annotated[str | None, "the strategy in its cluster.toml"]
    live: Annotated[str | None, "how its Corosync counts votes"]
    file: Annotated[str | None, "how it will count after a start of Corosync"]
    has_device_vote: Annotated[bool | None, "whether the quorum device gives its vote to the node"]


class Link(TypedDict):
    """A Corosync link of this node."""

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
    changed: Annotated[bool, "false: it was the strategy already"]
