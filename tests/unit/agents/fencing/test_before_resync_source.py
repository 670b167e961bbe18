# SPDX-License-Identifier: GPL-2.0-or-later
"""Whoever is about to be filled by a resync is marked first, or not filled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import before_resync_source
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.parse.drbd import parse_events2
from sanctl.system import state_files
from sanctl.system.runner import DeadlineRunner, Runner
from tests.fakes.runner import Answer, FakeRunner

_SILENCE = CommandError(Problem("SAN-CMD-002", "no answer"))


def _events(connection: str, replication: str, peer_disk: str) -> str:
    return (
        "exists resource name:vol1 role:Primary suspended:no\n"
        f"exists connection name:vol1 conn-name:peer connection:{connection} role:Secondary\n"
        "exists device name:vol1 volume:0 minor:1 disk:UpToDate size:8\n"
        f"exists peer-device name:vol1 conn-name:peer volume:0 replication:{replication}"
        f" peer-disk:{peer_disk}\n"
    )


_WAITING = _events("Connected", "WFBitMapS", "Consistent")
_LOST = _events("Connecting", "Off", "DUnknown")
_STANDALONE = _events("StandAlone", "Off", "Outdated")
_IN_SYNC = _events("Connected", "Established", "UpToDate")


class _Clock:
    """Moves when somebody sleeps, and with every program."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1100.0, "it waits for ever"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> _Clock:
    made = _Clock()
    monkeypatch.setattr("time.monotonic", made.monotonic)
    monkeypatch.setattr("time.sleep", made.sleep)
    monkeypatch.setattr(drbdsetup, "is_loaded", lambda: True)
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    return made


def _source(
    monkeypatch: pytest.MonkeyPatch, clock: _Clock, standing: Sequence[str], events: str = _WAITING
) -> FakeRunner:
    """A node about to fill its peer, and the peer's standing each time somebody asks."""
    left = list(standing)

    def secure(runner: object, device: str, peer: str) -> str:
        clock.sleep(0.5)
        told = left.pop(0) if len(left) > 1 else left[0]
        if told == "silent":
            raise _SILENCE
        return told

    monkeypatch.setattr(outdate, "mark_outdated", secure)
    node = FakeRunner(events)
    monkeypatch.setattr(before_resync_source, "_RUNNER", node)
    return node


def _is_noted(tmp_path: Path) -> bool:
    return (tmp_path / "devices/vol1/outdated-unmarked.n2").exists()


