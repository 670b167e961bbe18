# SPDX-License-Identifier: GPL-2.0-or-later
"""`node remove` against a cluster in memory, whose agents follow when time passes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sanctl.drivers import corosync
from sanctl.errors import NotConverged, Refused
from sanctl.model.cib_change import SetNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.device import Tombstone
from sanctl.model.names import NodeName
from sanctl.model.topology import Strategy
from sanctl.model.vote_mode import (
    DROPPED_MEMBER_ATTRIBUTE,
    MAJORITY_OF_NODES,
    VOTES_ATTRIBUTE,
    NodeVotes,
    VoteMode,
    Votes,
)
from sanctl.ops.cluster_strategy import change_strategy
from sanctl.ops.node_remove import remove_node
from sanctl.ops.session import Session
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.removal import refuse_removal
from sanctl.plan.health.vote_health import vote_findings
from tests.fakes.pacemaker import STORAGE, FakeClock, FakePacemaker, FakeReporter
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology

W = NodeName.parse("n3")


class Nodes(FakeRunner):
    """Two storage nodes and a witness that has been stopped."""

    def __init__(self, golden: str = "empty") -> None:
        super().__init__(self._answer)
        self.pacemaker = FakePacemaker(golden=golden)
        self.pacemaker.crash("n3")
        self.files = {name: {"n1", "n2", "n3"} for name in STORAGE}
        self.live = {"n1", "n2", "n3"}
        self.present = {"n1", "n2"}
        self.asleep: set[str] = set()
        self.reloads = 0
        self.keeps_all = False
        for name in STORAGE:
            self.vote(name, MAJORITY_OF_NODES)

    def vote(self, name: str, mode: VoteMode) -> None:
        votes = NodeVotes(
            file=mode,
            live=mode,
            strategy="node-majority",
            written=tuple(sorted(self.files[name])),
            loaded=tuple(sorted(self.live)),
        )
        self.pacemaker.attribute(name, VOTES_ATTRIBUTE, str(votes))

    def act(self) -> None:
        for name in STORAGE:
            if name in self.asleep:
                continue
            member = self.pacemaker.permanent(name, DROPPED_MEMBER_ATTRIBUTE)
            if member is not None:
                self.files[name].discard(member)
                self.withdraw(name)
            self.vote(name, MAJORITY_OF_NODES)

    def withdraw(self, name: str) -> None:
        group = self.pacemaker.root.find(
            f"configuration/nodes/node[@uname='{name}']/instance_attributes"
        )
        assert group is not None
        group.remove(*group.findall(f"nvpair[@name='{DROPPED_MEMBER_ATTRIBUTE}']"))
        self.pacemaker.touch()

    def seen(self) -> Cluster:
        return Cluster(
            cib=parse_cib(parse_document(self.pacemaker.query())),
            mon=parse_crm_mon(self.pacemaker.monitor()),
        )

    def findings(self) -> list[tuple[str, str, str]]:
        return [
            (each.code, each.severity.value, each.subject)
            for each in vote_findings(self.seen(), topology())
        ]

    def _answer(self, argv: Sequence[str]) -> str:
        match argv[0]:
            case "corosync-cmapctl":
                return "".join(
                    f"nodelist.node.{k}.name (str) = {name}\n"
                    for k, name in enumerate(sorted(self.live))
                )
            case "corosync-quorumtool":
                table = "".join(f"  {k} 1 {n}\n" for k, n in enumerate(sorted(self.present), 1))
                return f"Quorate: Yes\nNodeid Votes Name\n{table}"
        assert list(argv) == ["corosync-cfgtool", "-R"]
        assert len({frozenset(file) for file in self.files.values()}) == 1, "the files differ"
        if not self.keeps_all:
            self.live = set(self.files["n1"])
        self.reloads += 1
        return "Done"

    def remove(self, name: NodeName = W, *, here: str = "n1", accepted: Sequence[str] = ()) -> bool:
        return remove_node(
            Session(self.pacemaker, FakeClock(self.act), FakeReporter()),
            self,
            topology(),
            name,
            here=here,
            accepted=accepted,
            timeout_s=30,
        )

    def refusals(self, name: NodeName = W, *, here: str = "n1") -> list[str]:
        before = len(self.pacemaker.patches)
        with pytest.raises(Refused) as caught:
            self.remove(name, here=here)
        assert len(self.pacemaker.patches) == before
        assert self.reloads == 0
        return [problem.code for problem in caught.value.problems]

    def ids(self) -> set[str]:
        configuration = self.pacemaker.root.find("configuration")
        assert configuration is not None
        return {each.get("id", "") for each in configuration.iter()}


def test_nothing_of_the_node_is_left() -> None:
    nodes = Nodes()
    assert "fence-n3" in nodes.ids()
    assert nodes.remove()
    assert nodes.live == {"n1", "n2"} and nodes.reloads == 1
    assert nodes.findings() == [], "each node has published that it has forgotten it"
    assert not {each for each in nodes.ids() if each.startswith("fence-n3")}
    assert {"fence-n1", "fence-n2"} <= nodes.ids()
    assert "n3" not in nodes.pacemaker.states
    assert not nodes.remove(), "nothing to do"


def test_its_fencing_levels_and_second_device_go() -> None:
    nodes = Nodes()
    configuration = nodes.pacemaker.root.find("configuration")
    assert configuration is not None
    topology_of = configuration.find("fencing-topology")
    if topology_of is None:
        topology_of = ET.SubElement(configuration, "fencing-topology")
    for node in ("n1", "n3"):
        ET.SubElement(
            topology_of, "fencing-level", id=f"fence-{node}_level1", target=node, index="1",
            devices=f"fence-{node}",
        )  # fmt: skip
    nodes.remove()
    assert "fence-n3_level1" not in nodes.ids()
    assert "fence-n1_level1" in nodes.ids()


@pytest.mark.parametrize("killed_after", range(3))
def test_killed_after_any_change_it_goes_on(killed_after: int) -> None:
    class Killed(Exception):
        pass

    nodes, left = Nodes(), [killed_after]

    def kill() -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1

    nodes.pacemaker.after_patch = kill
    try:
        nodes.remove()
    except Killed:
        nodes.pacemaker.after_patch = lambda: None
        nodes.remove()
    assert nodes.live == {"n1", "n2"}
    assert not {each for each in nodes.ids() if each.startswith("fence-n3")}


def test_a_node_that_does_not_follow_stops_it() -> None:
    nodes = Nodes()
    nodes.asleep = {"n2"}
    with pytest.raises(NotConverged, match="not yet on n2"):
        nodes.remove()
    assert nodes.reloads == 0 and nodes.live == {"n1", "n2", "n3"}
    assert "fence-n3" in nodes.ids()
    assert nodes.pacemaker.permanent("n2", DROPPED_MEMBER_ATTRIBUTE) is None
    nodes.asleep = set()
    nodes.act()
    assert "n3" in nodes.files["n2"], "nobody waits for it any more"
    assert nodes.findings() == [("SAN-HLT-083", "warning", "node n1")]
    assert nodes.remove()


@pytest.mark.parametrize("state", ["online", "standby", "unclean", "pending"])
def test_a_node_that_has_not_stopped_stays(state: str) -> None:
    nodes = Nodes()
    nodes.pacemaker.states["n3"] = state
    assert nodes.refusals() == ["SAN-NODE-007"]


def test_a_node_whose_corosync_runs_stays() -> None:
    nodes = Nodes()
    nodes.present.add("n3")
    assert nodes.refusals() == ["SAN-NODE-007"]


def test_a_node_that_comes_back_meanwhile_stays() -> None:
    nodes = Nodes()
    nodes.pacemaker.after_patch = lambda: nodes.present.add("n3")
    with pytest.raises(Refused):
        nodes.remove()
    assert nodes.reloads == 0 and "fence-n3" in nodes.ids()
    orders = [nodes.pacemaker.permanent(name, DROPPED_MEMBER_ATTRIBUTE) for name in STORAGE]
    assert orders == [None, None]


def test_an_order_that_another_command_withdrew_is_not_taken_for_carried_out() -> None:
    nodes = Nodes()
    nodes.asleep = {"n2"}
    nodes.pacemaker.after_patch = lambda: nodes.withdraw("n2")
    with pytest.raises(NotConverged, match="not yet on n2"):
        nodes.remove()
    assert nodes.reloads == 0


def test_pacemaker_forgets_nobody_whom_corosync_keeps() -> None:
    nodes = Nodes()
    nodes.keeps_all = True
    with pytest.raises(NotConverged, match="still in its list"):
        nodes.remove()
    assert nodes.reloads == 1 and "n3" in nodes.pacemaker.states and "fence-n3" in nodes.ids()
    nodes.keeps_all = False
    assert nodes.remove()


def test_no_reload_takes_out_a_member_that_a_file_lacks() -> None:
    """Left by a removal that gave up, of a node that was started again."""
    nodes = Nodes()
    nodes.live.add("n4")
    for name in STORAGE:
        nodes.vote(name, MAJORITY_OF_NODES)
    assert nodes.refusals() == ["SAN-NODE-011", "SAN-NODE-011"]
    session = Session(nodes.pacemaker, FakeClock(), FakeReporter())
    with pytest.raises(Refused, match="SAN-NODE-011"):
        change_strategy(session, nodes, topology(), Strategy.NODE_MAJORITY, timeout_s=30)
    assert nodes.reloads == 0


def test_lists_of_nodes_that_differ_are_reported() -> None:
    nodes = Nodes()
    assert nodes.findings() == []
    nodes.files["n1"].discard("n3")
    nodes.act()
    assert nodes.findings() == [("SAN-HLT-083", "warning", "node n1")]
    nodes.pacemaker.states["n3"] = "online"
    assert nodes.findings() == [("SAN-HLT-083", "critical", "node n1")], "a reload has it fenced"
    nodes.files["n1"] |= {"n3", "n4"}
    nodes.act()
    assert nodes.findings() == [("SAN-HLT-083", "warning", "node n1")], "a reload was lost"


def test_nodes_that_started_with_different_lists_are_reported() -> None:
    nodes = Nodes()
    own = NodeVotes(file=MAJORITY_OF_NODES, live=MAJORITY_OF_NODES, strategy="node-majority")
    for name, members in {"n1": ("n1", "n2"), "n2": ("n1", "n2", "n3")}.items():
        text = str(own._replace(written=members, loaded=members))
        nodes.pacemaker.attribute(name, VOTES_ATTRIBUTE, text)
    assert nodes.findings() == [("SAN-HLT-083", "critical", "corosync")]
    # An agent of an older release does not say.
    nodes.pacemaker.attribute("n2", VOTES_ATTRIBUTE, str(own))
    assert nodes.findings() == []


def test_an_order_that_a_killed_command_has_left_is_reported() -> None:
    nodes = Nodes()
    change = SetNodeAttribute(
        node=NodeName.parse("n2"), attribute=DROPPED_MEMBER_ATTRIBUTE, value="n3"
    )
    Session(nodes.pacemaker, FakeClock(), FakeReporter()).change(lambda _: (change,))
    assert nodes.findings() == [("SAN-HLT-084", "warning", "node n2")]


@pytest.mark.parametrize("state", ["offline", "standby", "unclean"])
def test_all_that_stay_have_to_run(state: str) -> None:
    nodes = Nodes()
    nodes.pacemaker.states["n2"] = state
    assert "SAN-NODE-008" in nodes.refusals()


def test_without_quorum_nothing_begins() -> None:
    nodes = Nodes()
    nodes.pacemaker.has_quorum = False
    assert "SAN-CLU-001" in nodes.refusals()


@pytest.mark.parametrize(
    "mode", [VoteMode(votes=Votes.TWO_NODE), VoteMode(votes=Votes.QDEVICE, host="10.77.3.9")]
)
def test_only_where_any_two_quorums_share_a_node(mode: VoteMode) -> None:
    nodes = Nodes()
    nodes.vote("n2", mode)
    assert nodes.refusals() == ["SAN-NODE-009"]


def test_the_last_but_one_storage_node_stays_and_the_witness_has_to_be_asked() -> None:
    nodes = Nodes()
    nodes.pacemaker.states["n3"] = "online"
    nodes.pacemaker.crash("n2")
    nodes.present = {"n1", "n3"}
    n2 = NodeName.parse("n2")
    assert nodes.refusals(n2) == ["SAN-NODE-008", "SAN-NODE-010"]
    assert nodes.refusals(n2, here="n3") == ["SAN-NODE-008"]


def test_a_node_that_was_to_remove_data_stays() -> None:
    nodes = Nodes()
    seen = Cluster(
        cib=parse_cib(parse_document(nodes.pacemaker.query())),
        mon=parse_crm_mon(nodes.pacemaker.monitor()),
    )
    stone = Tombstone(device="vm1", node=W, value="0" * 32 + " main")
    seen = replace(seen, cib=replace(seen.cib, tombstones=(stone,)))

    def refuse(*accepted: str) -> None:
        refuse_removal(
            seen, topology(), W, members={"n1", "n2", "n3"}, present={"n1", "n2"}, here="n1",
            accepted=accepted,
        )  # fmt: skip

    with pytest.raises(Refused, match="still has the data of vm1"):
        refuse()
    refuse("SAN-NODE-006")


def test_a_node_with_replicas_stays() -> None:
    assert "SAN-NODE-005" in Nodes("one-device").refusals(NodeName.parse("n2"))


def test_a_node_stays_while_a_device_cannot_be_read() -> None:
    nodes = Nodes("one-device")
    pair = nodes.pacemaker.root.find(".//nvpair[@value='1073741824']")
    assert pair is not None
    pair.set("value", "many")
    assert nodes.refusals() == ["SAN-DEV-019"]


def test_a_node_that_nobody_knows() -> None:
    assert Nodes().refusals(NodeName.parse("n9")) == ["SAN-NODE-001"]


def test_the_witness_changes_its_own_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the command runs on a node without the pool agent."""
    dropped: list[str] = []

    def drop(name: str) -> bool:
        dropped.append(name)
        return True

    monkeypatch.setattr(corosync, "drop_member", drop)
    nodes = Nodes()
    nodes.remove(here="w2")
    assert dropped == ["n3"]
