# SPDX-License-Identifier: GPL-2.0-or-later
"""A monitor marks the target of a resync that began although before-resync-source was killed."""

from __future__ import annotations

import errno
import os
import time

import pytest

from sanctl.agents import device_monitor
from sanctl.agents.fencing import all_marked, outdate
from sanctl.agents.promotion import compared_data
from sanctl.agents.publish import replica_state
from sanctl.agents.reservations import hooks
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.unit.agents.fencing.test_own_mark import GOOD, VOL, Cluster

_TARGET = GOOD._replace(replication="SyncSource", disk="Inconsistent")
_FILLS = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (_TARGET,))
_IN_SYNC = _FILLS._replace(peers=(GOOD,))
_NOTE = "resync-marked.n2"


@pytest.fixture(autouse=True)
def here(fake_node: FakeNode) -> FakeNode:
    fake_node.states["vol1"] = _FILLS
    return fake_node


def _monitor(cluster: Cluster, state: ResourceState = _FILLS) -> ResourceState | None:
    return device_monitor._mark_sync_targets(cluster, VOL, state)


@pytest.mark.parametrize("role", ["Primary", "Secondary"])
@pytest.mark.parametrize("replication", ["SyncSource", "PausedSyncS"])
def test_a_target_without_a_mark_is_marked(here: FakeNode, role: str, replication: str) -> None:
    """What broke: with drbdadm killed, DRBD 8.4 let the resync begin, and nobody marked."""
    state = _FILLS._replace(role=role, peers=(_TARGET._replace(replication=replication),))
    here.states["vol1"] = state
    cluster = Cluster()
    assert _monitor(cluster, state) == state
    assert cluster.marked == ["n2"]


def test_one_that_is_marked_is_left_and_looked_at_again_after_a_while() -> None:
    cluster = Cluster("n2")
    assert _monitor(cluster) is None
    asked = len(cluster.calls)
    assert (cluster.changes, asked) == (0, 1)
    assert _monitor(cluster) is None
    assert len(cluster.calls) == asked
    cluster.marked.clear()
    old_s = time.time() - outdate._LOOK_AGAIN_S
    os.utime(state_files.of_device("vol1", _NOTE).path, (old_s, old_s))
    _monitor(cluster)
    assert cluster.marked == ["n2"]


def test_a_mark_that_is_set_costs_no_more_than_that() -> None:
    """Quorum, the marks and DRBD before and after; the resync goes on, and nothing is cleared."""
    cluster = Cluster()
    _monitor(cluster)
    programs = [argv[0] for argv, _ in cluster.calls]
    assert (programs.count("corosync-quorumtool"), programs.count("cibadmin")) == (2, 4)


def test_while_the_mark_of_the_handler_is_new_nothing_is_asked() -> None:
    """Of a node that is back with twenty devices each is filled: a query for each, at once."""
    outdate.record_found_mark("vol1", "n2")
    cluster = Cluster("n2")
    assert _monitor(cluster) is None
    assert cluster.calls == []


@pytest.mark.parametrize("by", ["primary", "secondary"])
def test_a_resync_right_after_the_mark_was_removed_is_looked_at(here: FakeNode, by: str) -> None:
    """The note of the one before is not its own."""
    cluster = Cluster("n2")
    assert _monitor(cluster) is None
    if by == "primary":
        here.states["vol1"] = _IN_SYNC
        assert outdate.clear_marks(cluster, "vol1", ["n2"], hooks.has_current)
    else:
        cluster.marked = ["n1", "n2"]
        here.states["vol1"] = idle = _IN_SYNC._replace(role="Secondary")
        assert all_marked.unmark_peer(cluster, VOL, idle, lambda *_: True)
        cluster.marked = ["n1"]
    here.states["vol1"] = _FILLS
    _monitor(cluster)
    assert "n2" in cluster.marked


@pytest.mark.parametrize("state", [_IN_SYNC, _IN_SYNC._replace(peers=()), None], ids=str)
def test_none_is_set_when_the_resync_has_ended(here: FakeNode, state: ResourceState | None) -> None:
    """What counts is what DRBD says under the lock."""
    here.states["vol1"] = state
    cluster = Cluster()
    assert _monitor(cluster) is None
    assert cluster.calls == []


@pytest.mark.parametrize(("role", "left"), [("Primary", []), ("Secondary", ["n2"])])
def test_one_that_came_too_late_is_taken_off(here: FakeNode, role: str, left: list[str]) -> None:
    """By a Primary: DRBD called unfence-peer before the mark was there. A standby clears none."""
    here.states["vol1"] = _FILLS._replace(role=role)
    cluster = Cluster()

    def end() -> None:
        here.states["vol1"] = _IN_SYNC._replace(role=role)

    cluster.on_mark = end
    assert _monitor(cluster) == _IN_SYNC._replace(role=role)
    assert cluster.marked == left


