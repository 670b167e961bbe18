"""Write-back is allowed where two copies are in sync, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.cache import Mode
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.caching import SENTENCES, Reason, allowed, has_lost_writes, must_cut

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
    st.sampled_from(("", "flush", "drain", "none", "barrier")),
)


@given(st.sampled_from(Mode), st.none() | states, st.booleans())
def test_nothing_is_in_ram_alone(
    wanted: Mode, state: ResourceState | None, is_suspect: bool
) -> None:
    mode, reason = allowed(wanted, state, is_suspect=is_suspect)
    if mode is Mode.WRITE_BACK:
        assert state is not None
        assert state.is_in_sync and not has_lost_writes(state) and not is_suspect
        assert wanted is Mode.WRITE_BACK
    assert (reason is Reason.NONE) is (mode is wanted)
    if mode is not wanted:
        assert mode is Mode.WRITE_THROUGH and reason in SENTENCES


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
