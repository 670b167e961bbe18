# SPDX-License-Identifier: GPL-2.0-or-later
"""Which proof of a copy at a second site shows enough: what has changed, or all of it."""

from __future__ import annotations

import pytest

from sanctl.model.site import ProvenCopy
from sanctl.plan.site.proof import (
    DUE,
    FIRST,
    NO_BASE_HERE,
    NO_LIST,
    NOT_NOTED,
    RESIZED,
    WANTED,
    WHOLE_AFTER_S,
    ProofBasis,
    why_whole,
)

NOW = 1_000_000
BASE = ProvenCopy("p", "b" * 16, NOW - 900, NOW - 800, 8, 4, 2, "c" * 64)
FINE = ProofBasis(BASE, BASE, NOW)


def why(
    basis: ProofBasis,
    size_bytes: int = 8,
    *,
    is_by_extents: bool = True,
    base_error: str = "",
    has_list: bool = True,
) -> str:
    return why_whole(
        basis, size_bytes, is_by_extents=is_by_extents, base_error=base_error, has_list=has_list
    )


def of(copy: ProvenCopy) -> ProofBasis:
    return ProofBasis(copy, copy, NOW)


def test_what_has_changed_is_enough_where_the_base_is_known() -> None:
    assert why(FINE) == ""
    # The cluster does not note the order of the copies, nor groups.
    assert why(FINE._replace(base=BASE._replace(number=5, after=4, group=("a", "b")))) == ""


def test_a_base_that_is_not_known_on_all_sides_is_not() -> None:
    assert why(FINE._replace(is_wanted=True)) == WANTED
    assert why(FINE._replace(base=None)) == FIRST
    assert why(FINE, is_by_extents=False) == NO_BASE_HERE
    assert why(FINE, base_error="Input/output error") == NO_BASE_HERE
    assert why(FINE, 16) == RESIZED
    assert why(FINE, has_list=False) == NO_LIST


@pytest.mark.parametrize(
    "noted", [None, BASE._replace(token="d" * 16), BASE._replace(digest="e" * 64)]
)
def test_the_digest_of_the_base_is_the_one_that_the_cluster_has_noted(
    noted: ProvenCopy | None,
) -> None:
    assert why(FINE._replace(noted=noted)) == NOT_NOTED


def test_it_is_read_as_a_whole_once_a_day() -> None:
    last = NOW - WHOLE_AFTER_S
    for read_s, wanted in ((last, DUE), (last + 1, ""), (NOW + 60, ""), (NOW + 61, DUE)):
        assert why(of(BASE._replace(read_s=read_s))) == wanted
        assert why(of(BASE._replace(proven_s=read_s))) == wanted, "it was when it was proven"
    # What proves by changes makes nothing younger.
    assert why(of(BASE._replace(read_s=last, proven_s=NOW))) == DUE
