# SPDX-License-Identifier: GPL-2.0-or-later
"""The before-resync-source handler: the target of a resync is marked, or the resync refused."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import before_resync_source
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem
from sanctl.parse.drbd import parse_events2
from sanctl.plan.drbd import reconnect_pace
from sanctl.system import state_files
from sanctl.system.runner import DeadlineRunner, Runner
from tests.fakes.node import Clock, FakeNode
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


@pytest.fixture(autouse=True)
def clock(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of a node on which DRBD starts the handler; it moves with every program, too."""
    monkeypatch.setenv("DRBD_RESOURCE", "vol1")
    monkeypatch.setenv("DRBD_PEER", "n2")
    return fake_node.clock


def _source(
    monkeypatch: pytest.MonkeyPatch, node: FakeNode, standing: Sequence[str], events: str = _WAITING
) -> None:
    """A node that is to be the source of a resync, and the peer's membership at each query."""
    left = list(standing)

    def secure(runner: object, device: str, peer: str, *, wait_s: float, keeps_mark: bool) -> str:
        # With other peers there may be another node that serves, and clears the mark.
        assert keeps_mark == (node.generation < 9)
        node.clock.sleep(0.5)
        told = left.pop(0) if len(left) > 1 else left[0]
        if told == "silent":
            raise _SILENCE
        if told == "broken":
            raise KeyError(told)
        return told

    monkeypatch.setattr(outdate, "mark_outdated", secure)
    node.answer = events


def _is_noted() -> bool:
    return state_files.of_device("vol1", "outdated-unmarked.n2").exists()


