# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync's vote modes (majority, quorum device, two_node), wanted and in force, as text.

NamedTuples, not dataclasses: the monitors import this, and `dataclasses` would cost more than all
other work of a monitor.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

VOTES_ATTRIBUTE = "sanctl-votes"
"""Permanent: how a node is to count votes. Transient: how it does."""


#: A permanent attribute of a storage node: the member that it is to take out of its corosync.conf.
#: The node removes the attribute when that is done (`sanctl node remove`).
DROPPED_MEMBER_ATTRIBUTE = "sanctl.dropped-member"


class Votes(StrEnum):
    """How Corosync counts votes; each strategy uses one of these."""

    NODES = "nodes"
    """One vote for each node of the list, a majority has quorum. Of two nodes that is both."""
    QDEVICE = "qdevice"
    """As above, and one vote more, which a quorum device gives to one part of the cluster."""
    TWO_NODE = "two-node"
    """Each of two nodes has quorum by itself, once they have seen each other."""

    @property
    def quorums_intersect(self) -> bool:
        """Whether any two quorums have a node in common, whose CIB holds what the first noted."""
        return self is Votes.NODES


class VoteMode(NamedTuple):
    """A way to count votes; with a quorum device also the address of its host."""

    votes: Votes
    host: str = ""

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the text of `str`; None if this version does not know it."""
        word, _, host = text.partition("@")
        try:
            votes = Votes(word)
        except ValueError:
            return None
        return cls(votes=votes, host=host) if (votes is Votes.QDEVICE) == bool(host) else None

    def __str__(self) -> str:
        return f"{self.votes}@{self.host}" if self.host else self.votes.value


#: The step between any two modes: each quorum of another mode intersects each quorum of this one.
MAJORITY_OF_NODES = VoteMode(votes=Votes.NODES)


class NodeVotes(NamedTuple):
    """How one node counts votes; None is unknown.

    Attributes:
        file: by its corosync.conf, in force from the next start of Corosync on.
        live: by its running Corosync.
        strategy: the strategy in its cluster.toml.
        is_device_voting: whether the quorum device votes for this node.
        written: the members in its corosync.conf; empty: not known.
        loaded: the members in the list of its running Corosync; empty: not known.
    """

    file: VoteMode | None = None
    live: VoteMode | None = None
    strategy: str = ""
    is_device_voting: bool = False
    written: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()

    @property
    def unwritten(self) -> tuple[str, ...]:
        """The members that its file lacks: lost at the next start or reload of its Corosync."""
        return tuple(each for each in self.loaded if self.written and each not in self.written)

    @property
    def unloaded(self) -> tuple[str, ...]:
        """The members that its running Corosync does not know."""
        return tuple(each for each in self.written if self.loaded and each not in self.loaded)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text of `str`; a field that is missing or malformed is unknown."""
        pairs = {key: value for key, _, value in (w.partition("=") for w in text.split())}
        return cls(
            file=VoteMode.parse(pairs.get("file", "")),
            live=VoteMode.parse(pairs.get("live", "")),
            strategy=pairs.get("strategy", ""),
            is_device_voting=pairs.get("device") == "votes",
            written=_names(pairs.get("written", "")),
            loaded=_names(pairs.get("loaded", pairs.get("written", ""))),
        )

    def __str__(self) -> str:
        device = "votes" if self.is_device_voting else "silent"
        return (
            f"file={self.file or '?'} live={self.live or '?'} "
            f"strategy={self.strategy or '?'} device={device}"
            + (f" written={','.join(self.written)}" if self.written else "")
            + (f" loaded={','.join(self.loaded) or '?'}" if self.loaded != self.written else "")
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(each for each in text.split(",") if each not in {"", "?"})


class WantedVotes(NamedTuple):
    """How a node is to count votes now, on the way to a strategy."""

    vote_mode: VoteMode
    strategy: str

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read the text of `str`; None if it is malformed."""
        word, _, strategy = text.partition(" ")
        tally = VoteMode.parse(word)
        return cls(vote_mode=tally, strategy=strategy) if tally and strategy else None

    def __str__(self) -> str:
        return f"{self.vote_mode} {self.strategy}"
