# SPDX-License-Identifier: GPL-2.0-or-later
"""Of three replicas two may stay in write-back, never one, after losses and kills at any step.

A model of what the agents touch: the data file, the resource file, and of DRBD 9 the part that
counts copies, as drbd_state.c has it (calc_quorum) and drbd_main.c (set_resource_options). The real
one is asked in tests/lab/test_drbd9_write_back.py.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sanctl.agents.cache import minimum_redundancy, write_cache
from sanctl.agents.connections import reconnect_dropped
from sanctl.agents.handlers import fence_peer
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_handlers, drbd_kernel, drbdadm, drbdsetup, loop, page_cache
from sanctl.drivers.page_cache import WriteState
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.drbd import HandlerCalls, PeerState, ResourceState
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY
from sanctl.render.drbd import BackingDevices, ReplicaAddress, render_resource
from sanctl.system import journal, state_files
from tests.fakes.runner import FakeRunner

UUID = "a" * 32
NODES = ("n1", "n2", "n3")
GOOD, BEHIND, DISKLESS, GONE, MARKED = "good", "behind", "diskless", "gone", "marked"
CONNECTED = {GOOD, BEHIND, DISKLESS}
_DISKS = {GOOD: "UpToDate", BEHIND: "Inconsistent", DISKLESS: "Diskless", MARKED: "Outdated"}
# What may happen to the two other copies from one moment to the next.
EVENTS = tuple(itertools.product(("n2", "n3"), (GONE, DISKLESS, BEHIND)))


def device() -> Device:
    return Device("vm1", UUID, 1 << 20, "main", NODES, 3, (), cache="write-back")


class Died(BaseException):
    """The agent was killed."""


class Node:
    """The node under test, and the peers' replicas that it sees."""

    def __init__(self, folder: Path, n2: str, n3: str) -> None:
        self.path = str(folder / f"vm1.{UUID}.data")
        self.is_buffered = False
        self.is_synchronous = True
        self.is_primary = True
        self.serving = ""
        self.flush_fails = False
        self.copies = {"n2": n2, "n3": n3}
        self.needs_two = self.is_frozen = self.has_disk_failed = False
        self.given_up: set[str] = set()
        self.after: dict[int, Callable[[], None]] = {}
        self.steps: list[str] = []
        self.judge()

    # What the kernel does by itself.

    def judge(self) -> None:
        """Count the replicas, as DRBD does at a change of state."""
        unknown = GONE in self.copies.values()
        there = 1 + sum(copy in CONNECTED for copy in self.copies.values())
        voters = 3 if unknown else there
        self.is_frozen = there < voters // 2 + 1 or (self.needs_two and self.good < 2)

    def become(self, peer: str, to: str) -> None:
        """A replica is lost, comes back and is resynced, or loses its disk."""
        was = self.copies[peer]
        if to == DISKLESS and was not in CONNECTED:
            return
        self.copies[peer] = to
        had_quorum = not self.is_frozen
        self.judge()
        if (
            self.is_frozen
            and had_quorum
            and self.is_primary
            and to in CONNECTED
            and was in CONNECTED
        ):
            # A change that it may refuse, it refuses: and ends the connection for good.
            self.copies[peer] = GONE
            self.given_up.add(peer)
            self.judge()
        self.check()

    @property
    def good(self) -> int:
        return 1 + sum(copy == GOOD for copy in self.copies.values())

    def check(self) -> None:
        """Writes acknowledged now are in the RAM of two replicas, or stable."""
        if self.is_primary and not self.is_frozen and not self.is_synchronous:
            assert self.good >= 2, f"{self.copies} after {self.steps}"

    # What the agents do to it.

    def step(self, word: str) -> None:
        self.steps.append(word)
        self.check()
        self.after.pop(len(self.steps), lambda: None)()

    def observe(self, *_: object) -> ResourceState:
        peers = tuple(
            PeerState(
                peer,
                self.connection(peer),
                ("Primary" if peer == self.serving else "Secondary")
                if copy in CONNECTED
                else "Unknown",
                {GOOD: "Established", DISKLESS: "Established", BEHIND: "SyncSource"}.get(
                    copy, "Off"
                ),
                _DISKS.get(copy, "DUnknown"),
                0,
            )
            for peer, copy in self.copies.items()
        )
        state = ResourceState(
            "vm1",
            "Primary" if self.is_primary else "Secondary",
            "quorum" if self.is_frozen else "no",
            "Diskless" if self.has_disk_failed else "UpToDate",
            1024,
            peers,
            has_quorum=not self.is_frozen,
            write_ordering="flush",
        )
        # Events of this step happen after DRBD was observed.
        self.step("looks")
        return state

    def connection(self, peer: str) -> str:
        if self.copies[peer] in CONNECTED:
            return "Connected"
        return "StandAlone" if peer in self.given_up else "Connecting"

    def require_two(self, *_: object) -> None:
        self.needs_two = True
        self.step("holds")

    def require_majority(self, *_: object, replica_count: int) -> None:
        assert replica_count == 3
        self.needs_two = False
        self.judge()
        self.step("releases")

    def held(self, _: str) -> WriteState:
        return WriteState(self.is_buffered, self.is_synchronous)

    def set_synchronous(self, _: str, *, on: bool) -> None:
        self.is_synchronous = on
        self.step("synchronous" if on else "free")

    def set_buffered(self, *_: object, on: bool) -> bool:
        self.is_buffered = on
        self.step("buffered" if on else "direct")
        return on

    def flush(self, path: str, *, within_s: float | None = None) -> None:
        self.step("flush")
        if self.flush_fails or self.has_disk_failed:
            self.flush_fails = False
            raise CommandError(Problem("SAN-CACHE-001", f"{path} could not be flushed"))

    # What is called when.

    def monitor(self) -> None:
        write_cache.apply_policy(FakeRunner(), device(), self.observe())

    def handler(self) -> None:
        """Fence-peer for each replica that is gone: mark it if write-back could be left."""
        for peer, copy in self.copies.items():
            if copy == GONE:
                write_cache.leave_write_back_unless_two(FakeRunner(), "vm1")
                self.become(peer, MARKED)

    @property
    def mode(self) -> CacheMode:
        return self.held("").mode


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Node]]:
    counter = itertools.count()

    def made(n2: str = GOOD, n3: str = GOOD) -> Node:
        folder = tmp_path / str(next(counter))
        folder.mkdir()
        node = Node(folder, n2, n3)
        (folder / "boot_id").write_text("this boot\n")
        monkeypatch.setattr(state_files, "RUNTIME", str(folder))
        monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(folder / "drbd.d"))
        monkeypatch.setattr(lost_writes, "_BOOT_ID", str(folder / "boot_id"))
        monkeypatch.setattr(loop, "backing_files", lambda: [node.path])
        monkeypatch.setattr(page_cache, "observe", node.held)
        for name in ("set_synchronous", "set_buffered", "flush"):
            monkeypatch.setattr(page_cache, name, getattr(node, name))
        monkeypatch.setattr(page_cache, "drain", lambda _: None)
        monkeypatch.setattr(page_cache, "set_dirty_limit", lambda *_, **__: None)
        monkeypatch.setattr(page_cache, "usage", lambda _: None)
        for name in ("observe", "require_two", "require_majority"):
            monkeypatch.setattr(drbdsetup, name, getattr(node, name))
        monkeypatch.setattr(journal, "write", lambda *_, **__: None)
        path = Path(resource_file.path_of("vm1"))
        path.parent.mkdir()
        path.write_text(TEXT)
        return node

    yield made


