# SPDX-License-Identifier: GPL-2.0-or-later
"""Parsing events2 of DRBD 8.4 and 9, on captured outputs and on generated states."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.model.drbd import OldRequest, PeerState, ResourceState
from sanctl.parse.drbd import (
    PendingRequests,
    SyncProgress,
    parse_bitmap_owners,
    parse_events2,
    parse_oldest_requests,
    parse_out_of_sync_range,
    parse_pending_requests,
    parse_primaries_without_disk,
    parse_state_line,
    parse_sync_progress,
    parse_verify_done,
)

GOLDEN = Path(__file__).parents[2] / "golden"


def _captured(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


def test_primary_with_its_peer_in_sync() -> None:
    assert parse_events2(_captured("drbd84/uptodate-primary.n1.txt")) == {
        "r0": ResourceState(
            name="r0",
            role="Primary",
            suspended="no",
            disk="UpToDate",
            size_kib=524288,
            minor=0,
            peers=(
                PeerState(
                    "peer", "Connected", "Secondary", "Established", "UpToDate", 0, "no", 1776, 0
                ),
            ),
            write_ordering="flush",
        )
    }


def test_lost_peer_is_unknown_not_absent() -> None:
    (peer,) = parse_events2(_captured("drbd84/peer-lost.n1.txt"))["r0"].peers
    assert (peer.connection, peer.role, peer.disk) == ("Connecting", "Unknown", "DUnknown")


@pytest.mark.parametrize(
    ("file", "replication", "disk", "peer_disk"),
    [
        ("drbd84/resyncing.n1.txt", "SyncSource", "UpToDate", "Inconsistent"),
        ("drbd84/resyncing.n2.txt", "SyncTarget", "Inconsistent", "UpToDate"),
    ],
)
def test_resync_of_8_4(file: str, replication: str, disk: str, peer_disk: str) -> None:
    state = parse_events2(_captured(file))["r0"]
    (peer,) = state.peers
    assert (state.disk, peer.replication, peer.disk) == (disk, replication, peer_disk)
    assert (state.out_of_sync_kib or 0) > 0


@pytest.mark.parametrize(
    "path", sorted((GOLDEN / "drbd9").glob("*.m?.txt")), ids=lambda path: str(path.name)
)
def test_every_captured_state_of_9(path: Path) -> None:
    # Some were captured with a second resource, `web`, present.
    state = parse_events2(path.read_text(encoding="utf-8"))["r0"]
    assert state.role in {"Primary", "Secondary"}
    assert state.disk != ""
    assert 1 <= len(state.peers) <= 3
    # One peer, one entry: the connection's line and the peer device's are joined.
    assert len({peer.name for peer in state.peers}) == len(state.peers)


def test_states_of_9_that_matter() -> None:
    suspended = parse_events2(_captured("drbd9/quorum-lost-suspended.m1.txt"))["r0"]
    assert (suspended.suspended, suspended.has_quorum) == ("quorum", False)
    assert [peer.node_id for peer in suspended.peers] == [2, 3]
    diskless = parse_events2(_captured("drbd9/diskless-primary.m1.txt"))["web"]
    assert (diskless.role, diskless.disk) == ("Primary", "Diskless")
    standalone = parse_events2(_captured("drbd9/standalone.m3.txt"))["r0"]
    assert "StandAlone" in {peer.connection for peer in standalone.peers}


def test_one_peer_of_several() -> None:
    state = parse_events2(_captured("drbd9/peer-lost.m1.txt"))["r0"]
    assert state.has_quorum
    assert not state.is_in_sync and not state.is_connected
    assert state.with_only_peer("m2").is_in_sync
    assert not state.with_only_peer("m3").is_connected
    assert not state.with_only_peer("m4").is_connected, "a peer that DRBD does not know of"


def test_the_only_peer_of_8_4_has_no_name() -> None:
    state = parse_events2(_captured("drbd84/uptodate-primary.n1.txt"))["r0"]
    assert state.with_only_peer("n2").is_in_sync


def test_destroyed_objects_are_gone() -> None:
    text = (
        "exists resource name:a role:Secondary suspended:no\n"
        "exists connection name:a peer-node-id:1 conn-name:n2 connection:Connected role:Primary\n"
        "exists device name:a volume:0 minor:1 disk:UpToDate size:8\n"
        "destroy connection name:a peer-node-id:1 conn-name:n2\n"
        "exists resource name:b role:Secondary suspended:no\n"
        "destroy resource name:b\n"
        "exists -\n"
    )
    left = ResourceState("a", "Secondary", "no", "UpToDate", 8, (), 1)
    assert parse_events2(text) == {"a": left}


@pytest.mark.parametrize("text", ["", "exists -\n", "garbage\n\n", "exists resource\n"])
def test_empty_output_has_no_resources(text: str) -> None:
    assert "r0" not in parse_events2(text)


_WORD = st.sampled_from(["UpToDate", "Inconsistent", "Outdated", "Diskless", "Consistent"])
_PEERS = st.lists(
    st.builds(
        PeerState,
        name=st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True),
        connection=st.sampled_from(["Connected", "Connecting", "StandAlone"]),
        role=st.sampled_from(["Primary", "Secondary", "Unknown"]),
        replication=st.sampled_from(["Established", "SyncSource", "SyncTarget", "Off"]),
        disk=_WORD,
        out_of_sync_kib=st.one_of(st.none(), st.integers(0, 1 << 50)),
        resync_suspended=st.sampled_from(["no", "user", "peer", "user,peer"]),
        received_kib=st.one_of(st.none(), st.integers(0, 1 << 50)),
    ),
    max_size=3,
    unique_by=lambda peer: peer.name,
).map(
    lambda peers: tuple(
        peer._replace(node_id=number)
        for number, peer in enumerate(sorted(peers, key=lambda peer: peer.name))
    )
)
_STATES = st.builds(
    ResourceState,
    name=st.just("r0"),
    role=st.sampled_from(["Primary", "Secondary"]),
    suspended=st.sampled_from(["no", "quorum", "user"]),
    disk=_WORD,
    size_kib=st.one_of(st.none(), st.integers(0, 1 << 50)),
    peers=_PEERS,
    minor=st.integers(0, 4999),
    has_quorum=st.sampled_from([None, False, True]),
    write_ordering=st.sampled_from(["", "flush", "drain"]),
)


def _written(state: ResourceState) -> str:
    size = "" if state.size_kib is None else f" size:{state.size_kib}"
    if state.has_quorum is not None:
        size += f" quorum:{'yes' if state.has_quorum else 'no'}"
    order = f" write-ordering:{state.write_ordering}" if state.write_ordering else ""
    lines = [
        f"exists resource name:r0 role:{state.role} suspended:{state.suspended}{order} future:key",
        f"exists device name:r0 volume:0 minor:{state.minor} disk:{state.disk}{size}",
    ]
    for number, peer in enumerate(state.peers):
        oos = "" if peer.out_of_sync_kib is None else f" out-of-sync:{peer.out_of_sync_kib}"
        got = "" if peer.received_kib is None else f" received:{peer.received_kib}"
        head = f"name:r0 peer-node-id:{number} conn-name:{peer.name}"
        lines += [
            f"exists connection {head} connection:{peer.connection} role:{peer.role}",
            f"exists peer-device {head} volume:0 replication:{peer.replication}"
            f" peer-disk:{peer.disk} resync-suspended:{peer.resync_suspended}{got}{oos}",
        ]
    return "\n".join([*lines, "exists -"])


@given(_STATES)
def test_generated_events_read_back(state: ResourceState) -> None:
    assert parse_events2(_written(state)) == {"r0": state}


def test_progress_of_a_resync() -> None:
    assert parse_sync_progress(_captured("drbd84/resyncing.n2.txt")) == {
        0: SyncProgress(73664, 81920)
    }
    assert parse_sync_progress(_captured("drbd84/uptodate-primary.n1.txt")) == {}


def test_progress_of_large_resyncs_and_verifies() -> None:
    text = """version: 8.4.11 (api:1/proto:86-101)
 0: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:1 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
 3: cs:VerifyS ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:1 nr:0 dw:0 dr:0 al:0 bm:0 lo:0 pe:0 ua:0 ap:0 ep:1 wo:f oos:0
