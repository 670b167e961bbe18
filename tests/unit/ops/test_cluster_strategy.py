# SPDX-License-Identifier: GPL-2.0-or-later
"""A change of strategy against a cluster in memory, whose agents follow when time passes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sanctl.config import parse
from sanctl.errors import ConfigError, NotConverged, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.topology import Strategy, Topology
from sanctl.model.vote_mode import (
    MAJORITY_OF_NODES,
    VOTES_ATTRIBUTE,
    NodeVotes,
    VoteMode,
    Votes,
    WantedVotes,
)
from sanctl.ops.cluster_strategy import change_strategy
from sanctl.ops.session import Session
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.vote_health import vote_findings
from tests.fakes.pacemaker import STORAGE, FakeClock, FakePacemaker, FakeReporter
from tests.fakes.runner import FakeRunner
from tests.unit.config.test_strategy import HEARTBEAT, PAIR, QDEVICE

HOST = VoteMode(votes=Votes.QDEVICE, host="10.77.3.100")
TWO = VoteMode(votes=Votes.TWO_NODE)


class Nodes(FakeRunner):
    """The pool agents and the corosync of two nodes."""

    def __init__(self, tally: VoteMode, strategy: str) -> None:
        super().__init__(self._reload)
        self.pacemaker = FakePacemaker()
        self.file = dict.fromkeys(STORAGE, tally)
        self.live = dict.fromkeys(STORAGE, tally)
        self.strategy = dict.fromkeys(STORAGE, strategy)
        self.listed: tuple[str, ...] = STORAGE
        self.asleep: set[str] = set()
        self.is_qnetd_up = True
        self.reloads = 0
        self.act()

    def act(self) -> None:
        for name in STORAGE:
            if name in self.asleep:
                continue
            wish = WantedVotes.parse(self.pacemaker.permanent(name, VOTES_ATTRIBUTE) or "")
            if wish:
                self.file[name], self.strategy[name] = wish.vote_mode, wish.strategy
            ballot = NodeVotes(
                file=self.file[name],
                live=self.live[name],
                strategy=self.strategy[name],
                is_device_voting=self.live[name].votes is Votes.QDEVICE and self.is_qnetd_up,
                written=self.listed,
                loaded=self.listed,
            )
            self.pacemaker.attribute(name, VOTES_ATTRIBUTE, str(ballot))

    def _reload(self, argv: Sequence[str]) -> str:
        if list(argv) == ["corosync-cmapctl", "nodelist."]:
            return "".join(
                f"nodelist.node.{place}.name (str) = {name}\n"
                for place, name in enumerate(self.listed)
            )
        assert list(argv) == ["corosync-cfgtool", "-R"]
        assert len(set(self.file.values())) == 1, "reloaded while the files differ"
        self.live = dict(self.file)
        self.reloads += 1
        return "Done"

    def change(self, topology: Topology, strategy: Strategy, *, timeout_s: float = 30) -> bool:
        self.clock = FakeClock(self.act)
        session = Session(self.pacemaker, self.clock, FakeReporter())
        return change_strategy(session, self, topology, strategy, timeout_s=timeout_s)

    def findings(self, topology: Topology) -> list[tuple[str, str]]:
        seen = Cluster(
            cib=parse_cib(parse_document(self.pacemaker.query())),
            mon=parse_crm_mon(self.pacemaker.monitor()),
        )
        return [(f.code, f.severity.value) for f in vote_findings(seen, topology)]


def test_there_and_back() -> None:
    nodes = Nodes(HOST, "node-majority")
    majority = parse(PAIR + QDEVICE)
    assert nodes.findings(majority) == []
    assert nodes.change(majority, Strategy.HEARTBEAT)
    assert set(nodes.live.values()) == set(nodes.file.values()) == {TWO}
    assert set(nodes.strategy.values()) == {"heartbeat"}
    heartbeat = parse(HEARTBEAT + QDEVICE)
    assert nodes.findings(heartbeat) == []
    assert not nodes.change(heartbeat, Strategy.HEARTBEAT)
    assert nodes.change(heartbeat, Strategy.NODE_MAJORITY)
    assert set(nodes.live.values()) == {HOST}
    assert nodes.reloads == 4


def test_two_nodes_need_a_third_vote_for_a_majority() -> None:
    nodes = Nodes(TWO, "heartbeat")
    with pytest.raises(ConfigError):
        nodes.change(parse(HEARTBEAT), Strategy.NODE_MAJORITY)
    assert nodes.pacemaker.patches == []


@pytest.mark.parametrize("state", ["offline", "standby", "unclean"])
def test_no_storage_node_is_left_out(state: str) -> None:
    nodes = Nodes(HOST, "node-majority")
    nodes.pacemaker.states["n2"] = state
    with pytest.raises(Refused) as caught:
        nodes.change(parse(PAIR + QDEVICE), Strategy.HEARTBEAT)
    assert [problem.code for problem in caught.value.problems] == ["SAN-QUO-002"]
    assert nodes.pacemaker.patches == []


def test_without_quorum_nothing_begins() -> None:
    nodes = Nodes(HOST, "node-majority")
    nodes.pacemaker.has_quorum = False
    with pytest.raises(Refused):
        nodes.change(parse(PAIR + QDEVICE), Strategy.HEARTBEAT)


def test_a_node_that_does_not_follow_stops_the_change_before_the_reload() -> None:
    nodes = Nodes(HOST, "node-majority")
    nodes.asleep = {"n2"}
    majority = parse(PAIR + QDEVICE)
    with pytest.raises(NotConverged):
        nodes.change(majority, Strategy.HEARTBEAT)
    assert (nodes.reloads, nodes.file) == (0, {"n1": MAJORITY_OF_NODES, "n2": HOST})
    assert nodes.findings(majority) == [("SAN-HLT-082", "warning"), ("SAN-HLT-080", "warning")]
    # Awake again, the command goes on from there.
    nodes.asleep = set()
    assert nodes.change(majority, Strategy.HEARTBEAT)
    assert set(nodes.live.values()) == {TWO}


def test_a_device_that_does_not_vote_is_named() -> None:
    nodes = Nodes(TWO, "heartbeat")
    nodes.is_qnetd_up = False
    with pytest.raises(NotConverged) as caught:
        nodes.change(parse(HEARTBEAT + QDEVICE), Strategy.NODE_MAJORITY)
    assert "the quorum device's vote" in caught.value.problems[0].text
    assert "corosync-qnetd" in caught.value.problems[0].hint
    assert nodes.findings(parse(PAIR + QDEVICE)) == [("SAN-HLT-081", "warning")]


def test_a_settled_cluster_says_soon_that_its_device_is_away() -> None:
    """A rollout waited for four minutes, and called it a change that is under way."""
    nodes = Nodes(HOST, "node-majority")
    nodes.is_qnetd_up = False
    nodes.act()
    with pytest.raises(NotConverged, match="SAN-QUO-004") as caught:
        nodes.change(parse(PAIR + QDEVICE), Strategy.NODE_MAJORITY, timeout_s=240)
    assert 59 < nodes.clock.monotonic_s() - FakeClock().monotonic_s() < 65
    assert "nothing was to be changed" in caught.value.problems[0].text
    nodes.is_qnetd_up = True
    assert not nodes.change(parse(PAIR + QDEVICE), Strategy.NODE_MAJORITY)


@pytest.mark.parametrize("late", ["strategy", "votes"])
def test_one_whose_votes_are_changed_is_waited_for(late: str) -> None:
    nodes = Nodes(TWO if late == "votes" else HOST, "heartbeat")
    nodes.is_qnetd_up = False
    nodes.act()
    if late == "strategy":
        nodes.asleep = {*STORAGE}
    with pytest.raises(NotConverged, match="SAN-QUO-003"):
        nodes.change(parse(PAIR + QDEVICE), Strategy.NODE_MAJORITY, timeout_s=240)
    assert nodes.clock.monotonic_s() - FakeClock().monotonic_s() >= 240


def test_two_ways_that_share_no_node_are_an_alarm() -> None:
    nodes = Nodes(HOST, "node-majority")
    nodes.live["n2"] = TWO
    nodes.act()
    assert nodes.findings(parse(PAIR + QDEVICE)) == [("SAN-HLT-080", "critical")]


NEW = """
[nodes.n4]
id = 4
role = "storage"
sync = "10.77.2.4"
heartbeat = "10.77.3.4"
iscsi = ["10.77.1.4"]

