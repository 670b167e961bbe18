# SPDX-License-Identifier: GPL-2.0-or-later
"""Which records of Pacemaker's history restart a replica; the texts are of Pacemaker 3.0.0."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.model.names import DeviceName
from sanctl.parse.probe_history import has_own_meta, is_being_probed, probe_records

D1 = DeviceName.parse("d1")
PROBE = {
    "operation": "monitor",
    "call-id": "44",
    "rc-code": "8",
    "op-status": "0",
    "interval": "0",
    "last-rc-change": "1795735059",
    "op-digest": "90b5132f6b4192bef9de86a36b8147de",
}
DIGEST = {"op-restart-digest": "e1d40d97115d94bf5ceeb97b3ea57bec"}
LAST = PROBE | DIGEST
MONITOR = PROBE | {"call-id": "45", "interval": "10000"}


def cib(
    *operations: tuple[str, dict[str, str]], state: dict[str, str] | None = None, nodes: str = "n1"
) -> ET.Element:
    root = ET.fromstring(
        f"""<cib><configuration><resources><clone id="sanctl-d1"><meta_attributes id="m"/>
        <primitive id="d1"><instance_attributes id="p">
        <nvpair id="a" name="nodes" value="{nodes}"/></instance_attributes></primitive></clone>
        </resources></configuration><status/></cib>"""
    )
    status = root.find("status")
    assert status is not None
    member = {"uname": "n1", "join": "member", "in_ccm": "1795734883", "crmd": "1795734885"}
    node = ET.SubElement(status, "node_state", member | (state or {}))
    resources = ET.SubElement(ET.SubElement(node, "lrm"), "lrm_resources")
    if operations:
        history = ET.SubElement(resources, "lrm_resource", id="d1")
        for suffix, attributes in operations:
            ET.SubElement(history, "lrm_rsc_op", {"id": f"d1_{suffix}", **attributes})
    return root


@pytest.mark.parametrize("rc", ["0", "8"])
def test_a_probe_that_found_a_replica_restarts_it(rc: str) -> None:
    root = cib(
        ("last_0", LAST | {"rc-code": rc}),
        ("last_failure_0", PROBE | {"rc-code": rc}),
        ("monitor_10000", MONITOR),
    )
    (found,) = probe_records(root, [D1])
    assert found == (D1, "n1", 1795735059)
    assert not is_being_probed(root, [D1])
    assert probe_records(root, [DeviceName.parse("d2")]) == ()


@pytest.mark.parametrize(
    ("last", "failure"),
    [
        (LAST, None),
        # Pacemaker looks at nothing before a promotion, a demotion, or a reload (a start to it).
        (LAST | {"operation": "promote", "call-id": "48", "rc-code": "0"}, PROBE),
        (LAST | {"operation": "start", "call-id": "48", "rc-code": "0"}, PROBE),
        # Failures: an operator's.
        (LAST, PROBE | {"operation": "start", "rc-code": "1"}),
        (LAST, PROBE | {"rc-code": "9"}),
        (LAST, PROBE | {"interval": "10000"}),
        (LAST | {"rc-code": "1"}, PROBE | {"rc-code": "1"}),
        (LAST | {"op-status": "2"}, PROBE | {"op-status": "2"}),
        # A Pacemaker that records the digest with both.
        (LAST, LAST),
        # Without it with either there is nothing to gain.
        (PROBE, PROBE),
    ],
)
def test_no_other_record_is_one(last: dict[str, str], failure: dict[str, str] | None) -> None:
    operations = [("last_0", last)]
    if failure is not None:
        operations.append(("last_failure_0", failure))
    assert probe_records(cib(*operations), [D1]) == ()


@pytest.mark.parametrize(
    "state",
    [
        {"join": "down"},
        {"in_ccm": "0"},
        {"in_ccm": "false"},
        {"crmd": "0"},
        {"crmd": "offline"},
    ],
)
def test_a_node_that_is_away_has_none(state: dict[str, str]) -> None:
    records = (("last_0", LAST), ("last_failure_0", PROBE))
    assert probe_records(cib(*records, state=state), [D1]) == ()
    assert not is_being_probed(cib(state=state), [D1])


def test_words_instead_of_times_are_those_of_a_member() -> None:
    words = {"in_ccm": "true", "crmd": "online"}
    assert probe_records(cib(("last_0", LAST), ("last_failure_0", PROBE), state=words), [D1])


def test_a_device_is_being_probed_until_there_is_a_result() -> None:
    pending = LAST | {"op-status": "-1", "rc-code": "193"}
    assert is_being_probed(cib(), [D1])
    assert is_being_probed(cib(("last_0", pending)), [D1])
    assert not is_being_probed(cib(("last_0", pending | {"operation": "promote"})), [D1])
    assert not is_being_probed(cib(("last_failure_0", PROBE)), [D1])
    # Where it has no replica nothing can be found.
    assert not is_being_probed(cib(nodes="n2 n3"), [D1])


def test_own_meta_attributes() -> None:
    root = cib()
    assert has_own_meta(root, D1)
    clone = root.find(".//clone")
    assert clone is not None
    clone.remove(clone[0])
    assert not has_own_meta(root, D1)
