# SPDX-License-Identifier: GPL-2.0-or-later
"""A device that follows a guest: the constraints, what is refused, what goes with the device."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import AddFollow, RemoveDevice, RemoveFollow
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Severity
from sanctl.model.names import DeviceName, NodeName, PoolName
from sanctl.model.promotion_score import FOLLOW
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.draining import drain_outlook
from sanctl.plan.cluster.standby import plan_standby
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.device.following import guest_nodes, plan_follow
from sanctl.plan.device.reserved_names import reserved_name_problem
from sanctl.plan.health.cluster_health import all_findings
from sanctl.render.cib import render_patchset
from tests.fakes.pacemaker import FakePacemaker
from tests.fakes.topology import topology

N1, N2, VM1 = NodeName.parse("n1"), NodeName.parse("n2"), DeviceName.parse("vm1")
_GUESTS = (
    '<primitive id="web" class="ocf" provider="heartbeat" type="VirtualDomain"/>',
    '<group id="shop"><primitive id="fs" class="ocf" provider="heartbeat" type="Filesystem"/>'
    '<primitive id="db" class="systemd" type="postgresql"/></group>',
)


@pytest.fixture
def fake() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    resources = fake.root.find("configuration/resources")
    assert resources is not None
    resources.extend(ET.fromstring(text) for text in _GUESTS)
    for node in ("n1", "n2"):
        publish(fake, node, "follow=1")
    return fake


def publish(fake: FakePacemaker, node: str, field: str) -> None:
    """Have a node's pool agent say what its release can do, besides what it says."""
    usage = seen(fake).pool(PoolName.parse("main"), NodeName.parse(node))
    assert usage is not None
    text = f"total={usage.total_bytes} free={usage.free_bytes} clones=1 {field}"
    fake.attribute(node, "sanctl-pool-main", text)


def add(fake: FakePacemaker, *constraints: str) -> None:
    parent = fake.root.find("configuration/constraints")
    assert parent is not None
    parent.extend(ET.fromstring(text) for text in constraints)


def _set(id_: str, *members: str, sequential: bool = True) -> str:
    references = "".join(f'<resource_ref id="{member}"/>' for member in members)
    said = str(sequential).lower()
    return f'<resource_set id="{id_}" sequential="{said}">{references}</resource_set>'


def seen(fake: FakePacemaker, **runs_on: str) -> Cluster:
    """Return the cluster with resources that run on nodes."""
    mon = ET.fromstring(fake.monitor())
    resources = mon.find("resources")
    assert resources is not None
    for resource, node in runs_on.items():
        text = (
            f'<resource id="{resource}" role="Started" managed="true"><node name="{node}"/>'
            "</resource>"
        )
        resources.append(ET.fromstring(text))
    return Cluster(
        cib=parse_cib(parse_document(fake.query())),
        mon=parse_crm_mon(ET.tostring(mon, encoding="unicode")),
    )


def follow(fake: FakePacemaker, resource: str) -> None:
    fake.patch(
        render_patchset(parse_document(fake.query()), plan_follow(seen(fake), VM1, resource))
    )


def test_the_device_is_a_dependent_of_the_guest_and_nothing_is_mandatory(
    fake: FakePacemaker,
) -> None:
    follow(fake, "web")
    colocation = fake.root.find("configuration/constraints/rsc_colocation")
    order = fake.root.find("configuration/constraints/rsc_order")
    assert colocation is not None and order is not None
    assert colocation.attrib == {
        "id": "sanctl-vm1-follow",
        "rsc": "sanctl-vm1",
        "rsc-role": "Promoted",
        "with-rsc": "web",
        "score": str(FOLLOW),
        "influence": "false",
    }
    assert (order.get("first-action"), order.get("then"), order.get("kind")) == (
        "promote",
        "web",
        "Optional",
    )
    cluster = seen(fake)
    assert cluster.cib.follow(VM1) and cluster.cib.ties_of(VM1) == ()
    assert plan_follow(cluster, VM1, "web") == ()
    assert plan_follow(cluster, VM1, "shop") == (
        RemoveFollow(name=VM1),
        AddFollow(name=VM1, resource="shop"),
    )


@pytest.mark.parametrize("field", ["reservations=1", "follow=0"])
def test_with_a_node_of_an_older_release_a_device_follows_none(
    fake: FakePacemaker, field: str
) -> None:
    """There a replica that is disconnected has a score within what the guest adds."""
    follow(fake, "web")
    publish(fake, "n2", field)
    with pytest.raises(Refused, match="release of sanctl on n2 does not say") as caught:
        plan_follow(seen(fake), VM1, "shop")
    assert caught.value.problems[0].code == "SAN-DEV-028"
    assert plan_follow(seen(fake), VM1, None) == (RemoveFollow(name=VM1),)


def test_a_node_that_says_nothing_may_be_of_an_older_release(fake: FakePacemaker) -> None:
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-003")
    with pytest.raises(Refused, match="SAN-DEV-028"):
        plan_follow(seen(fake), VM1, "web")


def test_another_guest_or_none_leaves_nothing_behind(fake: FakePacemaker) -> None:
    follow(fake, "web")
    follow(fake, "shop")
    assert [each.resource for each in seen(fake).cib.follows] == ["shop"]
    assert len(fake.root.findall("configuration/constraints/rsc_order")) == 1
    changes = plan_follow(seen(fake), VM1, None)
    fake.patch(render_patchset(parse_document(fake.query()), changes))
    assert plan_follow(seen(fake), VM1, None) == ()
    assert not fake.root.findall("configuration/constraints/rsc_order")


