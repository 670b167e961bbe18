# SPDX-License-Identifier: GPL-2.0-or-later
"""Which copy is meant: the newest, or a named one; none where that is not clear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from sanctl.errors import CommandError, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device_restore import DONE, RestoreOrder
from sanctl.model.site import CopyRecord, ProvenCopy
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.plan.site.choosing import choose_copy, copies_in_use
from tests.unit.plan.device.test_restoring import cluster

A, B = "a" * 32, "b" * 32


def copy(number: int, *, made_s: int | None = None, name: str = "") -> ProvenCopy:
    made = number if made_s is None else made_s
    return ProvenCopy(name or f"p{number}", f"{number:016x}", made, made + 1, 8, 4, 2, "c" * 64)


ONE = {f"web.{A}": (copy(1), copy(3), copy(2)), f"db.{A}": (copy(9),), f"old.{A}": ()}


def chosen(
    text: str, folders: Mapping[str, Sequence[ProvenCopy]], seen: Cluster | None = None
) -> tuple[SiteCopy, ProvenCopy]:
    return choose_copy(seen or cluster(None), "far", folders, WantedCopy.parse(text))


@pytest.mark.parametrize(
    ("text", "number"), [("web", 3), ("web@p2", 2), ("web.a", 3), (f"web.{A}@p1", 1)]
)
def test_the_newest_or_the_named_one(text: str, number: int) -> None:
    found, proven = chosen(text, ONE)
    assert proven == copy(number)
    assert found == SiteCopy("far", "web", A, f"p{number}", f"{number:016x}", "c" * 64)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("we", "SAN-SITE-018.*it has copies of: db, web"),
        ("old", "SAN-SITE-018"),
        ("web.b", "SAN-SITE-018"),
        ("web@p4", r"SAN-SITE-018.*has no copies web@p4.*of web: p3, p2, p1"),
    ],
)
def test_there_is_none(text: str, says: str) -> None:
    with pytest.raises(Refused, match=says):
        chosen(text, ONE)
    with pytest.raises(Refused, match=r"SAN-SITE-018.*none at all"):
        chosen("web", {})


def test_none_is_taken_by_clocks_that_disagree() -> None:
    """The copy that came last is of a node whose clock is behind: by its time it is older."""
    newer, last = copy(2), copy(1)._replace(proven_s=9)
    folders = {f"web.{A}": (newer, last)}
    with pytest.raises(Refused, match=r"SAN-SITE-019.*to be p2, and p1 may be newer"):
        chosen("web", folders)
    assert chosen("web@p1", folders)[1] == last
    assert chosen("web@p2", folders)[1] == newer


def test_none_is_taken_where_several_may_be_meant() -> None:
    two = {**ONE, f"web.{B}": (copy(7),)}
    with pytest.raises(Refused, match=r"SAN-SITE-019.*web.aaaaaaaa@p3, web.bbbbbbbb@p7"):
        chosen("web", two)
    assert chosen("web.b", two)[1] == copy(7)
    twice = {f"web.{A}": (copy(1, name="p"), copy(2, name="p"))}
    with pytest.raises(Refused, match=r"SAN-SITE-019.*has 2 copies web@p"):
        chosen("web@p", twice)
    assert chosen("web", twice)[1] == copy(2, name="p")


def test_another_digest_than_was_noted() -> None:
    record = CopyRecord("web", "far", A, "", copy(3))
    seen = cluster(None, copies=(record, record._replace(proven=None)))
    assert chosen("web", ONE, seen)[1] == copy(3)
    other = record._replace(proven=copy(3)._replace(digest="d" * 64))
    with pytest.raises(CommandError, match="SAN-SITE-017"):
        chosen("web", ONE, cluster(None, copies=(other,)))
    # Of another site's the same token means nothing.
    for far in (other._replace(site="near"), other._replace(proven=copy(4))):
        assert chosen("web", ONE, cluster(None, copies=(far,)))[1] == copy(3)


def test_copies_that_devices_are_being_filled_from() -> None:
    found, _ = chosen("web", ONE)
    order = RestoreOrder.from_copy("7" * 16, found, 1)
    assert copies_in_use(cluster(order), "far") == {found.token}
    assert copies_in_use(cluster(order), "near") == frozenset()
    assert copies_in_use(cluster(order._replace(state=DONE)), "far") == frozenset()
    assert copies_in_use(cluster(None), "far") == frozenset()
    point = RestoreOrder("1" * 16, "good", "2" * 16, "", 1)
    seen = cluster(point)
    assert copies_in_use(replace(seen), "far") == frozenset()
