# SPDX-License-Identifier: GPL-2.0-or-later
"""Whoever accompanies resyncs, in front of kernels that answer as DRBD does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.publish import replica_state
from sanctl.agents.replica import parts, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import scheduler, verify
from sanctl.drivers import drbdsetup
from sanctl.model.resync_record import (
    DONE,
    FAST,
    FULL,
    INVALIDATING,
    RUNNING,
    ResyncRecord,
    parse_running,
)
from sanctl.system import journal, state_files
from tests.fakes.runner import Answer, FakeRunner

SIZE_KIB = 1 << 20


class Node(FakeRunner):
    """A node whose replicas are behind by so many KiB; it is their resyncs' target."""

    def __init__(self, left: dict[str, int]) -> None:
        super().__init__(self._answer)
        self.left = left
        self.held: set[str] = set()
        self.alone: set[str] = set()
        self.ends_when_held: set[str] = set()
        self.told = ""
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
                self.told = argv[3].removeprefix("--update=")
        return ""

    @property
    def acts(self) -> list[str]:
        """What it did beyond looking and telling."""
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
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture(autouse=True)
def here(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: dict[str, str],
    clock: list[float],
) -> Path:
    def known(name: str) -> Device:
        minor = int(name[-1])
        nodes = ("n1", "n2")
        return Device(name, "a" * 32, 1 << 30, "", nodes, minor, (), words.get(name, ""))

    monkeypatch.setattr(sync_policy, "recorded_device", known)
    monkeypatch.setattr(parts, "note_path", lambda d, kind: str(tmp_path / f"{d.name}.{kind}"))
    monkeypatch.setattr(replica_state, "publish", lambda *_, **__: None)
    monkeypatch.setattr(replica_state, "has_changed", lambda *_: False)
    monkeypatch.setattr(verify, "track", lambda *_: False)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(drbdsetup, "is_loaded", lambda: True)
    monkeypatch.setattr(drbdsetup, "sync_progress", dict)
    monkeypatch.setattr(scheduler, "_PARTING_S", 0.0)
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    return tmp_path


def note(here: Path, name: str) -> ResyncRecord:
    latest = ResyncRecord.parse((here / f"{name}.sync").read_text())
    assert latest is not None
    return latest


def test_what_ran_and_why_and_what_it_moved(here: Path, clock: list[float]) -> None:
    node = Node({"vm0": 1000})
    company = scheduler.ResyncScheduler(node)
    assert company.look()
    assert note(here, "vm0")[:3] == (FAST, "0% is marked", RUNNING)
    (told,) = parse_running(node.told)
    assert (told.device, told.kind, told.waits, told.left_kib) == ("vm0", FAST, "", 1000)
    node.left["vm0"] = 400
    clock[0] += 4
    company.look()
    (told,) = parse_running(node.told)
    assert (told.left_kib, told.total_kib, told.rate_kib_s, told.left_s) == (400, 1000, 150, 3)
    node.left["vm0"] = 0
    clock[0] += 4
    assert not company.look()
    done = note(here, "vm0")
    assert (done.stage, done.changed_kib) == (DONE, 1000)
    assert node.told == ""
    assert node.acts == []


def test_what_came_is_counted_over_deaths_and_connections(here: Path) -> None:
    node = Node({"vm0": 1000})
    scheduler.ResyncScheduler(node).look()
    node.received, node.left["vm0"] = 400, 700
    scheduler.ResyncScheduler(node).look()
    # Another connection, which counts anew.
    node.received, node.left["vm0"] = 50, 650
    company = scheduler.ResyncScheduler(node)
    company.look()
    node.received, node.left["vm0"] = 700, 0
    company.look()
    assert note(here, "vm0").received_kib == 300 + 700
    assert not (here / "devices/vm0/resync-received").exists()


