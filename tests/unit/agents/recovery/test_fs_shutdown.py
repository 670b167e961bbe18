# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool is remounted after its filesystem shut itself down; a kill at any step is recovered."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import NoReturn

import pytest

from sanctl.agents import ocf
from sanctl.agents.recovery import fs_shutdown, pool_remount, unbroken_use
from sanctl.agents.recovery.fs_shutdown import FilesystemState
from sanctl.agents.replica import device_files, lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    drbdsetup,
    flash_assembly,
    flash_cache,
    loop,
    node_attributes,
    pool_mount,
    pool_notes,
)
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.topology import Pool, PoolCache
from sanctl.system import files
from sanctl.system.files import file_lock
from sanctl.system.runner import LocalRunner
from sanctl.system.state_files import StateFile
from tests.fakes.node import FakeNode

RUNNER = LocalRunner()
#: As it is where no test stands in for it.
IS_READABLE = pool_mount.is_readable
GOOD = PeerState("peer", "Connected", "Primary", "Established", "UpToDate", 0)
ATTACHED = ResourceState("vol", "Secondary", "no", "UpToDate", 1024, (GOOD,))
DISKLESS = ATTACHED._replace(disk="Diskless")
DEVICE = Device(
    name="vol",
    uuid="0" * 32,
    size_bytes=0,
    pool="main",
    nodes=("n1", "n2"),
    minor=7,
    initiators=(),
)
MARKED = "shut-down"


class Died(Exception):
    """The agent was killed."""


