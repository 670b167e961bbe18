# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of strategy: every step of it, and every interruption of it, keeps quorums overlapping.

Quorums are counted here from first principles (which sets of nodes, with or without the device's
vote, are enough), not by the rule of the module under test.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest

from sanctl.model.vote_mode import MAJORITY_OF_NODES, NodeVotes, VoteMode, Votes, WantedVotes
from sanctl.plan.cluster.strategy import VoteAction, VoteStep, next_vote_step, quorums_intersect

TWO = VoteMode(votes=Votes.TWO_NODE)
HERE = VoteMode(votes=Votes.QDEVICE, host="10.0.0.1")
THERE = VoteMode(votes=Votes.QDEVICE, host="10.0.0.2")
ALL = (MAJORITY_OF_NODES, TWO, HERE, THERE)


def quorums(tally: VoteMode, nodes: int) -> list[set[str]]:
    """Every set of voters that is enough; a device votes under its host's name."""
    voters = [f"n{k}" for k in range(nodes)] + ([tally.host] if tally.host else [])
    needed = 1 if tally.votes is Votes.TWO_NODE else len(voters) // 2 + 1
    sets = [set(s) for k in range(1, len(voters) + 1) for s in combinations(voters, k)]
    return [s for s in sets if len(s) >= needed and s & {f"n{k}" for k in range(nodes)}]


def always_meet(one: VoteMode, other: VoteMode, nodes: int) -> bool:
    return all(a & b for a in quorums(one, nodes) for b in quorums(other, nodes))


@pytest.mark.parametrize("nodes", [2, 4, 6])
def test_overlap_is_what_counting_says(nodes: int) -> None:
    fitting = ALL if nodes == 2 else (MAJORITY_OF_NODES, HERE, THERE)
    for one, other in combinations(fitting, 2):
        assert quorums_intersect(one, other) == always_meet(one, other, nodes), (one, other)


def test_a_witness_in_the_list_overlaps_with_the_list_without() -> None:
    """The rollout changes the list of nodes only while the nodes' own votes count."""
    for storage in (2, 4, 6):
        without = quorums(MAJORITY_OF_NODES, storage)
        within = quorums(MAJORITY_OF_NODES, storage + 1)
        assert all(a & b for a in without for b in within)


class Cluster:
    """Two nodes that carry out steps; anything may be interrupted after any part of a step."""

    def __init__(self, tally: VoteMode) -> None:
        self.file = {"n0": tally, "n1": tally}
        self.live = {"n0": tally, "n1": tally}
        self.device = tally.votes is Votes.QDEVICE

    def ballots(self) -> dict[str, NodeVotes]:
        return {
            name: NodeVotes(
                file=self.file[name], live=self.live[name], is_device_voting=self.device
            )
            for name in self.file
        }

    def check(self) -> None:
        """Whoever restarts takes the file, whoever does not goes on: all of these must meet."""
        for name, other in (("n0", "n1"), ("n1", "n0")):
            for mine, its in product(
                {self.file[name], self.live[name]}, {self.file[other], self.live[other]}
            ):
                assert mine == its or always_meet(mine, its, 2), (mine, its)

    def carry_out(self, step: VoteStep, *, half: bool = False) -> None:
        for name in list(self.file)[: 1 if half else 2]:
            match step.action:
                case VoteAction.WRITE:
                    self.file[name] = step.mode
                case VoteAction.RELOAD:
                    assert set(self.file.values()) == {step.mode}, "loaded before all had written"
                    self.live[name] = self.file[name]
                case VoteAction.AWAIT_DEVICE:
                    self.device = True
            self.check()


@pytest.mark.parametrize(("begin", "end"), list(product(ALL, ALL)))
@pytest.mark.parametrize("restarts_at", range(9))
def test_every_way_leads_there_safely(begin: VoteMode, end: VoteMode, restarts_at: int) -> None:
    """At each step one node may be the only one that follows, and then restart from its file."""
    cluster = Cluster(begin)
    for count in range(20):
        step = next_vote_step(end, cluster.ballots())
        assert step is not None
        if step.action is VoteAction.DONE:
            break
        if step.mode != end or step.action is not VoteAction.AWAIT_DEVICE:
            cluster.device = cluster.device and step.mode.votes is Votes.QDEVICE
        if count == restarts_at:
            cluster.carry_out(step, half=True)
            cluster.live["n0"] = cluster.file["n0"]
            cluster.check()
            continue
        cluster.carry_out(step)
    assert set(cluster.live.values()) == set(cluster.file.values()) == {end}


@pytest.mark.parametrize("begin", [TWO, HERE])
def test_changing_ones_mind_half_way(begin: VoteMode) -> None:
    end = HERE if begin is TWO else TWO
    for turn in range(6):
        cluster = Cluster(begin)
        for count in range(20):
            target = end if count < turn else begin
            step = next_vote_step(target, cluster.ballots())
            assert step is not None
            if step.action is VoteAction.DONE:
                break
            cluster.carry_out(step, half=count == turn - 1)
        assert set(cluster.live.values()) == {begin if count >= turn else end}


def test_the_third_vote_goes_before_another_comes() -> None:
    steps = []
    cluster = Cluster(TWO)
    while (step := next_vote_step(HERE, cluster.ballots())) and step.action is not VoteAction.DONE:
        steps.append((step.action, step.mode))
        cluster.carry_out(step)
    assert steps == [
        (VoteAction.WRITE, MAJORITY_OF_NODES),
        (VoteAction.RELOAD, MAJORITY_OF_NODES),
        (VoteAction.WRITE, HERE),
        (VoteAction.RELOAD, HERE),
        (VoteAction.AWAIT_DEVICE, HERE),
    ]


def test_what_is_not_known_is_not_acted_upon() -> None:
    known = NodeVotes(file=TWO, live=TWO)
    assert next_vote_step(MAJORITY_OF_NODES, {}) is None
    assert next_vote_step(MAJORITY_OF_NODES, {"n0": known, "n1": NodeVotes()}) is None
    assert (
        next_vote_step(MAJORITY_OF_NODES, {"n0": known, "n1": NodeVotes(file=MAJORITY_OF_NODES)})
        is None
    )


def test_what_is_published_reads_back() -> None:
    for tally in ALL:
        assert VoteMode.parse(str(tally)) == tally
        ballot = NodeVotes(file=tally, live=None, strategy="heartbeat", is_device_voting=True)
        assert NodeVotes.parse(str(ballot)) == ballot
        wish = WantedVotes(vote_mode=tally, strategy="heartbeat")
        assert WantedVotes.parse(str(wish)) == wish
    assert NodeVotes.parse("") == NodeVotes()
    for wrong in ("", "qdevice", "nodes@10.0.0.1", "nodes", "? heartbeat"):
        assert WantedVotes.parse(wrong) is None
