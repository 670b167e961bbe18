# SPDX-License-Identifier: GPL-2.0-or-later
"""What a test has left in a laboratory that others use after it."""

from __future__ import annotations

import pytest

from tests.support import left_behind

BEFORE = left_behind.parse(
    "n1", "== files\n/srv/sanctl/main/devices:\n\n== loops\n== mapper\nsanctl-disk1\n"
)


def after(**sections: str) -> left_behind.State:
    return BEFORE | {f"n1 {name}": lines.split() for name, lines in sections.items()}


def test_a_script_s_output_is_read_by_its_sections() -> None:
    assert BEFORE == {
        "n1 files": ["/srv/sanctl/main/devices:"],
        "n1 loops": [],
        "n1 mapper": ["sanctl-disk1"],
    }


def test_nothing_is_left() -> None:
    assert left_behind.difference(BEFORE, after()) == ""


def test_what_is_left_and_what_is_gone_is_named() -> None:
    left = after(mapper="sanctl-disk1 sanctl-vol1-gate")
    assert left_behind.difference(BEFORE, left) == "n1 mapper: 'sanctl-vol1-gate' is left"
    gone = after(mapper="")
    assert left_behind.difference(BEFORE, gone) == "n1 mapper: 'sanctl-disk1' is gone"


def test_what_could_not_be_looked_at_is_no_state_that_fits() -> None:
    less = {kind: lines for kind, lines in BEFORE.items() if kind != "n1 mapper"}
    assert left_behind.difference(BEFORE, less) == "n1 mapper: 'sanctl-disk1' is gone"


_CRM_CONFIG = """<crm_config>
  <cluster_property_set id="cib-bootstrap-options">
    <nvpair id="cib-bootstrap-options-stonith" name="stonith-enabled" value="true"/>
    <nvpair id="cib-bootstrap-options-refresh" name="last-lrm-refresh" value="1700000000"/>
  </cluster_property_set>
</crm_config>"""
_NODES = '<nodes><node id="1" uname="n1"/><node id="2" uname="n2"/></nodes>'


def test_a_section_of_the_cib_is_compared_by_what_it_says() -> None:
    entries = left_behind.cib_entries(_CRM_CONFIG)
    assert entries == ["cluster_property_set#cib-bootstrap-options stonith-enabled=true"]
    empty = '<cluster_property_set id="sanctl.points"/></crm_config>'
    assert left_behind.cib_entries(_CRM_CONFIG.replace("</crm_config>", empty)) == entries
    assert left_behind.cib_entries(_NODES) == ["node#1 uname=n1", "node#2 uname=n2"]
    container = (
        '<node id="1" uname="n1"><instance_attributes id="a">{}</instance_attributes></node>'
    )
    with_container = _NODES.replace('<node id="1" uname="n1"/>', container.format(""))
    assert left_behind.cib_entries(with_container) == left_behind.cib_entries(_NODES)
    with_mark = _NODES.replace(
        '<node id="1" uname="n1"/>',
        container.format('<nvpair id="b" name="sanctl-mark" value="n2"/>'),
    )
    assert left_behind.difference(
        {"cluster nodes": left_behind.cib_entries(_NODES)},
        {"cluster nodes": left_behind.cib_entries(with_mark)},
    ) == "cluster nodes: 'node#1/instance_attributes#a sanctl-mark=n2' is left"  # fmt: skip


def test_a_resource_an_operation_or_a_constraint_that_is_left_shows() -> None:
    before = left_behind.cib_entries('<resources><primitive id="fence" type="sbd"/></resources>')
    assert before == ["primitive#fence type=sbd"]
    now = left_behind.cib_entries(
        '<resources><primitive id="fence" type="sbd"><operations>'
        '<op id="m" name="monitor" interval="10s"/></operations></primitive></resources>'
    )
    assert sorted(set(now) - set(before)) == [
        "primitive#fence/operations#/op#m interval=10s name=monitor"
    ]
    assert left_behind.cib_entries("") == []
    with pytest.raises(ValueError, match="did not print XML"):
        left_behind.cib_entries("Could not connect to the CIB")
