# SPDX-License-Identifier: GPL-2.0-or-later
"""Monitors of replicas that are not in sync do their duties one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from sanctl.agents import device as agent
from sanctl.agents import device_monitor, ocf
from sanctl.agents.cache import flush_unit
from sanctl.agents.connections import frozen_primary
from sanctl.agents.fencing import hung_io_reboot
from sanctl.agents.node import monitor_turn
from sanctl.agents.publish import attrd_cache, replica_state, withheld_note
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, gate, lio
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.plan.device import monitor_turn as plan
from sanctl.plan.device.monitor_turn import CRASHED_LONGEST_S, LONGEST_S, WAIT_S
from sanctl.system import state_files
from tests.fakes.node import FakeNode

IN_SYNC = PeerState("n2", "Connected", "Secondary", "Established", "UpToDate", 0)
AWAY = PeerState("n2", "Connecting", "Unknown", "Off", "DUnknown", 8)
ALONE = ResourceState("vol1", "Primary", "no", "UpToDate", 1024, (AWAY,), minor=3)
VOL1, VOL2 = (
    Device(name, "a" * 32, 1 << 20, "main", ("n1", "n2"), 3, ()) for name in ("vol1", "vol2")
)
WHOLE = ALONE._replace(peers=(IN_SYNC,))


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    """A node where one monitor has a turn at a time."""
    monkeypatch.setattr(plan, "at_a_time", lambda _processors: 1)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "77")
    for name in ("vol1", "vol2"):
        attrd_cache.record(attrd_cache.of_score(name), "77", "9000")
    return fake_node


def _age(node: FakeNode, name: str, age_s: float) -> None:
    del node
    done = state_files.of_device(name, "duties-done")
    done.write()
    at_s = (done.written_ns() or 0) / 1e9 - age_s
    os.utime(done.path, (at_s, at_s))


def test_a_second_one_waits_and_leaves_it_to_the_next(node: FakeNode) -> None:
    with monitor_turn.taken(VOL1, ALONE) as first:
        begin_s = node.clock.now_s
        with monitor_turn.taken(VOL2, ALONE) as second:
            assert (first, second) == (True, False)
        assert node.clock.now_s - begin_s == pytest.approx(WAIT_S, abs=0.5)


def test_a_turn_that_was_given_back_pauses(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    worked = iter((0.5, 1.5))
    monkeypatch.setattr(monitor_turn, "_worked_s", lambda: next(worked, 0.0))
    with monitor_turn.taken(VOL1, ALONE):
        node.clock.now_s += 9.0
    begin_s = node.clock.now_s
    with monitor_turn.taken(VOL2, ALONE) as is_due:
        assert is_due
        assert node.clock.now_s - begin_s == pytest.approx(2.0, abs=0.3)


def test_one_in_sync_needs_none(node: FakeNode) -> None:
    begin_s = node.clock.now_s
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, WHOLE) as is_due:
        assert is_due
    assert node.clock.now_s == begin_s
    assert not state_files.of_device("vol2", "duties-done").exists()


def test_a_standby_that_has_lost_its_peer_waits_for_no_turn(node: FakeNode) -> None:
    """What broke: its promotion waited for its monitor, which waited for a turn."""
    standby = ALONE._replace(role="Secondary")
    begin_s = node.clock.now_s
    with monitor_turn.taken(VOL1, standby) as first, monitor_turn.taken(VOL2, standby) as second:
        assert (first, second) == (True, False)
    assert node.clock.now_s == begin_s


def test_one_that_is_withheld_waits_as_well(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: after a boot without the peer no monitor of DRBD 9 waited for a turn."""
    standby = ALONE._replace(role="Secondary", disk="Consistent")
    attrd_cache.record(attrd_cache.of_score("vol2"), "77", "None")
    withheld_note.record("vol2", is_withheld=True)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, standby) as is_due:
        assert not is_due
    # Its peer, which crashed as Primary, may wait for its promotion (standby_first.py).
    kept = state_files.of_node("kept.vol2")
    kept.write()
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, standby) as is_due:
        assert not is_due
    _age(node, "vol2", CRASHED_LONGEST_S)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, standby) as is_due:
        assert is_due
    kept.remove()
    # As one that has crashed itself.
    withheld_note.record("vol2", is_withheld=False)
    crashed = state_files.of_device("vol2", "standby-first")
    crashed.write(f"n2 {node.clock.now_s:.0f}")
    apart = standby._replace(peers=())
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, apart) as is_due:
        assert not is_due
    _age(node, "vol2", CRASHED_LONGEST_S)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, apart) as is_due:
        assert is_due
    crashed.remove()
    withheld_note.record("vol2", is_withheld=False)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, standby) as is_due:
        assert is_due

    def unreadable(_file: state_files.StateFile) -> bool:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(state_files.StateFile, "exists", unreadable)
    withheld_note.record("vol2", is_withheld=True)
    assert not withheld_note.exists("vol2")


