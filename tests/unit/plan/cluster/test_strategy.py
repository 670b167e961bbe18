# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of strategy: every step of it, and every interruption of it, keeps quorums overlapping.

Quorums are counted here from first principles (which sets of nodes, with or without the device's
vote, are enough), not by the rule of the module under test.
"""

from __future__ import annotations

from itertools import combinations, product

import pytest

from sanctl.model.vote_mode import PLAIN, Ballot, Tally, Votes, Wish
from sanctl.plan.cluster.strategy import Act, Step, next_step, overlap

TWO = Tally(votes=Votes.TWO_NODE)
HERE = Tally(votes=Votes.QDEVICE, host="10.0.0.1")
THERE = Tally(votes=Votes.QDEVICE, host="10.0.0.2")
ALL = (PLAIN, TWO, HERE, THERE)


def quorums(tally: Tally, nodes: int) -> list[set[str]]:
    """Every set of voters that is enough; a device votes under its host's name."""
    voters = [f"n{k}" for k in range(nodes)] + ([tally.host] if tally.host else [])
    needed = 1 if tally.votes is Votes.TWO_NODE else len(voters) // 2 + 1
    sets = [set(s) for k in range(1, len(voters) + 1) for s in combinations(voters, k)]
    return [s for s in sets if len(s) >= needed and s & {f"n{k}" for k in range(nodes)}]


def always_meet(one: Tally, other: Tally, nodes: int) -> bool:
    return all(a & b for a in quorums(one, nodes) for b in quorums(other, nodes))


@pytest.mark.parametrize("nodes", [2, 4, 6])
def test_overlap_is_what_counting_says(nodes: int) -> None:
    fitting = ALL if nodes == 2 else (PLAIN, HERE, THERE)
    for one, other in combinations(fitting, 2):
        assert overlap(one, other) == always_meet(one, other, nodes), (one, other)


def test_a_witness_in_the_list_overlaps_with_the_list_without() -> None:
    """The rollout changes the list of nodes only while the nodes' own votes count."""
    for storage in (2, 4, 6):
        without = quorums(PLAIN, storage)
        within = quorums(PLAIN, storage + 1)
        assert all(a & b for a in without for b in within)


class Cluster:
    """Two nodes that carry out steps; anything may be interrupted after any part of a step."""

    def __init__(self, tally: Tally) -> None:
        self.file = {"n0": tally, "n1": tally}
        self.live = {"n0": tally, "n1": tally}
        self.device = tally.votes is Votes.QDEVICE

    def ballots(self) -> dict[str, Ballot]:
        return {
            name: Ballot(file=self.file[name], live=self.live[name], is_device_voting=self.device)
            for name in self.file
        }

    def check(self) -> None:
        """Whoever restarts takes the file, whoever does not goes on: all of these must meet."""
        for name, other in (("n0", "n1"), ("n1", "n0")):
            for mine, its in product(
                {self.file[name], self.live[name]}, {self.file[other], self.live[other]}
            ):
                assert mine == its or always_meet(mine, its, 2), (mine, its)

    def carry_out(self, step: Step, *, half: bool = False) -> None:
        for name in list(self.file)[: 1 if half else 2]:
            match step.act:
                case Act.WRITE:
                    self.file[name] = step.tally
                case Act.RELOAD:
                    assert set(self.file.values()) == {step.tally}, "loaded before all had written"
                    self.live[name] = self.file[name]
                case Act.AWAIT_DEVICE:
                    self.device = True
            self.check()


@pytest.mark.parametrize(("begin", "end"), list(product(ALL, ALL)))
@pytest.mark.parametrize("restarts_at", range(9))
def test_every_way_leads_there_safely(begin: Tally, end: Tally, restarts_at: int) -> None:
    """At each step one node may be the only one that follows, and then restart from its file."""
    cluster = Cluster(begin)
    for count in range(20):
        step = next_step(end, cluster.ballots())
        assert step is not None
        if step.act is Act.DONE:
            break
        if step.tally != end or step.act is not Act.AWAIT_DEVICE:
            cluster.device = cluster.device and step.tally.votes is Votes.QDEVICE
        if count == restarts_at:
            cluster.carry_out(step, half=True)
            cluster.live["n0"] = cluster.file["n0"]
            cluster.check()
            continue
        cluster.carry_out(step)
    assert set(cluster.live.values()) == set(cluster.file.values()) == {end}


@pytest.mark.parametrize("begin", [TWO, HERE])
def test_changing_ones_mind_half_way(begin: Tally) -> None:
    end = HERE if begin is TWO else TWO
    for turn in range(6):
        cluster = Cluster(begin)
        for count in range(20):
            target = end if count < turn else begin
            step = next_step(target, cluster.ballots())
            assert step is not None
            if step.act is Act.DONE:
                break
            cluster.carry_out(step, half=count == turn - 1)
        assert set(cluster.live.values()) == {begin if count >= turn else end}


def test_the_third_vote_goes_before_another_comes() -> None:
    steps = []
    cluster = Cluster(TWO)
    while (step := next_step(HERE, cluster.ballots())) and step.act is not Act.DONE:
        steps.append((step.act, step.tally))
        cluster.carry_out(step)
    assert steps == [
        (Act.WRITE, PLAIN),
        (Act.RELOAD, PLAIN),
        (Act.WRITE, HERE),
        (Act.RELOAD, HERE),
        (Act.AWAIT_DEVICE, HERE),
    ]


def test_what_is_not_known_is_not_acted_upon() -> None:
    known = Ballot(file=TWO, live=TWO)
    assert next_step(PLAIN, {}) is None
    assert next_step(PLAIN, {"n0": known, "n1": Ballot()}) is None
    assert next_step(PLAIN, {"n0": known, "n1": Ballot(file=PLAIN)}) is None


def test_what_is_published_reads_back() -> None:
    for tally in ALL:
        assert Tally.parse(str(tally)) == tally
        ballot = Ballot(file=tally, live=None, strategy="heartbeat", is_device_voting=True)
        assert Ballot.parse(str(ballot)) == ballot
        wish = Wish(tally=tally, strategy="heartbeat")
        assert Wish.parse(str(wish)) == wish
    assert Ballot.parse("") == Ballot()
    for wrong in ("", "qdevice", "nodes@10.0.0.1", "nodes", "? heartbeat"):
        assert Wish.parse(wrong) is None
