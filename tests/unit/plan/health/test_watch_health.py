# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool agent, or a watch over the iscsi network, that does not run is said."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding, Severity
from sanctl.parse.cib import parse_cib
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

CODES = {"SAN-HLT-154", "SAN-HLT-155"}
_REACH = """<clone id="sanctl-reach"><primitive id="sanctl-reached" class="ocf" provider="sanctl"
 type="reach"/></clone>"""


@pytest.fixture
def fake() -> FakePacemaker:
    """A cluster in which both watch."""
    found = FakePacemaker(golden="one-device")
    child(found, "configuration/resources").append(ET.fromstring(_REACH))
    for node in ("n1", "n2"):
        found.roles["sanctl-reached", node] = Role.STARTED
        found.attribute(node, "iscsi-reach", "1")
    found.tick()
    found.tick()
    return found


def child(fake: FakePacemaker, path: str) -> ET.Element:
    element = fake.root.find(path)
    assert element is not None
    return element


def meta(fake: FakePacemaker, resource: str, name: str, value: str) -> None:
    element = child(fake, f"configuration/resources//*[@id='{resource}']")
    group = ET.SubElement(element, "meta_attributes", id=f"{resource}-x")
    ET.SubElement(group, "nvpair", id=f"{resource}-x-{name}", name=name, value=value)


def stopped(fake: FakePacemaker, resource: str, *nodes: str) -> None:
    for node in nodes:
        del fake.roles[resource, node]


def found(fake: FakePacemaker) -> list[Finding]:
    cluster = Cluster.seen(parse_cib(fake.root), parse_crm_mon(fake.monitor()))
    findings = all_findings(cluster, topology(), now_s=1_800_000_000.0)
    return [each for each in findings if each.code in CODES]


def test_both_run(fake: FakePacemaker) -> None:
    assert found(fake) == []