def text_of(nodes: tuple[str, ...], *, requires_two: bool = False, generation: int = 9) -> str:
    return render_resource(
        name="vm1",
        minor=3,
        size_bytes=1 << 20,
        secret="0" * 32,
        replicas=tuple(
            ReplicaAddress(node, number, f"192.0.2.{number}")
            for number, node in enumerate(nodes, start=1)
        ),
        backing=BackingDevices("/dev/loop0", "/dev/loop1"),
        handlers="/usr/lib/sanctl",
        generation=generation,
        sync=DEFAULT_SYNC_POLICY,
        link_bytes_s=None,
        requires_two=requires_two,
    )


TEXT = text_of(NODES)


def test_two_of_three_replicas_stay_in_write_back(make: Callable[..., Node]) -> None:
    node = make()
    node.monitor()
    assert (
        node.mode is CacheMode.WRITE_BACK
        and node.needs_two
        and minimum_redundancy.is_required("vm1")
    )
    node.become("n3", GONE)
    assert not node.is_frozen
    node.handler()
    node.monitor()
    # It comes back, and is filled.
    node.become("n3", BEHIND)
    node.monitor()
    assert node.mode is CacheMode.WRITE_BACK and "flush" not in node.steps
    # The last of them goes: although that makes a majority with the one that is behind.
    node.become("n2", GONE)
    assert node.is_frozen
    node.handler()
    assert node.mode is CacheMode.WRITE_THROUGH and not node.is_frozen
    assert not minimum_redundancy.is_required("vm1") and not node.needs_two
    node.become("n3", GOOD)
    node.monitor()
    assert node.mode is CacheMode.WRITE_BACK


