# SPDX-License-Identifier: GPL-2.0-or-later
"""Off a filesystem that has shut itself down and onto it again; whoever is killed is followed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import pytest

from sanctl.agents import ocf
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.recovery.fs_shutdown import Verdict
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, loop, node_attributes, pool_mount, pool_notes
from sanctl.errors import CommandError, Problem
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.topology import Pool
from sanctl.system import state_files
from sanctl.system.files import file_lock
from sanctl.system.runner import LocalRunner
from tests.fakes.topology import topology

RUNNER = LocalRunner()
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
    """The process is gone."""


@dataclass
class Node:
    """A node with one pool and two copies in it, and what the kernel does."""

    folder: Path
    is_shut: bool = True
    is_mounted: bool = True
    answers: bool = True
    is_damaged: bool = False
    says: bool = True
    root: str = "/"
    peer: str = "total=1 free=1"
    files: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    dies_at: int = -1
    now_s: float = 0.0
    lets_go_at_s: float = math.inf

    @property
    def pool(self) -> Pool:
        one = topology().pools[0]
        return replace(one, path=PurePosixPath(self.folder / "pool"))

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

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return 1_800_000_000.0

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.now_s >= self.lets_go_at_s:
            self.files = []

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
        assert not self.files, "busy"
        self.is_mounted = self.is_shut = False

    def mount_anew(self, *_args: object) -> None:
        self.does("mount")
        self.is_mounted = True


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node(tmp_path)
    devices = tmp_path / "pool/devices"
    devices.mkdir(parents=True)
    for name in ("vol", "other"):
        (devices / f"{name}.{'0' * 32}.data").touch()
    (tmp_path / "pool" / ".sanctl-pool").write_text(made.pool.uuid)
    made.files = [f"{devices}/vol.{'0' * 32}.data"]
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(fs_shutdown, "time", made)
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(pool_mount, "is_shut_down", lambda _path: made.is_shut)
    monkeypatch.setattr(pool_mount, "reports_shut_down", lambda _path: made.says and made.is_shut)
    monkeypatch.setattr(pool_mount, "is_damaged", lambda _mount: made.is_damaged)
    monkeypatch.setattr(node_attributes, "query", lambda _runner, _name, _node: made.peer)
    monkeypatch.setattr(fs_shutdown, "_PEER_LOOKS_S", 0.0)
    monkeypatch.setattr(pool_mount, "mount_of", lambda _path: made.mount)
    monkeypatch.setattr(pool_mount, "is_readable", lambda _source: made.answers)
    monkeypatch.setattr(pool_mount, "unmount", made.unmount)
    monkeypatch.setattr(pool_mount, "mount", made.mount_anew)
    monkeypatch.setattr(fs_shutdown, "is_mount_point", lambda _path: made.is_mounted)
    monkeypatch.setattr(fs_shutdown, "check_marker", lambda _path, _uuid: _need(made.is_mounted))
    monkeypatch.setattr(loop, "backing_files", lambda: made.files)
    monkeypatch.setattr(ocf, "crash_point", made.does)
    monkeypatch.setattr(parts, "load_topology", lambda: replace(topology(), pools=(made.pool,)))
    monkeypatch.setattr(resource_file, "clear_disk", lambda _name: made.does("forget"))
    monkeypatch.setattr(
        drbdsetup, "force_detach", lambda _runner, minor: made.does(f"drop {minor}")
    )

    def let_go(*_args: object) -> None:
        made.does("let go")
        made.files = []

    monkeypatch.setattr(parts, "detach_files", let_go)
    return made


def _need(is_there: bool) -> None:
    if not is_there:
        raise CommandError(Problem("SAN-POOL-001", "not mounted"))


def give_up(state: ResourceState) -> Verdict:
    return fs_shutdown.release_files(RUNNER, DEVICE, state)


def admit(node: Node) -> None:
    with fs_shutdown.usable_for_start(RUNNER, node.pool):
        pass


@pytest.mark.parametrize("state", [ATTACHED, DISKLESS, ATTACHED._replace(role="Primary")])
def test_a_filesystem_that_takes_writes_is_left_alone(node: Node, state: ResourceState) -> None:
    node.is_shut = False
    assert give_up(state) is Verdict.AFLOAT
    fs_shutdown.refuse_promotion(DEVICE)
    fs_shutdown.before_stop(DEVICE)
    fs_shutdown.remount(RUNNER, node.pool)
    admit(node)
    assert node.done == [] and node.markers() == ["", ""] and not node.is_noted()


@pytest.mark.parametrize(
    ("state", "done", "verdict"),
    [
        (ATTACHED, ["drop 7"], Verdict.AGROUND),
        (ATTACHED._replace(role="Primary"), ["drop 7"], Verdict.AGROUND),
        (ATTACHED._replace(role="Primary", has_quorum=True), [], Verdict.AFLOAT),
        (ATTACHED._replace(peers=()), [], Verdict.AFLOAT),
        (ATTACHED._replace(peers=(GOOD._replace(disk="Outdated"),)), [], Verdict.AFLOAT),
        (ATTACHED._replace(peers=(GOOD._replace(connection="Connecting"),)), [], Verdict.AFLOAT),
        (DISKLESS, ["forget", "aground-forgotten", "let go"], Verdict.AGROUND),
        (DISKLESS._replace(role="Primary"), [], Verdict.AGROUND),
    ],
)
def test_a_replica_gives_up_what_its_peer_has(
    node: Node, state: ResourceState, done: list[str], verdict: Verdict
) -> None:
    assert give_up(state) is verdict
    assert node.done == done
    assert node.is_noted(), "whatever it may do"
    if node.files:
        with pytest.raises(CommandError, match="SAN-POOL-023"):
            fs_shutdown.refuse_promotion(DEVICE)


def test_what_the_kernel_does_not_say_is_known_from_the_pools_agent(node: Node) -> None:
    node.says = False
    assert give_up(ATTACHED) is Verdict.AFLOAT, "not tried out by each device"
    node.files, files = [], node.files
    node.is_mounted = node.answers = False
    with pytest.raises(CommandError):
        fs_shutdown.remount(RUNNER, node.pool)
    node.files = files
    assert give_up(ATTACHED) is Verdict.AGROUND


def test_a_disk_that_was_dropped_is_looked_into_before_it_is_attached_again(node: Node) -> None:
    node.says = False
    assert give_up(DISKLESS) is Verdict.AGROUND
    assert node.is_noted()


def test_a_peer_that_is_aground_itself_is_no_reason_to_drop_a_disk(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.peer = "error=SAN-POOL-023"
    assert give_up(ATTACHED) is Verdict.AFLOAT
    node.peer = "total=1"
    monkeypatch.setattr(fs_shutdown, "_PEER_LOOKS_S", 60.0)
    assert give_up(ATTACHED._replace(role="Primary")) is Verdict.AFLOAT, "the peer has not looked"
    assert give_up(ATTACHED) is Verdict.AGROUND
    assert node.done == ["drop 7"]


def test_a_stop_leaves_the_note_that_no_monitor_wrote(node: Node) -> None:
    node.says = False
    fs_shutdown.before_stop(DEVICE._replace(pool=""))
    assert node.is_noted()


def test_where_nothing_can_be_noted_the_disk_is_dropped_all_the_same(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(pool_notes, "write", refuse)
    assert give_up(ATTACHED) is Verdict.AGROUND
    assert node.done == ["drop 7"]


def test_a_disk_that_does_not_answer_is_waited_for(node: Node) -> None:
    node.answers = False
    give_up(DISKLESS)
    assert node.done == [] and node.files
    node.files = []
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*does not answer"):
        fs_shutdown.remount(RUNNER, node.pool)
    assert node.is_mounted


def test_it_is_not_unmounted_under_another_device(node: Node) -> None:
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*vol\.0*\.data is in use"):
        fs_shutdown.remount(RUNNER, node.pool)
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        admit(node)
    assert node.done == [] and node.is_noted()


def test_nothing_is_unmounted_below_a_start(node: Node) -> None:
    """It has looked, and would make its files in the folder that nothing is mounted on."""
    node.is_shut, node.files = False, []
    with (
        fs_shutdown.usable_for_start(RUNNER, node.pool),
        fs_shutdown.usable_for_start(RUNNER, node.pool),
    ):
        node.is_shut = True
        with pytest.raises(CommandError, match="somebody is at it"):
            fs_shutdown.remount(RUNNER, node.pool)
        assert node.done == []
    fs_shutdown.remount(RUNNER, node.pool)
    assert "unmount" in node.done
    with (
        file_lock(str(node.folder / "pool-main.aground")),
        pytest.raises(CommandError, match="somebody is at it"),
    ):
        admit(node)
    with (
        pytest.raises(OSError, match="of the start"),
        fs_shutdown.usable_for_start(RUNNER, node.pool),
    ):
        raise OSError("of the start")


def test_a_start_waits_for_others_that_are_about_to_let_go(node: Node) -> None:
    node.lets_go_at_s = 2.0
    admit(node)
    assert not node.is_shut and node.markers() == [MARKED, MARKED]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [({"is_damaged": True}, "damaged"), ({"root": "/pools"}, "only mount")],
)
def test_what_a_mount_does_not_cure_is_left(node: Node, wrong: dict[str, object], why: str) -> None:
    node.files = []
    for name, value in wrong.items():
        setattr(node, name, value)
    with pytest.raises(CommandError, match=why):
        fs_shutdown.remount(RUNNER, node.pool)
    assert node.done == []


def test_a_disk_that_goes_on_failing_is_left_to_an_operator(node: Node) -> None:
    node.files = []
    for _ in range(fs_shutdown.MAX_REMOUNTS_A_DAY):
        node.is_shut = True
        fs_shutdown.remount(RUNNER, node.pool, most_a_day=fs_shutdown.MAX_REMOUNTS_A_DAY)
    node.is_shut = True
    with pytest.raises(CommandError, match="3 times within a day"):
        fs_shutdown.remount(RUNNER, node.pool, most_a_day=fs_shutdown.MAX_REMOUNTS_A_DAY)
    admit(node)
    assert not node.is_shut, "a start is an operator's"


def test_it_is_started_anew_when_the_pool_is_back_and_not_before(node: Node) -> None:
    node.files = []
    assert give_up(DISKLESS) is Verdict.AGROUND
    fs_shutdown.remount(RUNNER, node.pool)
    assert give_up(DISKLESS) is Verdict.START_ANEW
    assert give_up(DISKLESS._replace(role="Primary")) is Verdict.AFLOAT
    assert give_up(ATTACHED) is Verdict.AFLOAT
    node.is_mounted = False
    assert give_up(DISKLESS) is Verdict.AGROUND


def test_one_that_was_killed_as_it_let_go_lets_go_of_the_rest(node: Node) -> None:
    node.files = [str(node.folder / f"pool/devices/vol.{'0' * 32}.meta")]
    assert give_up(DISKLESS) is Verdict.AGROUND
    assert node.done == ["forget", "let go"]
    assert give_up(DISKLESS) is Verdict.AGROUND
    assert node.done == ["forget", "let go"]


def test_whoever_dies_is_followed_by_one_that_goes_on(node: Node) -> None:
    """From each interrupted prefix: no copy is ever there unmarked with the note gone."""
    node.files = []
    for dies_at in range(12):
        node.is_shut, node.is_mounted, node.done = True, True, []
        for data in (node.folder / "pool/devices").glob("*.ram"):
            data.unlink()
        node.dies_at = dies_at
        try:
            fs_shutdown.remount(RUNNER, node.pool)
            break
        except Died:
            assert node.is_noted() or node.markers() == [MARKED, MARKED]
        node.dies_at = -1
        fs_shutdown.remount(RUNNER, node.pool)
        assert node.is_mounted and not node.is_shut
        assert node.markers() == [MARKED, MARKED]
        assert not node.is_noted()
    assert dies_at == 5, "every step was the last one once"


def test_a_boot_in_its_place_changes_nothing(node: Node) -> None:
    """The note is there and the filesystem well: the first start marks, before it starts."""
    fs_shutdown.record_shutdown("main")
    node.is_shut, node.files = False, []
    node.is_mounted = False
    with pytest.raises(CommandError, match="not mounted"):
        admit(node)
    assert node.is_noted(), "an empty folder tells nothing of the copies"
    node.is_mounted = True
    admit(node)
    assert node.markers() == [MARKED, MARKED] and not node.is_noted()


def test_an_only_copy_is_trusted_again(node: Node) -> None:
    fs_shutdown.record_shutdown("main")
    node.is_shut, node.files = False, []
    admit(node)
    fs_shutdown.trust_only_copy(node.pool, DEVICE)
    assert node.markers() == [MARKED, MARKED], "it has another"
    fs_shutdown.trust_only_copy(node.pool, DEVICE._replace(nodes=("n1",)))
    assert node.markers() == [MARKED, ""]


def test_a_copy_that_is_in_use_was_not_unmounted_and_is_whole(node: Node) -> None:
    fs_shutdown.record_shutdown("main")
    node.is_shut = False
    fs_shutdown.remount(RUNNER, node.pool)
    assert node.markers() == [MARKED, ""] and not node.is_noted()


def test_a_copy_that_is_marked_is_suspect(node: Node) -> None:
    data = node.files[0]
    lost_writes.set_shutdown_marker(data)
    assert lost_writes.is_suspect("vol", data)
    lost_writes.clear_shutdown_marker(data)
    assert not lost_writes.is_suspect("vol", data)


@pytest.mark.parametrize("keyword", ["flexible-meta-disk", "meta-disk"])
def test_what_is_named_in_place_of_the_metadata_is_each_devices_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyword: str
) -> None:
    """Seen with three devices: drbdadm refused all of them, and a start failed for it."""
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    (tmp_path / "drbd.d").mkdir()
    named = set()
    for name in ("a", "b"):
        file = tmp_path / f"drbd.d/{name}.res"
        file.write_text(f"  volume 0 {{\n    disk /dev/dm-1;\n    {keyword} /dev/loop1;\n  }}\n")
        resource_file.clear_disk(name)
        text = file.read_text()
        assert "loop1" not in text and f"    {keyword} /dev/" in text
        named.add(text)
    assert len(named) == 2