def test_one_after_the_other(here: Path, words: dict[str, str]) -> None:
    words["vm2"] = "priority=90"
    node = Node({"vm0": 500, "vm1": 100, "vm2": 900})
    company = scheduler.ResyncScheduler(node)
    company.look()
    assert node.held == {"vm0", "vm1"}
    assert {(r.device, r.waits) for r in parse_running(node.told)} == {
        ("vm0", "for vm2"),
        ("vm1", "for vm2"),
        ("vm2", ""),
    }
    node.left["vm2"] = 0
    company.look()
    assert node.held == {"vm0"}
    node.left["vm1"] = 0
    company.look()
    assert node.held == set()


def test_nobody_waits_for_one_that_is_stuck(clock: list[float]) -> None:
    node = Node({"vm0": 500, "vm1": 100})
    company = scheduler.ResyncScheduler(node)
    company.look()
    assert node.held == {"vm0"}
    clock[0] += 16
    company.look()
    assert node.held == set()
    # It moves again: it is its turn, as before.
    node.left["vm1"] = 90
    company.look()
    assert node.held == {"vm0"}


def test_what_was_held_back_by_one_that_died_is_let_go() -> None:
    node = Node({"vm0": 500})
    node.held.add("vm0")
    scheduler.ResyncScheduler(node).look()
    assert node.held == set()
    node.left["vm0"] = 0
    node.held.add("vm0")
    scheduler.ResyncScheduler(node).look()
    assert node.held == set()


def test_all_of_a_target_is_sent_where_the_policy_says_so(
    here: Path, words: dict[str, str]
) -> None:
    words["vm0"] = "full-above=10"
    node = Node({"vm0": SIZE_KIB // 5})
    company = scheduler.ResyncScheduler(node)
    company.look()
    assert node.acts == [
        "pause-sync 0",
        "disconnect vm0",
        "invalidate 0",
        "adjust vm0",
        "resume-sync 0",
    ]
    latest = note(here, "vm0")
    assert (latest.kind, latest.stage, latest.changed_kib) == (FULL, RUNNING, SIZE_KIB // 5)
    # And not again, though more than the limit differs still.
    company.look()
    scheduler.ResyncScheduler(node).look()
    assert len(node.acts) == 5


def test_a_replica_that_became_good_meanwhile_stays_good(here: Path, words: dict[str, str]) -> None:
    words["vm0"] = "full-above=10"
    node = Node({"vm0": SIZE_KIB // 5})
    node.ends_when_held.add("vm0")
    company = scheduler.ResyncScheduler(node)
    company.look()
    assert node.acts == ["pause-sync 0", "adjust vm0", "resume-sync 0"]
    company.look()
    assert (note(here, "vm0").kind, note(here, "vm0").stage) == (FAST, DONE)


def test_the_next_one_finishes_what_one_that_died_has_begun(here: Path) -> None:
    """It died after it had taken the connection away: the replica must not stay alone."""
    node = Node({"vm0": 500})
    node.alone.add("vm0")
    node.held.add("vm0")
    (here / "vm0.sync").write_text(str(ResyncRecord(FULL, "why", INVALIDATING, 5, 0, 500)))
    company = scheduler.ResyncScheduler(node)
    assert company.look()
    assert node.alone == set()
    assert node.left["vm0"] == SIZE_KIB
    company.look()
    assert node.held == set()


def test_a_good_replica_that_stands_alone_is_only_connected(here: Path) -> None:
    node = Node({"vm0": 0})
    node.alone.add("vm0")
    (here / "vm0.sync").write_text(str(ResyncRecord(FULL, "why", INVALIDATING, 5, 0, 500)))
    scheduler.ResyncScheduler(node).look()
    assert node.acts[:2] == ["pause-sync 0", "adjust vm0"]


def test_hours(here: Path, words: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    words["vm0"] = "window=22-06"
    node = Node({"vm0": 500})
    company = scheduler.ResyncScheduler(node)
    at = time.localtime()
    noon = type(at)((*at[:3], 12, *at[4:]))
    monkeypatch.setattr(time, "localtime", lambda: noon)
    company.look()
    assert node.held == {"vm0"}
    assert parse_running(node.told)[0].waits == "until 22:00"
    words["vm0"] = ""
    company.look()
    assert node.held == set()
