# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of a group's moments at a site: when one is due, who makes it, when it is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveGroupRecord, SetGroupRecord, SetSite, SetTakeover
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import PointSchedule, Rule
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.model.site_takeover import Takeover
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.health.site_health import site_findings
from sanctl.plan.site import group_record as plan
from sanctl.plan.site.definition import plan_site_removal
from tests.unit.model.test_site import SITE
from tests.unit.model.test_site_takeover import SUCCESSOR
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NOW = 1_764_072_000
NAMES, RULE = ("db", "web"), Rule(900, 7)
MOMENT = CompleteMoment("to-far-1", NOW - 600, NOW - 500)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = bed_with_device(monkeypatch)
    made.session.change(lambda _: (SetSite(site=SITE),))
    return made


def known(cluster: Cluster, *records: GroupRecord) -> Cluster:
    return replace(cluster, cib=replace(cluster.cib, copy_groups=records))


def two(cluster: Cluster) -> Cluster:
    """Return the cluster with a second device, of which all is as of the first."""
    (web,) = cluster.cib.devices
    db = replace(web, name=DeviceName.parse("db"), uuid="d" * 32)
    return replace(cluster, cib=replace(cluster.cib, devices=(db, web)))


@pytest.mark.parametrize(
    "record",
    [
        GroupRecord(NAMES, "far"),
        GroupRecord(("a", "b", "c-1"), "far", NOW, None, MOMENT),
        GroupRecord(NAMES, "far", 0, PointSchedule(NOW, (RULE,)), None),
        GroupRecord(NAMES, "far", NOW, PointSchedule(NOW, (RULE,)), MOMENT),
    ],
)
def test_what_is_written_is_read(record: GroupRecord) -> None:
    assert GroupRecord.parse(record.id, record.value) == record
    assert record.rule in {None, RULE}


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-copy.db.far", "db,web 0 -"),
        ("sanctl-copy-group.web.far", "db,web 0 -"),
        ("sanctl-copy-group.db.Far", "db,web 0 -"),
        ("sanctl-copy-group.db.far", "db 0 -"),
        ("sanctl-copy-group.db.far", "db,W 0 -"),
        ("sanctl-copy-group.db.far", "db,web x -"),
        ("sanctl-copy-group.db.far", "db,web 0"),
        ("sanctl-copy-group.db.far", "db,web 0 what"),
        ("sanctl-copy-group.db.far", "db,web 0 5/15m=7/1h=7"),
        ("sanctl-copy-group.db.far", "db,web 0 - to-far-1 5"),
        ("sanctl-copy-group.db.far", "db,web 0 - to-far-1 5 x"),
        ("sanctl-copy-group.db.far", "db,web 0 - To 5 6"),
    ],
)
def test_what_is_none_is_not_read(identifier: str, value: str) -> None:
    assert GroupRecord.parse(identifier, value) is None


def test_a_run_begins_and_its_moment_is_complete(bed: Bed) -> None:
    seen = bed.seen()
    (change,) = plan.plan_group_begun(seen, ("web", "db"), "far", NOW)
    record = GroupRecord(NAMES, "far", NOW)
    assert change == SetGroupRecord(record=record)
    assert record.value in added_text(seen, (change,))
    bed.session.change(lambda _: (change,))
    assert bed.seen().cib.copy_groups == (record,)
    # It is behind since the first of them, for as long as none is complete.
    (again,) = plan.plan_group_begun(bed.seen(), NAMES, "far", NOW + 50)
    assert again == change
    (done,) = plan.plan_group_complete(bed.seen(), ("web", "db"), "far", MOMENT)
    assert done == SetGroupRecord(record=GroupRecord(NAMES, "far", 0, None, MOMENT))
    assert plan.plan_group_complete(bed.seen(), ("web", "x"), "far", MOMENT) == ()
    assert plan.plan_group_complete(bed.seen(), NAMES, "near", MOMENT) == ()
    gone = plan_site_removal(bed.seen(), "far")
    assert RemoveGroupRecord(record=record) in gone
    bed.session.change(lambda _: gone)
    assert bed.seen().cib.copy_groups == ()


def test_another_group_takes_its_place_unless_it_has_a_schedule(bed: Bed) -> None:
    old = GroupRecord(("db", "log", "web"), "far", 0, None, MOMENT)
    seen = known(bed.seen(), old, GroupRecord(("a", "z"), "far"), GroupRecord(NAMES, "near"))
    # The property has the same name, and is written anew.
    (change,) = plan.plan_group_begun(seen, NAMES, "far", NOW)
    assert change == SetGroupRecord(record=GroupRecord(NAMES, "far", NOW))
    first, second = plan.plan_group_begun(seen, ("log", "web"), "far", NOW)
    assert first == RemoveGroupRecord(record=old)
    assert second == SetGroupRecord(record=GroupRecord(("log", "web"), "far", NOW))
    timed = known(seen, old._replace(schedule=PointSchedule(1, (RULE,))))
    with pytest.raises(Refused, match=r"SAN-SITE-031.*schedule db log web --to far --group"):
        plan.plan_group_begun(timed, NAMES, "far", NOW)


