# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes how a running cluster counts votes, one safe step at a time. Pure.

While a change is half done, some nodes count in the old way and some in the new: a node that
restarts reads its file, the others go on with what they had loaded. Two parts of such a cluster
must never both find that they are enough. That holds if every set of nodes that is enough in the
old way has a node in common with every set that is enough in the new way:

* `nodes` (a majority of the storage nodes' own votes; of two nodes that is both) against `qdevice`
  (half of the nodes and the device, or more): a majority and a half of the same nodes overlap.
* `nodes` against `two-node`: both nodes, against either one.
* `nodes` with a witness in the list, against `nodes` without: of an even count of storage nodes
  n/2+1 are enough in either, and two sets that large overlap.
* `qdevice` against `two-node`, or against another device's host: one node with the device against
  the other node alone. These do not overlap.

So a third vote, or the rule of the two nodes, is taken away before another is added, and every
node has taken a step before the next one begins. Between the steps a lost node leaves the other
without quorum: it stops serving, which is the safe side.

A step has two halves: all nodes write their file, then one reload reaches all of them at the same
place in corosync's order of messages. A node that is away stops the change where it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from sanctl.model.vote_mode import PLAIN, Ballot, Tally, Votes


class Act(StrEnum):
    """What a change has to do next."""

    WRITE = "write"
    """Have every node write the tally into its file."""
    RELOAD = "reload"
    """Have corosync load what every node has written."""
    AWAIT_DEVICE = "await-device"
    """Every node counts as wanted; the device's vote is still to come."""
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next step: an act, and the way to count that it is about."""

    act: Act
    tally: Tally


def next_step(target: Tally, ballots: Mapping[str, Ballot]) -> Step | None:
    """Return what to do next on the way to `target`; None while a node has not told all.

    Args:
        target: how votes are to be counted in the end.
        ballots: how each storage node counts.
    """
    seen = {tally for ballot in ballots.values() for tally in (ballot.file, ballot.live)}
    if None in seen or not ballots:
        return None
    stage = target if seen <= {target, PLAIN} else PLAIN
    if any(ballot.file != stage for ballot in ballots.values()):
        return Step(act=Act.WRITE, tally=stage)
    if any(ballot.live != stage for ballot in ballots.values()):
        return Step(act=Act.RELOAD, tally=stage)
    # From here on `seen` is the stage alone, which is the target.
    if stage.votes is Votes.QDEVICE and not all(b.is_device_voting for b in ballots.values()):
        return Step(act=Act.AWAIT_DEVICE, tally=stage)
    return Step(act=Act.DONE, tally=stage)


def overlap(one: Tally, other: Tally) -> bool:
    """Whether every quorum of one way to count has a node in common with every one of the other."""
    return one == other or PLAIN in (one, other)
