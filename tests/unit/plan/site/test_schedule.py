# SPDX-License-Identifier: GPL-2.0-or-later
"""When a copy is due by schedule, which standby makes it, and when it is late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveCopySchedule, SetCopySchedule, SetSite
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import Rule
from sanctl.model.site import CopyRecord, CopySchedule, ProvenCopy
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.health.site_health import site_findings
from sanctl.plan.site import schedule as plan
from sanctl.plan.site.definition import plan_site_removal
from tests.unit.model.test_site import COPY, SITE
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NAME = DeviceName.parse("web")
NOON = 1_764_072_000
RULE = Rule(900, 7)
SCHEDULE = CopySchedule("web", "far", NOON - 86400, RULE)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return bed_with_device(monkeypatch)


def proven(made_s: int) -> CopyRecord:
    copy: ProvenCopy = COPY._replace(made_s=made_s)
    return CopyRecord("web", "far", "d" * 32, "", copy)


@pytest.mark.parametrize(
    ("made_s", "now_s", "wanted"),
    [
        (None, NOON, True),
        (NOON - 1, NOON, True),
        (NOON, NOON, False),
        (NOON + 30, NOON, False),
        (NOON, NOON + 899, False),
        (NOON + 899, NOON + 900, True),
        (NOON + 3600, NOON, True),
    ],
)
def test_due_once_in_each_interval(made_s: int | None, now_s: int, *, wanted: bool) -> None:
    record = None if made_s is None else proven(made_s)
    assert plan.is_due(SCHEDULE, record, now_s) is wanted


def test_a_copy_that_is_not_proven_is_none() -> None:
    assert plan.is_due(SCHEDULE, CopyRecord("web", "far", "d" * 32, "e" * 16, None), NOON)


def test_one_attempt_for_an_interval_or_an_hour() -> None:
    assert plan.attempt_of(SCHEDULE.rule, NOON + 899) == NOON
    daily = SCHEDULE._replace(rule=Rule(86400, 1))
    assert plan.attempt_of(daily.rule, NOON + 3599) == NOON
    assert plan.attempt_of(daily.rule, NOON + 3600) == NOON + 3600


def test_the_first_standby_in_sync_sends(bed: Bed) -> None:
    seen = bed.seen()
    device = seen.cib.devices[0]
    assert plan.sender_of(seen, device) == "n2"
    bed.cluster.crash("n2")
    seen = bed.seen()
    assert plan.sender_of(seen, device) is None
    bed.cluster.crash("n1")
    assert plan.sender_of(bed.seen(), device) is None


def test_a_schedule_is_given_and_taken_away(bed: Bed) -> None:
    with pytest.raises(Refused, match="SAN-SITE-002"):
        plan.plan_copy_schedule(bed.seen(), NAME, "far", RULE, NOON)
    with pytest.raises(Refused, match="SAN-SITE-002"):
        plan.plan_copy_schedule(bed.seen(), NAME, "far", None, NOON)
    bed.session.change(lambda _: (SetSite(site=SITE),))
    assert plan.plan_copy_schedule(bed.seen(), NAME, "far", None, NOON) == ()
    changes = bed.session.change(
        lambda seen: plan.plan_copy_schedule(seen, NAME, "far", RULE, NOON + 0.5)
    )
    wanted = CopySchedule("web", "far", NOON, RULE)
    assert changes == (SetCopySchedule(schedule=wanted),)
    seen = bed.seen()
    assert wanted.value in added_text(seen, changes)
    assert seen.cib.copy_schedules == (wanted,) and seen.cib.copy_schedule("web", "x") is None
    assert plan.plan_copy_schedule(seen, NAME, "far", RULE, NOON + 9) == ()
    (change,) = plan.plan_copy_schedule(seen, NAME, "far", Rule(60, 7), NOON + 9)
    assert isinstance(change, SetCopySchedule) and change.schedule.set_s == NOON + 9
    assert RemoveCopySchedule(schedule=wanted) in plan_site_removal(seen, "far")
    bed.session.change(lambda seen: plan.plan_copy_schedule(seen, NAME, "far", None, NOON))
    assert bed.seen().cib.copy_schedules == ()


def test_a_device_without_a_standby_has_none(bed: Bed) -> None:
    bed.session.change(lambda _: (SetSite(site=SITE),))
    seen = bed.seen()
    device = seen.cib.devices[0]
    alone = replace(device, nodes=device.nodes[:1])
    seen = replace(seen, cib=replace(seen.cib, devices=(alone,)))
    with pytest.raises(Refused, match="SAN-SITE-010"):
        plan.plan_copy_schedule(seen, NAME, "far", RULE, NOON)


@pytest.mark.parametrize(
    ("identifier", "value"),
    [
        ("sanctl-copy.web.far", SCHEDULE.value),
        ("sanctl-copying.web", SCHEDULE.value),
        ("sanctl-copying..far", SCHEDULE.value),
        (SCHEDULE.id, f"{SCHEDULE.value} 1h=2"),
        (SCHEDULE.id, "now and then"),
    ],
)
def test_what_is_no_schedule(identifier: str, value: str) -> None:
    assert CopySchedule.parse(identifier, value) is None
    assert CopySchedule.parse(SCHEDULE.id, SCHEDULE.value) == SCHEDULE


def test_late_is_said(bed: Bed) -> None:
    seen = bed.seen()
    seen = replace(seen, cib=replace(seen.cib, copy_schedules=(SCHEDULE,)))
    assert not plan.is_late(SCHEDULE, proven(NOON - 2760), NOON)
    # Of a clock that was ahead as it was set, nothing would be late before that has come.
    ahead = SCHEDULE._replace(set_s=NOON + 86400)
    assert plan.is_late(ahead, proven(NOON - 2761), NOON) and plan.is_late(ahead, None, NOON)
    assert not plan.is_late(ahead, proven(NOON - 2760), NOON)
    assert not plan.is_late(SCHEDULE._replace(set_s=NOON + 30), None, NOON), "within a minute"
    (finding,) = site_findings(seen, now_s=NOON)
    assert "no copy at site far yet, after 1440 minutes" in finding.what
    with_copy = replace(seen, cib=replace(seen.cib, copies=(proven(NOON - 2820),)))
    (finding,) = site_findings(with_copy, now_s=NOON)
    assert "is 47 minutes old, and one is due every 15m" in finding.what
    fine = replace(seen, cib=replace(seen.cib, copies=(proven(NOON - 60),)))
    assert list(site_findings(fine, now_s=NOON)) == []
    gone = replace(seen, cib=replace(seen.cib, devices=()))
    assert list(site_findings(gone, now_s=NOON)) == []


@pytest.mark.parametrize(
    ("made_s", "proven_s", "is_slow"),
    [
        (NOON - 3600, NOON - 60, True),
        # It was proven long ago: since then none got there.
        (NOON - 9600, NOON - 6000, False),
        # It was quick, and none followed.
        (NOON - 2820, NOON - 2700, False),
        # By a clock that was ahead.
        (NOON - 3600, NOON + 60, False),
    ],
)
def test_copies_that_take_longer_than_their_interval(
    bed: Bed, made_s: int, proven_s: int, is_slow: bool
) -> None:
    """What broke: it sent to the journal, which had nothing but copies that were proven."""
    record = proven(made_s)
    assert record.proven is not None
    record = record._replace(proven=record.proven._replace(proven_s=proven_s))
    seen = bed.seen()
    seen = replace(seen, cib=replace(seen.cib, copy_schedules=(SCHEDULE,), copies=(record,)))
    (finding,) = site_findings(seen, now_s=NOON)
    assert ("take longer than the schedule allows (59 minutes" in finding.do) is is_slow
    assert ("journalctl" in finding.do) is not is_slow
