# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-resync.service runs resyncs in order and records them, on kernels that answer as DRBD."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.publish import replica_state
from sanctl.agents.replica import device_files, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import scheduler, tracking, verify
from sanctl.drivers import drbd_kernel
from sanctl.errors import CommandError, Problem
from sanctl.model.resync_record import (
    DONE,
    FAST,
    FULL,
    INVALIDATING,
    RUNNING,
    ResyncRecord,
    parse_running,
)
from tests.fakes.node import Clock, FakeNode
from tests.fakes.runner import Answer, FakeRunner

SIZE_KIB = 1 << 20


class Node(FakeRunner):
    """A node whose replicas lack so many KiB; the node is the target of their resyncs."""

    def __init__(self, left: dict[str, int]) -> None:
        super().__init__(self._answer)
        self.left = left
        self.held: set[str] = set()
        self.alone: set[str] = set()
        self.ends_when_held: set[str] = set()
        self.published = ""
        self.received = 100

    def name_of(self, minor: str) -> str:
        return list(self.left)[int(minor)]

    def _lines(self, name: str) -> str:
        minor = list(self.left).index(name)
        is_behind = self.left[name] > 0
        disk = "Inconsistent" if is_behind else "UpToDate"
        head = f"exists resource name:{name} role:Secondary suspended:no\n"
        head += f"exists device name:{name} volume:0 minor:{minor} disk:{disk} size:{SIZE_KIB}\n"
        if name in self.alone:
            return head
        runs = "PausedSyncT" if name in self.held else "SyncTarget"
        return (
            f"{head}exists connection name:{name} conn-name:peer connection:Connected"
            f" role:Primary\nexists peer-device name:{name} conn-name:peer"
            f" replication:{runs if is_behind else 'Established'} peer-disk:UpToDate"
            f" resync-suspended:{'user' if name in self.held else 'no'}"
            f" received:{self.received} out-of-sync:{self.left[name]}\n"
        )

    def _answer(self, argv: Sequence[str]) -> Answer:
        match list(argv):
            case ["drbdsetup", "events2", *options]:
                names = [options[-1]] if options[-1] in self.left else list(self.left)
                return "".join(self._lines(name) for name in names)
            case ["drbdsetup", "pause-sync", minor]:
                name = self.name_of(minor)
                if name in self.ends_when_held:
                    self.left[name] = 0
                self.held.add(name)
            case ["drbdsetup", "resume-sync", minor]:
                self.held.discard(self.name_of(minor))
            case ["drbdsetup", "invalidate", minor]:
                name = self.name_of(minor)
                assert name in self.alone, "DRBD refuses: a resync runs"
                assert self.left[name], "a good copy is lost"
                self.left[name] = SIZE_KIB
            case ["drbdadm", "disconnect", name]:
                self.alone.add(name)
            case ["drbdadm", "adjust", name]:
                self.alone.discard(name)
            case ["attrd_updater", *_, "--private"]:
                self.published = argv[3].removeprefix("--update=")
        return ""

    @property
    def acts(self) -> list[str]:
        """The commands that change something, without publishing."""
        return [
            " ".join(argv[1:])
            for argv, _ in self.calls
            if argv[0] != "attrd_updater" and argv[1] != "events2"
        ]


@pytest.fixture
def words() -> dict[str, str]:
    """The devices' sync policies."""
    return {}


@pytest.fixture
def clock(fake_node: FakeNode) -> Clock:
    return fake_node.clock


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str],
    clock: Clock,
) -> Path:
    def known(name: str) -> Device:
        minor = int(name[-1])
        nodes = ("n1", "n2")
        return Device(name, "a" * 32, 1 << 30, "", nodes, minor, (), words.get(name, ""))

    monkeypatch.setattr(sync_policy, "recorded_device", known)
    monkeypatch.setattr(
        device_files, "note_path", lambda d, kind: str(tmp_path / f"{d.name}.{kind}")
    )
    monkeypatch.setattr(replica_state, "publish", lambda *_, **__: None)
    monkeypatch.setattr(replica_state, "has_changed", lambda *_: False)
    monkeypatch.setattr(verify, "track", lambda *_: False)
    monkeypatch.setattr(drbd_kernel, "sync_progress", dict)
    return tmp_path