class Node(FakeNode):
    """A node with one pool and two replicas in it, and what the kernel does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_shut = self.is_mounted = self.answers = self.reports = True
        self.is_damaged = False
        self.is_known = True
        self.root = "/"
        self.peer = "total=1 free=1"
        self.done: list[str] = []
        self.dies_at = -1
        (self.pool,) = self.topology.pools
        devices = folder / "pool/devices"
        devices.mkdir(parents=True)
        for name in ("vol", "other"):
            (devices / f"{name}.{'0' * 32}.data").touch()
        (folder / "pool/.sanctl-pool").write_text(self.pool.uuid)
        self.attach(f"{devices}/vol.{'0' * 32}.data")

    @property
    def mount(self) -> pool_mount.Mount:
        own = frozenset({"emergency_ro"} if self.is_shut else {"rw"})
        return pool_mount.Mount(
            str(self.pool.path), "8:16", self.root, "/dev/sdb", "ext4", frozenset({"rw"}), own
        )

    def does(self, what: str) -> None:
        if len(self.done) == self.dies_at:
            raise Died
        self.done.append(what)

    def markers(self) -> list[str]:
        devices = sorted((self.folder / "pool/devices").glob("*.data"))
        return [
            marker.read_text() if (marker := data.with_suffix(".ram")).exists() else ""
            for data in devices
        ]

    def is_noted(self) -> bool:
        return (self.folder / "notes/main.shut-down").exists()

    def unmount(self, *_args: object) -> None:
        self.does("unmount")
        assert not self.loops, "busy"
        self.is_mounted = self.is_shut = False

    def remount(self, *_args: object) -> None:
        self.does("mount")
        self.is_mounted = True

    def detach_all(self, *_args: object) -> None:
        self.does("release")
        self.loops.clear()

    def try_writes(self, _path: str, *, turn_s: float = 0.0) -> pool_mount.Writes:
        if not self.is_known:
            return pool_mount.Writes.NOT_KNOWN
        return pool_mount.Writes.SHUT_DOWN if self.is_shut else pool_mount.Writes.TAKEN

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (pool_mount, "try_writes", self.try_writes),
            (pool_mount, "reports_shut_down", lambda _path: self.reports and self.is_shut),
            (pool_mount, "is_damaged", lambda _mount: self.is_damaged),
            (pool_mount, "mount_of", lambda _path: self.mount),
            (pool_mount, "is_readable", lambda _source: self.answers),
            (pool_mount, "unmount", self.unmount),
            (pool_mount, "mount", self.remount),
            (node_attributes, "query", lambda _runner, _name, _node: self.peer),
            (fs_shutdown, "_PEER_CHECKS_WITHIN_S", 0.0),
            (pool_remount, "is_mount_point", lambda _path: self.is_mounted),
            (fs_shutdown, "check_marker", lambda _path, _uuid: _need(self.is_mounted)),
            (pool_remount, "check_marker", lambda _path, _uuid: _need(self.is_mounted)),
            (ocf, "crash_point", self.does),
            (resource_file, "clear_disk", lambda _name: self.does("clear disk")),
            (drbdsetup, "force_detach", lambda _runner, minor: self.does(f"detach {minor}")),
            (device_files, "detach", self.detach_all),
        ]


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path).install(monkeypatch)


def _need(is_there: bool) -> None:
    if not is_there:
        raise CommandError(Problem("SAN-POOL-001", "not mounted"))


def release(state: ResourceState) -> FilesystemState:
    return fs_shutdown.release_files(RUNNER, DEVICE, state)


def start(node: Node) -> None:
    with pool_remount.usable_for_start(RUNNER, node.pool):
        pass


@pytest.mark.parametrize("state", [ATTACHED, DISKLESS, ATTACHED._replace(role="Primary")])
def test_a_healthy_filesystem_is_left_alone(node: Node, state: ResourceState) -> None:
    node.is_shut = False
    assert release(state) is FilesystemState.HEALTHY
    fs_shutdown.refuse_promotion(DEVICE)
    fs_shutdown.before_stop(DEVICE)
    pool_remount.remount(RUNNER, node.pool)
    start(node)
    assert node.done == [] and node.markers() == ["", ""] and not node.is_noted()


@pytest.mark.parametrize(
    ("state", "done", "expected"),
    [
        (ATTACHED, ["detach 7"], FilesystemState.SHUT_DOWN),
        (ATTACHED._replace(role="Primary"), ["detach 7"], FilesystemState.SHUT_DOWN),
        # DRBD 9, whose quorum is off with two replicas.
        (
            ATTACHED._replace(role="Primary", has_quorum=True),
            ["detach 7"],
            FilesystemState.SHUT_DOWN,
        ),
        (ATTACHED._replace(peers=()), [], FilesystemState.HEALTHY),
        (ATTACHED._replace(peers=(GOOD._replace(disk="Outdated"),)), [], FilesystemState.HEALTHY),
        (
            ATTACHED._replace(peers=(GOOD._replace(connection="Connecting"),)),
            [],
            FilesystemState.HEALTHY,
        ),
        (
            DISKLESS,
            ["clear disk", "fs-shutdown-disk-cleared", "release"],
            FilesystemState.SHUT_DOWN,
        ),
        (DISKLESS._replace(role="Primary"), [], FilesystemState.SHUT_DOWN),
    ],
)
def test_a_disk_is_detached_if_a_peer_has_good_data(
    node: Node, state: ResourceState, done: list[str], expected: FilesystemState
) -> None:
    assert release(state) is expected
    assert node.done == done
    assert node.is_noted(), "in every state"
    if node.loops:
        with pytest.raises(CommandError, match="SAN-POOL-023"):
            fs_shutdown.refuse_promotion(DEVICE)


def test_a_primary_keeps_its_disk_where_the_quorum_of_drbd_9_decides(node: Node) -> None:
    """Without it the Primary may be none of a majority of three any more."""
    serving = ATTACHED._replace(
        role="Primary", has_quorum=True, peers=(GOOD, GOOD._replace(name="n3"))
    )
    three = DEVICE._replace(nodes=("n1", "n2", "n3"))
    assert fs_shutdown.release_files(RUNNER, three, serving) is FilesystemState.HEALTHY
    assert node.done == []


def test_a_shutdown_that_the_kernel_does_not_report_is_known_from_the_note(node: Node) -> None:
    node.reports = False
    assert release(ATTACHED) is FilesystemState.HEALTHY, "a device's agent tries no write"
    loops, node.loops = node.loops, {}
    node.is_mounted = node.answers = False
    with pytest.raises(CommandError):
        pool_remount.remount(RUNNER, node.pool)
    node.loops = loops
    assert release(ATTACHED) is FilesystemState.SHUT_DOWN


def test_a_detached_disk_is_tried_before_it_is_attached_again(node: Node) -> None:
    node.reports = False
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert node.is_noted()


def test_no_disk_is_detached_while_the_peers_pool_is_shut_down(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.peer = "error=SAN-POOL-023"
    assert release(ATTACHED) is FilesystemState.HEALTHY
    node.peer = "total=1"
    monkeypatch.setattr(fs_shutdown, "_PEER_CHECKS_WITHIN_S", 60.0)
    assert release(ATTACHED._replace(role="Primary")) is FilesystemState.HEALTHY, (
        "the peer has not checked"
    )
    assert release(ATTACHED) is FilesystemState.SHUT_DOWN
    assert node.done == ["detach 7"]


def test_a_stop_writes_the_note_that_no_monitor_wrote(node: Node) -> None:
    node.reports = False
    fs_shutdown.before_stop(DEVICE._replace(pool=""))
    assert node.is_noted()


def test_a_disk_is_detached_also_where_the_note_cannot_be_written(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pool_notes, "write", refuse)
    assert release(ATTACHED) is FilesystemState.SHUT_DOWN
    assert node.done == ["detach 7"]


def _refuse_write(*_args: object, **_named: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


def test_a_pool_is_suspect_also_where_the_nodes_own_disk_takes_no_note(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: the pool was remounted without a note, and its replicas taken for whole."""
    monkeypatch.setattr(pool_notes, "write_atomically", _refuse_write)
    fs_shutdown.record_shutdown("main")
    node.reports = False
    with pytest.raises(CommandError, match="vol may lack writes here"):
        fs_shutdown.refuse_promotion(DEVICE)
    node.loops = {}
    pool_remount.remount(RUNNER, node.pool)
    assert node.done[-1] == "fs-shutdown-marked"
    assert node.markers() == [MARKED, MARKED] and not node.is_noted()
    assert not pool_notes.exists("main", pool_notes.SHUT_DOWN)