[nodes.n5]
id = 5
role = "storage"
sync = "10.77.2.5"
heartbeat = "10.77.3.5"
iscsi = ["10.77.1.5"]

"""
FOUR = PAIR.replace("[pools.main]", f"{NEW}[pools.main]") + QDEVICE


def test_members_give_up_two_node_before_a_rollout_adds_nodes() -> None:
    """Their cluster.toml has the new nodes already; Corosync and Pacemaker do not."""
    nodes = Nodes(TWO, "heartbeat")
    assert nodes.change(parse(FOUR), Strategy.NODE_MAJORITY)
    assert set(nodes.live.values()) == {HOST}
    assert nodes.pacemaker.permanent("n4", VOTES_ATTRIBUTE) is None


@pytest.mark.parametrize("place", ["listed", "pacemaker", "published"])
def test_a_node_that_is_known_anywhere_is_not_left_out(place: str) -> None:
    nodes = Nodes(TWO, "heartbeat")
    if place == "listed":
        nodes.act()
        nodes.listed = (*STORAGE, "n4")
    elif place == "pacemaker":
        nodes.pacemaker.states["n4"] = "offline"
    else:
        nodes.listed = (*STORAGE, "n4")
        nodes.act()
        nodes.listed = STORAGE
    with pytest.raises(Refused) as caught:
        nodes.change(parse(FOUR), Strategy.NODE_MAJORITY)
    assert [problem.code for problem in caught.value.problems] == ["SAN-QUO-002"]
    assert "n4" in caught.value.problems[0].text
    assert nodes.pacemaker.patches == []


@pytest.mark.parametrize("topology", [HEARTBEAT, FOUR])
def test_two_node_with_more_nodes_is_an_alarm(topology: str) -> None:
    """All count alike; any two of four have quorum."""
    nodes = Nodes(TWO, "heartbeat")
    nodes.strategy = dict.fromkeys(STORAGE, str(parse(topology).strategy))
    nodes.listed = ("n1", "n2", "n4", "n5")
    nodes.act()
    assert nodes.findings(parse(topology)) == [("SAN-HLT-080", "critical")]
