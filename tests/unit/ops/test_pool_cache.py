# SPDX-License-Identifier: GPL-2.0-or-later
"""Changing how a pool's flash is used, with nodes that follow and nodes that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from sanctl.errors import NotConverged, Refused
from sanctl.model.cache_policy import CacheMode
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.names import NodeName, PoolName
from sanctl.model.pool_cache import CacheState, parse_wanted_mode
from sanctl.model.topology import PoolCache, Topology
from sanctl.ops.pool_cache import change_flash_mode
from sanctl.ops.pool_prepare import prepare_pool
from sanctl.ops.pool_reformat import check_reformat
from sanctl.ops.session import Session
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.pool.flash_mode import absent_nodes, node_flash_text
from tests.fakes.pacemaker import STORAGE, FakeClock, FakePacemaker, FakeReporter
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology
from tests.unit.ops.test_device import codes

NONE, THROUGH, BACK = CacheMode
MAIN = PoolName.parse("main")
USAGE = "total=9000000000 free=8000000000 allocated=0"


def with_flash() -> Topology:
    plain = topology()
    cache = PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash"))
    return replace(plain, pools=tuple(replace(pool, cache=cache) for pool in plain.pools))


class Bench:
    """A cluster whose pool agents follow at once, while they run and do not sleep."""

    def __init__(self) -> None:
        self.cluster = FakePacemaker()
        self.clock = FakeClock(self.tick)
        self.session = Session(self.cluster, self.clock, FakeReporter())
        self.asleep: set[str] = set()
        self.tick()

    def tick(self) -> None:
        self.cluster.tick()
        for node in STORAGE:
            runs = self.cluster.roles.get(("sanctl-pool", node)) is Role.STARTED
            if runs and node not in self.asleep:
                wish = parse_wanted_mode(
                    self.cluster.permanent(node, "pool-cache-main") or "", THROUGH
                )
                self.tell(node, CacheState(wish.mode, wish.mode, serial=wish.serial))

    def tell(self, node: str, state: CacheState) -> None:
        self.cluster.attribute(node, "sanctl-pool-main", f"{USAGE} {state}")

    def standby(self, node: str) -> None:
        self.cluster.set_permanent(node, "standby", "on")
        self.tick()

    def online(self, node: str) -> None:
        self.cluster.remove_attribute(node, "standby")
        self.tick()

    def set_mode(self, mode: CacheMode, timeout_s: float = 60) -> tuple[Cluster, bool]:
        return change_flash_mode(self.session, with_flash(), MAIN, mode, timeout_s=timeout_s)

    def words(self, node: str) -> str:
        pool = with_flash().pools[0]
        return node_flash_text(self.session.observe(), pool, NodeName.parse(node))

    def findings(self) -> dict[str, str]:
        found = all_findings(self.session.observe(), with_flash(), now_s=self.clock.now)
        return {each.code: each.what for each in found if each.code.startswith("SAN-HLT-09")}


def test_all_nodes_follow() -> None:
    bench = Bench()
    for mode in (BACK, NONE, THROUGH):
        cluster, changed = bench.set_mode(mode)
        assert changed and not absent_nodes(cluster, with_flash().pools[0])
        assert bench.words("n1") == bench.words("n2") == mode.value
        assert not bench.set_mode(mode)[1]
    assert bench.findings() == {}


@pytest.mark.parametrize("mode", [NONE, THROUGH])
@pytest.mark.parametrize(
    ("state", "why", "do"),
    [
        ("standby", "the node is in standby", "'sanctl node online n2'"),
        ("offline", "the node is offline", "start n2"),
        ("unclean", "the node is unclean", "'sanctl status'"),
    ],
)
def test_leaving_write_back_is_not_done_while_a_node_is_away(
    mode: CacheMode, state: str, why: str, do: str
) -> None:
    """The flash of a node in standby was pulled with data on it, after an exit status of 0."""
    bench = Bench()
    bench.set_mode(BACK)
    if state == "standby":
        bench.standby("n2")
        bench.tell("n2", CacheState(BACK, BACK, dirty_bytes=70 << 20, serial=1))
    else:
        bench.cluster.crash("n2")
        bench.cluster.states["n2"] = state
    began_s = bench.clock.now
    with pytest.raises(NotConverged) as caught:
        bench.set_mode(mode)
    (problem,) = caught.value.problems
    assert problem.code == "SAN-POOL-024"
    assert f"not known to be in {mode} on n2: {why}" in problem.text
    assert do in problem.hint
    assert bench.clock.now - began_s < 5, "at once when those that can have followed"
    assert bench.words("n1") == mode.value
    assert bench.words("n2") == f"? ({why})"
    assert bench.cluster.permanent("n2", "pool-cache-main") == f"{mode}:2", "it is stored"
    assert why in bench.findings()["SAN-HLT-093"]


def test_it_is_done_when_the_node_is_back() -> None:
    bench = Bench()
    bench.set_mode(BACK)
    bench.standby("n2")
    with pytest.raises(NotConverged):
        bench.set_mode(NONE)
    bench.asleep.add("n2")
    bench.online("n2")
    with pytest.raises(NotConverged) as caught:
        bench.set_mode(NONE, timeout_s=5)
    assert codes(caught.value) == ["SAN-WAIT-001"]
    assert "n2: write-back (the node has not changed the mode yet)" in caught.value.problems[0].text
    bench.asleep.clear()
    bench.set_mode(NONE)
    assert bench.findings() == {}


def test_towards_write_back_a_node_that_is_away_is_named() -> None:
    bench = Bench()
    bench.standby("n2")
    cluster, changed = bench.set_mode(BACK)
    assert changed
    assert [node.value for node in absent_nodes(cluster, with_flash().pools[0])] == ["n2"]
    assert "it was left in write-through" in bench.findings()["SAN-HLT-093"]
    bench.standby("n1")
    with pytest.raises(NotConverged):
        bench.set_mode(BACK)


def test_a_node_that_was_left_as_is_wanted_is_no_finding() -> None:
    bench = Bench()
    bench.standby("n2")
    assert bench.findings() == {}
    assert bench.words("n2") == "? (the node is in standby)"


def test_an_agent_that_does_not_run_is_waited_for() -> None:
    bench = Bench()
    bench.cluster.storage.remove("n2")
    del bench.cluster.roles["sanctl-pool", "n2"]
    with pytest.raises(NotConverged) as caught:
        bench.set_mode(NONE, timeout_s=5)
    assert "n2: ? (its pool agent does not run)" in caught.value.problems[0].text
    assert "its pool agent does not run" in bench.findings()["SAN-HLT-093"]


def test_what_was_reported_of_an_earlier_order_is_no_answer() -> None:
    """Back to write-back while the agents were leaving it: "done", by their words from before."""
    bench = Bench()
    bench.set_mode(BACK)
    bench.asleep = set(STORAGE)
    with pytest.raises(NotConverged):
        bench.set_mode(THROUGH, timeout_s=5)
    with pytest.raises(NotConverged) as caught:
        bench.set_mode(BACK, timeout_s=5)
    assert "n1: write-back (the node has not changed the mode yet)" in caught.value.problems[0].text
    bench.asleep.clear()
    assert not bench.set_mode(BACK)[1]
    assert bench.words("n1") == "write-back"


def test_in_maintenance_mode_nothing_is_stored() -> None:
    bench = Bench()
    properties = bench.cluster.root.find("configuration/crm_config/cluster_property_set")
    assert properties is not None
    pair = properties[0].__copy__()
    pair.attrib.update(id="maintenance", name="maintenance-mode", value="true")
    properties.append(pair)
    bench.cluster.has_quorum = False
    with pytest.raises(Refused) as caught:
        bench.set_mode(NONE)
    assert codes(caught.value) == ["SAN-CLU-001", "SAN-DEV-018"]
    assert bench.cluster.permanent("n1", "pool-cache-main") is None


def test_only_a_node_of_the_pool_prepares_it() -> None:
    bench = Bench()
    with pytest.raises(Refused) as caught:
        prepare_pool(FakeRunner(), with_flash(), MAIN, "n3", identifier="5" * 32)
    assert codes(caught.value) == ["SAN-POOL-014"]
    assert "n1, n2" in caught.value.problems[0].hint
    with pytest.raises(Refused) as caught:
        check_reformat(bench.session.observe(), with_flash(), MAIN, "n3")
    assert codes(caught.value) == ["SAN-POOL-014"]