def test_the_nodes_own_disk_is_tried_again_for_the_note(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(pool_notes, "write_atomically", _refuse_write)
        fs_shutdown.record_shutdown("main")
    assert not node.is_noted()
    fs_shutdown.record_shutdown("main")
    assert node.is_noted()


def test_a_pool_of_which_no_note_can_be_written_is_not_remounted(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_notes, "write_atomically", _refuse_write)
    monkeypatch.setattr(StateFile, "write", _refuse_write)
    node.loops = {}
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*no note of that can be written"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.is_shut and "unmount" not in node.done


def test_a_note_from_the_future_ages_from_now_on(node: Node) -> None:
    """What broke: the note of a Primary's pool stayed new for as long as the clock was put back."""
    fs_shutdown.record_shutdown("main")
    ahead_s = time.time() + 3600.0
    where = pool_notes.path("main", pool_notes.SHUT_DOWN)
    os.utime(where, (ahead_s, ahead_s))
    assert pool_notes.age_s("main", pool_notes.SHUT_DOWN) == 0.0
    assert os.stat(where).st_mtime < ahead_s - 1800.0
    assert node.is_noted()


def test_a_note_in_ram_is_one_that_the_disk_has_not_taken(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: where the node's own disk gave EIO there was none, also not in RAM.

    And one in RAM beside that on the disk outlived what a release before has cleared.
    """
    disk, ram = pool_notes.paths("main", pool_notes.SHUT_DOWN)
    fs_shutdown.record_shutdown("main")
    assert os.path.exists(disk) and not os.path.exists(ram)
    pool_notes.clear("main", pool_notes.SHUT_DOWN)

    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EIO, "own disk")

    with monkeypatch.context() as broken:
        broken.setattr(files, "exists", fail)
        broken.setattr(pool_notes, "write_atomically", fail)
        broken.setattr(pool_notes, "_age_s", lambda at: 7.0 if at == ram else fail())
        fs_shutdown.record_shutdown("main")
        assert pool_notes.exists("main", pool_notes.SHUT_DOWN)
        assert pool_notes.age_s("main", pool_notes.SHUT_DOWN) == 7.0
        # It tells what can prove that nothing was shut down, as the one on the disk does.
        assert pool_notes.read("main", pool_notes.SHUT_DOWN) == unbroken_use.describe()
    fs_shutdown.record_shutdown("main")
    assert os.path.exists(disk) and not os.path.exists(ram)
    assert node.is_noted()


def test_files_are_kept_until_the_disk_answers(node: Node) -> None:
    node.answers = False
    release(DISKLESS)
    assert node.done == [] and node.loops
    node.loops = {}
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*does not answer"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.is_mounted


def test_a_disk_that_hangs_does_not_hang_the_agents(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each monitor was in the kernel for as long as the disk was, one of them with the lock."""
    until = node.folder / "until"

    def hang(*_: object) -> int:
        with file_lock(f"{node.folder}/pool-main.aground", wait_s=0.0) as is_free:
            (node.folder / f"free-{is_free}").touch()
        ends_s = time.perf_counter() + 20.0
        while not until.exists() and time.perf_counter() < ends_s:
            select.select([], [], [], 0.01)
        return 4096

    source = node._file("disk", "x")
    hung = node.mount._replace(source=source)
    monkeypatch.setattr(os, "preadv", hang)
    monkeypatch.setattr(os, "O_DIRECT", 0)
    monkeypatch.setattr(pool_mount, "mount_of", lambda _path: hung)
    monkeypatch.setattr(pool_mount, "is_readable", IS_READABLE)
    monkeypatch.setattr(pool_mount, "_TRY_S", 0.5)
    began = time.perf_counter()
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert node.done == [] and node.loops, "its files are not released"
    node.loops = {}
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*disk does not answer"):
        pool_remount.remount(RUNNER, node.pool)
    assert time.perf_counter() - began < 5.0
    assert node.is_mounted
    until.touch()
    (held,) = node.folder.glob("read-*")
    with held.open() as lock:  # free once that process has gone
        fcntl.flock(lock, fcntl.LOCK_EX)
    until.unlink()
    with pytest.raises(CommandError, match="does not answer"):
        pool_remount.remount(RUNNER, node.pool)
    until.touch()
    assert (node.folder / "free-True").exists() and not (node.folder / "free-False").exists()


def test_a_pool_in_use_is_not_unmounted(node: Node) -> None:
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*vol\.0*\.data is in use"):
        pool_remount.remount(RUNNER, node.pool)
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        start(node)
    assert node.done == [] and node.is_noted()


def test_a_pool_is_not_unmounted_during_a_start(node: Node) -> None:
    """The start would make its files in a folder that nothing is mounted on."""
    node.is_shut, node.loops = False, {}
    with (
        pool_remount.usable_for_start(RUNNER, node.pool),
        pool_remount.usable_for_start(RUNNER, node.pool),
    ):
        node.is_shut = True
        with pytest.raises(CommandError, match="another agent is remounting it"):
            pool_remount.remount(RUNNER, node.pool)
        assert node.done == []
    pool_remount.remount(RUNNER, node.pool)
    assert "unmount" in node.done
    with (
        file_lock(str(node.folder / "pool-main.aground")),
        pytest.raises(CommandError, match="another agent is remounting it"),
    ):
        start(node)
    with (
        pytest.raises(OSError, match="of the start"),
        pool_remount.usable_for_start(RUNNER, node.pool),
    ):
        raise OSError("of the start")


def test_a_start_waits_until_other_replicas_release_their_files(node: Node) -> None:
    node.clock.on_sleep = lambda: node.loops.clear() if node.clock.passed_s >= 2.0 else None
    start(node)
    assert not node.is_shut and node.markers() == [MARKED, MARKED]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"is_damaged": True}, "damaged"), ({"root": "/pools"}, "only mount")],
)
def test_a_pool_that_a_remount_does_not_repair_stays_mounted(
    node: Node, wrong: dict[str, object], why: str
) -> None:
    node.loops = {}
    for name, value in wrong.items():
        setattr(node, name, value)
    with pytest.raises(CommandError, match=why):
        pool_remount.remount(RUNNER, node.pool)
    assert node.done == []


