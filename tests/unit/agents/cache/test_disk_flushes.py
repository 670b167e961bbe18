# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's flushes are spared only while every write is stable, whatever dies in between.

That DRBD takes these words, and what is then on a disk after a power cut, is shown in
tests/lab/test_cache_volatile.py.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbdsetup, loop, page_cache
from sanctl.drivers.page_cache import WriteState
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal, state_files
from tests.fakes.runner import FakeRunner

UUID = "a" * 32
POLICIES = ("none", "write-through", "write-back")


def device(policy: str, *nodes: str) -> Device:
    return Device("vm1", UUID, 1 << 20, "main", nodes or ("n1", "n2"), 3, (), cache=policy)


class Died(BaseException):
    """The agent was killed."""


class Node:
    """What outlives an agent: the data file, the resource file, and what DRBD was told."""

    def __init__(self, folder: Path) -> None:
        self.path = str(folder / f"vm1.{UUID}.data")
        self.is_synchronous = self.is_buffered = self.is_dirty = False
        self.file_flushes = self.drbd_flushes = self.is_obedient = True
        self.has_ordinary_zeros = True
        self.is_up = self.has_file = True
        self.generation = 8
        self.dies_after: int | None = None
        self.said: list[str] = []

    def step(self, word: str) -> None:
        """Hold the rule after each effect, and die there if asked."""
        self.said.append(word)
        if not self.drbd_flushes:
            assert self.is_synchronous, f"not stable, not flushed: {self.said}"
            assert not self.is_dirty, f"what came before was not flushed: {self.said}"
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Died

    def observe(self, _: str) -> WriteState:
        return WriteState(self.is_buffered, self.is_synchronous)

    def set_synchronous(self, _: str, *, on: bool) -> None:
        self.is_synchronous = on
        self.is_dirty = True
        self.step("synchronous" if on else "free")

    def set_buffered(self, *_: object, on: bool) -> bool:
        self.is_buffered = on
        self.step("buffered" if on else "direct")
        return on

    def drain(self, _: str) -> None:
        self.step("drain")

    def flush(self, _: str) -> None:
        self.is_dirty = not self.is_synchronous
        self.step("flush")

    def set_flushes(self, _: str, *, on: bool) -> bool:
        if self.has_file and self.file_flushes != on:
            self.file_flushes = on
            self.step(f"file-{on}")
        return self.has_file

    def set_flushing(self, *_: object, on: bool) -> None:
        if self.is_obedient:
            self.drbd_flushes = on
        self.step(f"drbd-{on}")

    def state(self, *_: object) -> ResourceState | None:
        peer = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
        ordering = "flush" if self.drbd_flushes else "drain"
        found = ResourceState("vm1", "Secondary", "no", "UpToDate", 1024, (peer,), minor=3)
        return found._replace(write_ordering=ordering) if self.is_up else None

    def restart_drbd(self) -> None:
        """Attach anew by the resource file, as a start does that finds DRBD up or down."""
        self.drbd_flushes = self.file_flushes


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    boot = tmp_path / "boot_id"
    boot.write_text("this boot\n")
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(lost_writes, "_BOOT_ID", str(boot))
    monkeypatch.setattr(loop, "backing_files", lambda: [made.path])
    for name in ("observe", "set_synchronous", "set_buffered", "drain", "flush"):
        monkeypatch.setattr(page_cache, name, getattr(made, name))
    monkeypatch.setattr(page_cache, "set_dirty_limit", lambda *_, **__: None)
    monkeypatch.setattr(page_cache, "usage", lambda _: None)
    monkeypatch.setattr(page_cache, "flush_rate_bytes_s", lambda _: None)
    monkeypatch.setattr(drbdsetup, "observe", made.state)
    monkeypatch.setattr(drbdsetup, "generation", lambda: made.generation)
    monkeypatch.setattr(drbdsetup, "set_disk_flushes", made.set_flushing)
    monkeypatch.setattr(resource_file, "set_flushes", made.set_flushes)
    monkeypatch.setattr(backing_device, "refuses_write_zeroes", lambda _: made.has_ordinary_zeros)
    monkeypatch.setattr(journal, "write", lambda *_, **__: None)
    return made