def test_a_new_device_is_left_to_a_later_one_at_once(node: FakeNode) -> None:
    blank = WHOLE._replace(
        role="Secondary", disk="Inconsistent", peers=(IN_SYNC._replace(disk="Inconsistent"),)
    )
    begin_s = node.clock.now_s
    with monitor_turn.taken(VOL1, blank) as is_due:
        assert not is_due
    assert node.clock.now_s == begin_s


def test_one_that_has_waited_for_a_minute_goes_on(node: FakeNode) -> None:
    _age(node, "vol2", LONGEST_S + 1)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, ALONE) as is_due:
        assert is_due
    age_s = state_files.of_device("vol2", "duties-done").age_s()
    assert age_s is not None
    assert age_s < LONGEST_S


@pytest.mark.parametrize("score", ["", "76 9000", "78"])
def test_one_whose_score_the_running_attrd_does_not_have_goes_on(
    node: FakeNode, score: str
) -> None:
    """What broke: a Primary that attrd's restart had demoted was left to a later monitor."""
    del node
    attrd_cache.of_score("vol2").write(score)
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(VOL2, ALONE) as is_due:
        assert is_due


@pytest.mark.parametrize(
    "other",
    [
        VOL2._replace(cache="write-back"),
        VOL2._replace(awaits="far"),
        VOL2._replace(restore="order"),
        VOL2._replace(initiators=("iqn.2026-01.net.example:h1",)),
    ],
    ids=["cache", "site", "restore", "access list"],
)
def test_one_with_an_order_goes_on(node: FakeNode, other: Device) -> None:
    """What broke: write-back was not left while the only other disk was lost."""
    del node
    with monitor_turn.taken(VOL1, ALONE), monitor_turn.taken(other, ALONE) as is_due:
        assert is_due


def test_without_room_for_locks_all_go_on(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    del node

    def no_room(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(state_files, "locked", no_room)
    monkeypatch.setattr(state_files.StateFile, "write", no_room)
    with monitor_turn.taken(VOL1, ALONE) as first, monitor_turn.taken(VOL2, ALONE) as second:
        assert first
        assert second
    monkeypatch.setattr(state_files.StateFile, "age_s", lambda _file: 1.0)
    with monitor_turn.taken(VOL1, ALONE) as first, monitor_turn.taken(VOL2, ALONE) as second:
        assert first
        assert second


def test_without_a_turn_hosts_are_seen_to_and_nothing_else(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.ask_for_monitor(monkeypatch)
    node.states["vol1"] = ALONE
    monkeypatch.setattr(gate, "gate_table", lambda _name: "drbd3")
    monkeypatch.setattr(gate, "is_suspended", lambda _name: False)
    monkeypatch.setattr(lio, "alua_state", lambda *_: "Active/Optimized")
    monkeypatch.setattr(lio, "is_exported", lambda _name: True)
    monkeypatch.setattr(drbd_kernel, "has_device", lambda _minor: True)
    done: list[str] = []

    def note(what: str, answer: object = None) -> Callable[..., object]:
        def noting(*_: object, **__: object) -> object:
            done.append(what)
            return answer

        return noting

    monkeypatch.setattr(frozen_primary, "call_handler_again", note("frozen", ALONE))
    monkeypatch.setattr(fs_shutdown, "release_files", note("filesystem"))
    monkeypatch.setattr(hung_io_reboot, "check", note("hung"))
    monkeypatch.setattr(flush_unit, "start_if_needed", note("flushes"))
    monkeypatch.setattr(device_monitor, "_do_duties", note("duties", (ALONE, "")))
    monkeypatch.setattr(replica_state, "publish", note("publish"))
    with monitor_turn.taken(VOL2, ALONE):
        assert agent.monitor() == ocf.RUNNING_PROMOTED
    assert done == ["frozen", "filesystem", "flushes", "hung"]
    done.clear()
    node.clock.now_s += 60.0
    assert agent.monitor() == ocf.RUNNING_PROMOTED
    assert done == ["frozen", "filesystem", "duties", "publish", "hung"]