def test_remounts_per_day_are_limited_except_for_a_start(node: Node) -> None:
    node.loops = {}
    for _ in range(pool_remount.MAX_REMOUNTS_PER_DAY):
        node.is_shut = True
        pool_remount.remount(RUNNER, node.pool, max_per_day=pool_remount.MAX_REMOUNTS_PER_DAY)
    node.is_shut = True
    with pytest.raises(CommandError, match="3 times within a day"):
        pool_remount.remount(RUNNER, node.pool, max_per_day=pool_remount.MAX_REMOUNTS_PER_DAY)
    start(node)
    assert not node.is_shut, "a start has no limit"


def test_remounts_that_lie_ahead_do_not_count(node: Node) -> None:
    """What broke: after the clock was put back a pool was not remounted any more, for years."""
    node.loops = {}
    ahead = " ".join([str(int(time.time()) + 10**8)] * pool_remount.MAX_REMOUNTS_PER_DAY)
    pool_notes.write("main", "mounted-anew", ahead)
    pool_remount.remount(RUNNER, node.pool, max_per_day=pool_remount.MAX_REMOUNTS_PER_DAY)
    assert not node.is_shut


def test_a_replica_is_restarted_once_its_pool_is_remounted(node: Node) -> None:
    node.loops = {}
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    pool_remount.remount(RUNNER, node.pool)
    assert release(DISKLESS) is FilesystemState.REMOUNTED
    assert release(DISKLESS._replace(role="Primary")) is FilesystemState.HEALTHY
    assert release(ATTACHED) is FilesystemState.HEALTHY
    node.is_mounted = False
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN


