# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings on one device: what is to be done about its replicas, its role and its management."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.preconditions import unmanaged_problems
from sanctl.plan.health.device_health import device_findings
from tests.fakes.pacemaker import FakePacemaker

NOW = 1_800_000_000.0


def _healthy() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def _cluster(fake: FakePacemaker) -> Cluster:
    return Cluster(cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor()))


def _findings(fake: FakePacemaker) -> dict[str, Finding]:
    cluster = _cluster(fake)
    device = cluster.cib.device("vm1")
    assert device is not None
    return {each.code: each for each in device_findings(cluster, device, now_s=NOW)}


def test_a_resync_is_waited_for_and_no_replica_is_dropped_for_it() -> None:
    fake = _healthy()
    half = "disk=Inconsistent connection=Connected replication=SyncTarget out-of-sync=9"
    fake.attribute("n2", "sanctl-vm1", half)
    found = _findings(fake)["SAN-HLT-035"]
    assert "wait for the resync" in found.do
    assert "--drop" not in found.do
    assert (found.unsynced_bytes, found.what.endswith("(SyncTarget), 9 KiB to sync")) == (
        9216,
        True,
    )


def _meta(fake: FakePacemaker, place: str, name: str, value: str) -> None:
    """Set a meta attribute of the clone or the primitive, or a resource default."""
    path = {
        "sanctl-vm1": ".//clone[@id='sanctl-vm1']",
        "vm1": ".//primitive[@id='vm1']",
        "": "configuration/rsc_defaults",
    }[place]
    element = fake.root.find(path)
    if element is None:
        configuration = fake.root.find("configuration")
        assert configuration is not None
        element = ET.SubElement(configuration, "rsc_defaults")
    group = element.find("meta_attributes")
    if group is None:
        group = ET.SubElement(element, "meta_attributes", id=f"meta-{place}")
    ET.SubElement(group, "nvpair", id=f"{place}-{name}", name=name, value=value)


@pytest.mark.parametrize("name", ["is-managed", "maintenance"])
@pytest.mark.parametrize(
    ("place", "command"),
    [
        ("sanctl-vm1", "'crm_resource --resource sanctl-vm1 --meta --delete-parameter {}'"),
        ("vm1", "'crm_resource --resource vm1 --meta --delete-parameter {}'"),
        ("", "'crm_attribute --type rsc_defaults --name {} --delete'"),
    ],
)
def test_an_unmanaged_device_has_the_command_that_ends_it(
    place: str, command: str, name: str
) -> None:
    fake = _healthy()
    _meta(fake, place, name, "true" if name == "maintenance" else "false")
    found = _findings(fake)
    assert list(found) == ["SAN-HLT-033"]
    where = "" if place else " in the resource defaults"
    value = "true" if name == "maintenance" else "false"
    # Alike for all devices, so that many of them are one line of the status.
    assert found["SAN-HLT-033"].what == f"it is unmanaged, by {name}={value}{where}"
    assert found["SAN-HLT-033"].do.endswith(command.format(name))
    cluster = _cluster(fake)
    (device,) = cluster.cib.devices
    (problem,) = unmanaged_problems(cluster, device)
    assert problem.code == "SAN-DEV-018" and problem.hint.endswith(command.format(name))


def test_each_attribute_that_would_be_in_effect_then_is_named() -> None:
    fake = _healthy()
    _meta(fake, "", "is-managed", "false")
    _meta(fake, "sanctl-vm1", "is-managed", "false")
    do = _findings(fake)["SAN-HLT-033"].do
    assert "rsc_defaults --name is-managed --delete', then 'crm_resource" in do
    # What the device has of its own comes before.
    _meta(fake, "vm1", "is-managed", "true")
    assert _findings(fake) == {}


def test_a_set_of_defaults_with_a_rule_is_not_read() -> None:
    fake = _healthy()
    _meta(fake, "", "is-managed", "false")
    group = fake.root.find("configuration/rsc_defaults/meta_attributes")
    assert group is not None
    ET.SubElement(group, "rule", id="r", score="INFINITY")
    assert _findings(fake) == {}


def _unmanaged(cluster: Cluster) -> Cluster:
    instances = tuple(replace(each, is_managed=False) for each in cluster.mon.instances)
    return replace(cluster, mon=replace(cluster.mon, instances=instances))


def _codes(cluster: Cluster) -> list[str]:
    (device,) = cluster.cib.devices
    return [each.code for each in device_findings(cluster, device, now_s=NOW)]


def test_what_pacemaker_alone_says_is_unmanaged_is_found() -> None:
    fake = _healthy()
    assert _codes(_unmanaged(_cluster(fake))) == ["SAN-HLT-150", "SAN-HLT-150"]
    fake.states["n2"] = "maintenance"
    assert _codes(_unmanaged(_cluster(fake))) == ["SAN-HLT-150"]
    _meta(fake, "vm1", "is-managed", "false")
    assert _codes(_unmanaged(_cluster(fake))) == ["SAN-HLT-033"]


def test_in_maintenance_of_the_cluster_that_is_not_said_of_each_device() -> None:
    cluster = _unmanaged(_cluster(_healthy()))
    properties = {**cluster.cib.properties, "maintenance-mode": "true"}
    cluster = replace(cluster, cib=replace(cluster.cib, properties=properties))
    assert _codes(cluster) == []


@pytest.mark.parametrize(
    ("disks", "said"),
    [
        (("Inconsistent", "Inconsistent"), "no replica is whole"),
        (("Inconsistent", "Outdated"), "bring back the node that served it last"),
        (("Inconsistent", "Diskless"), "check its disk on n2"),
    ],
)
def test_what_is_left_where_no_replica_is_whole(disks: tuple[str, str], said: str) -> None:
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    for node, disk in zip(("n1", "n2"), disks, strict=True):
        state = f"disk={disk} connection=Connected replication=Established role=Secondary"
        fake.attribute(node, "sanctl-vm1", f"{state} out-of-sync=0")
    assert _findings(fake)["SAN-HLT-032"].do.startswith(said)
    # Before its first promotion a device has replicas that nothing was written to.
    cluster = _cluster(fake)
    device = cluster.cib.device("vm1")
    assert device is not None
    found = device_findings(cluster, replace(device, is_new=True), now_s=NOW)
    assert all("no replica is whole" not in each.do for each in found)


@pytest.mark.parametrize("role", ["Unpromoted", "Slave"])
@pytest.mark.parametrize("place", ["sanctl-vm1", "vm1", ""])
def test_a_device_that_is_told_not_to_serve(place: str, role: str) -> None:
    fake = _healthy()
    _meta(fake, place, "target-role", role)
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    state = "connection=Connected replication=Established peer-disk=UpToDate out-of-sync=0"
    fake.attribute("n1", "sanctl-vm1", f"disk=UpToDate {state} role=Secondary")
    found = _findings(fake)["SAN-HLT-032"]
    assert f"target-role={role}" in found.do
    command = (
        f"crm_resource --resource {place} --meta --delete-parameter target-role"
        if place
        else "crm_attribute --type rsc_defaults --name target-role --delete"
    )
    assert f"'{command}'" in found.do


def test_another_target_role_keeps_no_device_from_serving() -> None:
    fake = _healthy()
    _meta(fake, "sanctl-vm1", "target-role", "Promoted")
    _meta(fake, "", "target-role", "Slave")
    (device,) = _cluster(fake).cib.devices
    assert device.unpromoted_by == ()
