# SPDX-License-Identifier: GPL-2.0-or-later
"""Why a node is in standby, how status names it, and how it ends."""

from __future__ import annotations

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveNodeAttribute
from sanctl.model.cluster import Cluster
from sanctl.model.names import NodeName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.convergence import online_progress
from sanctl.plan.cluster.standby import plan_online
from sanctl.plan.cluster.standby_reason import StandbyReason, node_state_text, standby_reason
from sanctl.plan.health.node_health import node_findings
from tests.fakes.pacemaker import FakePacemaker

N2, N9 = NodeName.parse("n2"), NodeName.parse("n9")


def _cluster(fake: FakePacemaker) -> Cluster:
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def _ordered(fake: FakePacemaker) -> None:
    fake.set_permanent("n2", "standby", "on")
    fake.states["n2"] = "standby"


def _until_reboot(fake: FakePacemaker) -> None:
    fake.attribute("n2", "standby", "on")
    fake.states["n2"] = "standby"


def test_a_standby_that_was_ordered_ends_by_the_command() -> None:
    fake = FakePacemaker()
    _ordered(fake)
    cluster = _cluster(fake)
    assert standby_reason(cluster, N2) is StandbyReason.ORDERED
    (found,) = node_findings(cluster)
    assert (found.what, found.do.split("'")[1]) == ("it is standby", "sanctl node online n2")
    assert plan_online(cluster, N2) == (RemoveNodeAttribute(node=N2, attribute="standby"),)


def test_a_standby_of_which_nothing_says_why_is_taken_for_ordered() -> None:
    fake = FakePacemaker()
    fake.states["n2"] = "standby"
    assert standby_reason(_cluster(fake), N2) is StandbyReason.ORDERED


def test_a_standby_until_the_reboot_is_named_so() -> None:
    fake = FakePacemaker()
    _until_reboot(fake)
    cluster = _cluster(fake)
    assert standby_reason(cluster, N2) is StandbyReason.UNTIL_REBOOT
    (found,) = node_findings(cluster)
    assert found.what == "it is standby until its reboot"
    assert found.do.startswith("'sanctl node online n2' ends it now")
    assert plan_online(cluster, N2) == ()


def test_a_node_that_is_being_stopped_is_no_standby_to_end() -> None:
    fake = FakePacemaker()
    fake.shutting_down.add("n2")
    cluster = _cluster(fake)
    assert standby_reason(cluster, N2) is StandbyReason.SHUTDOWN
    (found,) = node_findings(cluster)
    assert found.what == "it is shutting down"
    assert "node online" not in found.do
    # It is waited for, as one that is away is: a reboot is a part of the work on a node.
    assert plan_online(cluster, N2) == ()
    assert online_progress(cluster, N2).seen.startswith("n2 is shutting down")


def test_a_failure_keeps_a_node_in_standby() -> None:
    fake = FakePacemaker()
    fake.standby_on_fail.add("n2")
    cluster = _cluster(fake)
    assert standby_reason(cluster, N2) is StandbyReason.FAILURE
    (found,) = node_findings(cluster)
    assert "'crm_resource --cleanup --node n2'" in found.do
    with pytest.raises(Refused, match="SAN-HLT-020"):
        plan_online(cluster, N2)
    _ordered(fake)
    assert plan_online(_cluster(fake), N2), "what was ordered ends"


@pytest.mark.parametrize("name", [N2, N9])
def test_other_nodes_have_no_reason(name: NodeName) -> None:
    cluster = _cluster(FakePacemaker())
    assert standby_reason(cluster, name) is None
    assert node_state_text(cluster, name) == cluster.mon.state(name).value