\t[>...................] verified:  7.1% (9512/10240)M
"""
    assert parse_sync_progress(text) == {3: SyncProgress(9512 * 1024, 10240 * 1024)}


def test_a_range_that_a_verify_found_out_of_sync() -> None:
    line = "block drbd12: Out of sync: start=2048, size=16 (sectors)"
    assert parse_out_of_sync_range(line) == (12, "", 1048576, 8192)
    nine = "drbd vol1/0 drbd12 n2: Out of sync: start=2048, size=16 (sectors)"
    assert parse_out_of_sync_range(nine) == (12, "n2", 1048576, 8192)
    assert (
        parse_out_of_sync_range("block drbd12: Online verify found 2 4k block out of sync!") is None
    )


def test_the_end_of_a_verify() -> None:
    how = "Online verify done (total 4 sec; paused 0 sec; 49152 K/sec)"
    assert parse_verify_done(f"block drbd12: {how}") == (12, "", 0)
    assert parse_verify_done(f"drbd vol1/0 drbd12 n2: {how}") == (12, "n2", 0)
    skipped = "drbd vol1/0 drbd12 n2: Online verify done but 3 4k blocks skipped (total 4 sec)"
    assert parse_verify_done(skipped) == (12, "n2", 12)
    assert parse_verify_done("block drbd12: Online Verify reached sector 4096") is None
    assert parse_verify_done("block drbd12: Resync done (total 4 sec)") is None


HEADER = "v: 0\n\nepoch\tsector\tsize\trw\tstart\tin AL\tsubmit\tsent\tacked\tdone\tstate\n"


def test_the_oldest_requests_of_a_device() -> None:
    text = HEADER + (
        "0x2a\t0\t0\tW\t31250\t-\t-\t-\t-\t31249"
        "\t0x00000a01\tmaster: pending\tlocal: suspended completed|ok\tnet: done|ok : -\n"
        "0x2b\t128\t8\tW\t17\t16\t16\t15\t-\t-"
        "\t0x00003a35\tmaster: pending\tlocal: in-AL pending\tnet: pending|sent : C|barr\n"
        "0x2b\t256\t8\tW\t70000\t-\t-\t-\t-\t-"
        "\t0x00000001\tmaster: pending\tlocal: -\tnet: - : -\n"
    )
    forgotten, moving, unasked = parse_oldest_requests(text)
    assert forgotten == OldRequest(
        31.25, True, frozenset({"completed", "ok"}), frozenset({"done", "ok"})
    )
    assert forgotten.waits_for_nothing and not forgotten.waits_for_disk
    assert moving == OldRequest(
        0.017, False, frozenset({"pending"}), frozenset({"pending", "sent"})
    )
    assert moving.waits_for_disk and not moving.waits_for_nothing
    assert unasked == OldRequest(70.0, False, frozenset(), frozenset())
    assert unasked.waits_for_disk


@pytest.mark.parametrize("text", ["", HEADER, "start\n-\n", "surprise\n0x2a\t0\n"])
def test_no_waiting_request(text: str) -> None:
    assert parse_oldest_requests(text) == ()


def test_pending_requests_without_the_handshakes() -> None:
    text = """\
