# SPDX-License-Identifier: GPL-2.0-or-later
"""Reading, setting and clearing outdated marks, with cibadmin output of Pacemaker 2.1.5 and 3.0."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from sanctl.drivers import outdated_marks
from sanctl.errors import CommandError
from tests.fakes.runner import FakeRunner

_CIB = '<cib crm_feature_set="3.20.0" epoch="18" num_updates="43" admin_epoch="5" dc-uuid="3"/>'
_NODE = '<node id="2" uname="n2"/>'
_UUID = '<primitive id="vol1"/><nvpair id="vol1-params-uuid" name="uuid" value="cafe"/>'
_STATE = '<node_state id="2" uname="n2" in_ccm="0" crmd="0" join="down" expected="down"/>'
_NUMBER = (
    '<cluster_property_set id="props"/><nvpair id="props-n" name="sanctl-cib-number" value="5"/>'
)
_OTHER = '<primitive id="vol2"/><nvpair id="vol2-params-uuid" name="uuid" value="f00d"/>'


def _old(identifier: str, mark: str) -> str:
    """The set of attributes of a node with a mark as releases before 0.1.0 have written it."""
    pair = f'<nvpair id="{identifier}-x" name="sanctl-outdated-vol1" value="{mark}"/>'
    return f'<instance_attributes id="{identifier}"/>{pair}'


def _mark(node: str, uuid: str, device: str = "vol1") -> str:
    return f'<rsc_location id="sanctl-outdated-{device}.{node}.{uuid}" node="{node}"/>'


def _read(*parts: str, devices: Sequence[str] = ("vol1",)) -> outdated_marks.SeenMarks:
    return outdated_marks.read(
        FakeRunner(f"<xpath-query>{''.join(parts)}</xpath-query>"), devices, "n2"
    )


def _marked(*parts: str) -> set[str]:
    return set(_read(_CIB, *parts).devices["vol1"].nodes())


def test_a_cib_without_marks() -> None:
    seen = _read(_CIB, _NODE, _UUID, _STATE)
    assert (seen.admin_epoch, seen.epoch, seen.devices["vol1"].uuid) == (5, 18, "cafe")
    assert seen.state is not None
    assert seen.devices["vol1"].paths == ()


@pytest.mark.parametrize(("value", "marked"), [("cafe", {"n2"}), ("beef", set())])
def test_a_mark_counts_where_it_is_in_force(value: str, marked: set[str]) -> None:
    """The location rule compares the attribute with the device's UUID, a constraint just is."""
    assert _marked(_NODE, _UUID, _mark("n2", value)) == {"n2"}
    assert _marked(_NODE, _old("first", value), _UUID) == marked
    assert _read(_CIB, _NODE, _UUID).state is None


def test_marks_of_both_forms_are_found_with_their_paths() -> None:
    mine = '<node id="1" uname="n1.example"/>' + _old("first", "cafe")
    seen = _read(_CIB, mine, _NODE, _UUID, _mark("n2", "cafe")).devices["vol1"]
    assert seen.paths == (
        (
            "n1.example",
            "/cib/configuration/nodes/node[@id='1']/instance_attributes[@id='first']"
            "/nvpair[@id='first-x']",
        ),
        (
            "n2",
            "/cib/configuration/constraints/rsc_location[@id='sanctl-outdated-vol1.n2.cafe']",
        ),
    )


def test_a_node_name_with_dots() -> None:
    node = '<node id="2" uname="n2"/><node id="4" uname="n2.a.b"/>'
    assert _marked(node, _UUID, _mark("n2.a.b", "cafe")) == {"n2.a.b"}


def test_several_devices_are_read_in_one_query() -> None:
    node = FakeRunner(
        f"<x>{_CIB}{_NODE}{_UUID}{_OTHER}{_mark('n2', 'cafe')}{_mark('n2', 'f00d', 'vol2')}</x>"
    )
    seen = outdated_marks.read(node, ["vol1", "vol2", "gone"], "n2").devices
    assert {name: set(marks.nodes()) for name, marks in seen.items()} == {
        "vol1": {"n2"},
        "vol2": {"n2"},
    }
    assert len(node.calls) == 1


@pytest.mark.parametrize("parts", [[_NODE, _UUID], [_CIB, _UUID], [_CIB]])
def test_a_cib_without_version_or_node_is_an_error(parts: list[str]) -> None:
    with pytest.raises(CommandError, match="SAN-AGENT-012"):
        _read(*parts)


