# SPDX-License-Identifier: GPL-2.0-or-later
"""What a cluster notes of takeovers, and what it then says: from what the site has, and no more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveTakeover, SetCopySchedule, SetSite, SetTakeover
from sanctl.model.device_restore import DONE, RestoreOrder
from sanctl.model.findings import Severity
from sanctl.model.point_schedule import Rule
from sanctl.model.site import CopySchedule
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Ending, SiteTakeovers, Successor, Takeover
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.health.site_health import site_findings
from sanctl.plan.site.definition import plan_site_removal
from sanctl.plan.site.takeover import (
    choose_taken,
    copy_taken,
    known_takeovers,
    plan_takeovers,
    takeover_text,
)
from tests.unit.model.test_site import SITE
from tests.unit.model.test_site_takeover import SUCCESSOR
from tests.unit.ops.test_snapshot import Bed, bed_with_device


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = bed_with_device(monkeypatch)
    made.session.change(lambda _: (SetSite(site=SITE),))
    return made


def folder(bed: Bed) -> str:
    (device,) = bed.seen().cib.devices
    return f"{device.name}.{device.uuid}"


def says(
    successors: dict[str, Successor], endings: dict[str, tuple[Ending, ...]] | None = None
) -> SiteTakeovers:
    return SiteTakeovers(successors, endings or {})


def test_what_the_site_says_is_noted_until_it_was_given_back(bed: Bed) -> None:
    said = says({folder(bed): SUCCESSOR, f"other.{'9' * 32}": SUCCESSOR})
    assert plan_takeovers(bed.seen(), "near", said) == (), "the site was removed meanwhile"
    (change,) = plan_takeovers(bed.seen(), "far", said)
    assert isinstance(change, SetTakeover) and change.takeover.value in added_text(
        bed.seen(), (change,)
    )
    bed.session.change(lambda seen: plan_takeovers(seen, "far", said))
    assert plan_takeovers(bed.seen(), "far", said) == ()
    assert bed.seen().cib.takeovers == (change.takeover,)
    later = SUCCESSOR._replace(device="web-2")
    (changed,) = plan_takeovers(bed.seen(), "far", says({folder(bed): later}))
    assert isinstance(changed, SetTakeover) and changed.takeover.successor == later
    ended = says({}, {folder(bed): (Ending(later, 8, "n1"), Ending(SUCCESSOR, 9, "n1"))})
    assert plan_takeovers(bed.seen(), "far", ended) == (RemoveTakeover(takeover=change.takeover),)
    assert known_takeovers(bed.seen(), "far", ended) == {}
    with pytest.raises(Refused) as caught:
        plan_site_removal(bed.seen(), "far")
    assert [each.code for each in caught.value.problems] == ["SAN-SITE-039"]
    gone = plan_site_removal(bed.seen(), "far", accepted=("SAN-SITE-039",))
    assert RemoveTakeover(takeover=change.takeover) in gone
    near = SITE._replace(name="near")
    bed.session.change(lambda _: (SetSite(site=near),))
    assert plan_takeovers(bed.seen(), "near", says({})) == (), "that is the other site's to say"
    assert known_takeovers(bed.seen(), "near", says({})) == {}
    bed.session.change(lambda seen: plan_takeovers(seen, "far", ended))
    assert bed.seen().cib.takeovers == ()


def test_that_of_a_device_that_cannot_be_read_is_kept(bed: Bed) -> None:
    """The site has lost it: the note is all that says that another device goes on."""
    said = says({folder(bed): SUCCESSOR})
    bed.session.change(lambda seen: plan_takeovers(seen, "far", said))
    seen = bed.seen()
    cib = replace(seen.cib, devices=(), unreadable=(("web", "a new policy"),))
    (kept,) = plan_takeovers(replace(seen, cib=cib), "far", says({}))
    assert isinstance(kept, SetTakeover) and kept.takeover.is_lost
    gone = replace(seen, cib=replace(seen.cib, devices=()))
    (removed,) = plan_takeovers(gone, "far", says({}))
    assert isinstance(removed, RemoveTakeover)


def test_one_that_is_gone_at_the_site_and_was_not_given_back_is_lost_and_in_force(
    bed: Bed,
) -> None:
    """As where the site's storage went back to an older state."""
    said = says({folder(bed): SUCCESSOR})
    bed.session.change(lambda seen: plan_takeovers(seen, "far", said))
    (known,) = bed.seen().cib.takeovers
    # What ended was another one: of an earlier time, of a later one, or of another device.
    for other in (SUCCESSOR._replace(at_s=1), SUCCESSOR._replace(uuid="9" * 32)):
        gone = says({}, {folder(bed): (Ending(other, 10**9, "n1"),)})
        (change,) = plan_takeovers(bed.seen(), "far", gone)
        assert change == SetTakeover(takeover=known._replace(is_lost=True))
        assert known_takeovers(bed.seen(), "far", gone) == {folder(bed): SUCCESSOR}
    bed.session.change(lambda seen: plan_takeovers(seen, "far", says({})))
    assert plan_takeovers(bed.seen(), "far", says({})) == (), "it is noted"
    assert bed.seen().cib.takeover("web", "far") == known._replace(is_lost=True)
    (finding,) = site_findings(bed.seen(), now_s=10**9)
    assert (finding.code, finding.severity) == ("SAN-HLT-116", Severity.CRITICAL)
    assert "says so no more" in finding.what
    assert "'sanctl replicate giveback web --at far'" in str(finding.do)
    # The other cluster has noted it again, or given it back.
    bed.session.change(lambda seen: plan_takeovers(seen, "far", said))
    assert bed.seen().cib.takeovers == (known,)
    bed.session.change(lambda seen: plan_takeovers(seen, "far", says({})))
    ended = says({}, {folder(bed): (Ending(SUCCESSOR, 9, "n1"),)})
    bed.session.change(lambda seen: plan_takeovers(seen, "far", ended))
    assert bed.seen().cib.takeovers == ()


