# SPDX-License-Identifier: GPL-2.0-or-later
"""Verifies by schedule take turns on a node; an order of an operator's waits for none."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from sanctl.agents.replica import device_files
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify, verify_turn
from sanctl.drivers import drbdsetup, kernel_log
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.verify_result import SAME, VerifyResult
from sanctl.plan.drbd.verify_turns import AT_A_TIME, COUNTS_S
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

PEER = PeerState("peer", "Connected", "Secondary", "Established", "UpToDate", 0)
ACTIVE = ResourceState("vm1", "Primary", "no", "UpToDate", 1024, (PEER,))
VERIFYING = ACTIVE._replace(peers=(PEER._replace(replication="VerifyS"),))
MINUTE_S = 61.0


class Node:
    """A node whose monitors look once a minute whether a verify is due."""

    def __init__(self, fake: FakeNode, folder: Path, names: Sequence[str]) -> None:
        self.fake, self.folder = fake, folder
        self.states = dict.fromkeys(names, ACTIVE)
        self.begun: list[str] = []
        self.looks = 0
        self.refuses: set[str] = set()
        self.hour = f"daily@{time.localtime().tm_hour:02}"
        self.runner = FakeRunner(self._answer)

    def _answer(self, argv: Sequence[str]) -> Answer:
        if list(argv[:2]) == ["drbdsetup", "verify"]:
            name = f"vm{argv[2]}"
            if name in self.refuses:
                raise CommandError(Problem("SAN-CMD-003", "refused"))
            self.begun.append(name)
            self.states[name] = VERIFYING
        return ""

    def observe_all(self, _runner: object) -> dict[str, ResourceState]:
        self.looks += 1
        return dict(self.states)

    def device(self, name: str, order: str = "", verify: str | None = None) -> Device:
        policy = f"verify={self.hour if verify is None else verify}"
        nodes, minor = ("n1", "n2"), int(name.removeprefix("vm"))
        return Device(name, "a" * 32, 1 << 20, "", nodes, minor, (), policy, order)

    def monitor(self, name: str) -> bool:
        if self.states[name] is VERIFYING:
            return False
        try:
            return verify.begin(self.runner, self.device(name), ACTIVE)
        except CommandError:
            return False

    def minute(self) -> list[str]:
        """Run a monitor of each device, some moments apart; return what has begun."""
        before = len(self.begun)
        for name in sorted(self.states):
            self.monitor(name)
            self.fake.clock.now_s += MINUTE_S / len(self.states)
        return self.begun[before:]

    def end(self, *names: str) -> None:
        for name in names:
            self.states[name] = ACTIVE
            self.record(name, int(time.time()))

    def record(self, name: str, began_s: int) -> None:
        done = VerifyResult(began_s, SAME, began_s, began_s + 9, 0)
        (self.folder / f"{name}.verify").write_text(f"{done}\n")


@pytest.fixture
def node(fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(
        device_files, "note_path", lambda d, kind: str(tmp_path / f"{d.name}.{kind}")
    )
    monkeypatch.setattr(kernel_log, "newest", lambda: 5)
    made = Node(fake_node, tmp_path, [f"vm{n}" for n in range(10, 60)])
    monkeypatch.setattr(drbdsetup, "observe_all", made.observe_all)
    return made


def test_fifty_that_are_due_at_one_hour_take_turns(node: Node) -> None:
    """The one that was compared longest ago is first, and DRBD is asked for all by one of many."""
    now_s = int(time.time())
    for number, name in enumerate(sorted(node.states, reverse=True)):
        node.record(name, now_s - 80000 + number)
    oldest_first = sorted(node.states, reverse=True)
    assert node.minute() == [], "not all have said that they wait"
    for turn in range(25):
        begun: list[str] = []
        for _ in range(3):
            begun += node.minute()
        assert sorted(begun) == sorted(oldest_first[2 * turn : 2 * turn + 2])
        node.end(*begun)
    assert node.minute() == [] and sorted(node.begun) == sorted(node.states)
    assert state_files.node_suffixes("verify-waits") == []
    assert node.looks < 76 * MINUTE_S / 5 + 2


def test_one_that_waits_begins_after_its_hour_and_none_that_did_not(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.states = {name: node.states[name] for name in ("vm10", "vm11", "vm12")}
    node.minute()
    assert sorted(node.minute()) == ["vm10", "vm11"]
    later = time.localtime(time.time() + 2 * 3600)
    monkeypatch.setattr(time, "localtime", lambda *_: later)
    node.states["vm13"] = ACTIVE
    node.minute()
    node.end("vm10", "vm11")
    for _ in range(2):
        node.minute()
    assert node.begun == ["vm10", "vm11", "vm12"]


def test_another_schedule_ends_the_wait(node: Node) -> None:
    device = node.device("vm10")
    node.monitor("vm10")
    assert state_files.node_suffixes("verify-waits") == ["vm10"]
    other = f"daily@{(time.localtime().tm_hour + 5) % 24:02}"
    assert not verify.begin(node.runner, node.device("vm10", verify=other), ACTIVE)
    assert state_files.node_suffixes("verify-waits") == []
    assert verify_turn.due_since_s(device, None) is None


def test_an_order_waits_for_no_turn_and_counts(node: Node) -> None:
    node.minute()
    now_s = int(time.time())
    ordered = [f"vm{n}" for n in range(10, 10 + AT_A_TIME)]
    for name in ordered:
        assert verify.begin(node.runner, node.device(name, str(now_s), "off"), ACTIVE)
    assert node.minute() == []


def test_one_that_drbd_refuses_makes_way(node: Node) -> None:
    node.refuses = {"vm10", "vm11"}
    node.minute()
    for _ in range(3):
        node.minute()
    assert node.begun == ["vm12", "vm13"]


def test_a_verify_that_never_ends_keeps_the_others_for_hours_at_most(node: Node) -> None:
    node.minute()
    begun = node.minute() + node.minute()
    assert len(begun) == AT_A_TIME
    node.fake.clock.now_s += COUNTS_S
    assert len(node.minute()) == AT_A_TIME


def test_while_drbd_does_not_answer_nothing_begins(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_runner: object) -> dict[str, ResourceState]:
        raise CommandError(Problem("SAN-CMD-002", "no answer"))

    monkeypatch.setattr(drbdsetup, "observe_all", silent)
    node.minute()
    assert node.minute() == [] and node.begun == []


def test_without_room_for_notes_a_verify_begins_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str, _text: str) -> None:
        if "verify-" in os.path.basename(path):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(state_files, "replace_on_tmpfs", full)
    monkeypatch.setattr(verify, "_write_log_position", lambda *_: None)
    assert node.monitor("vm10")


@pytest.mark.parametrize("text", ["", "x", "a b c d", "1 2 3", "1 2 x daily@03 5"])
def test_a_note_that_says_nonsense_is_none(node: Node, text: str) -> None:
    """As one of another release."""
    for kind in ("verify-waits.vm10", "verify-waits.vm11", "verify-running"):
        state_files.of_node(kind).write(text)
    node.minute()
    assert sorted(node.minute() + node.minute()) == ["vm10", "vm11"]