def note(here: Path, name: str) -> ResyncRecord:
    latest = ResyncRecord.parse((here / f"{name}.sync").read_text())
    assert latest is not None
    return latest


def test_a_resync_is_recorded_with_reason_and_amount(here: Path, clock: Clock) -> None:
    node = Node({"vm0": 1000})
    service = scheduler.ResyncScheduler(node)
    assert service.run_once()
    assert note(here, "vm0")[:3] == (FAST, "0% is marked", RUNNING)
    (running,) = parse_running(node.published)
    assert (running.device, running.kind, running.waits, running.left_kib) == (
        "vm0",
        FAST,
        "",
        1000,
    )
    node.left["vm0"] = 400
    clock.now_s += 4
    service.run_once()
    (running,) = parse_running(node.published)
    assert (running.left_kib, running.total_kib, running.rate_kib_s, running.left_s) == (
        400,
        1000,
        150,
        3,
    )
    node.left["vm0"] = 0
    clock.now_s += 4
    assert not service.run_once()
    done = note(here, "vm0")
    assert (done.stage, done.changed_kib) == (DONE, 1000)
    assert node.published == ""
    assert node.acts == []


def test_the_received_amount_is_counted_over_kills_and_reconnections(here: Path) -> None:
    node = Node({"vm0": 1000})
    scheduler.ResyncScheduler(node).run_once()
    node.received, node.left["vm0"] = 400, 700
    scheduler.ResyncScheduler(node).run_once()
    # Another connection: DRBD's counter is reset.
    node.received, node.left["vm0"] = 50, 650
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    node.received, node.left["vm0"] = 700, 0
    service.run_once()
    assert note(here, "vm0").received_kib == 300 + 700
    assert not (here / "devices/vm0/resync-received").exists()


