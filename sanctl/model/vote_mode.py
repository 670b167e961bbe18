# SPDX-License-Identifier: GPL-2.0-or-later
"""How a cluster counts its votes, and what each node says of it. Light values, no I/O.

No dataclasses: the monitors import this, and those cost more than all that a monitor looks at.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

ATTRIBUTE = "sanctl-votes"
"""Permanent: how a node is to count. Transient: how it does."""


class Votes(StrEnum):
    """How corosync counts, which is what a strategy comes down to."""

    NODES = "nodes"
    """One vote for each node of the list, a majority is needed. Of two nodes that is both."""
    QDEVICE = "qdevice"
    """As above, and one vote more, which a quorum device gives to one part of the cluster."""
    TWO_NODE = "two-node"
    """Each of two nodes is enough by itself, once they have seen each other."""

    @property
    def has_memory(self) -> bool:
        """Whether any two quorums have a node in common, which remembers what one has noted."""
        return self is Votes.NODES


class Tally(NamedTuple):
    """A way to count votes; with a quorum device also where its host is."""

    votes: Votes
    host: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` writes; None if it is nothing this version knows."""
        word, _, host = text.partition("@")
        try:
            votes = Votes(word)
        except ValueError:
            return None
        return cls(votes=votes, host=host) if (votes is Votes.QDEVICE) == bool(host) else None

    def __str__(self) -> str:
        return f"{self.votes}@{self.host}" if self.host else self.votes.value


#: What every change goes through: of each other way to count, every quorum overlaps with one of it.
PLAIN = Tally(votes=Votes.NODES)


class Ballot(NamedTuple):
    """How one node counts; None is unknown.

    Attributes:
        file: as its corosync.conf says, which holds from the next start on.
        live: as its corosync does at this moment.
        strategy: the strategy in its cluster.toml.
        is_device_voting: whether the quorum device votes for this node.
    """

    file: Tally | None = None
    live: Tally | None = None
    strategy: str = ""
    is_device_voting: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` writes; what is missing or odd is unknown."""
        pairs = {key: value for key, _, value in (w.partition("=") for w in text.split())}
        return cls(
            file=Tally.parse(pairs.get("file", "")),
            live=Tally.parse(pairs.get("live", "")),
            strategy=pairs.get("strategy", ""),
            is_device_voting=pairs.get("device") == "votes",
        )

    def __str__(self) -> str:
        device = "votes" if self.is_device_voting else "silent"
        return (
            f"file={self.file or '?'} live={self.live or '?'} "
            f"strategy={self.strategy or '?'} device={device}"
        )


class Wish(NamedTuple):
    """How a node is to count now, on the way to a strategy."""

    tally: Tally
    strategy: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what `str` writes; None if it does not read."""
        word, _, strategy = text.partition(" ")
        tally = Tally.parse(word)
        return cls(tally=tally, strategy=strategy) if tally and strategy else None

    def __str__(self) -> str:
        return f"{self.tally} {self.strategy}"