def test_a_release_that_was_interrupted_is_finished(node: Node) -> None:
    node.loops = {f"{node.folder}/pool/devices/vol.{'0' * 32}.meta": "/dev/loop1"}
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert node.done == ["clear disk", "release"]
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert node.done == ["clear disk", "release"]


def test_a_kill_after_each_step_is_recovered(node: Node) -> None:
    """After each prefix of the steps: the note is there, or every replica is marked."""
    node.loops = {}
    for dies_at in range(12):
        node.is_shut, node.is_mounted, node.done = True, True, []
        for data in (node.folder / "pool/devices").glob("*.ram"):
            data.unlink()
        node.dies_at = dies_at
        try:
            pool_remount.remount(RUNNER, node.pool)
            break
        except Died:
            assert node.is_noted() or node.markers() == [MARKED, MARKED]
        node.dies_at = -1
        pool_remount.remount(RUNNER, node.pool)
        assert node.is_mounted and not node.is_shut
        assert node.markers() == [MARKED, MARKED]
        assert not node.is_noted()
    assert dies_at == 5, "a kill after every step was tried"


def test_replicas_are_marked_also_after_a_reboot(node: Node) -> None:
    """The note is there and the filesystem healthy: the first start marks the replicas first."""
    fs_shutdown.record_shutdown("main")
    node.is_shut, node.loops = False, {}
    node.is_mounted = False
    with pytest.raises(CommandError, match="not mounted"):
        start(node)
    assert node.is_noted(), "an empty folder says nothing about the replicas"
    node.is_mounted = True
    start(node)
    assert node.markers() == [MARKED, MARKED] and not node.is_noted()


def test_the_marker_of_an_only_replica_is_cleared(node: Node) -> None:
    fs_shutdown.record_shutdown("main")
    node.is_shut, node.loops = False, {}
    start(node)
    fs_shutdown.trust_only_replica(node.pool, DEVICE)
    assert node.markers() == [MARKED, MARKED], "it has a peer"
    fs_shutdown.trust_only_replica(node.pool, DEVICE._replace(nodes=("n1",)))
    assert node.markers() == [MARKED, ""]


def test_the_note_stays_while_a_file_is_in_use(node: Node) -> None:
    """It is not marked: the note alone tells that it may lack writes."""
    fs_shutdown.record_shutdown("main")
    node.is_shut = False
    (file,) = node.loops
    node.loops[file] = "/dev/loop99"  # Attached anew since.
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*vol\.0*\.data is in use.*node standby"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.markers() == [MARKED, ""] and node.is_noted()
    other = DEVICE._replace(name="other")
    verdict = fs_shutdown.release_files(RUNNER, other, DISKLESS)
    assert verdict is FilesystemState.SHUT_DOWN, "it would be filled, and detached again"
    node.loops = {}
    pool_remount.remount(RUNNER, node.pool)
    assert node.markers() == [MARKED, MARKED] and not node.is_noted()