def test_a_device_that_fails_holds_up_no_other(
    here: Path, words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words["vm2"] = "priority=90"

    class Silent(Node):
        def _answer(self, argv: Sequence[str]) -> Answer:
            if list(argv) == ["drbdsetup", "pause-sync", "0"]:
                return CommandError(Problem("SAN-CMD-002", "no answer within 20 s"))
            return super()._answer(argv)

    node = Silent({"vm0": 500, "vm1": 100, "vm2": 900})
    assert scheduler.ResyncScheduler(node).run_once()
    assert node.held == {"vm1"}
    assert {each.device for each in parse_running(node.published)} == {"vm0", "vm1", "vm2"}
    latest = tracking.latest_resync

    def unreadable(device: Device) -> ResyncRecord | None:
        if device.name == "vm0":
            raise OSError(5, "Input/output error")
        return latest(device)

    monkeypatch.setattr(tracking, "latest_resync", unreadable)
    assert scheduler.ResyncScheduler(node).run_once()
    assert {each.device for each in parse_running(node.published)} == {"vm1", "vm2"}


def test_amounts_alone_are_published_every_15_seconds(
    here: Path, words: dict[str, str], clock: Clock
) -> None:
    """Each node's pacemaker-attrd logs each value: a resync of a day filled the node's own disk."""
    del here
    words["vm1"] = "priority=90"
    node = Node({"vm0": 500, "vm1": 100_000})
    service = scheduler.ResyncScheduler(node)
    texts: list[str] = []
    for second in range(121):
        node.left["vm1"] = 100_000 - 100 * second
        service.run_once()
        texts += [node.published] if node.published not in texts else []
        clock.now_s += 1
    assert 9 <= len(texts) <= 11
    words["vm0"] = "priority=95"
    clock.now_s += 2
    service.run_once()
    assert {each.waits for each in parse_running(node.published)} == {"", "for vm0"}, "at once"


def test_what_is_left_of_one_that_waits_is_an_amount(
    here: Path, words: dict[str, str], clock: Clock
) -> None:
    """What broke: it grows with hosts' writes, and was published every two seconds for that."""
    del here
    words["vm1"] = "priority=90"
    node = Node({"vm0": 500, "vm1": 100_000})
    service = scheduler.ResyncScheduler(node)
    texts: list[str] = []
    for second in range(121):
        node.left["vm0"] = 500 + 4 * second
        node.left["vm1"] = 100_000 - 100 * second
        service.run_once()
        texts += [node.published] if node.published not in texts else []
        clock.now_s += 1
    assert 9 <= len(texts) <= 11
    assert {each.device: each.left_kib for each in parse_running(node.published)}["vm0"] > 900


def test_resyncs_run_one_after_the_other(here: Path, words: dict[str, str]) -> None:
    words["vm2"] = "priority=90"
    node = Node({"vm0": 500, "vm1": 100, "vm2": 900})
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    assert node.held == {"vm0", "vm1"}
    assert {(r.device, r.waits) for r in parse_running(node.published)} == {
        ("vm0", "for vm2"),
        ("vm1", "for vm2"),
        ("vm2", ""),
    }
    node.left["vm2"] = 0
    service.run_once()
    assert node.held == {"vm0"}
    node.left["vm1"] = 0
    service.run_once()
    assert node.held == set()


def test_no_resync_waits_for_one_that_is_stuck(clock: Clock) -> None:
    node = Node({"vm0": 500, "vm1": 100})
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    assert node.held == {"vm0"}
    clock.now_s += 16
    service.run_once()
    assert node.held == set()
    # The first resync advances again: the other one waits again.
    node.left["vm1"] = 90
    service.run_once()
    assert node.held == {"vm0"}


def test_a_resync_paused_by_a_killed_process_is_resumed() -> None:
    node = Node({"vm0": 500})
    node.held.add("vm0")
    scheduler.ResyncScheduler(node).run_once()
    assert node.held == set()
    node.left["vm0"] = 0
    node.held.add("vm0")
    scheduler.ResyncScheduler(node).run_once()
    assert node.held == set()


def test_a_full_resync_begins_where_the_policy_asks_for_one(
    here: Path, words: dict[str, str]
) -> None:
    words["vm0"] = "full-above=10"
    node = Node({"vm0": SIZE_KIB // 5})
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    assert node.acts == [
        "pause-sync 0",
        "disconnect vm0",
        "invalidate 0",
        "adjust vm0",
        "resume-sync 0",
    ]
    latest = note(here, "vm0")
    assert (latest.kind, latest.stage, latest.changed_kib) == (FULL, RUNNING, SIZE_KIB // 5)
    # Only once, although more than the limit is still out of sync.
    service.run_once()
    scheduler.ResyncScheduler(node).run_once()
    assert len(node.acts) == 5


def test_a_replica_that_became_up_to_date_is_not_invalidated(
    here: Path, words: dict[str, str]
) -> None:
    words["vm0"] = "full-above=10"
    node = Node({"vm0": SIZE_KIB // 5})
    node.ends_when_held.add("vm0")
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    assert node.acts == ["pause-sync 0", "adjust vm0", "resume-sync 0"]
    service.run_once()
    assert (note(here, "vm0").kind, note(here, "vm0").stage) == (FAST, DONE)


def test_a_full_resync_that_a_killed_process_had_begun_is_finished(here: Path) -> None:
    """Killed after it had disconnected the replica, which must not stay disconnected."""
    node = Node({"vm0": 500})
    node.alone.add("vm0")
    node.held.add("vm0")
    (here / "vm0.sync").write_text(str(ResyncRecord(FULL, "why", INVALIDATING, 5, 0, 500)))
    service = scheduler.ResyncScheduler(node)
    assert service.run_once()
    assert node.alone == set()
    assert node.left["vm0"] == SIZE_KIB
    service.run_once()
    assert node.held == set()


def test_an_up_to_date_replica_without_connection_is_only_connected(here: Path) -> None:
    node = Node({"vm0": 0})
    node.alone.add("vm0")
    (here / "vm0.sync").write_text(str(ResyncRecord(FULL, "why", INVALIDATING, 5, 0, 500)))
    scheduler.ResyncScheduler(node).run_once()
    assert node.acts[:2] == ["pause-sync 0", "adjust vm0"]


def test_a_resync_waits_for_its_hours(
    here: Path, words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words["vm0"] = "window=22-06"
    node = Node({"vm0": 500})
    service = scheduler.ResyncScheduler(node)
    at = time.localtime()
    noon = type(at)((*at[:3], 12, *at[4:]))
    monkeypatch.setattr(time, "localtime", lambda: noon)
    service.run_once()
    assert node.held == {"vm0"}
    assert parse_running(node.published)[0].waits == "until 22:00"
    words["vm0"] = ""
    service.run_once()
    assert node.held == set()


class NodeWithDrbd9(Node):
    """The same with DRBD 9, which pauses the resync with each peer on its own: n1 and n2."""

    def __init__(self, left: dict[str, int]) -> None:
        super().__init__(left)
        self.paused: set[tuple[str, str]] = set()

    def _lines(self, name: str) -> str:
        is_behind = self.left[name] > 0
        text = f"exists resource name:{name} role:Secondary suspended:no\n"
        text += (
            f"exists device name:{name} volume:0 minor:{name[-1]} size:{SIZE_KIB}"
            f" disk:{'Inconsistent' if is_behind else 'UpToDate'}\n"
        )
        for peer, own in (("0", "PausedSyncT"), ("1", "SyncTarget")):
            is_paused = (name, peer) in self.paused
            runs = "PausedSyncT" if is_paused else own
            text += (
                f"exists connection name:{name} peer-node-id:{peer} conn-name:n{peer}"
                f" connection:Connected role:Primary\nexists peer-device name:{name}"
                f" peer-node-id:{peer} conn-name:n{peer} peer-disk:UpToDate"
                f" replication:{runs if is_behind else 'Established'}"
                f" resync-suspended:{'user' if is_paused else 'no'}"
                f" out-of-sync:{self.left[name] if peer == '1' else SIZE_KIB}\n"
            )
        return text

    def _answer(self, argv: Sequence[str]) -> Answer:
        match list(argv):
            case ["drbdsetup", "pause-sync", name, peer, "0"]:
                self.paused.add((name, peer))
            case ["drbdsetup", "resume-sync", name, peer, "0"]:
                self.paused.discard((name, peer))
            case _:
                return super()._answer(argv)
        return ""


def test_with_drbd_9_resyncs_wait_too(
    words: dict[str, str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    words["vm1"] = "priority=90"
    node = NodeWithDrbd9({"vm0": 500, "vm1": 900})
    service = scheduler.ResyncScheduler(node)
    service.run_once()
    assert node.paused == {("vm0", "0"), ("vm0", "1")}
    clock.now_s += 4
    node.left["vm1"] = 300
    service.run_once()
    waiting, running = parse_running(node.published)
    assert (waiting.device, waiting.waits) == ("vm0", "for vm1")
    # Of the peer from which data comes, since the beginning and not of the latest ten seconds.
    assert (running.left_kib, running.total_kib) == (300, 900)
    clock.now_s += 20
    service.run_once()
    clock.now_s += 20
    service.run_once()
    assert parse_running(node.published)[1].total_kib == 900
    node.left["vm1"] = 0
    service.run_once()
    assert node.paused == set()


def test_with_drbd_9_no_resync_is_made_a_full_one(
    here: Path, words: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    words["vm0"] = "full-above=10"
    node = NodeWithDrbd9({"vm0": SIZE_KIB // 5})
    scheduler.ResyncScheduler(node).run_once()
    assert not [act for act in node.acts if "invalidate" in act]
    assert note(here, "vm0")[0] == FAST