def test_a_failed_disk_of_a_peer_ends_write_back(
    make: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """DRBD gives the connection up (StandAlone), and it has to be connected again later."""
    node = make(n3=MARKED)
    node.monitor()
    node.become("n2", DISKLESS)
    assert node.is_frozen and node.connection("n2") == "StandAlone"
    noted: list[tuple[str, str]] = []
    monkeypatch.setattr(reconnect_dropped, "write_note", lambda *words: noted.append(words))
    fence_peer._note_dropped_connection("vm1", "n2", is_first=False)
    assert noted == [("vm1", "n2")]
    node.handler()
    assert node.mode is CacheMode.WRITE_THROUGH and not node.is_frozen
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 9)
    state_files.of_device("vm1", "cache-policy").write("write-back")
    one = HandlerCalls(2, ("vm1", "other"))
    monkeypatch.setattr(drbd_handlers, "observe_calls", lambda: one)
    # Replicas that have diverged are StandAlone, too, and must not be connected again.
    for is_first in (True, False):
        fence_peer._note_dropped_connection("vm1", "n2", is_first=is_first)
    assert len(noted) == 1
    # But the handler of another peer may have ended write-back first: seen with DRBD 9.3.3, and the
    # connection was not made again.
    running = HandlerCalls(2, ("vm1", "other", "vm1"))
    monkeypatch.setattr(drbd_handlers, "observe_calls", lambda: running)
    for policy, is_first, count in (
        ("write-back", False, 1),
        ("", True, 1),
        ("write-through", True, 1),
        ("write-back dirty=64M", True, 2),
    ):
        state_files.of_device("vm1", "cache-policy").write(policy)
        fence_peer._note_dropped_connection("vm1", "n2", is_first=is_first)
        assert len(noted) == count, policy