def test_a_schedule_is_given_and_ends(bed: Bed) -> None:
    seen = two(bed.seen())
    (change,) = plan.plan_group_schedule(seen, ("web", "db"), "far", RULE, NOW + 0.5)
    record = GroupRecord(NAMES, "far", 0, PointSchedule(NOW, (RULE,)))
    assert change == SetGroupRecord(record=record)
    there = known(seen, record)
    assert plan.plan_group_schedule(there, NAMES, "far", RULE, NOW + 9) == ()
    (other,) = plan.plan_group_schedule(there, NAMES, "far", Rule(60, 7), NOW)
    assert isinstance(other, SetGroupRecord) and other.record.rule == Rule(60, 7)
    assert plan.plan_group_schedule(there, NAMES, "far", None, NOW) == (
        RemoveGroupRecord(record=record),
    )
    assert plan.plan_group_schedule(seen, NAMES, "far", None, NOW) == ()
    for rule in (None, RULE):
        with pytest.raises(Refused, match="SAN-SITE-002"):
            plan.plan_group_schedule(seen, NAMES, "near", rule, NOW)
    with pytest.raises(Refused, match="SAN-DEV-002"):
        plan.plan_group_schedule(bed.seen(), NAMES, "far", RULE, NOW)
    (web,) = bed.seen().cib.devices
    one = replace(web, nodes=web.nodes[:1])
    lone = replace(
        seen,
        cib=replace(seen.cib, devices=(seen.cib.devices[0], one)),
    )
    with pytest.raises(Refused, match=r"SAN-SITE-010.*device web has one replica"):
        plan.plan_group_schedule(lone, NAMES, "far", RULE, NOW)
    with pytest.raises(Refused, match="SAN-SITE-031"):
        plan.plan_group_schedule(
            known(seen, record._replace(devices=("a", "db"))), NAMES, "far", RULE, NOW
        )


def test_when_a_moment_is_due() -> None:
    record = GroupRecord(NAMES, "far", 0, PointSchedule(NOW, (RULE,)), MOMENT)
    slot = RULE.slot_of(NOW)
    for made_s, is_due in ((slot, False), (slot - 1, True), (NOW + 3600, True)):
        moment = MOMENT._replace(made_s=made_s)
        assert plan.is_group_due(record._replace(complete=moment), NOW) is is_due
    assert plan.is_group_due(record._replace(complete=None), NOW)
    assert not plan.is_group_due(record._replace(schedule=None, complete=None), NOW)


def test_who_makes_it(bed: Bed) -> None:
    group = GroupRecord(NAMES, "far")
    assert plan.sender_of_group(bed.seen(), group) is None, "there is no db"
    (web,) = bed.seen().cib.devices
    same = GroupRecord(("web", "web"), "far")
    assert plan.sender_of_group(bed.seen(), same) == "n2"
    assert plan.sender_of_group(two(bed.seen()), group) is None, "nobody serves db"
    bed.cluster.crash("n2")
    assert plan.sender_of_group(bed.seen(), same) is None
    assert web.name.value == "web"


def findings(cluster: Cluster, now_s: float = NOW) -> list[Finding]:
    return [e for e in site_findings(cluster, now_s=now_s) if e.code == "SAN-HLT-122"]


def test_a_schedule_that_is_not_kept(bed: Bed) -> None:
    timed = GroupRecord(NAMES, "far", 0, PointSchedule(NOW, (RULE,)))
    seen = two(bed.seen())
    assert findings(known(seen, timed), NOW + 2760) == []
    (found,) = findings(known(seen, timed), NOW + 2761)
    assert "no moment is complete at site far, and one is due every 15m" in found.what
    late = timed._replace(complete=MOMENT._replace(made_s=NOW + 900), begun_s=NOW + 1800)
    assert findings(known(seen, late), NOW + 3660) == []
    (found,) = findings(known(seen, late), NOW + 3661)
    assert "complete at site far is 46 minutes old, and one is due every 15m, and a run" in (
        found.what
    )
    ahead = late._replace(complete=MOMENT._replace(made_s=NOW + 99999))
    assert len(findings(known(seen, ahead), NOW + 2761)) == 1, "of a clock that is ahead"
    taken = Takeover("web", "far", seen.cib.devices[1].uuid, SUCCESSOR)
    other = replace(seen, cib=replace(seen.cib, copy_groups=(late,), takeovers=(taken,)))
    assert findings(other, NOW + 9999) == []
    assert isinstance(SetTakeover(takeover=taken), SetTakeover)


def test_runs_of_which_none_is_complete(bed: Bed) -> None:
    begun = GroupRecord(NAMES, "far", NOW, None, MOMENT)
    seen = two(bed.seen())
    assert findings(known(seen, begun), NOW + 3600) == []
    (found,) = findings(known(seen, begun), NOW + 3601)
    assert "a run was begun 60 minutes ago" in found.what and "--every off" in str(found.do)
    assert len(findings(known(seen, begun), NOW - 4000)) == 1, "a clock has jumped"
    assert findings(known(seen, begun._replace(begun_s=0)), NOW + 9999) == []


def test_a_device_of_the_group_is_gone(bed: Bed) -> None:
    timed = GroupRecord(NAMES, "far", 0, PointSchedule(NOW, (RULE,)), MOMENT)
    (found,) = findings(known(bed.seen(), timed))
    assert found.what.startswith("there is no device db any more") and "--without" in str(found.do)
    assert findings(known(bed.seen(), timed._replace(schedule=None))) == []
