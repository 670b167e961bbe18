# SPDX-License-Identifier: GPL-2.0-or-later
"""Write-back is allowed where two copies are in sync, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.cache_policy import Mode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.cache.allowed_mode import (
    READ_SENTENCES,
    SENTENCES,
    ReadReason,
    Reason,
    allowed,
    due_read_cache,
    has_lost_writes,
    leaves_enough_ram,
    must_cut,
    must_hold,
)

CONNECTIONS = ("Connected", "Connecting", "StandAlone", "Unknown", "BrokenPipe")
DISKS = ("UpToDate", "Outdated", "Inconsistent", "Consistent", "Diskless", "DUnknown", "Failed")
REPLICATIONS = ("Established", "Off", "SyncSource", "SyncTarget", "VerifyS", "PausedSyncS")

peers = st.builds(
    PeerState,
    st.just("peer"),
    st.sampled_from(CONNECTIONS),
    st.sampled_from(("Primary", "Secondary", "Unknown")),
    st.sampled_from(REPLICATIONS),
    st.sampled_from(DISKS),
    st.none(),
)
states = st.builds(
    ResourceState,
    st.just("vm1"),
    st.sampled_from(("Primary", "Secondary")),
    st.just("no"),
    st.sampled_from(DISKS),
    st.just(1024),
    st.lists(peers, max_size=3).map(tuple),
    st.none(),
    has_quorum=st.none() | st.booleans(),
    write_ordering=st.sampled_from(("", "flush", "drain", "none", "barrier")),
)


@given(st.sampled_from(Mode), st.none() | states, st.booleans())
def test_nothing_is_in_ram_alone(
    wanted: Mode, state: ResourceState | None, is_suspect: bool
) -> None:
    mode, reason = allowed(wanted, state, is_suspect=is_suspect)
    if mode is Mode.WRITE_BACK:
        assert state is not None and state.disk == "UpToDate"
        good = [peer for peer in state.peers if peer.is_in_sync]
        assert good and not has_lost_writes(state) and not is_suspect
        if len(good) < len(state.peers):
            # Then DRBD counts, and freezes a Primary without any.
            assert len(state.peers) > 1 and state.has_quorum is not None
            primary = state._replace(role="Primary")
            assert must_hold(primary, may_be_write_back=True)
        assert wanted is Mode.WRITE_BACK
    assert (reason is Reason.NONE) is (mode is wanted)
    if mode is not wanted:
        assert mode is Mode.WRITE_THROUGH and reason in SENTENCES


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
        (several("UpToDate", "UpToDate"), Mode.WRITE_BACK),
        (several("UpToDate", "Inconsistent"), Mode.WRITE_BACK),
        (several("Inconsistent", "Outdated", "UpToDate"), Mode.WRITE_BACK),
        (several("Inconsistent", "Diskless"), Mode.WRITE_THROUGH),
        (several("UpToDate", "UpToDate", disk="Failed"), Mode.WRITE_THROUGH),
        # Two copies, which DRBD 9 does not count either.
        (several("Inconsistent"), Mode.WRITE_THROUGH),
        (several("UpToDate"), Mode.WRITE_BACK),
        # Nobody would freeze it.
        (several("UpToDate", "Inconsistent", has_quorum=None), Mode.WRITE_THROUGH),
    ],
)
def test_of_three_copies_two_are_enough(state: ResourceState, mode: Mode) -> None:
    assert allowed(Mode.WRITE_BACK, state, is_suspect=False)[0] is mode


def test_only_a_primary_with_a_disk_and_several_copies_is_held() -> None:
    held = several("UpToDate", "Inconsistent")
    assert must_hold(held, may_be_write_back=True)
    assert not must_hold(held, may_be_write_back=False)
    assert not must_hold(None, may_be_write_back=True)
    for state in (
        held._replace(role="Secondary"),
        held._replace(disk="Diskless"),
        held._replace(has_quorum=None),
        held._replace(peers=held.peers[:1]),
    ):
        assert not must_hold(state, may_be_write_back=True)


def in_sync(**changes: Any) -> ResourceState:
    peer = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
    return ResourceState("vm1", "Secondary", "no", "UpToDate", 1024, (peer._replace(**changes),))


def test_write_back_is_reached() -> None:
    told = allowed(Mode.WRITE_BACK, in_sync(), is_suspect=False)
    assert told == (Mode.WRITE_BACK, Reason.NONE)
    unordered = in_sync()._replace(write_ordering="drain")
    told = allowed(Mode.WRITE_BACK, unordered, is_suspect=False)
    assert told == (Mode.WRITE_THROUGH, Reason.NO_FLUSH)


@pytest.mark.parametrize(
    ("word", "lost"), [("flush", False), ("", False), ("drain", True), ("none", True)]
)
def test_drbd_that_has_ceased_to_flush_has_met_a_failure(word: str, lost: bool) -> None:
    assert has_lost_writes(in_sync()._replace(write_ordering=word)) is lost
    assert not has_lost_writes(None)


def test_only_a_primary_that_goes_on_is_cut_off() -> None:
    assert must_cut(in_sync(), may_be_write_back=True)
    assert not must_cut(in_sync(), may_be_write_back=False)
    assert not must_cut(in_sync(role="Secondary"), may_be_write_back=True)
    assert not must_cut(in_sync(connection="Connecting"), may_be_write_back=True)
    assert not must_cut(None, may_be_write_back=True)


@given(st.integers(0, 1 << 40), st.none() | states, st.booleans())
def test_reads_are_cached_only_of_what_is_good_here(
    wanted: int, state: ResourceState | None, has_place: bool
) -> None:
    """What is read could else be what the other node has, or what is to be replaced."""
    due, reason = due_read_cache(wanted, state, has_place=has_place)
    assert 0 <= due <= wanted
    if due:
        assert state is not None and has_place and state.size_kib is not None
        assert state.is_primary and state.disk == "UpToDate"
        assert not any(peer.is_verifying for peer in state.peers)
        assert due == min(wanted, state.size_kib * 1024)
    if reason:
        assert not due and wanted and reason in READ_SENTENCES


def test_each_reason_for_no_read_cache() -> None:
    serving = in_sync()._replace(role="Primary")
    compared = in_sync(replication="VerifyS")._replace(role="Primary")
    assert due_read_cache(64 << 10, serving, has_place=True) == (64 << 10, ReadReason.NONE)
    assert due_read_cache(64 << 10, serving, has_place=False)[1] is ReadReason.RESTART
    assert due_read_cache(64 << 10, compared, has_place=True)[1] is ReadReason.COMPARED
    failed = serving._replace(disk="Diskless")
    assert due_read_cache(64 << 10, failed, has_place=True)[1] is ReadReason.NOT_GOOD
    assert due_read_cache(64 << 10, in_sync(), has_place=True) == (0, ReadReason.NONE)
    unknown = serving._replace(size_kib=None)
    assert due_read_cache(64 << 10, unknown, has_place=True)[0] == 64 << 10


def test_a_quarter_of_the_ram_is_left() -> None:
    assert leaves_enough_ram(30, 20, 75, 100)
    assert not leaves_enough_ram(30, 21, 75, 100)


@pytest.mark.parametrize(
    ("disk", "replication", "reason"),
    [
        ("UpToDate", "VerifyS", Reason.COMPARING),
        ("UpToDate", "VerifyT", Reason.COMPARING),
        ("Outdated", "VerifyS", Reason.ONE_COPY),
        ("UpToDate", "SyncSource", Reason.ONE_COPY),
    ],
)
def test_copies_that_are_compared_are_not_called_lost(
    disk: str, replication: str, reason: Reason
) -> None:
    peer = PeerState("peer", "Connected", "Secondary", replication, disk, 0)
    state = ResourceState("vm1", "Primary", "no", "UpToDate", 1024, (peer,))
    told = allowed(Mode.WRITE_BACK, state, is_suspect=False)
    assert told == (Mode.WRITE_THROUGH, reason)