def test_what_is_said_of_one_that_is_there() -> None:
    assert takeover_text("far", SUCCESSOR, is_lost=False).endswith("instead of it, says site far")


def test_one_of_an_earlier_device_of_that_name_is_forgotten(bed: Bed) -> None:
    earlier = Takeover("web", "far", "9" * 32, SUCCESSOR)
    bed.session.change(lambda _: (SetTakeover(takeover=earlier),))
    assert RemoveTakeover(takeover=earlier) in plan_site_removal(bed.seen(), "far")
    assert bed.seen().cib.takeover("web", "far") is None
    assert list(site_findings(bed.seen(), now_s=0)) == []
    assert plan_takeovers(bed.seen(), "far", says({})) == (RemoveTakeover(takeover=earlier),)
    assert known_takeovers(bed.seen(), "far", says({})) == {}
    (change,) = plan_takeovers(bed.seen(), "far", says({folder(bed): SUCCESSOR}))
    assert isinstance(change, SetTakeover), "it takes that one's place"


def test_the_finding_is_critical_and_stands_for_the_late_copy(bed: Bed) -> None:
    schedule = CopySchedule("web", "far", 0, Rule(60, 7))
    bed.session.change(lambda _: (SetCopySchedule(schedule=schedule),))
    assert [each.code for each in site_findings(bed.seen(), now_s=10**9)] == ["SAN-HLT-112"]
    bed.session.change(lambda seen: plan_takeovers(seen, "far", says({folder(bed): SUCCESSOR})))
    (finding,) = site_findings(bed.seen(), now_s=10**9)
    assert (finding.code, finding.severity) == ("SAN-HLT-116", Severity.CRITICAL)
    assert "web-dr.eeeeeeee" in finding.what and "site far" in finding.what


def test_who_takes_over(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    copy = SiteCopy("far", "web", "9" * 32, "to-far-1", "1" * 16, "f" * 64)
    with pytest.raises(Refused, match=r"SAN-SITE-022.*not made from a copy"):
        copy_taken(device)
    order = RestoreOrder.from_copy("2" * 16, copy, 1)
    with pytest.raises(Refused, match=r"SAN-SITE-022.*does not hold it yet"):
        copy_taken(replace(device, restore=order))
    order = order._replace(state=DONE)
    assert copy_taken(replace(device, restore=order)) == copy
    own = RestoreOrder.from_copy("2" * 16, copy._replace(uuid=device.uuid), 1)
    with pytest.raises(Refused, match=r"SAN-SITE-022.*a copy of itself"):
        copy_taken(replace(device, restore=own))


def test_which_one_is_meant() -> None:
    one, two = f"web.{'1' * 32}", f"web.{'2' * 32}"
    both = {one: SUCCESSOR, two: SUCCESSOR}
    assert choose_taken("far", both, WantedCopy("web", "2", "")) == (two, SUCCESSOR)
    assert choose_taken("far", both, WantedCopy("db", "", "")) is None
    with pytest.raises(Refused, match=r"SAN-SITE-019.*web.11111111, web.22222222"):
        choose_taken("far", both, WantedCopy("web", "", ""))
