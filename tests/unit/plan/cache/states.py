# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD states for the tests of the cache rules: any state, and two replicas in sync."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from sanctl.model.drbd import PeerState, ResourceState

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


def in_sync(**changes: Any) -> ResourceState:
    peer = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
    return ResourceState("vm1", "Secondary", "no", "UpToDate", 1024, (peer._replace(**changes),))
