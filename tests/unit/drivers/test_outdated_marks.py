# SPDX-License-Identifier: GPL-2.0-or-later
"""One look at a mark, one change that sets it: as cibadmin of Pacemaker 2.1.5 and 3.0 prints it."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.drivers import outdated_marks
from sanctl.errors import CommandError
from tests.fakes.runner import FakeRunner

_CIB = '<cib crm_feature_set="3.20.0" epoch="18" num_updates="43" admin_epoch="5" dc-uuid="3"/>'
_NODE = '<node id="2" uname="n2"/>'
_UUID = '<nvpair id="vol1-params-uuid" name="uuid" value="cafe"/>'
_STATE = '<node_state id="2" uname="n2" in_ccm="0" crmd="0" join="down" expected="down"/>'


def _set(identifier: str, mark: str = "") -> str:
    pair = f'<nvpair id="{identifier}-x" name="sanctl-outdated-vol1" value="{mark}"/>'
    return f'<instance_attributes id="{identifier}"/>{pair if mark else ""}'


def _look(*parts: str) -> outdated_marks.MarkState:
    return outdated_marks.read(
        FakeRunner(f"<xpath-query>{''.join(parts)}</xpath-query>"), "vol1", "n2"
    )


def test_a_node_without_attributes() -> None:
    seen = _look(_CIB, _NODE, _UUID, _STATE)
    assert (seen.admin_epoch, seen.uuid, seen.node_id) == (5, "cafe", "2")
    assert (seen.set_id, seen.pair_id) == ("nodes-2", "nodes-2-sanctl-outdated-vol1")
    assert seen.state is not None
    assert not seen.is_marked


@pytest.mark.parametrize(("value", "is_marked"), [("cafe", True), ("beef", False)])
def test_a_mark_is_found_where_it_is(value: str, is_marked: bool) -> None:
    """Also in a second set; the mark of a device that had the name before is none."""
    seen = _look(_CIB, _NODE, _set("first"), _set("second", value), _UUID)
    assert (seen.set_id, seen.pair_id, seen.value) == ("second", "second-x", value)
    assert seen.is_marked == is_marked
    assert seen.state is None


def test_a_mark_of_this_node_is_told_apart() -> None:
    mine = '<node id="1" uname="n1"/><nvpair id="m" name="sanctl-outdated-vol1" value="{}"/>'
    peers = (_NODE, _set("first"))
    for order in ((mine, *peers), (*peers, mine)):
        for value in ("cafe", "beef"):
            seen = _look(_CIB, *(part.format(value) for part in order), _UUID)
            assert (seen.node_id, seen.set_id, seen.is_marked) == ("2", "first", False)
            assert seen.is_own_marked == (value == "cafe")
    assert not _look(_CIB, _NODE, _set("first", "cafe"), _UUID).is_own_marked


def test_without_a_mark_the_first_set_is_to_have_it() -> None:
    seen = _look(_CIB, _NODE, _set("first"), _set("second"), _UUID)
    assert (seen.set_id, seen.pair_id) == ("first", "nodes-2-sanctl-outdated-vol1")


@pytest.mark.parametrize("parts", [[_NODE, _UUID], [_CIB, _UUID], [_CIB, _NODE], [_CIB]])
def test_a_cib_that_lacks_something_marks_nobody(parts: list[str]) -> None:
    with pytest.raises(CommandError, match="SAN-AGENT-012"):
        _look(*parts)


def test_a_single_answer_has_no_wrapper() -> None:
    with pytest.raises(CommandError, match="SAN-AGENT-012"):
        outdated_marks.read(FakeRunner(_CIB), "vol1", "n2")


@pytest.mark.parametrize(("outranks", "admin_epoch"), [(True, "6"), (False, None)])
def test_the_mark_and_the_version_are_one_change(outranks: bool, admin_epoch: str | None) -> None:
    node = FakeRunner("")
    outdated_marks.set_mark(
        node, "vol1", "n2", _look(_CIB, _NODE, _UUID), raises_admin_epoch=outranks
    )
    [(argv, stdin)] = node.calls
    assert argv == ("cibadmin", "--modify", "--allow-create", "--sync-call", "--xml-pipe")
    change = ET.fromstring(stdin or "")
    assert change.get("admin_epoch") == admin_epoch
    pair = change.find("configuration/nodes/node[@id='2']/instance_attributes[@id='nodes-2']/*")
    assert pair is not None
    assert (pair.get("name"), pair.get("value")) == ("sanctl-outdated-vol1", "cafe")
