# SPDX-License-Identifier: GPL-2.0-or-later
"""What is known of a group's moments at a site: when one is due, who makes it, when it is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveGroupRecord, SetGroupRecord, SetSite, SetTakeover
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
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
WEB, DB, LOG = f"web.{'0' * 8}", f"db.{'d' * 8}", f"log.{'e' * 8}"
BOTH = (DB, WEB)
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
        GroupRecord(BOTH, "far"),
        GroupRecord(("a.00000000", "a-b.00000000", "b.00000000"), "far", NOW, None, MOMENT),
        GroupRecord(BOTH, "far", 0, PointSchedule(NOW, (RULE,)), None),
        GroupRecord(BOTH, "far", NOW, PointSchedule(NOW, (RULE,)), MOMENT),
    ],
)
def test_what_is_written_is_read(record: GroupRecord) -> None:
    assert GroupRecord.parse(record.id, record.value) == record
    assert record.rule in {None, RULE}


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-copy.db.far", "db.dddddddd,web.00000000 0 -"),
        ("sanctl-copy-group.web.far", "db.dddddddd,web.00000000 0 -"),
        ("sanctl-copy-group.db.Far", "db.dddddddd,web.00000000 0 -"),
        ("sanctl-copy-group.db.far", "db.dddddddd 0 -"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web 0 -"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 x -"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0 what"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0 5/15m=7/1h=7"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0 - to-far-1 5"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0 - to-far-1 5 x"),
        ("sanctl-copy-group.db.far", "db.dddddddd,web.00000000 0 - To 5 6"),
    ],
)
def test_what_is_none_is_not_read(identifier: str, value: str) -> None:
    assert GroupRecord.parse(identifier, value) is None


def devices(cluster: Cluster, *names: str) -> tuple[DeviceSpec, ...]:
    """Return devices of the cluster, and one that is new under another name."""
    found = {each.name.value: each for each in cluster.cib.devices}
    log = replace(found["web"], name=DeviceName.parse("log"), uuid="e" * 32)
    return tuple({**found, "log": log}[name] for name in names)


def test_a_run_begins_and_its_moment_is_complete(bed: Bed) -> None:
    seen = two(bed.seen())
    both = devices(seen, "web", "db")
    (change,) = plan.plan_group_begun(seen, both, "far", NOW)
    record = GroupRecord(BOTH, "far", NOW)
    assert change == SetGroupRecord(record=record) and record.devices == NAMES
    assert record.value in added_text(seen, (change,))
    bed.session.change(lambda _: (change,))
    assert bed.seen().cib.copy_groups == (record,)
    there = known(seen, record)
    # It is behind since the first of them, for as long as none is complete.
    (again,) = plan.plan_group_begun(there, both, "far", NOW + 50)
    assert again == change
    (done,) = plan.plan_group_complete(there, both, "far", MOMENT)
    assert done == SetGroupRecord(record=GroupRecord(BOTH, "far", 0, None, MOMENT))
    assert plan.plan_group_complete(there, devices(seen, "web", "log"), "far", MOMENT) == ()
    assert plan.plan_group_complete(there, both, "near", MOMENT) == ()
    gone = plan_site_removal(bed.seen(), "far")
    assert RemoveGroupRecord(record=record) in gone
    bed.session.change(lambda _: gone)
    assert bed.seen().cib.copy_groups == ()


def test_a_device_that_was_made_anew_is_another_one(bed: Bed) -> None:
    seen = two(bed.seen())
    old = GroupRecord((f"db.{'c' * 8}", WEB), "far", 5, PointSchedule(NOW, (RULE,)), MOMENT)
    both = devices(seen, "web", "db")
    there = known(seen, old)
    assert plan.plan_group_complete(there, both, "far", MOMENT) == ()
    (change,) = plan.plan_group_begun(there, both, "far", NOW)
    assert change == SetGroupRecord(record=GroupRecord(BOTH, "far", NOW, old.schedule))
    (change,) = plan.plan_group_schedule(there, NAMES, "far", RULE, NOW)
    assert change == SetGroupRecord(record=GroupRecord(BOTH, "far", 0, old.schedule))
    assert plan.sender_of_group(there, old) is None
    (found,) = findings(there)
    assert found.what.startswith("device db that was copied is there no more")


def test_another_group_takes_its_place_unless_it_has_a_schedule(bed: Bed) -> None:
    old = GroupRecord((DB, LOG, WEB), "far", 0, None, MOMENT)
    seen = two(bed.seen())
    there = known(
        seen, old, GroupRecord((f"a.{'a' * 8}", f"z.{'a' * 8}"), "far"), GroupRecord(BOTH, "near")
    )
    # The property has the same name, and is written anew.
    (change,) = plan.plan_group_begun(there, devices(seen, *NAMES), "far", NOW)
    assert change == SetGroupRecord(record=GroupRecord(BOTH, "far", NOW))
    first, second = plan.plan_group_begun(there, devices(seen, "log", "web"), "far", NOW)
    assert first == RemoveGroupRecord(record=old)
    assert second == SetGroupRecord(record=GroupRecord((LOG, WEB), "far", NOW))
    timed = known(seen, old._replace(schedule=PointSchedule(1, (RULE,))))
    with pytest.raises(Refused, match=r"SAN-SITE-031.*schedule db log web --to far --group"):
        plan.plan_group_begun(timed, devices(seen, *NAMES), "far", NOW)


def test_a_schedule_is_given_and_ends(bed: Bed) -> None:
    seen = two(bed.seen())
    (change,) = plan.plan_group_schedule(seen, ("web", "db"), "far", RULE, NOW + 0.5)
    record = GroupRecord(BOTH, "far", 0, PointSchedule(NOW, (RULE,)))
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
    db, web = seen.cib.devices
    one = replace(web, nodes=web.nodes[:1])
    lone = replace(seen, cib=replace(seen.cib, devices=(db, one)))
    with pytest.raises(Refused, match=r"SAN-SITE-010.*device web has one replica"):
        plan.plan_group_schedule(lone, NAMES, "far", RULE, NOW)
    with pytest.raises(Refused, match="SAN-SITE-031"):
        plan.plan_group_schedule(
            known(seen, record._replace(members=(DB, LOG))), NAMES, "far", RULE, NOW
        )


def test_when_a_moment_is_due() -> None:
    record = GroupRecord(BOTH, "far", 0, PointSchedule(NOW, (RULE,)), MOMENT)
    slot = RULE.slot_of(NOW)
    for made_s, is_due in ((slot, False), (slot - 1, True), (NOW + 3600, True)):
        moment = MOMENT._replace(made_s=made_s)
        assert plan.is_group_due(record._replace(complete=moment), NOW) is is_due
    assert plan.is_group_due(record._replace(complete=None), NOW)
    assert not plan.is_group_due(record._replace(schedule=None, complete=None), NOW)


def test_who_makes_it(bed: Bed) -> None:
    group = GroupRecord(BOTH, "far")
    assert plan.sender_of_group(bed.seen(), group) is None, "there is no db"
    (web,) = bed.seen().cib.devices
    same = GroupRecord((WEB, WEB), "far")
    assert plan.sender_of_group(bed.seen(), same) == "n2"
    assert plan.sender_of_group(two(bed.seen()), group) is None, "nobody serves db"
    bed.cluster.crash("n2")
    assert plan.sender_of_group(bed.seen(), same) is None
    assert web.name.value == "web"


def findings(cluster: Cluster, now_s: float = NOW) -> list[Finding]:
    return [e for e in site_findings(cluster, now_s=now_s) if e.code == "SAN-HLT-122"]


def test_a_schedule_that_is_not_kept(bed: Bed) -> None:
    timed = GroupRecord(BOTH, "far", 0, PointSchedule(NOW, (RULE,)))
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
    (found,) = findings(known(seen, ahead), NOW + 2761)
    assert "has not come yet, as a clock was ahead, and one is due" in found.what
    set_ahead = late._replace(schedule=PointSchedule(NOW + 99999, (RULE,)))
    assert len(findings(known(seen, set_ahead), NOW + 3661)) == 1, "so was it as it was set"
    taken = Takeover("web", "far", seen.cib.devices[1].uuid, SUCCESSOR)
    other = replace(seen, cib=replace(seen.cib, copy_groups=(late,), takeovers=(taken,)))
    # Of the others of the group nothing else says that they are copied no more: at once.
    for now_s in (NOW + 1860, NOW + 9999):
        (found,) = findings(other, now_s)
        assert (
            "device web was taken over at site far, and no more moments are made of db,"
            in found.what
        )
        assert "--group --every off'" in found.do and found.do.endswith("that goes on here: db")
    by_hand = replace(other, cib=replace(other.cib, copy_groups=(late._replace(schedule=None),)))
    assert findings(by_hand, NOW + 1801) == [] and len(findings(by_hand, NOW + 9999)) == 1
    also = taken._replace(device="db", uuid=seen.cib.devices[0].uuid)
    both = replace(other, cib=replace(other.cib, takeovers=(taken, also)))
    assert findings(both, NOW + 9999) == [], "each has its finding"
    assert isinstance(SetTakeover(takeover=taken), SetTakeover)


def test_runs_of_which_none_is_complete(bed: Bed) -> None:
    begun = GroupRecord(BOTH, "far", NOW, None, MOMENT)
    seen = two(bed.seen())
    assert findings(known(seen, begun), NOW + 3600) == []
    (found,) = findings(known(seen, begun), NOW + 3601)
    assert "a run was begun 60 minutes ago" in found.what and "--every off" in str(found.do)
    assert len(findings(known(seen, begun), NOW - 4000)) == 1, "a clock has jumped"
    assert findings(known(seen, begun._replace(begun_s=0)), NOW + 9999) == []


def test_a_device_of_the_group_is_gone(bed: Bed) -> None:
    timed = GroupRecord(BOTH, "far", 0, PointSchedule(NOW, (RULE,)), MOMENT)
    (found,) = findings(known(bed.seen(), timed))
    assert found.what.startswith(
        "device db that was copied is there no more"
    ) and "--without" in str(found.do)
    assert findings(known(bed.seen(), timed._replace(schedule=None))) == []