@pytest.mark.parametrize("resource", ["none", "db", "vm1", "sanctl-vm1", "sanctl-pools"])
def test_what_runs_on_several_nodes_or_is_part_of_a_group_is_refused(
    fake: FakePacemaker, resource: str
) -> None:
    with pytest.raises(Refused, match="shop, web") as caught:
        plan_follow(seen(fake), VM1, resource)
    assert caught.value.problems[0].code == "SAN-DEV-026"


def test_a_move_that_would_not_last_is_refused(fake: FakePacemaker) -> None:
    follow(fake, "shop")
    cluster = seen(fake, fs="n1", db="n1")
    assert guest_nodes(cluster, "shop") == ("n1",)
    with pytest.raises(Refused, match="would go back there") as caught:
        plan_move(cluster, VM1, N2, now_s=0.0)
    assert caught.value.problems[0].code == "SAN-DEV-027"
    # Where the guest is, while it is stopped, or where the device has no replica.
    for runs_on in ({"fs": "n2"}, {}, {"fs": "n3"}):
        assert plan_move(seen(fake, **runs_on), VM1, N2, now_s=0.0)


def test_a_node_that_leaves_is_not_held_up_by_it(fake: FakePacemaker) -> None:
    follow(fake, "web")
    cluster = seen(fake, web="n1")
    assert drain_outlook(cluster, N1, waits_until_s=60.0).moving == (VM1,)
    assert plan_standby(cluster, N1)


def test_it_goes_with_the_device_and_so_do_ties_of_others(fake: FakePacemaker) -> None:
    """The schema refuses a constraint that names a resource that is gone."""
    follow(fake, "web")
    add(
        fake,
        '<rsc_colocation id="c" rsc="web" with-rsc="sanctl-vm1" score="INFINITY"/>',
        '<rsc_order id="o" first="sanctl-vm1" then="web"/>',
    )
    fake.roles.clear()
    fake.patch(render_patchset(parse_document(fake.query()), (RemoveDevice(name=VM1),)))
    left = ET.tostring(fake.root.find("configuration/constraints"), encoding="unicode")  # type: ignore[arg-type]
    assert not re.search(r'"(sanctl-)?vm1"', left)


@pytest.mark.parametrize(
    ("constraint", "depends"),
    [
        ('<rsc_colocation id="c" rsc="sanctl-vm1" with-rsc="web" score="INFINITY"/>', "web"),
        ('<rsc_order id="c" first="web" then="sanctl-vm1"/>', "web"),
        (
            '<rsc_colocation id="c" score="INFINITY"><resource_set id="s"><resource_ref id="web"/>'
            '<resource_ref id="sanctl-vm1"/></resource_set></rsc_colocation>',
            "the resources of a set",
        ),
        (
            f'<rsc_order id="c">{_set("s", "web", "sanctl-vm1")}</rsc_order>',
            "the resources of a set",
        ),
        (
            f'<rsc_order id="c">{_set("s", "web")}{_set("t", "sanctl-vm1", "shop")}</rsc_order>',
            "the resources of a set",
        ),
        (
            f'<rsc_colocation id="c" score="9">{_set("s", "sanctl-vm1")}{_set("t", "web")}'
            "</rsc_colocation>",
            "the resources of a set",
        ),
        # First the device, then the guest.
        (f'<rsc_order id="c">{_set("s", "sanctl-vm1", "web")}</rsc_order>', ""),
        (f'<rsc_order id="c">{_set("s", "sanctl-vm1")}{_set("t", "web", "shop")}</rsc_order>', ""),
        (
            '<rsc_order id="c">'
            f"{_set('s', 'shop', 'sanctl-vm1', sequential=False)}{_set('t', 'web')}</rsc_order>",
            "",
        ),
        (
            f'<rsc_colocation id="c" score="9">{_set("s", "web")}{_set("t", "sanctl-vm1", "shop")}'
            "</rsc_colocation>",
            "",
        ),
        (
            f'<rsc_colocation id="c" score="-9">{_set("s", "web", "sanctl-vm1")}</rsc_colocation>',
            "",
        ),
        # The guest goes where the device is: nothing for the device.
        ('<rsc_colocation id="c" rsc="web" with-rsc="sanctl-vm1" score="INFINITY"/>', ""),
        ('<rsc_order id="c" first="sanctl-vm1" then="web"/>', ""),
    ],
)
def test_what_a_device_depends_on_by_others_constraints_is_a_finding(
    fake: FakePacemaker, constraint: str, depends: str
) -> None:
    add(fake, constraint)
    found = list(all_findings(seen(fake), topology(), now_s=1_800_000_000.0))
    if not depends:
        assert found == []
        return
    (finding,) = found
    assert (finding.code, finding.severity) == ("SAN-HLT-142", Severity.WARNING)
    assert finding.what == f"by constraint c it depends on {depends}"
    assert "[@id='c']" in finding.do and "sanctl device follow vm1" in finding.do


def test_its_own_constraints_are_no_finding_and_a_far_guest_is_a_note(fake: FakePacemaker) -> None:
    follow(fake, "web")
    assert list(all_findings(seen(fake, web="n1"), topology(), now_s=1_800_000_000.0)) == []
    (note,) = all_findings(seen(fake, web="n3"), topology(), now_s=1_800_000_000.0)
    assert (note.code, note.severity) == ("SAN-HLT-143", Severity.NOTE)


def test_the_ids_are_reserved() -> None:
    for name in ("vm1-follow", "vm1-follow-order"):
        assert reserved_name_problem(DeviceName.parse(name)) is not None
