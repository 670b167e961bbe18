# SPDX-License-Identifier: GPL-2.0-or-later
"""Who sends, from which base, and which restore points and copies go: never the last proven one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cib_change import Change, RemoveCopy, RemoveSite, SetCopy, SetPoint, SetSite
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import DONE, ORDERED, RestoreOrder
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import RestorePoint
from sanctl.model.site import CopyRecord, ProvenCopy, Site
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.site import copying as plan
from sanctl.plan.site.definition import existing_site, plan_site_addition, plan_site_removal
from sanctl.render.cib import render_patchset
from tests.unit.model.test_site import SITE
from tests.unit.ops.test_snapshot import Bed, bed_with_device

NAME = DeviceName.parse("web")


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return bed_with_device(monkeypatch)


def copy(number: int) -> ProvenCopy:
    return ProvenCopy(f"p{number}", f"{number:016x}", number, number + 1, 8, 4, 2, "c" * 64)


def point(number: int, *nodes: str, is_deleting: bool = False) -> RestorePoint:
    return RestorePoint(
        "web", f"p{number}", f"{number:016x}", "a" * 32, "main", number, 8, 2,
        nodes or ("n1", "n2"), is_deleting,
    )  # fmt: skip


def with_points(
    cluster: Cluster, *points: RestorePoint, record: CopyRecord | None = None
) -> Cluster:
    records = (record,) if record else ()
    return replace(cluster, cib=replace(cluster.cib, points=points, copies=records, sites=(SITE,)))


def uuid(cluster: Cluster) -> str:
    device = cluster.cib.device(NAME)
    assert device is not None
    return device.uuid


def noted(cluster: Cluster, attempt: str = "", proven: ProvenCopy | None = None) -> CopyRecord:
    return CopyRecord("web", "far", uuid(cluster), attempt, proven)


def effects(changes: tuple[Change, ...]) -> tuple[list[CopyRecord], list[str]]:
    """Return the records that are written, and the names of the points that go."""
    records = [each.record for each in changes if isinstance(each, SetCopy)]
    gone = [e.point.name for e in changes if isinstance(e, SetPoint) and e.point.is_deleting]
    assert len(records) + len(gone) == len(changes)
    return records, gone


def test_a_standby_in_sync_sends(bed: Bed) -> None:
    seen = bed.seen()
    assert plan.refuse_sender(seen, NAME, "n2", from_active=False).name == NAME
    with pytest.raises(Refused, match=r"SAN-SITE-010.*run it on n2"):
        plan.refuse_sender(seen, NAME, "n1", from_active=False)
    assert plan.refuse_sender(seen, NAME, "n1", from_active=True).name == NAME
    with pytest.raises(Refused, match=r"SAN-DEV-015.*run it on n2"):
        plan.refuse_sender(seen, NAME, "n3", from_active=True)


def test_without_a_standby_in_sync(bed: Bed) -> None:
    bed.cluster.crash("n2")
    seen = bed.seen()
    with pytest.raises(Refused, match=r"SAN-SITE-010.*--from-active"):
        plan.refuse_sender(seen, NAME, "n1", from_active=False)
    with pytest.raises(Refused, match=r"SAN-SITE-011.*sanctl status"):
        plan.refuse_sender(seen, NAME, "n2", from_active=True)
    with pytest.raises(Refused, match=r"SAN-DEV-015.*its replicas are on"):
        plan.refuse_sender(seen, NAME, "n3", from_active=True)


def test_the_base_is_the_newest_copy_whose_point_is_here() -> None:
    copies = [copy(1), copy(3), copy(2)]
    points = [point(1), point(2), point(3, "n1")]
    assert plan.choose_base(copies, points, "n1") == plan.Base(copy(3), point(3, "n1"))
    assert plan.choose_base(copies, points, "n2") == plan.Base(copy(2), point(2))
    assert plan.choose_base(copies, [point(3, is_deleting=True)], "n1") == plan.Base(copy(3), None)
    assert plan.choose_base(copies, [point(9)], "n1") == plan.Base(copy(3), None)
    assert plan.choose_base([], points, "n1") is None


def test_the_newest_copies_stay() -> None:
    copies = [copy(2), copy(1), copy(3)]
    assert plan.surplus_copies(copies, 2) == (copy(1).token,)
    assert plan.surplus_copies(copies, 1) == (copy(1).token, copy(2).token)
    assert plan.surplus_copies(copies, 0) == (copy(1).token, copy(2).token), "never the last"
    assert plan.surplus_copies(copies, 9) == () == plan.surplus_copies([], 1)


def test_the_first_attempt_is_noted(bed: Bed) -> None:
    seen = with_points(bed.seen(), point(5))
    device = seen.cib.devices[0]
    changes = plan.plan_attempt(seen, device, "far", "f" * 16, ())
    assert effects(changes) == ([noted(seen, "f" * 16)], [])
    # One of a device before it that had the name is none.
    other = CopyRecord("web", "far", "0" * 32, point(5).token, copy(5))
    seen = with_points(seen, point(5), record=other)
    assert plan.plan_attempt(seen, device, "far", "f" * 16, ()) == changes


def test_the_point_of_a_run_that_died_goes_and_the_base_stays(bed: Bed) -> None:
    seen = bed.seen()
    device = seen.cib.devices[0]
    record = noted(seen, point(7).token, copy(5))
    seen = with_points(seen, point(5), point(6), point(7), record=record)
    found = effects(plan.plan_attempt(seen, device, "far", "f" * 16, [copy(5)]))
    assert found == ([noted(seen, "f" * 16, copy(5))], ["p7"])


def test_what_the_site_has_proven_is_the_base_though_the_answer_was_lost(bed: Bed) -> None:
    seen = bed.seen()
    device = seen.cib.devices[0]
    seen = with_points(seen, point(5), point(7), record=noted(seen, point(7).token, copy(5)))
    found = effects(plan.plan_attempt(seen, device, "far", "f" * 16, [copy(5), copy(7)]))
    assert found == ([noted(seen, "f" * 16, copy(7))], ["p5"])
    seen = with_points(seen, point(7), record=noted(seen, point(7).token))
    found = effects(plan.plan_attempt(seen, device, "far", "f" * 16, [copy(7)]))
    assert found == ([noted(seen, "f" * 16, copy(7))], [])


def test_once_proven_the_base_before_goes(bed: Bed) -> None:
    seen = bed.seen()
    device = seen.cib.devices[0]
    seen = with_points(seen, point(5), point(7), record=noted(seen, point(7).token, copy(5)))
    assert effects(plan.plan_proven(seen, device, SITE, copy(7))) == (
        [noted(seen, "", copy(7))],
        ["p5"],
    )
    # Another run has begun meanwhile: its note stays.
    seen = with_points(seen, point(5), point(7), record=noted(seen, point(8).token, copy(5)))
    assert effects(plan.plan_proven(seen, device, SITE, copy(7))) == (
        [noted(seen, point(8).token, copy(7))],
        ["p5"],
    )
    seen = with_points(seen, point(7), record=noted(seen, "", copy(7)))
    assert effects(plan.plan_proven(seen, device, SITE, copy(7)))[1] == []
    seen = with_points(seen, point(7))
    assert effects(plan.plan_proven(seen, device, SITE, copy(7)))[1] == []


def test_a_device_or_site_that_is_gone_is_not_noted(bed: Bed) -> None:
    seen = with_points(bed.seen())
    device = seen.cib.devices[0]
    for changed in (
        replace(seen, cib=replace(seen.cib, devices=())),
        replace(seen, cib=replace(seen.cib, devices=(replace(device, uuid="0" * 32),))),
        replace(seen, cib=replace(seen.cib, sites=())),
    ):
        with pytest.raises(CommandError, match="SAN-SITE-009"):
            plan.plan_proven(changed, device, SITE, copy(7))


def test_a_copy_at_the_place_that_the_site_was_before_is_not_noted(bed: Bed) -> None:
    seen = with_points(bed.seen())
    device = seen.cib.devices[0]
    slower = SITE._replace(limit_bytes_s=7)
    assert plan.plan_proven(seen, device, slower, copy(7))
    for place in (SITE._replace(host="other"), SITE._replace(port=7), SITE._replace(path="/x")):
        with pytest.raises(CommandError, match=r"SAN-SITE-009.*set to another place"):
            plan.plan_proven(seen, device, place, copy(7))


def test_a_run_that_failed_takes_its_point_along(bed: Bed) -> None:
    seen = bed.seen()
    device = seen.cib.devices[0]
    token = point(7).token
    seen = with_points(seen, point(5), point(7), record=noted(seen, token, copy(5)))
    found = effects(plan.plan_given_up(seen, device, "far", token))
    assert found == ([noted(seen, "", copy(5))], ["p7"])
    seen = with_points(seen, point(7), record=noted(seen, "0" * 16, copy(5)))
    assert effects(plan.plan_given_up(seen, device, "far", token)) == ([], ["p7"])
    assert plan.plan_given_up(with_points(seen), device, "far", token) == ()


def test_a_point_that_is_needed_otherwise_stays(bed: Bed) -> None:
    bed.cluster.has_quorum = False
    seen = with_points(bed.seen(), point(7))
    assert plan.point_removal(seen, "web", (point(7).token,)) == ()


def test_a_site_that_a_device_is_filled_from_stays(bed: Bed) -> None:
    seen = with_points(bed.seen())
    seen = replace(seen, cib=replace(seen.cib, ids=seen.cib.ids | {SITE.id}))
    (device,) = seen.cib.devices
    source = SiteCopy("far", "web", "a" * 32, "p", "b" * 16, "c" * 64)
    order = RestoreOrder.from_copy("7" * 16, source, 1)

    def filled_by(order: RestoreOrder | None, *, is_open: bool) -> Cluster:
        changed = replace(device, restore=order, is_restoring=is_open)
        return replace(seen, cib=replace(seen.cib, devices=(changed,)))

    with pytest.raises(Refused, match="SAN-REST-005"):
        plan_site_removal(filled_by(order, is_open=True), "far")
    other = RestoreOrder.from_copy("7" * 16, source._replace(site="near"), 1)
    point = RestoreOrder("1" * 16, "good", "2" * 16, "", 1)
    # What is withdrawn leaves it held as a copy there.
    for base in (other._replace(state=ORDERED), point):
        with pytest.raises(Refused, match="SAN-REST-005"):
            plan_site_removal(filled_by(base._replace(base=source), is_open=True), "far")
    for harmless in (
        filled_by(order._replace(state=DONE), is_open=False),
        filled_by(other, is_open=True),
        filled_by(point, is_open=True),
        filled_by(None, is_open=True),
    ):
        assert plan_site_removal(harmless, "far") == (RemoveSite(name="far"),)


def test_what_a_first_copy_begins_as(bed: Bed) -> None:
    (device,) = bed.seen().cib.devices
    source = SiteCopy("far", "web", "a" * 32, "p", "b" * 16, "c" * 64)
    order = RestoreOrder.from_copy("7" * 16, source, 1)
    for found, wanted in (
        (None, None),
        (order, None),
        (order._replace(state=DONE), source),
        (RestoreOrder("1" * 16, "good", "2" * 16, "", 1, DONE), None),
    ):
        assert plan.origin_of(replace(device, restore=found), "far") == wanted
    assert plan.origin_of(replace(device, restore=order._replace(state=DONE)), "near") is None


def test_a_wrong_clock_has_no_new_copy_removed() -> None:
    copies = [copy(number) for number in (1, 2, 3, 4)]
    behind = copy(9)._replace(made_s=0, proven_s=6)
    assert plan.surplus_copies((*copies, behind), 1) == (
        copy(1).token,
        copy(2).token,
        copy(3).token,
    )
    both = behind._replace(proven_s=0)
    gone = plan.surplus_copies((*copies, both), 2, latest=both.token)
    assert gone == (copy(1).token, copy(2).token)
    assert both.token in plan.surplus_copies((*copies, both), 2), (
        "older by both, and not of this run"
    )


def test_copies_that_are_used_stay() -> None:
    copies = [copy(number) for number in (3, 1, 2)]
    assert plan.surplus_copies(copies, 1) == (copy(1).token, copy(2).token)
    assert plan.surplus_copies(copies, 1, {copy(1).token}) == (copy(2).token,)


def test_sites_are_added_once(bed: Bed) -> None:
    seen = bed.seen()
    with pytest.raises(Refused, match=r"SAN-SITE-002.*site add"):
        existing_site(seen, "far")
    (change,) = bed.session.change(lambda cluster: plan_site_addition(cluster, SITE))
    assert change == SetSite(site=SITE)
    seen = bed.seen()
    assert existing_site(seen, "far") == SITE
    assert SITE.value in added_text(seen, (change,))
    with pytest.raises(Refused, match=r"SAN-SITE-002.*sites are: far"):
        existing_site(seen, "near")
    with pytest.raises(Refused, match="SAN-SITE-003"):
        plan_site_addition(seen, SITE)
    unreadable = replace(seen, cib=replace(seen.cib, sites=()))
    with pytest.raises(Refused, match="SAN-SITE-012"):
        existing_site(unreadable, "far")
    assert plan_site_removal(unreadable, "far") == (RemoveSite(name="far"),)
    with pytest.raises(Refused, match="SAN-SITE-002"):
        plan_site_removal(seen, "near")


def test_what_the_cib_has_of_sites_is_removed_with_them(bed: Bed) -> None:
    made = bed.create("one")
    seen = bed.seen()
    proven = copy(1)._replace(token=made.token)
    near: Site = SITE._replace(name="near")
    records = [noted(seen, "", proven), noted(seen)._replace(site="near")]
    assert records[0].value in added_text(seen, (SetCopy(record=records[0]),))
    for change in (SetSite(site=SITE), SetSite(site=near), *(SetCopy(record=r) for r in records)):
        bed.session.change(lambda _, change=change: (change,))  # type: ignore[misc]
    seen = bed.seen()
    assert seen.cib.sites == (SITE, near) and seen.cib.copies == tuple(records)
    assert seen.cib.copy("web", "far") == records[0] and seen.cib.copy("web", "x") is None
    assert added_text(seen, (SetCopy(record=records[0]),)) == ""
    changes = bed.session.change(lambda cluster: plan_site_removal(cluster, "far"))
    assert RemoveCopy(record=records[0]) in changes
    seen = bed.seen()
    assert (seen.cib.sites, seen.cib.copies) == ((near,), (records[1],))
    assert all(each.is_deleting for each in seen.cib.points)


def test_records_go_with_their_device(bed: Bed) -> None:
    seen = bed.seen()
    other = noted(seen)._replace(device="web2")
    bed.session.change(lambda _: (SetCopy(record=noted(seen)),))
    bed.session.change(lambda _: (SetCopy(record=other),))
    from sanctl.model.cib_change import RemoveDevice  # noqa: PLC0415
    from sanctl.parse.cib import parse_document  # noqa: PLC0415

    root = parse_document(bed.cluster.query())
    patch = render_patchset(root, (RemoveDevice(name=NAME),))
    assert "sanctl-copy.web.far" in patch and "sanctl-copy.web2.far" not in patch
