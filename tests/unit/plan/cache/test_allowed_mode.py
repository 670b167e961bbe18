# SPDX-License-Identifier: GPL-2.0-or-later
"""Write-back is allowed where two replicas are in sync, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.cache.allowed_mode import (
    MODE_REASON_TEXTS,
    ModeReason,
    allowed_mode,
    has_flush_failed,
    must_cut_connection,
    must_require_two_replicas,
)
from tests.unit.plan.cache.states import in_sync, states


@given(st.sampled_from(CacheMode), st.none() | states, st.booleans())
def test_no_acknowledged_write_is_in_one_nodes_ram_alone(
    wanted: CacheMode, state: ResourceState | None, is_suspect: bool
) -> None:
    mode, reason = allowed_mode(wanted, state, is_suspect=is_suspect)
    if mode is CacheMode.WRITE_BACK:
        assert state is not None and state.disk == "UpToDate"
        good = [peer for peer in state.peers if peer.is_in_sync]
        assert good and not has_flush_failed(state) and not is_suspect
        if len(good) < len(state.peers):
            # Then DRBD uses quorum, and freezes a Primary without any.
            assert len(state.peers) > 1 and state.has_quorum is not None
            primary = state._replace(role="Primary")
            assert must_require_two_replicas(primary, may_be_write_back=True)
        assert wanted is CacheMode.WRITE_BACK
    assert (reason is ModeReason.NONE) is (mode is wanted)
    if mode is not wanted:
        assert mode is CacheMode.WRITE_THROUGH and reason in MODE_REASON_TEXTS


def several(*disks: str, **changes: Any) -> ResourceState:
    peers = tuple(
        PeerState(f"n{number}", "Connected", "Secondary", "Established", disk, 0)
        for number, disk in enumerate(disks, start=2)
    )
    return ResourceState("vm1", "Primary", "no", "UpToDate", 1024, peers, has_quorum=True)._replace(
        **changes
    )


@pytest.mark.parametrize(
    ("state", "mode"),
    [
        (several("UpToDate", "UpToDate"), CacheMode.WRITE_BACK),
        (several("UpToDate", "Inconsistent"), CacheMode.WRITE_BACK),
        (several("Inconsistent", "Outdated", "UpToDate"), CacheMode.WRITE_BACK),
        (several("Inconsistent", "Diskless"), CacheMode.WRITE_THROUGH),
        (several("UpToDate", "UpToDate", disk="Failed"), CacheMode.WRITE_THROUGH),
        # Two replicas: DRBD 9 uses no quorum either.
        (several("Inconsistent"), CacheMode.WRITE_THROUGH),
        (several("UpToDate"), CacheMode.WRITE_BACK),
        # DRBD would not freeze it.
        (several("UpToDate", "Inconsistent", has_quorum=None), CacheMode.WRITE_THROUGH),
    ],
)
def test_of_three_replicas_two_in_sync_are_enough(state: ResourceState, mode: CacheMode) -> None:
    assert allowed_mode(CacheMode.WRITE_BACK, state, is_suspect=False)[0] is mode


def test_only_a_primary_with_a_disk_and_three_replicas_requires_two() -> None:
    held = several("UpToDate", "Inconsistent")
    assert must_require_two_replicas(held, may_be_write_back=True)
    assert not must_require_two_replicas(held, may_be_write_back=False)
    assert not must_require_two_replicas(None, may_be_write_back=True)
    for state in (
        held._replace(role="Secondary"),
        held._replace(disk="Diskless"),
        held._replace(has_quorum=None),
        held._replace(peers=held.peers[:1]),
    ):
        assert not must_require_two_replicas(state, may_be_write_back=True)


def test_write_back_is_reached() -> None:
    told = allowed_mode(CacheMode.WRITE_BACK, in_sync(), is_suspect=False)
    assert told == (CacheMode.WRITE_BACK, ModeReason.NONE)
    unordered = in_sync()._replace(write_ordering="drain")
    told = allowed_mode(CacheMode.WRITE_BACK, unordered, is_suspect=False)
    assert told == (CacheMode.WRITE_THROUGH, ModeReason.NO_FLUSH)


@pytest.mark.parametrize(
    ("word", "lost"), [("flush", False), ("", False), ("drain", True), ("none", True)]
)
def test_another_write_ordering_than_flush_is_a_failed_flush(word: str, lost: bool) -> None:
    assert has_flush_failed(in_sync()._replace(write_ordering=word)) is lost
    assert not has_flush_failed(None)


def test_the_connection_is_cut_only_towards_a_primary() -> None:
    assert must_cut_connection(in_sync(), may_be_write_back=True)
    assert not must_cut_connection(in_sync(), may_be_write_back=False)
    assert not must_cut_connection(in_sync(role="Secondary"), may_be_write_back=True)
    assert not must_cut_connection(in_sync(connection="Connecting"), may_be_write_back=True)
    assert not must_cut_connection(None, may_be_write_back=True)


@pytest.mark.parametrize(
    ("disk", "replication", "reason"),
    [
        ("UpToDate", "VerifyS", ModeReason.COMPARING),
        ("UpToDate", "VerifyT", ModeReason.COMPARING),
        ("Outdated", "VerifyS", ModeReason.ONE_COPY),
        ("UpToDate", "SyncSource", ModeReason.ONE_COPY),
    ],
)
def test_a_verify_is_not_taken_for_a_lost_replica(
    disk: str, replication: str, reason: ModeReason
) -> None:
    peer = PeerState("peer", "Connected", "Secondary", replication, disk, 0)
    state = ResourceState("vm1", "Primary", "no", "UpToDate", 1024, (peer,))
    told = allowed_mode(CacheMode.WRITE_BACK, state, is_suspect=False)
    assert told == (CacheMode.WRITE_THROUGH, reason)
