# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-HLT-035 of a replica that waits for its turn to connect, at both ends of the connection."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.model.cluster import Cluster
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.drbd.reconnect_pace import longest_wait_s
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

NOW = 1_800_000_000
LONGEST = int(longest_wait_s(1))
PRIMARY = "disk=UpToDate connection=Connecting role=Primary out-of-sync=8 size=1024"
WAITS = "disk=Outdated connection=StandAlone role=Secondary out-of-sync=0 connects-later={}"


def advice(fake: FakePacemaker) -> dict[str, str]:
    """What status says, and what to do, by the node that it says it of."""
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    found = all_findings(cluster, topology(), now_s=NOW)
    return {
        finding.what.split()[2]: f"{finding.what}; {finding.do}"
        for finding in found
        if finding.code == "SAN-HLT-035"
    }


def waiting(since_s: int, more: str = "") -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    fake.attribute("n1", "sanctl-vm1", PRIMARY)
    fake.attribute("n2", "sanctl-vm1", WAITS.format(since_s) + more)
    return fake


@pytest.mark.parametrize("since_s", [NOW - LONGEST, NOW, NOW + 60], ids=["long", "now", "clocks"])
def test_who_waits_for_a_turn_is_waited_for(since_s: int) -> None:
    found = advice(waiting(since_s))
    assert set(found) == {"n1", "n2"}
    for text in found.values():
        assert "the one on n2 waits for its turn to connect" in text
        assert "1 on n2 wait" in text
        assert "within 3 min" in text
        assert "network" not in text


def test_after_the_longest_wait_the_network_is_to_be_checked() -> None:
    for text in advice(waiting(NOW - LONGEST - 1)).values():
        assert "check the sync network" in text
        assert "longer than 1 turns take" in text
        assert "SANCTL_DEVICE=vm1 on n2" in text


def test_a_connection_that_no_note_explains_is_the_networks() -> None:
    fake = waiting(NOW)
    fake.attribute("n2", "sanctl-vm1", WAITS.partition(" connects-later")[0])
    for text in advice(fake).values():
        assert "turn" not in text
        assert "check the sync network" in text


def test_a_replica_that_lost_writes_is_not_to_be_connected_by_hand() -> None:
    for text in advice(waiting(NOW, " suspect=1")).values():
        assert "turn" not in text


@pytest.mark.parametrize("of", ["the cluster", "n2", "the device"])
def test_in_maintenance_it_says_how_to_connect_now(of: str) -> None:
    fake = waiting(NOW - 10 * LONGEST)
    if of == "n2":
        fake.states["n2"] = "maintenance"
    elif of == "the device":
        primitive = fake.root.find(".//primitive[@id='vm1']/meta_attributes")
        assert primitive is not None
        ET.SubElement(primitive, "nvpair", id="m", name="maintenance", value="true")
    else:
        properties = fake.root.find("configuration/crm_config/cluster_property_set")
        assert properties is not None
        ET.SubElement(properties, "nvpair", id="m", name="maintenance-mode", value="true")
    found = advice(fake)
    assert set(found) == {"n1", "n2"}
    for text in found.values():
        assert f"when the maintenance of {of} ends; now by 'drbdadm adjust vm1' on n2" in text


def test_one_that_crashed_as_primary_is_not_to_be_connected_by_hand() -> None:
    fake = waiting(NOW)
    text = WAITS.partition(" connects-later")[0].replace("Outdated", "Consistent")
    fake.attribute("n2", "sanctl-vm1", f"{text} standby-first=n1")
    for each in advice(fake).values():
        assert "the one on n2 crashed as Primary and waits for the one on n1" in each
        assert "within 3 min" in each and "drbdadm" not in each
    fake.states["n2"] = "maintenance"
    for each in advice(fake).values():
        assert "at the latest when the maintenance of n2 ends" in each and "drbdadm" not in each
