# SPDX-License-Identifier: GPL-2.0-or-later
"""A change after a cleanup: Pacemaker has forgotten its probes before it sees the change."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from datetime import datetime

import pytest

from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.cib_change import (
    Change,
    ClearParameter,
    RemoveDevice,
    SetFailureExpiry,
    SetNodes,
    SetParameter,
)
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName, NodeName
from sanctl.ops.probe_records import changed_devices
from sanctl.ops.session import Session
from sanctl.parse.cib import parse_document
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakeClock, FakePacemaker, FakeReporter

VM1 = DeviceName.parse("vm1")
FORGET = "configuration/resources/clone[@id='sanctl-vm1']/meta_attributes[@id='sanctl-vm1-forget']"


class CleanedCluster(FakePacemaker):
    """A cluster after `crm_resource --refresh`, and what its scheduler does with failures."""

    def __init__(self) -> None:
        super().__init__(golden="one-device")
        self.clock = FakeClock(self._act)
        self.reporter = FakeReporter()
        self.session = Session(self, self.clock, self.reporter)
        self.forgets, self.has_attrd = True, True
        self.restarted: list[str] = []
        self.longest_age_s = 0.0
        self.after_patch = self._see_change
        self.known = self.parameters()

    def parameters(self) -> dict[str, str]:
        return dict(self.devices()["vm1"])

    def probe(self, node: str, rc: str = "0", age_s: float = 3600.0) -> None:
        """A replica is found running, as Pacemaker records it."""
        history = self.history(node, "vm1")
        history.clear()
        history.set("id", "vm1")
        attributes = {
            "operation": "monitor",
            "call-id": "44",
            "rc-code": rc,
            "op-status": "0",
            "interval": "0",
            "last-rc-change": str(round(self.clock.now - age_s)),
        }
        ET.SubElement(
            history,
            "lrm_rsc_op",
            {"id": "vm1_last_0", **attributes, "op-restart-digest": "e1d40d97115d94bf5ceeb97b3ea5"},
        )
        ET.SubElement(history, "lrm_rsc_op", {"id": "vm1_last_failure_0", **attributes})

    def records(self) -> list[str]:
        return [
            state.get("uname", "")
            for state in self.root.findall("status/node_state")
            if state.find(".//lrm_rsc_op[@id='vm1_last_failure_0']") is not None
        ]

    def set_transient_attribute(self, node: str, attribute: str, value: str | None) -> None:
        if not self.has_attrd:
            raise CommandError(Problem("SAN-CMD-002", "attrd does not answer"))
        super().set_transient_attribute(node, attribute, value)
        self._schedule()

    def counts(self) -> list[str]:
        return [
            pair.get("name", "")
            for pair in self.root.findall("status//nvpair")
            if pair.get("name", "").startswith(("fail-count-", "last-failure-"))
        ]

    def _see_change(self) -> None:
        if self.parameters() != self.known:
            # The result of a probe that runs now is one of the parameters before.
            self.restarted += [*self.records(), *(node for node, _ in self.being_probed)]
            self.known = self.parameters()

    def _schedule(self) -> None:
        """Do as the scheduler does with failures, when something changes."""
        group = self.root.find(FORGET)
        if group is None or not self.forgets:
            return
        until = group.find("rule/date_expression")
        pair = group.find("nvpair[@name='failure-timeout']")
        assert until is not None and pair is not None
        if self.clock.now >= datetime.fromisoformat(until.get("end", "")).timestamp():
            return
        expires_s = int(pair.get("value", "").removesuffix("s"))
        for state in self.root.findall("status/node_state"):
            node = state.get("uname", "")
            failure = state.find(".//lrm_rsc_op[@id='vm1_last_failure_0']")
            names = [p.get("name") for p in state.iter("nvpair")]
            if (
                failure is not None
                and {"fail-count-vm1#monitor_0", "last-failure-vm1#monitor_0"} <= set(names)
                and self.clock.now >= int(failure.get("last-rc-change", "")) + expires_s
            ):
                self.history(node, "vm1").remove(failure)
                for name in ("fail-count-vm1#monitor_0", "last-failure-vm1#monitor_0"):
                    self.attribute(node, name, None)

    def _act(self) -> None:
        for node, name in sorted(self.being_probed):
            assert name == "vm1"
            self.being_probed.discard((node, name))
            self.probe(node, age_s=0.0)

    def set_hosts(self, value: str = "iqn.2026-11.example:x", *, can_wait: bool = True) -> None:
        def decide(_: Cluster) -> tuple[Change, ...]:
            if self.parameters().get("initiators") == value:
                return ()
            return (SetParameter(name=VM1, parameter="initiators", value=value),)

        self.session.change(decide, can_wait=can_wait)
        assert self.parameters()["initiators"] == value


def test_replicas_are_not_restarted_by_the_change_after_a_cleanup() -> None:
    cluster = CleanedCluster()
    cluster.probe("n1", "8")
    cluster.probe("n2")
    began_s = cluster.clock.now
    cluster.set_hosts()
    assert cluster.restarted == [] and cluster.records() == []
    assert cluster.clock.now - began_s < 2
    # Nothing is left behind.
    assert cluster.root.find(FORGET) is None
    assert cluster.counts() == []


def test_without_records_it_is_one_patch() -> None:
    cluster = CleanedCluster()
    cluster.set_hosts()
    assert len(cluster.patches) == 1 and cluster.reporter.lines == []


def test_a_record_is_old_enough_before_others_could_expire() -> None:
    """What fails while failures expire is never older than they have to be."""
    cluster = CleanedCluster()
    cluster.probe("n1", "8", age_s=1.0)
    began_s = cluster.clock.now
    cluster.set_hosts()
    assert cluster.restarted == []
    assert 30 <= cluster.clock.now - began_s < 35
    (first,) = [p for p in cluster.patches if "failure-timeout" in p]
    group = ET.fromstring(first).find(".//meta_attributes")
    assert group is not None
    until, after = group.find("rule/date_expression"), group.find("nvpair")
    assert until is not None and after is not None
    in_force_s = datetime.fromisoformat(until.get("end", "")).timestamp() - cluster.clock.now
    assert 0 < in_force_s < int(after.get("value", "").removesuffix("s")) - 5


def test_a_probe_under_way_is_waited_for() -> None:
    cluster = CleanedCluster()
    cluster.history("n1", "vm1").clear()
    cluster.history("n1", "vm1").set("id", "vm1")
    for each in list(cluster.root.iter("lrm_resources")):
        for history in each.findall("lrm_resource"):
            if history.get("id") is None:
                each.remove(history)
    cluster.being_probed = {("n1", "vm1")}
    cluster.set_hosts()
    assert cluster.restarted == [] and cluster.records() == []


@pytest.mark.parametrize("broken", ["forgets", "has_attrd"])
def test_where_it_is_in_vain_the_change_is_made_all_the_same(broken: str) -> None:
    cluster = CleanedCluster()
    cluster.probe("n1", "8")
    setattr(cluster, broken, False)
    began_s = cluster.clock.now
    cluster.set_hosts()
    assert cluster.restarted == ["n1"]
    assert cluster.clock.now - began_s < 120
    assert cluster.root.find(FORGET) is None
    assert cluster.counts() == []


def test_no_failure_is_forgotten_that_nobody_has_looked_at() -> None:
    cluster = CleanedCluster()
    cluster.probe("n1", "8")
    cluster.failures = [{"op_key": "vm1_start_0", "node": "n2", "exitstatus": "error"}]
    cluster.set_hosts()
    assert cluster.restarted == ["n1"]
    assert not any("failure-timeout" in patch for patch in cluster.patches)


def test_what_cannot_wait_does_not() -> None:
    cluster = CleanedCluster()
    cluster.probe("n1", "8", age_s=1.0)
    began_s = cluster.clock.now
    cluster.set_hosts(can_wait=False)
    assert cluster.clock.now == began_s and len(cluster.patches) == 1


def test_what_a_command_left_that_was_killed_goes_with_the_next_change() -> None:
    cluster = CleanedCluster()
    left = SetFailureExpiry(name=VM1, after_s=30, until="2026-01-01 00:00:00Z")
    cluster.patch(render_patchset(parse_document(cluster.query()), (left,)))
    assert cluster.root.find(FORGET) is not None
    cluster.probe("n1", "8")
    # It is replaced first, and then removed.
    cluster.set_hosts()
    assert cluster.restarted == []
    assert cluster.root.find(FORGET) is None


def test_without_quorum_nothing_is_begun() -> None:
    cluster = CleanedCluster()
    cluster.probe("n1", "8")
    cluster.has_quorum = False
    with pytest.raises(Refused):
        cluster.set_hosts()
    assert cluster.patches == [] and cluster.counts() == []


def test_devices_whose_parameters_change() -> None:
    other = DeviceName.parse("vm2")
    nodes = (NodeName.parse("n1"),)
    assert changed_devices(
        (
            SetParameter(name=other, parameter="verify", value="1"),
            ClearParameter(name=VM1, parameter="point"),
            SetNodes(name=other, nodes=nodes, replicas=1),
        )
    ) == (other, VM1)
    gone = (ClearParameter(name=VM1, parameter="point"), RemoveDevice(name=VM1))
    assert changed_devices(gone) == ()