@pytest.mark.parametrize(
    "standing", [["member"], ["alone", "unknown", "fenced", "silent", "broken", "member"]]
)
def test_a_resync_begins_when_its_target_is_marked(
    standing: list[str], fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source(monkeypatch, fake_node, standing)
    assert before_resync_source.main() == 0
    assert not _is_noted()
    # A monitor need not look for the mark now.
    assert state_files.of_device("vol1", "resync-marked.n2").exists()


def test_drbd_9_may_drop_the_connection_of_an_allowed_resync(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its monitor connects again, once for each resync that was to begin."""
    fake_node.generation = 9
    _source(monkeypatch, fake_node, ["member"])
    assert before_resync_source.main() == 0
    assert _is_noted()
    alone = parse_events2(_STANDALONE)["vol1"]

    def refuse(argv: Sequence[str]) -> Answer:
        raise _SILENCE

    with pytest.raises(CommandError):
        reconnect_dropped.reconnect(FakeRunner(refuse), "vol1", alone)
    assert _is_noted()
    state_files.of_node("connected").remove()  # That attempt was a while ago.
    node = FakeRunner(_STANDALONE)
    for _ in range(2):
        assert reconnect_dropped.reconnect(node, "vol1", alone) == alone
    assert [argv for argv, _ in node.calls].count(("drbdadm", "adjust", "vol1")) == 1
    assert not _is_noted()


@pytest.mark.parametrize(("standing", "status"), [("member", 0), ("alone", 1)])
def test_a_note_that_a_monitor_removes_meanwhile_is_written_again(
    standing: str, status: int, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor reconnected another peer: the resync of this one has not begun yet."""
    fake_node.generation = 9
    _source(monkeypatch, fake_node, [standing])
    told = outdate.mark_outdated

    def secure(runner: Runner, device: str, peer: str, **options: Any) -> str:
        state_files.remove_device(device)
        return told(runner, device, peer, **options)

    monkeypatch.setattr(outdate, "mark_outdated", secure)
    assert before_resync_source.main() == status
    assert _is_noted()
    assert state_files.of_device("vol1", "resync-marked.n2").exists() == (status == 0)
    assert reconnect_dropped.is_filled("vol1", "n2") is (status == 0), "not where it refuses"


@pytest.mark.parametrize("standing", ["alone", "unknown", "fenced", "silent"])
def test_while_the_mark_is_not_certain_there_is_no_resync(
    standing: str, fake_node: FakeNode, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRBD waits for it: it must end in less time than `drbdsetup down` waits.

    A fenced peer that DRBD is connected to is no member and runs: it does not read the mark.
    """
    _source(monkeypatch, fake_node, [standing])
    assert before_resync_source.main() == 1
    assert 14.0 < clock.passed_s < 17.0
    assert _is_noted()


def test_without_a_connection_the_peer_is_not_marked_and_fence_peer_need_not_wait(
    fake_node: FakeNode, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source(monkeypatch, fake_node, [], _LOST)
    assert before_resync_source.main() == 1
    assert clock.passed_s < 1.0
    assert _is_noted()


def test_the_deadline_holds_for_the_lock_too(
    fake_node: FakeNode, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source(monkeypatch, fake_node, [])
    with outdate.locked("vol1", wait_s=0.0) as is_mine:
        assert is_mine
        assert before_resync_source.main() == 1
    assert clock.passed_s < 17.0


def test_without_a_resource_or_peer_name_no_resync_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRBD_PEER")
    assert before_resync_source.main() == 1


def _changes(node: FakeRunner) -> list[tuple[str, ...]]:
    """Return the programs that were run, but for those that ask DRBD for its state."""
    return [argv for argv, _ in node.calls if argv[:2] != ("drbdsetup", "events2")]


def test_the_monitor_reconnects_a_peer_that_the_handler_refused() -> None:
    node = FakeRunner()
    node.answer = lambda _: _WAITING if _changes(node) else _STANDALONE
    reconnect_dropped.write_note("vol1", "n2")
    alone = parse_events2(_STANDALONE)["vol1"]
    assert reconnect_dropped.reconnect(node, "vol1", alone) == parse_events2(_WAITING)["vol1"]
    assert _changes(node)[0] == ("drbdadm", "adjust", "vol1")
    assert _is_noted()


def _connections(monkeypatch: pytest.MonkeyPatch, *states: str) -> None:
    found = dict(enumerate(states, start=1))
    monkeypatch.setattr(drbd_kernel, "connections", lambda: found)


def test_few_connections_are_made_again_at_a_time(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Handlers that all run at once on a busy node are all late, and all connections dropped."""
    node = FakeRunner(_STANDALONE)
    monkeypatch.setattr(time, "time", lambda: 1000.0 + fake_node.clock.now_s)
    alone = parse_events2(_STANDALONE)["vol1"]
    _connections(monkeypatch, "StandAlone", "WFBitMapS", "WFReportParams")
    reconnect_dropped.write_note("vol1", "n2")
    note = Path(state_files.of_device("vol1", "outdated-unmarked.n2").path)
    os.utime(note, (time.time(), time.time()))
    assert reconnect_dropped.reconnect(node, "vol1", alone) == alone
    assert _changes(node) == [] and _is_noted()
    fake_node.clock.sleep(reconnect_pace.WAITS_S)
    reconnect_dropped.reconnect(node, "vol1", alone)
    assert _changes(node)[0] == ("drbdadm", "adjust", "vol1")


@pytest.mark.parametrize(
    ("connection", "status"), [("WFBitMapS", 0), ("WFConnection", 1), ("StandAlone", 1)]
)
def test_contact_is_seen_without_a_process(
    connection: str, status: int, fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    _source(monkeypatch, fake_node, ["member"], events="")
    monkeypatch.setenv("DRBD_MINOR", "1")
    _connections(monkeypatch, connection)
    assert before_resync_source.main() == status
    assert fake_node.calls == []


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


def test_of_several_peers_only_the_noted_one_is_reconnected(
    fake_node: FakeNode, tmp_path: Path
) -> None:
    """n3 has diverged: a resync to n2 is no reason to reconnect n3."""
    fake_node.generation = 9
    reconnect_dropped.write_note("vol1", "n2")
    reconnect_dropped.write_note("vol1", "gone")
    node = FakeRunner(_THREE)
    state = parse_events2(_THREE)["vol1"]
    assert reconnect_dropped.reconnect(node, "vol1", state) == state
    assert _changes(node) == []
    assert [each.name for each in tmp_path.glob("devices/*/*")] == ["outdated-unmarked.n2"]
    reconnect_dropped.write_note("vol1", "n3")
    reconnect_dropped.reconnect(node, "vol1", state)
    assert _changes(node)[0] == ("drbdadm", "adjust", "vol1")
    assert [each.name for each in tmp_path.glob("devices/*/*")] == ["outdated-unmarked.n2"]


def test_a_suspect_replica_is_not_reconnected() -> None:
    lost_writes.record_failed_flush("vol1")
    reconnect_dropped.write_note("vol1", "n2")
    alone = parse_events2(_STANDALONE)["vol1"]
    node = FakeRunner()
    assert reconnect_dropped.reconnect(node, "vol1", alone) == alone
    assert _changes(node) == [] and _is_noted()


@pytest.mark.parametrize(
    ("events", "is_noted", "stays"),
    [(_STANDALONE, False, False), (_WAITING, True, True), (_IN_SYNC, True, False)],
    ids=["diverged", "at-work", "done"],
)
def test_no_other_peer_is_reconnected(events: str, is_noted: bool, stays: bool) -> None:
    """Replicas that diverged are StandAlone until an operator decides."""
    node = FakeRunner("")
    if is_noted:
        reconnect_dropped.write_note("vol1", "n2")
    state = parse_events2(events)["vol1"]
    assert reconnect_dropped.reconnect(node, "vol1", state) == state
    assert _changes(node) == []
    assert _is_noted() == stays


def test_a_stop_removes_the_note() -> None:
    reconnect_dropped.write_note("vol1", "n2")
    state_files.remove_device("vol1")
    state_files.remove_device("vol1")
    assert not _is_noted()


def _slow(clock: Clock) -> FakeRunner:
    def answer(argv: Sequence[str]) -> Answer:
        clock.sleep(3.0)
        return ""

    return FakeRunner(answer)


def test_a_deadline_runner_starts_nothing_after_its_deadline(clock: Clock) -> None:
    node = _slow(clock)
    hurried = DeadlineRunner(node, clock.now_s + 5.0)
    hurried.run(["a"], timeout_s=20.0)
    hurried.run(["b"], timeout_s=20.0)
    with pytest.raises(CommandError, match="no time was left for c"):
        hurried.run(["c"], timeout_s=20.0)
    assert [argv for argv, _ in node.calls] == [("a",), ("b",)]