def test_a_file_in_use_shows_that_a_filesystem_that_takes_writes_was_never_shut_down(
    node: Node,
) -> None:
    """The only replica of a device, say, which nothing would release: no start came by."""
    fs_shutdown.record_shutdown("main")
    node.is_shut = False
    start(node)
    assert node.markers() == [MARKED, ""] and not node.is_noted()


@pytest.mark.parametrize("doubt", ["shut", "boot", "empty", "attached anew", "hidden"])
def test_a_use_that_proves_nothing_keeps_the_note(
    node: Node, monkeypatch: pytest.MonkeyPatch, doubt: str
) -> None:
    fs_shutdown.record_shutdown("main")
    node.is_shut = doubt == "shut"
    note = node.folder / "notes/main.shut-down"
    (file,) = node.loops
    if doubt == "boot":
        note.write_text("another\n" + note.read_text().partition("\n")[2])
    elif doubt == "empty":
        note.write_text("")
    elif doubt == "attached anew":
        node.loops[file] = "/dev/loop99"
    elif doubt == "hidden":
        monkeypatch.setattr(loop, "is_over", lambda _path: False)
    else:
        assert file in note.read_text()
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.is_noted()


def test_a_note_is_written_where_what_is_attached_is_not_known(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "attachments", lambda: os.listdir("/gone"))
    fs_shutdown.record_shutdown("main")
    assert (node.folder / "notes/main.shut-down").read_text() == ""


@pytest.mark.parametrize("is_used", [True, False])
def test_a_trial_without_an_answer_does_not_clear_the_note(node: Node, is_used: bool) -> None:
    """The filesystem is still shut down: after a loss of power nothing else would tell."""
    fs_shutdown.record_shutdown("main")
    node.reports = node.is_known = False
    if not is_used:
        node.loops = {}
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.is_noted() and node.markers() == ["", ""] and node.done == []
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        start(node)


