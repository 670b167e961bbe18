# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads are cached in RAM only on an UpToDate Primary, and the node keeps RAM."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.read_cache import (
    READ_CACHE_REASON_TEXTS,
    ReadCacheReason,
    allowed_read_cache,
    leaves_enough_ram,
)
from tests.unit.plan.cache.states import in_sync, states


@given(st.integers(0, 1 << 40), st.none() | states, st.booleans())
def test_reads_are_cached_only_on_an_up_to_date_primary(
    wanted: int, state: ResourceState | None, has_place: bool
) -> None:
    """Reads of another replica are answered from the peer's disk, or from stale blocks."""
    due, reason = allowed_read_cache(wanted, state, has_place=has_place)
    assert 0 <= due <= wanted
    if due:
        assert state is not None and has_place and state.size_kib is not None
        assert state.is_primary and state.disk == "UpToDate"
        assert not any(peer.is_verifying for peer in state.peers)
        assert due == min(wanted, state.size_kib * 1024)
    if reason:
        assert not due and wanted and reason in READ_CACHE_REASON_TEXTS


def test_each_reason_for_no_read_cache() -> None:
    serving = in_sync()._replace(role="Primary")
    compared = in_sync(replication="VerifyS")._replace(role="Primary")
    assert allowed_read_cache(64 << 10, serving, has_place=True) == (64 << 10, ReadCacheReason.NONE)
    assert allowed_read_cache(64 << 10, serving, has_place=False)[1] is ReadCacheReason.RESTART
    assert allowed_read_cache(64 << 10, compared, has_place=True)[1] is ReadCacheReason.COMPARED
    failed = serving._replace(disk="Diskless")
    assert allowed_read_cache(64 << 10, failed, has_place=True)[1] is ReadCacheReason.NOT_GOOD
    assert allowed_read_cache(64 << 10, in_sync(), has_place=True) == (0, ReadCacheReason.NONE)
    unknown = serving._replace(size_kib=None)
    assert allowed_read_cache(64 << 10, unknown, has_place=True)[0] == 64 << 10


def test_a_quarter_of_the_ram_is_left() -> None:
    assert leaves_enough_ram(30, 20, 75, 100)
    assert not leaves_enough_ram(30, 21, 75, 100)
