# SPDX-License-Identifier: GPL-2.0-or-later
"""A device takes over unasked only from the newest copy: of one with less nobody is told later."""

from __future__ import annotations

from dataclasses import replace

from sanctl.model.device_restore import DONE, RestoreOrder
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import SiteCopy
from sanctl.plan.site.takeover_age import older_problem
from tests.unit.plan.device.test_restoring import SPEC

WEB, DB = f"web.{'9' * 32}", f"db.{'1' * 32}"
BOTH = (DB, WEB)


def copy(number: int, device: int = 1, group: tuple[str, ...] = ()) -> ProvenCopy:
    token = f"{number:012x}{device:04x}"
    digest = f"{number:064x}"
    made_s = 1_700_000_000 + 900 * number
    return ProvenCopy(
        f"p{number}", token, made_s, made_s + 60, 8, 4, 2, digest, group, (), number, number - 1
    )


def says(
    made_from: ProvenCopy,
    *copies: ProvenCopy,
    db: tuple[ProvenCopy, ...] = (),
    unread: dict[str, tuple[str, ...]] | None = None,
    allows_mix: bool = False,
) -> str:
    """Return why a device that was made from a copy does not take over."""
    of = SiteCopy("far", "web", "9" * 32, made_from.name, made_from.token, made_from.digest)
    order = RestoreOrder.from_copy("2" * 16, of, 1)._replace(state=DONE)
    device = replace(SPEC, restore=order)
    folders = {WEB: copies, DB: db}
    return str(older_problem(device, folders, unread or {}, allows_mix=allows_mix) or "")


def test_the_newest_one_takes_over() -> None:
    assert says(copy(3), copy(1), copy(2), copy(3)) == ""
    again = copy(4)._replace(digest=copy(3).digest)
    assert says(copy(3), copy(3), again) == "", "nothing was written in between"


def test_an_older_one_names_both_times() -> None:
    found = says(copy(2), copy(1), copy(2), copy(3))
    assert found.startswith("SAN-SITE-036") and "--allow-older" in found
    assert "web@p2, 2023-11-14 22:43 UTC" in found and "web@p3, 2023-11-14 22:58 UTC" in found
    ahead = copy(2)._replace(made_s=1_900_000_000, proven_s=1_900_000_000)
    assert "web@p3" in says(ahead, ahead, copy(3)), "its clock was ahead"


def test_one_that_may_be_newer_counts_as_such() -> None:
    """Of copies without numbers the times disagree; of one that is gone nothing is known."""
    old, late = (each._replace(number=0, after=-1) for each in (copy(2), copy(1)))
    late = late._replace(proven_s=old.proven_s + 1)
    assert "web@p1" in says(old, old, late)
    assert "web@p2, which is gone" in says(copy(2), copy(3))


def test_a_site_without_any_copy_of_it_may_be_another_one() -> None:
    """What a review found: the takeover was noted in a directory to which nobody copies."""
    found = says(copy(3))
    assert found.startswith("SAN-SITE-038") and WEB in found and "--allow-older" in found
    assert says(copy(3), unread={WEB: ("p4",)}).startswith("SAN-SITE-035"), "something is there"


def test_what_cannot_be_read_may_be_newer() -> None:
    found = says(copy(3), copy(3), unread={WEB: ("p4",)})
    assert found.startswith("SAN-SITE-035") and "p4" in found and "--allow-older" in found
    assert says(copy(3), copy(3), unread={DB: ("p4",)}) == ""


def test_of_a_group_complete_moments_count_and_copies_of_it_alone() -> None:
    both = {number: (copy(number, 0, BOTH), copy(number, 1, BOTH)) for number in (1, 2)}
    dbs, webs = zip(*both.values(), strict=True)
    half = copy(3, 1, BOTH)
    assert says(webs[1], *webs, half, db=dbs) == "", "the run died that would have completed it"
    assert "web@p3" in says(webs[1], *webs, half, db=dbs, allows_mix=True)
    assert "web@p2" in says(webs[0], *webs, db=dbs)
    assert "web@p4" in says(webs[1], *webs, copy(4), db=dbs), "of it alone"