version: 8.4.11 (api:1/proto:86-101)

 1: cs:WFReportParams ro:Primary/Unknown ds:UpToDate/Outdated C r-----
    ns:888 nr:0 dw:1236 dr:2623 al:12 bm:0 lo:1 pe:0 ua:0 ap:1 ep:1 wo:f oos:348
 2: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
    ns:888 nr:0 dw:1236 dr:2623 al:12 bm:0 lo:2 pe:3 ua:0 ap:4 ep:1 wo:f oos:0
"""
    assert parse_pending_requests(text) == {
        1: PendingRequests(1, 0, 0),
        2: PendingRequests(4, 2, 3),
    }
    assert parse_pending_requests("") == {}


def test_the_state_line_of_a_device_is_found_by_its_minor() -> None:
    text = """version: 8.4.11
 1: cs:WFConnection ro:Secondary/Unknown ds:Inconsistent/DUnknown C r-----
    ns:0 nr:0 dw:0
11: cs:Connected ro:Secondary/Secondary ds:Inconsistent/Inconsistent C r-----
12: cs:Unconfigured
"""
    assert parse_state_line(text, 1) == (
        "cs:WFConnection ro:Secondary/Unknown ds:Inconsistent/DUnknown"
    )
    assert parse_state_line(text, 11).startswith("cs:Connected")
    assert parse_state_line(text, 12) == "cs:Unconfigured"
    assert parse_state_line(text, 2) == ""
    assert parse_state_line("", 1) == ""


def test_devices_that_are_served_from_their_peers_disk_are_counted() -> None:
    text = """version: 8.4.11
 1: cs:Connected ro:Primary/Secondary ds:Diskless/UpToDate C r-----
    ns:0 nr:0 dw:0
11: cs:Connected ro:Primary/Secondary ds:Failed/UpToDate C r-----
12: cs:Connected ro:Primary/Secondary ds:UpToDate/UpToDate C r-----
13: cs:Connected ro:Secondary/Primary ds:Diskless/UpToDate C r-----
14: cs:WFConnection ro:Primary/Unknown ds:Diskless/DUnknown C r-----
15: cs:Connected ro:Primary/Secondary ds:Diskless/Diskless C r-----
16: cs:Unconfigured
"""
    assert parse_primaries_without_disk(text) == 2
    assert parse_primaries_without_disk("") == 0


def test_the_peers_that_have_a_bitmap() -> None:
    text = (
        "0x1B2A3C4D5E6F7081\n[1]0x0000000000000000 [30]0xA1B2C3D4E5F60718\n"
        "0x0000000000000000\n0x0000000000000000\n"
    )
    assert parse_bitmap_owners(text) == {1, 30}
    assert parse_bitmap_owners("") == frozenset()