def test_a_device_that_the_cib_does_not_have_has_no_mark() -> None:
    assert _read(_CIB, _NODE).devices == {}
    with pytest.raises(CommandError, match="SAN-AGENT-012"):
        outdated_marks.read_device(FakeRunner(f"<x>{_CIB}{_NODE}</x>"), "vol1")


def test_a_single_answer_has_no_wrapper() -> None:
    with pytest.raises(CommandError, match="SAN-AGENT-012"):
        outdated_marks.read(FakeRunner(_CIB), ["vol1"], "n2")


def test_attributes_of_the_peer_come_with_the_same_query() -> None:
    scores = (
        '<nvpair id="a" name="master-vol1" value="100"/><nvpair id="b" name="uuid-x" value="1"/>'
    )
    node = FakeRunner(f"<x>{_CIB}{_NODE}{_UUID}{_STATE}{scores}</x>")
    seen = outdated_marks.read(node, ["vol1"], "n2", ["master-vol1", "kept-vol1"])
    assert seen.attributes == {"master-vol1": "100"} and seen.devices["vol1"].uuid == "cafe"
    argv = node.calls[0][0][-1]
    transient = "//node_state[@uname='n2']/transient_attributes//nvpair"
    assert argv.endswith(f"|{transient}[@name='master-vol1']|{transient}[@name='kept-vol1']")
    assert "transient" not in _read_path()


def _read_path() -> str:
    node = FakeRunner(f"<x>{_CIB}{_NODE}</x>")
    outdated_marks.read(node, ["vol1"], "n2")
    return node.calls[0][0][-1]


def test_the_number_is_in_the_configuration_too() -> None:
    """Pacemaker writes no CIB to its disk for another `admin_epoch` alone."""
    node = FakeRunner("")
    seen = _read(_CIB, _NUMBER, _NODE, _UUID)
    assert seen.number == ("props", "props-n")
    outdated_marks.set_marks(node, ["vol1"], "n2", seen, admin_epoch=512)
    change = ET.fromstring(node.calls[0][1] or "")
    pair = change.find("configuration/crm_config/cluster_property_set[@id='props']/nvpair")
    assert pair is not None
    assert pair.attrib == {"id": "props-n", "name": "sanctl-cib-number", "value": "512"}
    assert change.get("admin_epoch") == "512"
    # A member's mark raises nothing.
    outdated_marks.set_marks(node, ["vol1"], "n2", seen)
    assert "sanctl-cib-number" not in (node.calls[1][1] or "")


@pytest.mark.parametrize("admin_epoch", [6, 69, None])
def test_the_marks_and_the_version_are_one_change(admin_epoch: int | None) -> None:
    """Nothing of the section `nodes`: Pacemaker would elect its DC anew."""
    node = FakeRunner("")
    seen = _read(_CIB, _NODE, _UUID, _OTHER, devices=["vol1", "vol2"])
    outdated_marks.set_marks(node, ["vol1", "vol2"], "n2", seen, admin_epoch=admin_epoch)
    [(argv, stdin)] = node.calls
    assert argv == ("cibadmin", "--modify", "--allow-create", "--sync-call", "--xml-pipe")
    change = ET.fromstring(stdin or "")
    assert change.get("admin_epoch") == (None if admin_epoch is None else str(admin_epoch))
    assert [each.tag for each in change.findall("configuration/*")] == ["constraints"]
    assert seen.number is None
    assert [each.attrib for each in change.findall("configuration/constraints/*")] == [
        {
            "id": f"sanctl-outdated-{device}.n2.{uuid}",
            "rsc": f"sanctl-{device}",
            "role": "Promoted",
            "node": "n2",
            "score": "-INFINITY",
        }
        for device, uuid in (("vol1", "cafe"), ("vol2", "f00d"))
    ]


def test_marks_of_both_forms_are_cleared_in_one_change() -> None:
    node = FakeRunner("")
    marks = _read(_CIB, _NODE, _old("first", "cafe"), _UUID, _mark("n2", "cafe")).devices["vol1"]
    outdated_marks.clear(node, marks, ["n3"])
    assert node.calls == []
    outdated_marks.clear(node, marks, ["n2"])
    [(argv, _)] = node.calls
    assert argv[:-1] == ("cibadmin", "--delete-all", "--force", "--sync-call", "--xpath")
    assert argv[-1].split("|") == [path for _, path in marks.paths]