def test_the_note_stays_on_a_pool_that_is_mounted_read_only(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs_shutdown.record_shutdown("main")
    node.is_shut, node.loops = False, {}
    node.is_known = False
    read_only = node.mount._replace(options=frozenset({"ro"}))
    monkeypatch.setattr(pool_mount, "mount_of", lambda _path: read_only)
    with pytest.raises(CommandError, match="SAN-POOL-036"):
        pool_remount.remount(RUNNER, node.pool)
    assert node.is_noted()


def test_what_is_not_known_asks_for_no_remount(node: Node) -> None:
    node.reports = node.is_known = False
    pool_remount.remount(RUNNER, node.pool)
    assert not node.is_noted() and node.done == []


def test_a_marked_replica_is_suspect(node: Node) -> None:
    (data,) = node.loops
    lost_writes.set_shutdown_marker(data)
    assert lost_writes.is_suspect("vol", data)
    lost_writes.clear_shutdown_marker(data)
    assert not lost_writes.is_suspect("vol", data)


@pytest.mark.parametrize("keyword", ["flexible-meta-disk", "meta-disk"])
def test_each_device_without_metadata_names_a_path_of_its_own(
    fake_node: FakeNode, keyword: str
) -> None:
    """Seen with three devices: drbdadm refused all of them, and a start failed for it."""
    (fake_node.folder / "drbd.d").mkdir()
    named = set()
    for name in ("a", "b"):
        file = fake_node.folder / f"drbd.d/{name}.res"
        file.write_text(f"  volume 0 {{\n    disk /dev/dm-1;\n    {keyword} /dev/loop1;\n  }}\n")
        resource_file.clear_disk(name)
        text = file.read_text()
        assert "loop1" not in text and f"    {keyword} /dev/" in text
        named.add(text)
    assert len(named) == 2


class CachedNode(Node):
    """One whose pool is behind flash, and whose disk bcache has stopped."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        cache = PoolCache(origin=PurePosixPath("/dev/slow"), flash=PurePosixPath("/dev/flash"))
        self.pool = replace(self.pool, cache=cache)
        self.topology = replace(self.topology, pools=(self.pool,))
        self.is_stopped = True
        self.lacks_flash = False
        #: Until the unmount.
        self.was_there = False
        self.asked: list[str] = []
        self.mounted_from = ""

    def is_readable(self, device: str) -> bool:
        self.asked.append(device)
        assert not (self.is_stopped and device != "/dev/slow"), "nobody can open it"
        return self.answers

    def unmount(self, *args: object) -> None:
        super().unmount(*args)
        self.is_stopped = False

    def refuse_to_unmount(self, _pool: Pool) -> None:
        assert self.is_mounted and self.is_stopped
        if self.lacks_flash and not self.was_there:
            raise Refused(Problem("SAN-POOL-016", "data of it is on flash that is not here"))

    def start_again(self, _runner: object, pool: Pool, source: str) -> str:
        assert pool == self.pool and not self.is_mounted
        if self.lacks_flash:
            raise Refused(Problem("SAN-POOL-016", "data of it is on flash that is not here"))
        self.does("assemble")
        return f"{source}-anew"

    def mount_anew(self, _runner: object, known: pool_mount.Mount) -> None:
        self.remount()
        self.mounted_from = known.source

    def replacements(self) -> list[tuple[object, str, object]]:
        return [
            *super().replacements(),
            (flash_cache, "is_stopped", lambda _pool: self.is_stopped),
            (flash_assembly, "refuse_to_unmount", self.refuse_to_unmount),
            (flash_assembly, "start_again", self.start_again),
            (pool_mount, "is_readable", self.is_readable),
            (pool_mount, "mount", self.mount_anew),
        ]


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CachedNode:
    return CachedNode(tmp_path).install(monkeypatch)


def test_files_above_a_disk_that_bcache_has_stopped_are_released_once_the_slow_disk_answers(
    cached: CachedNode,
) -> None:
    """The stopped disk never answers, and the replicas stayed without a disk for good."""
    cached.answers = False
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert cached.done == [] and cached.asked == ["/dev/slow"]
    cached.answers = True
    assert release(DISKLESS) is FilesystemState.SHUT_DOWN
    assert "release" in cached.done and not cached.loops


def test_disk_and_flash_are_assembled_between_unmount_and_mount(cached: CachedNode) -> None:
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*in use"):
        pool_remount.remount(RUNNER, cached.pool)
    assert cached.done == [] and pool_remount.awaits_mount(cached.pool)
    cached.loops, cached.answers = {}, False
    with pytest.raises(CommandError, match="does not answer"):
        pool_remount.remount(RUNNER, cached.pool)
    assert cached.done == []
    cached.answers = True
    pool_remount.remount(RUNNER, cached.pool)
    steps = [step for step in cached.done if not step.startswith("fs-shutdown")]
    assert steps == ["unmount", "assemble", "mount"]
    assert cached.mounted_from == "/dev/sdb-anew"
    assert not pool_remount.awaits_mount(cached.pool)
    assert cached.markers() == [MARKED, MARKED] and not cached.is_noted()


def test_a_pool_whose_flash_is_missing_stays_unmounted_until_it_is_there(
    cached: CachedNode,
) -> None:
    cached.lacks_flash = True
    with pytest.raises(Refused, match="SAN-POOL-016"):
        pool_remount.remount(RUNNER, cached.pool)
    assert cached.done == [], "it stays as it is"
    cached.loops, cached.was_there = {}, True
    for _ in range(2):
        with pytest.raises(Refused, match="SAN-POOL-016"):
            pool_remount.remount(RUNNER, cached.pool)
        assert not cached.is_mounted and cached.is_noted()
        assert pool_remount.awaits_mount(cached.pool)
    cached.lacks_flash = False
    start(cached)
    assert cached.is_mounted and cached.markers() == [MARKED, MARKED]


def test_a_pool_without_flash_awaits_no_assembly(node: Node) -> None:
    assert not pool_remount.awaits_mount(node.pool)


@pytest.mark.parametrize("dies_at", range(7))
def test_a_kill_after_each_step_with_flash_is_recovered(cached: CachedNode, dies_at: int) -> None:
    cached.loops, cached.dies_at = {}, dies_at
    with pytest.raises(Died):
        pool_remount.remount(RUNNER, cached.pool)
    assert cached.is_noted() or cached.markers() == [MARKED, MARKED]
    cached.dies_at = -1
    pool_remount.remount(RUNNER, cached.pool)
    assert cached.is_mounted and not cached.is_stopped
    assert cached.markers() == [MARKED, MARKED] and not cached.is_noted()
