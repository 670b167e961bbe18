"""Off a filesystem that has shut itself down and onto it again; whoever is killed is followed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

import pytest

from sanctl.agents import aground, ocf, replica, resource_file, suspicion
from sanctl.agents.replica import Device
from sanctl.drivers import drbd, loop, mounts, poolnotes
from sanctl.errors import CommandError
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.topology import Pool
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
    files: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    dies_at: int = -1

    @property
    def pool(self) -> Pool:
        one = topology().pools[0]
        return replace(one, path=PurePosixPath(self.folder / "pool"))

    @property
    def mount(self) -> mounts.Mount:
        own = frozenset({"emergency_ro"} if self.is_shut else {"rw"})
        return mounts.Mount(str(self.pool.path), "/dev/sdb", "ext4", frozenset({"rw"}), own)

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
    monkeypatch.setattr(aground, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(aground, "_WAIT_S", 0.1)
    monkeypatch.setattr(aground, "_POLL_S", 0.01)
    monkeypatch.setattr(poolnotes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(mounts, "is_shut_down", lambda _path: made.is_shut)
    monkeypatch.setattr(mounts, "of", lambda _path: made.mount)
    monkeypatch.setattr(mounts, "answers", lambda _source: made.answers)
    monkeypatch.setattr(mounts, "unmount", made.unmount)
    monkeypatch.setattr(mounts, "mount", made.mount_anew)
    monkeypatch.setattr("os.path.ismount", lambda _path: made.is_mounted)
    monkeypatch.setattr(aground, "check", lambda _path, _uuid: _need(made.is_mounted))
    monkeypatch.setattr(loop, "backing_files", lambda: made.files)
    monkeypatch.setattr(ocf, "stop_here_if_asked", made.does)
    monkeypatch.setattr(replica, "load_topology", lambda: replace(topology(), pools=(made.pool,)))
    monkeypatch.setattr(resource_file, "forget_disk", lambda _name: made.does("forget"))
    monkeypatch.setattr(drbd, "drop_disk", lambda _runner, minor: made.does(f"drop {minor}"))

    def let_go(*_args: object) -> None:
        made.does("let go")
        made.files = []

    monkeypatch.setattr(replica, "detach_files", let_go)
    return made


def _need(is_there: bool) -> None:
    if not is_there:
        raise OSError(2, "not mounted")


def give_up(state: ResourceState) -> str:
    return aground.give_up(RUNNER, DEVICE, state)


@pytest.mark.parametrize("state", [ATTACHED, DISKLESS, ATTACHED._replace(role="Primary")])
def test_a_filesystem_that_takes_writes_is_left_alone(node: Node, state: ResourceState) -> None:
    node.is_shut = False
    assert give_up(state) == ""
    aground.refloat(RUNNER, node.pool)
    aground.admit(RUNNER, node.pool, DEVICE, within_s=1)
    assert node.done == [] and node.markers() == ["", ""]


@pytest.mark.parametrize(
    ("state", "done"),
    [
        (ATTACHED, ["drop 7"]),
        (ATTACHED._replace(role="Primary"), ["drop 7"]),
        (ATTACHED._replace(peers=()), []),
        (ATTACHED._replace(peers=(GOOD._replace(disk="Outdated"),)), []),
        (ATTACHED._replace(peers=(GOOD._replace(connection="Connecting"),)), []),
        (DISKLESS, ["forget", "aground-forgotten", "let go"]),
        (DISKLESS._replace(role="Primary"), []),
    ],
)
def test_a_replica_gives_up_what_its_peer_has(
    node: Node, state: ResourceState, done: list[str]
) -> None:
    assert give_up(state) == ""
    assert node.done == done
    assert node.is_noted(), "whatever it may do"


def test_a_disk_that_does_not_answer_is_waited_for(node: Node) -> None:
    node.answers = False
    give_up(DISKLESS)
    assert node.done == [] and node.files
    node.files = []
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*does not answer"):
        aground.refloat(RUNNER, node.pool)
    assert node.is_mounted


def test_it_is_not_unmounted_under_another_device(node: Node) -> None:
    with pytest.raises(CommandError, match=r"SAN-POOL-023.*vol\.0*\.data is in use"):
        aground.refloat(RUNNER, node.pool)
    with pytest.raises(CommandError, match="SAN-POOL-023"):
        aground.admit(RUNNER, node.pool, DEVICE, within_s=1)
    assert node.done == [] and node.is_noted()


def test_it_is_started_anew_when_the_pool_is_back_and_not_before(node: Node) -> None:
    node.files = []
    assert give_up(DISKLESS) == ""
    aground.refloat(RUNNER, node.pool)
    assert give_up(DISKLESS) == aground.START_ANEW
    assert give_up(DISKLESS._replace(role="Primary")) == ""
    assert give_up(ATTACHED) == ""


def test_whoever_dies_is_followed_by_one_that_goes_on(node: Node) -> None:
    """From each interrupted prefix: no copy is ever there unmarked with the note gone."""
    node.files = []
    for dies_at in range(12):
        node.is_shut, node.is_mounted, node.done = True, True, []
        for data in (node.folder / "pool/devices").glob("*.ram"):
            data.unlink()
        node.dies_at = dies_at
        try:
            aground.refloat(RUNNER, node.pool)
            break
        except Died:
            assert node.is_noted() or node.markers() == [MARKED, MARKED]
        node.dies_at = -1
        aground.refloat(RUNNER, node.pool)
        assert node.is_mounted and not node.is_shut
        assert node.markers() == [MARKED, MARKED]
        assert not node.is_noted()
    assert dies_at == 5, "every step was the last one once"


def test_a_boot_in_its_place_changes_nothing(node: Node) -> None:
    """The note is there and the filesystem well: the first start marks, before it starts."""
    aground.note("main")
    node.is_shut = False
    node.is_mounted = False
    with pytest.raises(OSError, match="not mounted"):
        aground.admit(RUNNER, node.pool, DEVICE, within_s=1)
    assert node.is_noted(), "an empty folder tells nothing of the copies"
    node.is_mounted = True
    aground.admit(RUNNER, node.pool, DEVICE, within_s=1)
    assert node.markers() == [MARKED, MARKED] and not node.is_noted()


def test_an_only_copy_is_trusted_again(node: Node) -> None:
    aground.note("main")
    node.is_shut = False
    aground.admit(RUNNER, node.pool, DEVICE._replace(nodes=("n1",)), within_s=1)
    assert node.markers() == [MARKED, ""]


def test_a_copy_that_is_marked_is_suspect(node: Node) -> None:
    data = node.files[0]
    suspicion.distrust(data)
    assert suspicion.is_suspect("vol", data)
    suspicion.forgive(data)
    assert not suspicion.is_suspect("vol", data)
