# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanctl.errors import UsageError
from sanctl.model.cib_change import (
    AddDevice,
    AddMove,
    Change,
    RemoveDevice,
    RemoveFailureExpiry,
    RemoveMark,
    RemoveMove,
    RemoveNodeAttribute,
    SetFailureExpiry,
    SetHostGroup,
    SetMark,
    SetNodeAttribute,
    SetParameter,
    SetStopped,
)
from sanctl.model.cib_names import HOSTS_ID
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.device import DeviceSpec
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.names import ByteSize, DeviceName, Iqn, NodeName, PoolName
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakePacemaker

N1, N2 = NodeName.parse("n1"), NodeName.parse("n2")
VM1 = DeviceName.parse("vm1")


def apply(cluster: FakePacemaker, *changes: Change) -> None:
    cluster.patch(render_patchset(parse_document(cluster.query()), changes))


def _device(name: str = "vm1", minor: int = 1, prefer: NodeName | None = None) -> DeviceSpec:
    return DeviceSpec(
        name=DeviceName.parse(name),
        uuid="5d4c" * 8,
        size=ByteSize.parse("1G"),
        pool=PoolName.parse("main"),
        replicas=2,
        nodes=(N1, N2),
        minor=minor,
        initiators=(),
        prefer=prefer,
        is_new=True,
    )


def _name(text: str) -> bool:
    try:
        DeviceName.parse(text)
    except UsageError:
        return False
    return True


devices = st.builds(
    DeviceSpec,
    name=st.from_regex(r"[a-z][a-z0-9-]{0,30}", fullmatch=True).filter(_name).map(DeviceName.parse),
    uuid=st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
    size=st.integers(1, 1 << 30).map(lambda blocks: ByteSize(bytes=blocks * 4096)),
    pool=st.just(PoolName.parse("main")),
    replicas=st.just(2),
    nodes=st.permutations([N1, N2]).map(tuple),
    minor=st.integers(1, 4999),
    initiators=st.sets(
        st.from_regex(r"iqn\.2026-11\.net\.example:[a-z0-9.:-]{1,20}", fullmatch=True).map(
            Iqn.parse
        )
    ).map(lambda found: tuple(sorted(found))),
    prefer=st.sampled_from([None, N1, N2]),
    is_stopping=st.booleans(),
    is_new=st.booleans(),
    origin=st.sampled_from(
        [None, CloneOrigin("web", "one", "1" * 16, "a" * 32, 4096, ("n1", "n2"))]
    ),
)


@settings(max_examples=60, deadline=None)
@given(devices)
def test_a_rendered_device_reads_back(device: DeviceSpec) -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=device))
    cib = parse_cib(parse_document(cluster.query()))
    assert cib.devices == (device,)
    assert cib.unreadable == ()


@settings(max_examples=20, deadline=None)
@given(devices)
def test_adding_and_removing_a_device_leaves_the_cib_unchanged(device: DeviceSpec) -> None:
    cluster = FakePacemaker()
    before = ET.canonicalize(
        cluster.query(), strip_text=True, exclude_attrs=["epoch", "num_updates"]
    )
    apply(cluster, AddDevice(device=device))
    apply(cluster, RemoveDevice(name=device.name))
    after = ET.canonicalize(
        cluster.query(), strip_text=True, exclude_attrs=["epoch", "num_updates"]
    )
    assert before == after


def test_a_patchset_names_the_configuration_it_starts_from() -> None:
    cluster = FakePacemaker()
    patch = ET.fromstring(
        render_patchset(parse_document(cluster.query()), [AddDevice(device=_device())])
    )
    source, target = patch.find("version/source"), patch.find("version/target")
    assert source is not None and target is not None
    assert source.attrib == {
        "admin_epoch": cluster.root.get("admin_epoch"),
        "epoch": cluster.root.get("epoch"),
    }
    assert int(target.get("epoch", "")) == int(cluster.root.get("epoch", "")) + 1


def test_paths_are_written_out_in_full() -> None:
    """Pacemaker follows them step by step and knows no '//'."""
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    text = render_patchset(
        parse_document(cluster.query()),
        [
            SetStopped(name=VM1),
            SetParameter(name=VM1, parameter="size", value="4096"),
            SetNodeAttribute(node=N1, attribute="a", value="b"),
        ],
    )
    assert "//" not in text