def test_the_handler_needs_no_room_on_run(
    make: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else I/O would stay frozen: the handler would try the same for ever, and mark no peer."""
    node = make(n3=MARKED)
    node.monitor()
    node.become("n2", DISKLESS)

    def refuse(*_: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(state_files, "replace_on_tmpfs", refuse)
        patch.setattr(resource_file, "write_atomically", refuse)
        fence_peer._note_dropped_connection("vm1", "n2", is_first=True)
        node.handler()
        assert node.mode is CacheMode.WRITE_THROUGH and not node.is_frozen
        assert not node.needs_two and not lost_writes.has_marker(node.path)
    assert minimum_redundancy.is_required("vm1")
    node.monitor()
    assert not minimum_redundancy.is_required("vm1")


def test_a_standby_leaves_write_back_if_its_primary_has_no_disk(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.is_primary = False
    node.monitor()
    assert node.mode is CacheMode.WRITE_BACK
    node.serving = "n2"
    node.monitor()
    assert node.mode is CacheMode.WRITE_BACK
    node.become("n2", DISKLESS)
    node.monitor()
    assert CacheMode(node.mode) is CacheMode.WRITE_THROUGH


def test_io_stays_frozen_after_a_failed_flush(make: Callable[..., Node]) -> None:
    """The kernel reports it once: the next flush succeeds, and proves nothing."""
    node = make(n3=BEHIND)
    node.monitor()
    node.become("n2", GONE)
    node.flush_fails = True
    with pytest.raises(CommandError, match="SAN-CACHE-001"):
        node.handler()
    node.monitor()
    with pytest.raises(CommandError, match="SAN-CACHE-003"):
        node.handler()
    assert node.is_frozen and node.needs_two and minimum_redundancy.is_required("vm1")


def test_two_replicas_are_required_for_a_write_back_begun_by_an_older_release(
    make: Callable[..., Node],
) -> None:
    node = make()
    node.monitor()
    minimum_redundancy.clear(FakeRunner(), "vm1")
    node.monitor()
    assert node.needs_two and node.mode is CacheMode.WRITE_BACK
    # A requirement that only the kernel has is found by its effect: I/O is frozen.
    node.become("n3", MARKED)
    node.become("n2", MARKED)
    node.monitor()
    node.needs_two, node.is_frozen = True, True
    node.monitor()
    assert not node.needs_two and not node.is_frozen


def test_a_demotion_resumes_frozen_io_by_itself(make: Callable[..., Node]) -> None:
    """The handler was killed, and the cluster has cancelled the monitor."""
    node = make(n3=BEHIND)
    node.monitor()
    node.become("n2", GONE)
    assert node.is_frozen
    write_cache.resume_io_before_demotion(FakeRunner(), "vm1")
    assert not node.is_frozen and node.mode is CacheMode.WRITE_THROUGH


def test_a_failed_disk_here_clears_the_requirement(make: Callable[..., Node]) -> None:
    node = make(n3=MARKED)
    node.monitor()
    node.has_disk_failed = True
    with pytest.raises(CommandError, match="SAN-CACHE-001"):
        node.monitor()
    assert not node.needs_two and not minimum_redundancy.is_required("vm1")


@pytest.mark.parametrize("before", [(GOOD, GOOD), (GOOD, BEHIND), (MARKED, GOOD)], ids=str)
def test_losses_after_any_steps_leave_data_safe_and_io_running(
    make: Callable[..., Node], before: tuple[str, str]
) -> None:
    """Two replicas are lost, each after some step of the agent, and the agent may be killed."""
    ends = set()
    for first, second, gap, dies in itertools.product(EVENTS, EVENTS, range(2), (False, True)):
        for at in range(1, 9):
            node = make(*before)
            node.after[at] = lambda event=first, node=node: node.become(*event)  # type: ignore[misc]
            node.after[at + gap + 1] = lambda event=second, node=node: node.become(*event)  # type: ignore[misc]
            if dies:
                node.after[at + gap + 2] = _die
            with contextlib.suppress(Died):
                node.monitor()
                node.handler()
            is_reached = at not in node.after
            node.after.clear()
            node.handler()
            node.monitor()
            # Held I/O goes on once nobody can have more; without a majority that is so, too.
            assert not node.is_frozen, (first, second, at, dies, node.steps)
            assert node.needs_two is minimum_redundancy.is_required("vm1")
            assert not node.needs_two or node.good > 1, "no change of state would be taken"
            assert node.mode is (CacheMode.WRITE_BACK if node.good > 1 else CacheMode.WRITE_THROUGH)
            ends.add(node.mode)
            if not is_reached:
                break  # Nothing has happened; nor does it with an event that comes later still.
    assert CacheMode.WRITE_THROUGH in ends


def _die() -> None:
    raise Died


@pytest.mark.parametrize("n3", [GOOD, BEHIND, MARKED])
def test_a_new_primary_requires_two_replicas_before_it_serves(
    make: Callable[..., Node], n3: str
) -> None:
    node = make(n3=n3)
    node.is_primary = False
    node.monitor()
    assert node.mode is CacheMode.WRITE_BACK and not node.needs_two, "a standby must not need two"
    node.become("n2", GONE)
    write_cache.leave_write_back_unless_two(FakeRunner(), "vm1")
    node.become("n2", MARKED)
    node.is_primary = True
    write_cache.leave_write_back_unless_in_sync(FakeRunner(), "vm1")
    assert node.mode is (CacheMode.WRITE_BACK if n3 == GOOD else CacheMode.WRITE_THROUGH)
    assert node.needs_two is (n3 == GOOD)
    node.check()
    node.is_primary = False
    write_cache.clear_minimum_redundancy(FakeRunner(), "vm1")
    assert not node.needs_two and not minimum_redundancy.is_required("vm1")


def test_a_primary_killed_before_it_required_two_leaves_write_back(
    make: Callable[..., Node],
) -> None:
    """Made Primary, killed before it was ready to serve, and then a replica is lost."""
    node = make()
    node.is_primary = False
    node.monitor()
    node.is_primary = True
    node.become("n3", GONE)
    write_cache.leave_write_back_unless_two(FakeRunner(), "vm1")
    assert node.mode is CacheMode.WRITE_THROUGH


def test_only_the_line_quorum_minimum_redundancy_is_added_and_removed(
    make: Callable[..., Node],
) -> None:
    make()
    path = Path(resource_file.path_of("vm1"))
    text = path.read_text()
    for _ in range(2):
        resource_file.set_requires_two("vm1", on=True)
        assert resource_file.requires_two("vm1")
    assert sorted(path.read_text().splitlines()) == sorted(
        text_of(NODES, requires_two=True).splitlines()
    )
    lines = path.read_text().splitlines()
    assert "options {" in lines[lines.index("    quorum-minimum-redundancy 2;") - 1]
    resource_file.set_requires_two("vm1", on=False)
    assert path.read_text() == text
    # Two copies have no majority to count, and 8.4 does not know the word.
    for nodes, generation in ((NODES[:2], 9), (NODES[:2], 8)):
        assert "redundancy" not in text_of(nodes, requires_two=True, generation=generation)


def test_nothing_is_required_without_a_resource_file(make: Callable[..., Node]) -> None:
    make()
    resource_file.remove("vm1")
    resource_file.set_requires_two("vm1", on=True)
    assert not minimum_redundancy.is_required("vm1")
    runner = FakeRunner()
    minimum_redundancy.clear(runner, "vm1")
    assert runner.calls == []


def test_clearing_the_requirement_makes_drbd_count_quorum_again() -> None:
    runner = FakeRunner()
    drbdsetup.require_two(runner, "vm1")
    drbdsetup.require_majority(runner, "vm1", replica_count=4)
    options = [" ".join(argv[2:]) for argv, _ in runner.calls]
    assert options == [
        "vm1 --quorum-minimum-redundancy=2",
        "vm1 --quorum-minimum-redundancy=off --quorum=3",
        "vm1 --quorum-minimum-redundancy=off --quorum=majority",
    ]
