# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's disk-flushes are off only while every write is stable, after a kill at any step too.

That DRBD takes these options, and what is then on a disk after a power cut, is shown in
tests/lab/test_cache_volatile.py.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbdsetup, page_cache
from sanctl.drivers.page_cache import WriteState
from sanctl.model.drbd import PeerState, ResourceState
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

UUID = "a" * 32
POLICIES = ("none", "write-through", "write-back")


def device(policy: str, *nodes: str) -> Device:
    return Device("vm1", UUID, 1 << 20, "main", nodes or ("n1", "n2"), 3, (), cache=policy)


class Died(BaseException):
    """The agent was killed."""


class Node(FakeNode):
    """What outlives an agent: the data file, the resource file, and DRBD's setting."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.attach(f"{folder}/vm1.{UUID}.data")
        self.is_synchronous = self.is_buffered = self.is_dirty = False
        self.file_flushes = self.drbd_flushes = self.is_obedient = True
        self.has_ordinary_zeros = True
        self.is_up = self.has_file = True
        self.dies_after: int | None = None
        self.said: list[str] = []

    def step(self, word: str) -> None:
        """Check the rule after each effect, and raise Died there if set."""
        self.said.append(word)
        if not self.drbd_flushes:
            assert self.is_synchronous, f"not stable, not flushed: {self.said}"
            assert not self.is_dirty, f"what came before was not flushed: {self.said}"
        if self.dies_after is not None:
            self.dies_after -= 1
            if self.dies_after < 0:
                raise Died

    def held(self, _: str) -> WriteState:
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

    def flush(self, _: str, *, within_s: float | None = None) -> None:
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

    def observe(self, *_: object) -> ResourceState | None:
        peer = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
        ordering = "flush" if self.drbd_flushes else "drain"
        found = ResourceState("vm1", "Secondary", "no", "UpToDate", 1024, (peer,), minor=3)
        return found._replace(write_ordering=ordering) if self.is_up else None

    def restart_drbd(self) -> None:
        """Attach again by the resource file, as a start does that finds DRBD up or down."""
        self.drbd_flushes = self.file_flushes

    def replacements(self) -> list[tuple[object, str, object]]:
        names = ("set_synchronous", "set_buffered", "drain", "flush")
        return [
            *super().replacements(),
            *((page_cache, name, getattr(self, name)) for name in names),
            (page_cache, "observe", self.held),
            (page_cache, "set_dirty_limit", lambda *_, **__: None),
            (page_cache, "usage", lambda _: None),
            (page_cache, "flush_rate_bytes_s", lambda _: None),
            (drbdsetup, "set_disk_flushes", self.set_flushing),
            (resource_file, "set_disk_flushes", self.set_flushes),
            (backing_device, "refuses_write_zeroes", lambda _: self.has_ordinary_zeros),
        ]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path).install(monkeypatch)


def settle(node: Node, policy: str, **changes: Any) -> None:
    write_cache.apply_policy(FakeRunner(), device(policy)._replace(**changes), node.observe())


def test_flushes_are_off_in_write_through_only(node: Node) -> None:
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
def test_a_kill_at_any_step_leaves_nothing_unflushed(
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


def test_the_resource_file_of_a_replica_that_is_down_is_changed(node: Node) -> None:
    settle(node, "write-through")
    node.is_up, node.drbd_flushes = False, True  # DRBD's setting is gone with it.
    settle(node, "none")
    assert node.file_flushes and not node.is_synchronous


@pytest.mark.parametrize("what", ["zeros", "nine", "one copy", "not attached", "down"])
def test_flushes_stay_on_where_a_condition_is_missing(node: Node, what: str) -> None:
    wanted, state = device("write-through"), node.observe()
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


def test_the_kernels_setting_counts_and_not_the_files(node: Node) -> None:
    """A file that was written again and not applied."""
    settle(node, "write-through")
    node.file_flushes = True
    settle(node, "none")
    assert node.drbd_flushes and not node.is_synchronous


def test_flushes_turned_off_by_a_late_adjust_are_turned_on_again(node: Node) -> None:
    """By an adjust that had read the file before it was changed."""
    settle(node, "write-through")
    settle(node, "none")
    node.drbd_flushes = False
    settle(node, "none")
    assert node.drbd_flushes and not node.is_synchronous


def test_without_a_resource_file_flushes_stay_on(node: Node) -> None:
    node.has_file = False
    settle(node, "write-through")
    assert node.drbd_flushes and node.is_synchronous