def test_two_attributes_of_one_node_share_a_set() -> None:
    cluster = FakePacemaker()
    apply(
        cluster,
        SetNodeAttribute(node=N1, attribute="a", value="1"),
        SetNodeAttribute(node=N1, attribute="b", value="2"),
        SetNodeAttribute(node=N2, attribute="a", value="3"),
    )
    apply(
        cluster,
        SetNodeAttribute(node=N1, attribute="a", value="4"),
        SetNodeAttribute(node=N1, attribute="c", value="5"),
        RemoveNodeAttribute(node=N1, attribute="b"),
        RemoveNodeAttribute(node=N2, attribute="never"),
    )
    nodes = {n.name.value: n.attributes for n in parse_cib(parse_document(cluster.query())).nodes}
    assert nodes == {"n1": {"a": "4", "c": "5"}, "n2": {"a": "3"}, "n3": {}}


def test_two_first_properties_share_a_set() -> None:
    """Two sets of one id would be no valid CIB, and Pacemaker would refuse the whole change."""
    cluster = FakePacemaker()
    apply(
        cluster,
        SetHostGroup(group=HostGroup(name=HostGroupName.parse("web"))),
        SetHostGroup(group=HostGroup(name=HostGroupName.parse("mail"))),
    )
    root = parse_document(cluster.query())
    assert len(root.findall(f".//cluster_property_set[@id='{HOSTS_ID}']")) == 1
    assert {str(group.name) for group in parse_cib(root).host_groups} == {"web", "mail"}


def test_a_move_replaced_in_one_change() -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    apply(cluster, AddMove(name=VM1, node=N2, until="2027-01-01 00:00:00Z"))
    apply(cluster, RemoveMove(name=VM1), AddMove(name=VM1, node=N1, until="2027-01-02 00:00:00Z"))
    (move,) = parse_cib(parse_document(cluster.query())).moves
    assert (move.device, move.node, move.until) == ("vm1", "n1", "2027-01-02 00:00:00Z")


def test_failures_expire_by_a_set_of_its_own_behind_the_clones() -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    before = cluster.query()
    for until in ("2027-01-01 00:00:00Z", "2027-01-01 00:00:20Z"):
        apply(cluster, SetFailureExpiry(name=VM1, after_s=30, until=until))
        clone = parse_document(cluster.query()).find(".//clone[@id='sanctl-vm1']")
        assert clone is not None
        assert [each.tag for each in clone] == ["meta_attributes", "meta_attributes", "primitive"]
        assert clone[1].get("id") == "sanctl-vm1-forget"
        assert [each.tag for each in clone[1]] == ["rule", "nvpair"]
        assert clone[1][0][0].get("end") == until
        assert clone[1][1].attrib.items() >= {"name": "failure-timeout", "value": "30s"}.items()
    apply(cluster, RemoveFailureExpiry(name=VM1))
    apply(cluster, RemoveFailureExpiry(name=VM1))
    after = parse_document(cluster.query()).find("configuration")
    assert after is not None
    assert ET.tostring(after) in before.encode()


def test_removal_takes_constraints_and_marks_along() -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device(prefer=N1)))
    apply(
        cluster,
        AddMove(name=VM1, node=N2, until="2027-01-01 00:00:00Z"),
        SetNodeAttribute(node=N2, attribute="sanctl-outdated-vm1", value="5d4c" * 8),
    )
    apply(
        cluster,
        RemoveDevice(name=VM1),
        SetNodeAttribute(node=N2, attribute="sanctl-delete-vm1", value="u main"),
    )
    cib = parse_cib(parse_document(cluster.query()))
    assert cib.moves == () and cib.outdated == () and cib.devices == ()
    assert [stone.value for stone in cib.tombstones] == ["u main"]
    assert not any("vm1" in identifier and "delete" not in identifier for identifier in cib.ids)