def test_the_next_monitor_takes_it_off_where_this_one_dies(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who publishes the end of the resync meanwhile does not get the lock, and records nothing."""
    here.start_attrd(monkeypatch)
    monkeypatch.setattr(compared_data, "is_candidate", lambda *_: True)
    here.enter_period_of_vol1()
    cluster = Cluster()
    replica_state.publish(cluster, VOL, _FILLS)

    def end() -> None:
        here.states["vol1"] = _IN_SYNC
        assert not replica_state.publish(cluster, VOL, _IN_SYNC), "as unfence-peer has it done"

    cluster.on_mark = end
    assert outdate.mark_sync_targets(cluster, "vol1", ["n2"])
    assert cluster.marked == ["n2"]
    assert replica_state.publish(cluster, VOL, _IN_SYNC)
    assert cluster.marked == []


def test_no_other_peer_is_asked_for() -> None:
    cluster = Cluster()
    for replication in ("Established", "SyncTarget", "VerifyS", "WFBitMapS", "Off"):
        peer = GOOD._replace(replication=replication)
        assert _monitor(cluster, _IN_SYNC._replace(peers=(peer,))) is None
    assert cluster.calls == []


def test_with_drbd_9_each_peer_counts_by_its_name(here: FakeNode) -> None:
    peers = (GOOD._replace(name="n2"), _TARGET._replace(name="n3"))
    state = _FILLS._replace(has_quorum=True, peers=peers)
    here.states["vol1"], here.generation = state, 9
    cluster = Cluster()
    device_monitor._mark_sync_targets(cluster, VOL._replace(nodes=("n1", "n2", "n3")), state)
    assert cluster.marked == ["n3"]


@pytest.mark.parametrize("quorate", [("No",), ("Yes", "No")])
def test_without_quorum_it_is_tried_again(quorate: tuple[str, ...]) -> None:
    cluster = Cluster(quorate=quorate)
    _monitor(cluster)
    assert cluster.marked == ["n2"] * (len(quorate) - 1)
    assert not state_files.of_device("vol1", _NOTE).exists()


def test_not_while_a_handler_marks() -> None:
    cluster = Cluster()
    with outdate.locked("vol1", wait_s=0.0):
        assert _monitor(cluster) is None
    assert cluster.calls == []


def test_without_room_for_the_note_each_monitor_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(file: state_files.StateFile, _: str = "") -> None:
        raise OSError(errno.ENOSPC, file.path)

    monkeypatch.setattr(state_files.StateFile, "write", refuse)
    cluster = Cluster("n2")
    for count in (1, 2):
        assert _monitor(cluster) is None
        assert len(cluster.calls) == count


@pytest.mark.parametrize(
    ("state", "is_noted", "left"),
    [
        (_IN_SYNC, True, []),
        # Nobody was filled from here: most promotions, which no program is started for.
        (_IN_SYNC, False, ["n2"]),
        (_FILLS, True, ["n2"]),
        (_IN_SYNC._replace(role="Secondary"), True, ["n2"]),
        (None, True, ["n2"]),
    ],
    ids=["in-sync", "not-noted", "filling", "standby", "down"],
)
def test_a_promotion_clears_the_mark_of_one_that_it_has_filled_before_hosts_write(
    here: FakeNode,
    monkeypatch: pytest.MonkeyPatch,
    state: ResourceState | None,
    is_noted: bool,
    left: list[str],
) -> None:
    """What broke: the active node was lost before, the standby with every write stayed marked, and
    was filled with what the other's disk had kept."""
    here.start_attrd(monkeypatch)
    here.states["vol1"] = state
    cluster = Cluster("n2")
    if is_noted:
        outdate.record_found_mark("vol1", "n2")
    assert replica_state.clear_marks_before_writes(cluster, VOL) is not bool(left)
    assert cluster.marked == left
    programs = [argv[0] for argv, _ in cluster.calls]
    assert is_noted or programs == []
    if not left:
        assert programs.index("attrd_updater") < len(programs) - 1 - programs[::-1].index(
            "cibadmin"
        ), "a standby's score would have the device moved"


def test_a_promotion_goes_on_where_marks_cannot_be_cleared(
    here: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.start_attrd(monkeypatch)
    here.states["vol1"] = _IN_SYNC
    outdate.record_found_mark("vol1", "n2")
    logged: list[str] = []
    monkeypatch.setattr(
        replica_state, "log_publish_failure", lambda name, error: logged.append(f"{name}: {error}")
    )

    def fail(*_: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outdate, "clear_marks", fail)
    assert not replica_state.clear_marks_before_writes(Cluster("n2"), VOL)
    assert logged == ["vol1: [Errno 28] No space left on device"]


def test_of_a_device_with_reservations_the_end_of_the_promotion_clears_them(
    here: FakeNode,
) -> None:
    """They are settled with the peers before ALUA anyway, which takes its time."""
    here.states["vol1"] = _IN_SYNC
    outdate.record_found_mark("vol1", "n2")
    cluster = Cluster("n2")
    assert not replica_state.clear_marks_before_writes(cluster, VOL._replace(reservations=True))
    assert cluster.calls == []


def test_the_note_of_a_mark_that_another_has_removed_goes(here: FakeNode) -> None:
    """Each promotion would look for that mark, as long as the node runs."""
    here.states["vol1"] = _IN_SYNC
    outdate.record_found_mark("vol1", "n2")
    assert outdate.clear_marks(Cluster(), "vol1", ["n2"], hooks.has_current)
    assert not outdate.has_found_mark("vol1", "n2")