@pytest.mark.parametrize("holder", ["sanctl-pools", "sanctl-pool"])
def test_disabled(fake: FakePacemaker, holder: str) -> None:
    """What broke: what a stop leaves behind looked healthy, without any finding."""
    meta(fake, holder, "target-role", "Stopped")
    stopped(fake, "sanctl-pool", "n1", "n2")
    finding, other = found(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-154", Severity.WARNING)
    assert finding.subject == "node n1" and f"{holder} has target-role" in finding.what
    assert other == replace(finding, subject="node n2"), "one line of the status"
    command = f"'crm_resource --resource {holder} --meta --delete-parameter target-role'"
    assert finding.do == command


def test_the_primitives_own_word_counts(fake: FakePacemaker) -> None:
    meta(fake, "sanctl-pools", "target-role", "Stopped")
    meta(fake, "sanctl-pool", "target-role", "Started")
    stopped(fake, "sanctl-pool", "n1")
    (finding,) = found(fake)
    assert "target-role" not in finding.what


@pytest.mark.parametrize(("name", "value"), [("is-managed", "false"), ("maintenance", "true")])
def test_unmanaged_and_started_since(fake: FakePacemaker, name: str, value: str) -> None:
    meta(fake, "sanctl-pools", name, value)
    assert found(fake) == [], "it runs on"
    stopped(fake, "sanctl-pool", "n2")
    (finding,) = found(fake)
    assert finding.subject == "node n2"
    assert f"sanctl-pools has {name}={value}, so Pacemaker does not start it" in finding.what
    assert finding.do == f"'crm_resource --resource sanctl-pools --meta --delete-parameter {name}'"


@pytest.mark.parametrize(
    ("name", "value"), [("target-role", "Stopped"), ("is-managed", "no"), ("maintenance", "on")]
)
def test_kept_by_the_defaults_of_all_resources(fake: FakePacemaker, name: str, value: str) -> None:
    defaults = ET.SubElement(child(fake, "configuration"), "rsc_defaults")
    group = ET.SubElement(defaults, "meta_attributes", id="all")
    ET.SubElement(group, "nvpair", id="all-x", name=name, value=value)
    stopped(fake, "sanctl-pool", "n2")
    (finding,) = found(fake)
    assert f"{name}={value} in the resource defaults" in finding.what
    assert finding.do == f"'crm_attribute --type rsc_defaults --name {name} --delete'"
    meta(fake, "sanctl-pools", name, {"Stopped": "Started", "no": "true", "on": "false"}[value])
    (finding,) = found(fake)
    assert name not in finding.what, "the clone's own counts"


@pytest.mark.parametrize(("node", "is_said"), [("n1", True), ("n2", False)])
def test_banned(fake: FakePacemaker, node: str, is_said: bool) -> None:
    ban = {"id": f"cli-ban-sanctl-pools-on-{node}", "rsc": "sanctl-pools", "node": node}
    constraints = child(fake, "configuration/constraints")
    ET.SubElement(constraints, "rsc_location", {**ban, "score": "-INFINITY"})
    prefers = {"id": "cli-prefer-sanctl-pools", "rsc": "sanctl-pools", "node": "n1"}
    ET.SubElement(constraints, "rsc_location", {**prefers, "score": "INFINITY"})
    stopped(fake, "sanctl-pool", "n1")
    (finding,) = found(fake)
    assert (f"constraint cli-ban-sanctl-pools-on-{node} keeps it off" in finding.what) is is_said
    assert ("crm_resource --clear --resource sanctl-pools" in (finding.do or "")) is is_said


def test_the_watch_over_the_iscsi_network(fake: FakePacemaker) -> None:
    meta(fake, "sanctl-reach", "target-role", "stopped")
    stopped(fake, "sanctl-reached", "n1")
    (finding,) = found(fake)
    assert (finding.code, finding.subject) == ("SAN-HLT-155", "node n1")
    assert "crm_resource --resource sanctl-reach --meta" in (finding.do or "")


@pytest.mark.parametrize("resource", ["sanctl-pool", "sanctl-reached"])
def test_it_ran_and_nothing_is_known_to_keep_it(fake: FakePacemaker, resource: str) -> None:
    stopped(fake, resource, "n1")
    (finding,) = found(fake)
    assert f"--cleanup --resource {resource}" in (finding.do or "")
    # SAN-HLT-040 says it.
    fake.failures.append({"op_key": f"{resource}_start_0", "node": "n1"})
    assert found(fake) == []


def _just_joined(fake: FakePacemaker) -> None:
    for resource, attribute in (("sanctl-pool", "sanctl-pool-main"), ("reach", "iscsi-reach")):
        fake.roles.pop((resource, "n1"), None)
        fake.attribute("n1", attribute, None)
    fake.roles.pop(("sanctl-reached", "n1"))


def _maintenance(fake: FakePacemaker) -> None:
    group = child(fake, "configuration/crm_config/cluster_property_set")
    ET.SubElement(group, "nvpair", id="m", name="maintenance-mode", value="true")
    stopped(fake, "sanctl-pool", "n1")


def _all_stopped(fake: FakePacemaker) -> None:
    group = child(fake, "configuration/crm_config/cluster_property_set")
    ET.SubElement(group, "nvpair", id="s", name="stop-all-resources", value="true")
    stopped(fake, "sanctl-pool", "n1")


def _no_quorum(fake: FakePacemaker) -> None:
    fake.has_quorum = False
    stopped(fake, "sanctl-pool", "n1")


def _standby(fake: FakePacemaker) -> None:
    fake.states["n1"] = "standby"
    stopped(fake, "sanctl-pool", "n1")


def _going_into_standby(fake: FakePacemaker) -> None:
    fake.set_permanent("n1", "standby", "on")
    stopped(fake, "sanctl-pool", "n1")


@pytest.mark.parametrize(
    "act",
    [
        _just_joined,
        _maintenance,
        _all_stopped,
        _no_quorum,
        _standby,
        _going_into_standby,
        lambda fake: fake.roles.update({("sanctl-pool", "n1"): Role.STARTING}),
        lambda fake: fake.crash("n1"),
    ],
)
def test_what_passes_or_is_said_otherwise(
    fake: FakePacemaker, act: Callable[[FakePacemaker], object]
) -> None:
    act(fake)
    assert found(fake) == []


def test_a_drained_nodes_agents_run_on(fake: FakePacemaker) -> None:
    fake.attribute("n1", "sanctl.drained", "true")
    stopped(fake, "sanctl-pool", "n1")
    assert [each.subject for each in found(fake)] == ["node n1"]


def test_a_cluster_that_does_not_watch_the_iscsi_network() -> None:
    assert found(FakePacemaker(golden="one-device")) == []