def test_a_mark_is_set_and_removed_in_either_form() -> None:
    """Releases before 0.1.0 have written an attribute."""
    cluster = FakePacemaker()
    uuid = "5d4c" * 8
    apply(cluster, AddDevice(device=_device()))
    apply(
        cluster,
        SetMark(name=VM1, node=N2, uuid=uuid),
        SetNodeAttribute(node=N1, attribute="sanctl-outdated-vm1", value=uuid),
    )
    old, new = parse_cib(parse_document(cluster.query())).outdated
    assert (old.node, old.uuid, old.constraint) == (N1, uuid, "")
    assert (new.node, new.uuid, new.constraint) == (N2, uuid, f"sanctl-outdated-vm1.n2.{uuid}")
    assert new.device == "vm1"
    assert cluster.is_marked("vm1", "n2")
    apply(cluster, RemoveMark(name=VM1, node=N1), RemoveMark(name=VM1, node=N2))
    assert parse_cib(parse_document(cluster.query())).outdated == ()


def test_stopping_twice_and_parameters() -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    apply(cluster, SetStopped(name=VM1))
    apply(cluster, SetStopped(name=VM1), SetParameter(name=VM1, parameter="size", value="8192"))
    (device,) = parse_cib(parse_document(cluster.query())).devices
    assert device.is_stopping and device.is_deleting and device.size.bytes == 8192


@pytest.mark.parametrize("identifier", ["sanctl-vm1-meta-target-role", "sanctl-vm1-x-target-role"])
def test_a_device_that_another_tool_has_stopped_is_not_being_deleted(identifier: str) -> None:
    """`pcs resource disable` and crm_resource name the attribute by its set and its name."""
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    group = cluster.root.find(".//clone[@id='sanctl-vm1']/meta_attributes")
    assert group is not None
    ET.SubElement(group, "nvpair", id=identifier, name="target-role", value="Stopped")
    (device,) = parse_cib(parse_document(cluster.query())).devices
    assert (device.is_stopping, device.is_deleting) == (True, False)

    apply(cluster, SetStopped(name=VM1))
    (device,) = parse_cib(parse_document(cluster.query())).devices
    assert (device.is_stopping, device.is_deleting) == (True, True)
    pairs = [pair.get("id") for pair in group if pair.get("name") == "target-role"]
    assert pairs == ["sanctl-vm1-meta-deletion"]


def test_a_deletion_that_was_taken_back_is_none() -> None:
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    apply(cluster, SetStopped(name=VM1))
    pair = cluster.root.find(".//nvpair[@id='sanctl-vm1-meta-deletion']")
    assert pair is not None
    pair.set("value", "Started")
    (device,) = parse_cib(parse_document(cluster.query())).devices
    assert (device.is_stopping, device.is_deleting) == (False, False)


def test_a_stop_wins_over_what_crm_resource_has_set() -> None:
    """In a second set of the clone, and on the primitive: seen to keep a device from stopping."""
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    clone = cluster.root.find(".//clone[@id='sanctl-vm1']")
    primitive = cluster.root.find(".//primitive[@id='vm1']")
    assert clone is not None and primitive is not None
    for parent, identifier in ((clone, "by-hand"), (primitive, "by-hand-too")):
        group = ET.SubElement(parent, "meta_attributes", id=identifier)
        ET.SubElement(group, "nvpair", id=f"{identifier}-r", name="target-role", value="Started")
        ET.SubElement(group, "nvpair", id=f"{identifier}-p", name="priority", value="7")
    apply(cluster, SetStopped(name=VM1))
    roles = [
        pair.get("value") for pair in clone.iter("nvpair") if pair.get("name") == "target-role"
    ]
    assert roles == ["Stopped"]
    assert len([pair for pair in clone.iter("nvpair") if pair.get("value") == "7"]) == 2


def test_a_new_device_has_fencing_priority_and_reach_rule() -> None:
    """Pacemaker takes a device off a node only on positive evidence: defined, and below 1."""
    cluster = FakePacemaker()
    apply(cluster, AddDevice(device=_device()))
    root = cluster.root
    priority = root.find(".//clone[@id='sanctl-vm1']/meta_attributes/nvpair[@name='priority']")
    assert priority is not None and priority.get("value") == "1"
    rule = root.find(".//rsc_location[@id='sanctl-vm1-reach']/rule")
    assert rule is not None
    assert (rule.get("role"), rule.get("score"), rule.get("boolean-op")) == (
        "Promoted",
        "-1500",
        "and",
    )
    assert [(e.get("attribute"), e.get("operation"), e.get("value")) for e in rule] == [
        ("iscsi-reach", "defined", None),
        ("iscsi-reach", "lt", "1"),
    ]
