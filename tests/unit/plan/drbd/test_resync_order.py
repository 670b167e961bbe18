# SPDX-License-Identifier: GPL-2.0-or-later
"""Which resync runs, and when a replica may be fully resynced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY, Window
from sanctl.plan.drbd.resync_order import (
    ResyncCandidate,
    choose_resync_kind,
    may_mark_all_out_of_sync,
    may_mark_all_while_disconnected,
    peers_to_pause_or_resume,
    wait_reasons,
)


def wants(name: str, left: int, priority: int = 50, *, stuck: bool = False) -> ResyncCandidate:
    return ResyncCandidate(name, DEFAULT_SYNC_POLICY._replace(priority=priority), left, stuck)


def test_priority_first_then_the_smallest() -> None:
    assert wait_reasons([wants("big", 900), wants("small", 10), wants("vital", 999, 90)], 12) == {
        "vital": "",
        "small": "for vital",
        "big": "for vital",
    }
    assert wait_reasons([wants("big", 900), wants("small", 10)], 12) == {
        "small": "",
        "big": "for small",
    }
    assert wait_reasons([wants("b", 5), wants("a", 5)], 12) == {"a": "", "b": "for a"}
    assert wait_reasons([], 12) == {}


def test_no_resync_waits_for_a_stuck_one() -> None:
    stuck = wants("vital", 999, 90, stuck=True)
    assert wait_reasons([stuck, wants("big", 900), wants("small", 10)], 12) == {
        "vital": "",
        "small": "",
        "big": "for small",
    }


def test_no_resync_waits_for_one_outside_its_window() -> None:
    night = ResyncCandidate(
        "vital", DEFAULT_SYNC_POLICY._replace(priority=90, window=Window(22, 6)), 9, False
    )
    assert wait_reasons([night, wants("big", 900)], 12) == {"vital": "until 22:00", "big": ""}
    assert wait_reasons([night, wants("big", 900)], 23) == {"vital": "", "big": "for vital"}


@given(
    st.lists(
        st.builds(
            ResyncCandidate,
            name=st.from_regex(r"[a-z]{1,4}", fullmatch=True),
            policy=st.builds(
                DEFAULT_SYNC_POLICY._replace,
                priority=st.integers(0, 100),
                window=st.sampled_from([None, Window(0, 6), Window(12, 18)]),
            ),
            left_kib=st.integers(0, 99),
            is_stuck=st.booleans(),
        ),
        unique_by=lambda candidate: candidate.name,
    ),
    st.integers(0, 23),
)
def test_some_resync_always_runs(candidates: list[ResyncCandidate], hour: int) -> None:
    """Whatever the order: where a healthy device may run at this hour, exactly one does."""
    result = wait_reasons(candidates, hour)
    assert result.keys() == {candidate.name for candidate in candidates}
    able = [
        c
        for c in candidates
        if not c.is_stuck and (c.policy.window is None or c.policy.window.is_open(hour))
    ]
    assert sum(not result[c.name] for c in able) == min(1, len(able))
    for each in candidates:
        assert result[each.name] != f"for {each.name}"
        if each.policy.window is not None and not each.policy.window.is_open(hour):
            assert result[each.name]


@pytest.mark.parametrize(
    ("limit", "changed", "kind"),
    [
        (None, 99, "fast"),
        (None, 100, "full"),
        (30, 30, "fast"),
        (30, 31, "full"),
        (1, 1, "fast"),
        (99, 100, "full"),
        (None, 0, "fast"),
    ],
)
def test_which_kind(limit: int | None, changed: int, kind: str) -> None:
    found, why = choose_resync_kind(
        DEFAULT_SYNC_POLICY._replace(full_above_percent=limit), changed, 100, can_widen=True
    )
    assert found == kind
    assert "marked" in why


def test_no_resync_is_called_full_that_is_not() -> None:
    """DRBD 9 sends what is marked; a limit that 8.4 was given before an upgrade changes nothing."""
    policy = DEFAULT_SYNC_POLICY._replace(full_above_percent=30)
    assert choose_resync_kind(policy, 40, 100, can_widen=False) == (
        "fast",
        "40% is marked; no limit with DRBD 9",
    )
    assert choose_resync_kind(policy, 100, 100, can_widen=False)[0] == "full"


def test_all_connected_peers_of_drbd_9_are_paused_and_all_paused_ones_resumed() -> None:
    def peer(number: int, connection: str, suspended: str) -> PeerState:
        return PeerState(
            f"n{number}",
            connection,
            "Secondary",
            "Established",
            "UpToDate",
            0,
            suspended,
            0,
            number,
        )

    state = ResourceState(
        "vm1",
        "Secondary",
        "no",
        "Inconsistent",
        100,
        (
            peer(1, "Connected", "no"),
            peer(2, "Connected", "user,peer"),
            peer(3, "Connecting", "no"),
            peer(4, "Connecting", "user"),
        ),
    )
    assert peers_to_pause_or_resume(state, is_to_wait=True) == (1,)
    assert peers_to_pause_or_resume(state, is_to_wait=False) == (2, 4)


_STATES = st.builds(
    ResourceState,
    name=st.just("vm1"),
    role=st.sampled_from(["Primary", "Secondary", "Unknown"]),
    suspended=st.just("no"),
    disk=st.sampled_from(["UpToDate", "Inconsistent", "Outdated", "Consistent", "Diskless"]),
    size_kib=st.just(100),
    peers=st.lists(
        st.builds(
            PeerState,
            name=st.just("peer"),
            connection=st.sampled_from(["Connected", "Connecting", "StandAlone"]),
            role=st.sampled_from(["Primary", "Secondary", "Unknown"]),
            replication=st.sampled_from(
                ["SyncTarget", "PausedSyncT", "SyncSource", "Established", "Off"]
            ),
            disk=st.sampled_from(["UpToDate", "Inconsistent", "DUnknown"]),
            out_of_sync_kib=st.just(5),
        ),
        max_size=2,
    ).map(tuple),
)


@given(_STATES)
def test_only_a_resync_target_is_ever_marked_out_of_sync(state: ResourceState) -> None:
    if may_mark_all_out_of_sync(state):
        (peer,) = state.peers
        assert (state.role, state.disk) == ("Secondary", "Inconsistent")
        assert (peer.connection, peer.disk) == ("Connected", "UpToDate")
        assert peer.replication == "PausedSyncT"
    if may_mark_all_while_disconnected(state):
        assert (state.role, state.disk) == ("Secondary", "Inconsistent")
        assert not any(peer.connection == "Connected" for peer in state.peers)


def test_a_paused_target_may_be_fully_resynced() -> None:
    peer = PeerState("peer", "Connected", "Primary", "PausedSyncT", "UpToDate", 5)
    state = ResourceState("vm1", "Secondary", "no", "Inconsistent", 100, (peer,))
    assert may_mark_all_out_of_sync(state)
    assert not may_mark_all_out_of_sync(
        state._replace(peers=(peer._replace(replication="SyncTarget"),))
    )
    assert not may_mark_all_while_disconnected(state)
    assert may_mark_all_while_disconnected(state._replace(peers=()))