def settle(node: Node, policy: str, **changes: Any) -> None:
    write_cache.apply_policy(FakeRunner(), device(policy)._replace(**changes), node.state())


def test_write_through_ceases_to_flush_and_others_begin_again(node: Node) -> None:
    settle(node, "write-through")
    assert node.said == ["synchronous", "drain", "flush", "file-False", "drbd-False"]
    settle(node, "write-through")
    assert len(node.said) == 5
    node.said.clear()
    settle(node, "none")
    assert node.said == ["drbd-True", "file-True", "free"]
    settle(node, "write-through")
    node.said.clear()
    settle(node, "write-back")
    assert node.said == ["drbd-True", "file-True", "buffered", "free"]


@pytest.mark.parametrize(
    ("before", "after"), list(itertools.permutations(POLICIES, 2)), ids="-".join
)
def test_whoever_dies_at_any_step_leaves_nothing_unflushed(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, after: str
) -> None:
    """Every prefix of a change, then every policy, with a restart between or without."""
    for dies_after, then, restarts in itertools.product(range(8), POLICIES, (False, True)):
        fresh = Node(tmp_path)
        vars(node).update(vars(fresh))
        for left in tmp_path.rglob("*"):
            if left.is_file() and left.name != "boot_id":
                left.unlink()
        settle(node, before)
        node.dies_after = dies_after
        with contextlib.suppress(Died):
            settle(node, after)
        node.dies_after = None
        if restarts:
            node.restart_drbd()
            node.step("restarted")
        for policy in (then, then):
            settle(node, policy)
        assert node.drbd_flushes == node.file_flushes == (then != "write-through")
        assert not node.is_dirty or then != "write-through"


def test_a_replica_that_is_down_is_told_by_its_file(node: Node) -> None:
    settle(node, "write-through")
    node.is_up, node.drbd_flushes = False, True  # What it was told is gone with it.
    settle(node, "none")
    assert node.file_flushes and not node.is_synchronous


@pytest.mark.parametrize("what", ["zeros", "nine", "one copy", "not attached", "down"])
def test_flushes_go_on_where_something_is_missing(node: Node, what: str) -> None:
    wanted, state = device("write-through"), node.state()
    assert state is not None
    found: ResourceState | None = state
    if what == "zeros":
        node.has_ordinary_zeros = False
    elif what == "nine":
        node.generation = 9
    elif what == "one copy":
        wanted = device("write-through", "n1")
    elif what == "not attached":
        found = state._replace(disk="Diskless")
    else:
        found = None
    write_cache.apply_policy(FakeRunner(), wanted, found)
    assert node.file_flushes and node.drbd_flushes and node.is_synchronous


def test_protected_power_keeps_the_flushes(node: Node, tmp_path: Path) -> None:
    settle(node, "write-through")
    (tmp_path / "power-protected").touch()
    settle(node, "write-through")
    assert node.drbd_flushes and node.file_flushes and not node.is_synchronous


def test_writes_stay_stable_where_drbd_does_not_flush_again(node: Node) -> None:
    settle(node, "write-through")
    node.is_obedient = False
    for policy in ("none", "write-back"):
        settle(node, policy)
        assert node.is_synchronous and not node.file_flushes and not node.is_buffered


def test_the_kernel_is_believed_and_not_the_file(node: Node) -> None:
    """A file that was written anew and not applied."""
    settle(node, "write-through")
    node.file_flushes = True
    settle(node, "none")
    assert node.drbd_flushes and not node.is_synchronous


def test_a_replica_that_is_told_late_not_to_flush_does_so_again(node: Node) -> None:
    """By an adjust that had read the file before it was changed."""
    settle(node, "write-through")
    settle(node, "none")
    node.drbd_flushes = False
    settle(node, "none")
    assert node.drbd_flushes and not node.is_synchronous


def test_without_a_file_it_goes_on_as_it_was(node: Node) -> None:
    node.has_file = False
    settle(node, "write-through")
    assert node.drbd_flushes and node.is_synchronous
