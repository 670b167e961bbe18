# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.names import NodeName
from sanctl.parse.published_state import parse_pool_usage, parse_replica_state


def test_replica_attribute() -> None:
    state = parse_replica_state(
        "disk=Inconsistent connection=Connected replication=SyncTarget peer-disk=UpToDate "
        "out-of-sync=2048 role=Secondary size=? acl=e3b0c442 new-word=1"
    )
    assert state.brief() == "Inconsistent SyncTarget 2 MiB to sync"
    assert state.size_bytes is None and state.access == "e3b0c442"
    assert not state.is_in_sync and state.is_connected
    assert parse_replica_state("disk=? connection=Unknown").brief() == "? ?"


def test_replica_attribute_of_several_peers() -> None:
    state = parse_replica_state(
        "disk=UpToDate connection=Connected,Connected,Connecting "
        "replication=Established,SyncSource,Off peer-disk=UpToDate,Inconsistent,DUnknown "
        "out-of-sync=0 role=Primary size=8 suspended=no peers=n2,n3,n4"
    )
    n2, n3, n4 = (NodeName.parse(f"n{number}") for number in (2, 3, 4))
    assert (state.connection, state.peer_disk) == ("Connecting", None)
    assert state.brief() == "UpToDate n3 SyncSource, n4 Connecting"
    assert state.is_in_sync_with([n2]) and not state.is_in_sync_with([n2, n3])
    assert state.is_connected_with([n2, n3]) and not state.is_connected_with([n4])
    whole = parse_replica_state(
        "disk=UpToDate connection=Connected,Connected replication=Established,Established "
        "peer-disk=UpToDate,UpToDate out-of-sync=0 peers=n2,n3"
    )
    assert whole.is_in_sync and whole.link is None and whole.brief() == "UpToDate"
    # Cut short, by whatever: what is not told is unknown.
    assert not parse_replica_state("disk=UpToDate connection=Connected peers=n2,n3").is_connected


@given(st.text())
def test_odd_attributes_are_unknown_not_errors(text: str) -> None:
    parse_replica_state(text)
    parse_pool_usage(text)


def test_pool_attribute() -> None:
    assert parse_pool_usage("error=SAN-POOL-001").error == "SAN-POOL-001"
    assert parse_pool_usage("total=10 free=5").allocated_bytes is None
    assert parse_pool_usage("total=10 free=5 allocated=2").allocated_bytes == 2
    assert parse_pool_usage("total=10 free=5").holds_run is None
    assert parse_pool_usage("total=10 free=5 holds=?").holds_run == ""
    assert parse_pool_usage("total=10 free=5 holds=0123456789ab-7").holds_run == "0123456789ab-7"
    assert parse_pool_usage("total=x").error is not None


@pytest.mark.parametrize(
    ("fields", "memory_bytes", "bitmaps"),
    [
        ("memory=2147483648 bitmaps=1", 2 << 30, 1),
        ("bitmaps=3 memory=4096 unheard=of", 4096, 3),
        ("", None, None),
        ("memory=0 bitmaps=0", None, None),
        ("memory=-1 bitmaps=-1", None, None),
        ("memory=2G bitmaps=?", None, None),
        ("memory=\u0661 bitmaps=", None, None),
    ],
)
def test_what_a_node_says_of_its_memory(
    fields: str, memory_bytes: int | None, bitmaps: int | None
) -> None:
    """Nothing, if its release is older."""
    usage = parse_pool_usage(f"total=10 free=5 {fields}")
    assert (usage.error, usage.memory_bytes, usage.bitmaps) == (None, memory_bytes, bitmaps)