@pytest.mark.parametrize(
    "standing", [["member"], ["fenced"], ["alone", "unknown", "silent", "member"]]
)
def test_a_resync_begins_when_its_target_is_marked(
    standing: list[str], clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _source(monkeypatch, clock, standing)
    assert before_resync_source.before_resync_source() == 0
    assert not _is_noted(tmp_path)


def test_drbd_9_may_drop_a_resync_that_was_let_begin(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its monitor connects again, once for each resync that was to begin."""
    monkeypatch.setattr(drbdsetup, "generation", lambda: 9)
    _source(monkeypatch, clock, ["member"])
    assert before_resync_source.before_resync_source() == 0
    assert _is_noted(tmp_path)
    alone = parse_events2(_STANDALONE)["vol1"]

    def refuse(argv: Sequence[str]) -> Answer:
        raise _SILENCE

    with pytest.raises(CommandError):
        before_resync_source.reconnect(FakeRunner(refuse), "vol1", alone)
    assert _is_noted(tmp_path)
    node = FakeRunner(_STANDALONE)
    for _ in range(2):
        assert before_resync_source.reconnect(node, "vol1", alone) == alone
    assert [argv for argv, _ in node.calls].count(("drbdadm", "adjust", "vol1")) == 1
    assert not _is_noted(tmp_path)


@pytest.mark.parametrize(("standing", "status"), [("member", 0), ("alone", 1)])
def test_a_note_that_a_monitor_uses_up_meanwhile_is_left_anew(
    standing: str, status: int, clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It connected another peer again: this one's resync has not begun yet."""
    monkeypatch.setattr(drbdsetup, "generation", lambda: 9)
    _source(monkeypatch, clock, [standing])
    told = outdate.mark_outdated

    def secure(runner: Runner, device: str, peer: str) -> str:
        state_files.remove_device(device)
        return told(runner, device, peer)

    monkeypatch.setattr(outdate, "mark_outdated", secure)
    assert before_resync_source.before_resync_source() == status
    assert _is_noted(tmp_path)


@pytest.mark.parametrize("standing", ["alone", "unknown", "silent"])
def test_while_the_mark_is_not_certain_there_is_no_resync(
    standing: str, clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """DRBD waits for it: it must end in less time than `drbdsetup down` waits."""
    _source(monkeypatch, clock, [standing])
    assert before_resync_source.before_resync_source() == 1
    assert 14.0 < clock.now - 1000.0 < 17.0
    assert _is_noted(tmp_path)


def test_when_the_connection_is_gone_nobody_is_marked_and_fence_peer_not_kept_waiting(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _source(monkeypatch, clock, [], _LOST)
    assert before_resync_source.before_resync_source() == 1
    assert clock.now - 1000.0 < 1.0
    assert _is_noted(tmp_path)


def test_it_waits_for_the_lock_no_longer_than_for_anything_else(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source(monkeypatch, clock, [])
    with outdate.locked("vol1", wait_s=0.0) as is_mine:
        assert is_mine
        assert before_resync_source.before_resync_source() == 1
    assert clock.now - 1000.0 < 17.0


def test_without_a_name_nothing_is_filled(clock: _Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRBD_PEER")
    assert before_resync_source.before_resync_source() == 1


def test_the_monitor_connects_again_what_the_handler_had_dropped(
    clock: _Clock, tmp_path: Path
) -> None:
    node = FakeRunner(_WAITING)
    before_resync_source.write_note("vol1", "n2")
    alone = parse_events2(_STANDALONE)["vol1"]
    assert before_resync_source.reconnect(node, "vol1", alone) == parse_events2(_WAITING)["vol1"]
    assert node.calls[0][0] == ("drbdadm", "adjust", "vol1")
    assert _is_noted(tmp_path)


_THREE = (
    "exists resource name:vol1 role:Primary suspended:no\n"
    "exists connection name:vol1 peer-node-id:1 conn-name:n2 connection:Connected role:Secondary\n"
    "exists connection name:vol1 peer-node-id:2 conn-name:n3 connection:StandAlone role:Unknown\n"
    "exists device name:vol1 volume:0 minor:1 disk:UpToDate size:8 quorum:yes\n"
    "exists peer-device name:vol1 peer-node-id:1 conn-name:n2 volume:0 replication:WFBitMapS"
    " peer-disk:Outdated\n"
    "exists peer-device name:vol1 peer-node-id:2 conn-name:n3 volume:0 replication:Off"
    " peer-disk:DUnknown\n"
)


def test_of_several_peers_only_who_was_to_be_filled_is_connected_again(
    clock: _Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """n3 diverged: that n2 is about to be filled is no reason to ask it again."""
    monkeypatch.setattr(drbdsetup, "generation", lambda: 9)
    before_resync_source.write_note("vol1", "n2")
    before_resync_source.write_note("vol1", "gone")
    node = FakeRunner(_THREE)
    state = parse_events2(_THREE)["vol1"]
    assert before_resync_source.reconnect(node, "vol1", state) == state
    assert node.calls == []
    assert [each.name for each in tmp_path.glob("devices/*/*")] == ["outdated-unmarked.n2"]
    before_resync_source.write_note("vol1", "n3")
    before_resync_source.reconnect(node, "vol1", state)
    assert node.calls[0][0] == ("drbdadm", "adjust", "vol1")
    assert [each.name for each in tmp_path.glob("devices/*/*")] == ["outdated-unmarked.n2"]


def test_a_suspect_replica_is_not_connected_again(
    clock: _Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lost_writes, "is_suspect", lambda *_: True)
    before_resync_source.write_note("vol1", "n2")
    alone = parse_events2(_STANDALONE)["vol1"]
    assert before_resync_source.reconnect(FakeRunner(""), "vol1", alone) == alone
    assert _is_noted(tmp_path)


@pytest.mark.parametrize(
    ("events", "is_noted", "stays"),
    [(_STANDALONE, False, False), (_WAITING, True, True), (_IN_SYNC, True, False)],
    ids=["diverged", "at-work", "done"],
)
def test_nothing_else_is_connected_again(
    events: str, is_noted: bool, stays: bool, clock: _Clock, tmp_path: Path
) -> None:
    """Replicas that diverged stand alone until an operator decides."""
    node = FakeRunner("")
    if is_noted:
        before_resync_source.write_note("vol1", "n2")
    state = parse_events2(events)["vol1"]
    assert before_resync_source.reconnect(node, "vol1", state) == state
    assert node.calls == []
    assert _is_noted(tmp_path) == stays


def test_what_a_stop_drops(clock: _Clock, tmp_path: Path) -> None:
    before_resync_source.write_note("vol1", "n2")
    state_files.remove_device("vol1")
    state_files.remove_device("vol1")
    assert not _is_noted(tmp_path)


def _slow(clock: _Clock) -> FakeRunner:
    def answer(argv: Sequence[str]) -> Answer:
        clock.sleep(3.0)
        return ""

    return FakeRunner(answer)


def test_a_hurried_runner_starts_nothing_after_its_time(clock: _Clock) -> None:
    node = _slow(clock)
    hurried = DeadlineRunner(node, clock.now + 5.0)
    hurried.run(["a"], timeout_s=20.0)
    hurried.run(["b"], timeout_s=20.0)
    with pytest.raises(CommandError, match="no time was left for c"):
        hurried.run(["c"], timeout_s=20.0)
    assert [argv for argv, _ in node.calls] == [("a",), ("b",)]
