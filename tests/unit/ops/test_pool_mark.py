# SPDX-License-Identifier: GPL-2.0-or-later
"""`pool prepare --anew` of a pool without flash marks a new, empty filesystem, and nothing else."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from sanctl.cli.commands import pool as pool_command
from sanctl.drivers import loop, pool_files, pool_notes
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.topology import Pool, Topology
from sanctl.ops import pool_mark
from sanctl.ops.pool_mark import accept_filesystem, distrust_pool, mark_pool, refuse_marking
from sanctl.ops.session import Session
from sanctl.plan.pool.marking import DEVICES, MARKER
from sanctl.system import state_files
from tests.fakes.pacemaker import FakeReporter
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology
from tests.support.json_contract import breaches
from tests.unit.cli.test_commands import FakeEnvironment, Run, env, run
from tests.unit.ops.test_device import codes

__all__ = ["env", "run"]


NEW, OTHER = "5" * 32, "6" * 32


def fine() -> None:
    return


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The paths where a filesystem is mounted."""
    made: set[str] = set()
    monkeypatch.setattr(pool_mark, "is_mount_point", lambda path: str(path) in made)
    return made


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mounted: set[str]) -> Pool:
    """A pool at whose path an empty filesystem is mounted."""
    monkeypatch.setattr(pool_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path / "run"))
    path = tmp_path / "main"
    path.mkdir()
    (path / "lost+found").mkdir()
    mounted.add(str(path))
    return replace(topology().pools[0], path=PurePosixPath(str(path)))


def content(pool: Pool) -> list[str]:
    return sorted(str(each) for each in Path(pool.path).rglob("*"))


def test_an_empty_filesystem_becomes_the_pool(pool: Pool) -> None:
    pool_notes.write(pool.name, pool_notes.SHUT_DOWN)
    assert mark_pool(pool, "n2", fine, NEW)
    pool_files.check_marker(str(pool.path), pool.uuid)
    assert os.stat(f"{pool.path}/{DEVICES}").st_mode & 0o777 == 0o700
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)


@pytest.mark.parametrize(
    "left",
    [
        (),
        (".sanctl-filesystem.new.77",),
        (pool_files.FILESYSTEM_ID,),
        (pool_files.FILESYSTEM_ID, ".sanctl-pool.new.77"),
        (MARKER,),
        (pool_files.FILESYSTEM_ID, MARKER, DEVICES),
    ],
)
def test_after_an_interruption_it_goes_on(pool: Pool, left: tuple[str, ...]) -> None:
    for each in left:
        if each == DEVICES:
            Path(pool.path, each).mkdir()
        else:
            Path(pool.path, each).write_text(f"{pool.uuid}\n")
    assert mark_pool(pool, "n2", fine, NEW)
    pool_files.check_marker(str(pool.path), pool.uuid)


def not_mounted(pool: Pool, mounted: set[str]) -> None:
    mounted.clear()


def another_pools(pool: Pool, mounted: set[str]) -> None:
    Path(pool.path, MARKER).write_text("9" * 32)


def somebodys(pool: Pool, mounted: set[str]) -> None:
    Path(pool.path, "etc").mkdir()


def devices_alone(pool: Pool, mounted: set[str]) -> None:
    Path(pool.path, DEVICES).mkdir()


def the_pool_itself(pool: Pool, mounted: set[str]) -> None:
    mark_pool(pool, "n2", fine, NEW)
    Path(pool.path, DEVICES, "vm1.data").write_text("replica")


@pytest.mark.parametrize(
    "made", [not_mounted, another_pools, somebodys, devices_alone, the_pool_itself]
)
def test_anything_else_stays_as_it_is(
    pool: Pool, mounted: set[str], made: Callable[[Pool, set[str]], None]
) -> None:
    made(pool, mounted)
    before = content(pool)
    for act in (lambda: mark_pool(pool, "n2", fine, NEW), lambda: refuse_marking(pool, "n2")):
        with pytest.raises(Refused) as caught:
            act()
        assert codes(caught.value) == ["SAN-POOL-032"]
    assert content(pool) == before


def test_a_path_through_a_symbolic_link_stays(
    pool: Pool, mounted: set[str], tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(str(pool.path))
    mounted.add(str(link))
    with pytest.raises(Refused, match="symbolic link"):
        mark_pool(replace(pool, path=PurePosixPath(str(link))), "n2", fine, NEW)
    assert not Path(pool.path, MARKER).exists()


def test_a_disk_that_does_not_answer_is_not_an_empty_one(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(path: str) -> list[str]:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", unread)
        with pytest.raises(CommandError) as caught:
            mark_pool(pool, "n2", fine, NEW)
    assert codes(caught.value) == ["SAN-POOL-003"]
    assert not Path(pool.path, MARKER).exists()


def test_a_replica_that_became_the_last_one_since_the_question_is_not_given_up(pool: Pool) -> None:
    def check() -> None:
        raise Refused(Problem("SAN-POOL-020", "not known to be good elsewhere"))

    with pytest.raises(Refused, match="SAN-POOL-020"):
        mark_pool(pool, "n2", check, NEW)
    assert not Path(pool.path, MARKER).exists()


def test_restore_points_are_given_up_before_the_marker(pool: Pool) -> None:
    seen: list[bool] = []
    mark_pool(pool, "n2", lambda: seen.append(Path(pool.path, MARKER).exists()), NEW)
    assert seen == [False]
    Path(pool.path, DEVICES, "vm1.data").write_text("replica")
    with pytest.raises(Refused):
        mark_pool(pool, "n2", lambda: seen.append(True), NEW)
    assert seen == [False], "what is refused gives up nothing"


def old_disk(pool: Pool) -> None:
    """The disk that the pool had before is mounted again, with a replica of then."""
    path = Path(pool.path)
    (path / pool_files.FILESYSTEM_ID).unlink(missing_ok=True)
    (path / MARKER).write_text(f"{pool.uuid}\n")
    (path / DEVICES).mkdir(exist_ok=True)
    (path / DEVICES / "vm1.data").write_text("replica of then")


def refused(pool: Pool) -> None:
    with pytest.raises(CommandError) as caught:
        pool_files.check_marker(str(pool.path), pool.uuid)
    assert codes(caught.value) == ["SAN-POOL-033"]


def test_the_lost_filesystem_is_not_the_pool_any_more(pool: Pool) -> None:
    """Its disk answered again: marker and file names were the pool's, and the replicas old."""
    mark_pool(pool, "n2", fine, NEW)
    pool_files.check_marker(str(pool.path), pool.uuid)
    identifier = Path(pool.path, pool_files.FILESYSTEM_ID)
    assert identifier.read_text() == f"{NEW}\n"
    for other in (OTHER, ""):
        identifier.write_text(other)
        refused(pool)
    old_disk(pool)
    refused(pool)


def test_a_filesystem_that_another_node_knows_is_not_the_pool_here(pool: Pool) -> None:
    mark_pool(pool, "n2", fine, NEW)
    pool_notes.clear(pool.uuid, pool_notes.FILESYSTEM)
    refused(pool)


@pytest.mark.parametrize("unread", ["note", "filesystem"])
def test_an_id_that_cannot_be_read_is_not_known(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    mark_pool(pool, "n2", fine, NEW)
    path = {
        "note": pool_notes.path(pool.uuid, pool_notes.FILESYSTEM),
        "filesystem": f"{pool.path}/{pool_files.FILESYSTEM_ID}",
    }[unread]
    os.unlink(path)
    os.mkdir(path)
    with pytest.raises(CommandError) as caught:
        pool_files.check_marker(str(pool.path), pool.uuid)
    assert codes(caught.value) == ["SAN-POOL-003"]
    assert path in str(caught.value)


@pytest.mark.parametrize("dies_before", ["note", "id", "marker"])
def test_a_process_that_dies_leaves_neither_filesystem_in_doubt(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, dies_before: str
) -> None:
    """The new one is no pool before its marker, and the old one none once the note is there."""
    writes = {
        "note": (pool_notes, "write"),
        "id": (pool_files, "write_filesystem_id"),
        "marker": (pool_mark, "write_atomically"),
    }

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*writes[dies_before], die)
        with pytest.raises(KeyboardInterrupt):
            mark_pool(pool, "n2", fine, NEW)
    with pytest.raises(CommandError, match="SAN-POOL-001"):
        pool_files.check_marker(str(pool.path), pool.uuid)
    assert mark_pool(pool, "n2", fine, OTHER), "run again, it goes on"
    pool_files.check_marker(str(pool.path), pool.uuid)
    old_disk(pool)
    refused(pool)


def test_a_pool_that_moves_to_another_path_or_disk_stays_the_pool(
    pool: Pool, tmp_path: Path
) -> None:
    mark_pool(pool, "n2", fine, NEW)
    shutil.copytree(str(pool.path), tmp_path / "moved")
    pool_files.check_marker(str(tmp_path / "moved"), pool.uuid)


@pytest.mark.parametrize("identifier", ["", OTHER])
def test_an_operator_takes_the_lost_filesystem_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, identifier: str
) -> None:
    """As it is the last one that has data; each replica in it counts as suspect."""
    monkeypatch.setattr(loop, "backing_files", lambda: ("/elsewhere/vm1.data",))
    mark_pool(pool, "n2", fine, NEW)
    assert accept_filesystem(pool, "n2") == (), "it is the pool's"
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)
    old_disk(pool)
    if identifier:
        Path(pool.path, pool_files.FILESYSTEM_ID).write_text(f"{identifier}\n")
    refused(pool)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            accept_filesystem(pool, "n2")
    refused(pool)
    assert accept_filesystem(pool, "n2")
    pool_files.check_marker(str(pool.path), pool.uuid)
    assert pool_notes.exists(pool.name, pool_notes.SHUT_DOWN), "its replicas are marked as suspect"
    assert Path(pool.path, DEVICES, "vm1.data").read_text() == "replica of then"


def no_marker(pool: Pool, mounted: set[str]) -> None:
    Path(pool.path, MARKER).unlink()


@pytest.mark.parametrize("made", [not_mounted, another_pools, no_marker])
def test_what_is_not_marked_as_the_pool_is_not_taken_back(
    pool: Pool,
    mounted: set[str],
    monkeypatch: pytest.MonkeyPatch,
    made: Callable[[Pool, set[str]], None],
) -> None:
    monkeypatch.setattr(loop, "backing_files", lambda: ())
    mark_pool(pool, "n2", fine, NEW)
    old_disk(pool)
    made(pool, mounted)
    with pytest.raises(Refused) as caught:
        accept_filesystem(pool, "n2")
    assert codes(caught.value) == ["SAN-POOL-032"]
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)


def test_what_hosts_may_be_using_is_not_taken_back(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "backing_files", lambda: (f"{pool.path}/devices/vm1.data",))
    mark_pool(pool, "n2", fine, NEW)
    old_disk(pool)
    with pytest.raises(Refused) as caught:
        accept_filesystem(pool, "n2")
    assert codes(caught.value) == ["SAN-POOL-021"]
    refused(pool)


@pytest.fixture
def plain(pool: Pool, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> FakeEnvironment:
    """A cluster with device vm1, and this node with that pool."""
    made: Topology = replace(topology(), pools=(pool,))
    monkeypatch.setattr(env, "topology", lambda: made)
    monkeypatch.setattr(loop, "backing_files", lambda: ())
    host = SimpleNamespace(node_name=lambda: "n2")
    monkeypatch.setattr(env, "host", host, raising=False)
    monkeypatch.setattr(env, "runner", FakeRunner(), raising=False)
    return env


def test_the_command_looks_before_and_after_its_question(
    run: Run, plain: FakeEnvironment, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("device", "create", "vm1", "--size", "1G")[0] == 0
    asked: list[str] = []

    def lost_meanwhile(text: str, **_: object) -> None:
        asked.append(text)
        plain.pacemaker.crash("n1")

    assert run("pool", "prepare", "main")[0] == 4, "the rollout makes it"
    monkeypatch.setattr("click.confirm", lost_meanwhile)
    status, _, err = run("pool", "prepare", "main", "--anew")
    assert status == 4 and "SAN-POOL-020" in err
    assert len(asked) == 1 and not Path(pool.path, MARKER).exists()


def test_the_command_marks_it(run: Run, plain: FakeEnvironment, pool: Pool) -> None:
    Path(pool.path, "etc").mkdir()
    status, _, err = run("pool", "prepare", "main", "--anew", "--yes")
    assert status == 4 and "SAN-POOL-032" in err
    Path(pool.path, "etc").rmdir()
    status, out, _ = run("pool", "prepare", "main", "--anew", "--yes")
    assert status == 0 and "marker was written" in out
    pool_files.check_marker(str(pool.path), pool.uuid)
    assert "restore point" not in out
    assert "begin an empty pool" in pool_command._anew_question(pool.name, "n1", is_plain=True)
    assert "Discard" in pool_command._anew_question(pool.name, "n1", is_plain=False)


def test_the_command_takes_a_filesystem_back(run: Run, plain: FakeEnvironment, pool: Pool) -> None:
    assert run("pool", "prepare", "main", "--anew", "--yes")[0] == 0
    old_disk(pool)
    status, _, err = run("pool", "prepare", "main", "--anew", "--accept", "SAN-POOL-033")
    assert status == 2 and "--accept SAN-POOL-033 keeps one" in err
    assert run("pool", "prepare", "main", "--accept", "SAN-POOL-032")[0] == 4
    refused(pool)
    command = ("pool", "prepare", "main", "--accept", "SAN-POOL-033")
    status, _, err = run(*command, "--yes")
    assert status == 4 and "SAN-POOL-021" in err and "'sanctl node standby n2' first" in err
    refused(pool)
    assert run("node", "standby", "n2")[0] == 0
    status, out, _ = run(*command, "--yes")
    assert status == 0 and "count as suspect" in out
    pool_files.check_marker(str(pool.path), pool.uuid)
    assert "nothing to do" in run(*command)[1], "it is the pool's, and nothing is asked"


def test_the_command_asks_before_an_old_disk_counts(
    run: Run, plain: FakeEnvironment, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device with one replica is served from it, and no other one says what it lacks."""
    assert run("pool", "prepare", "main", "--anew", "--yes")[0] == 0
    old_disk(pool)
    for name, *more in (("vm1",), ("alone", "--replicas", "1", "--nodes", "n2")):
        assert run("device", "create", name, "--size", "1G", *more)[0] == 0
    assert run("node", "standby", "n2", "--accept", "SAN-NODE-004")[0] == 0
    command = ("pool", "prepare", "main", "--accept", "SAN-POOL-033")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    status, _, err = run(*command)
    assert status == 2 and "Take the filesystem" in err
    assert "device alone has its only replica on n2" in err and "vm1" not in err
    refused(pool)
    # It came back into service while the question stood.
    monkeypatch.setattr("click.confirm", lambda *_, **__: run("node", "online", "n2"))
    status, _, err = run(*command)
    assert status == 4 and "SAN-POOL-021" in err
    refused(pool)


def test_the_command_gives_up_restore_points(run: Run, plain: FakeEnvironment, pool: Pool) -> None:
    assert run("device", "create", "vm1", "--size", "1G")[0] == 0
    assert run("snapshot", "create", "vm1", "--name", "kept")[0] == 0
    status, out, _ = run("pool", "prepare", "main", "--anew", "--yes")
    assert status == 0 and "n2 has no more of restore points vm1@kept" in out
    (point,) = Session(plain.pacemaker, plain.clock, FakeReporter()).observe().cib.points
    assert point.nodes == ("n1",)
    assert pool_command._given_up_text([f"vm1@p{n}" for n in range(9)], "n2").endswith("vm1@p7 ...")


def test_what_fsck_has_repaired_is_filled_whole(
    run: Run, plain: FakeEnvironment, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents mark the replicas by the note on the node; the id of the filesystem stays."""
    assert run("device", "create", "vm1", "--size", "1G")[0] == 0
    assert (
        run("device", "create", "vm2", "--size", "1G", "--replicas", "1", "--nodes", "n2")[0] == 0
    )
    mark_pool(pool, "n2", fine, NEW)
    assert accept_filesystem(pool, "n2") == ()
    status, _, err = run("pool", "prepare", "main", "--distrust")
    assert status == 4 and "n2 is not in standby" in err and "SAN-POOL-021" in err
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)
    assert run("node", "standby", "n2", "--accept", "SAN-NODE-004")[0] == 0
    for other in (("--anew",), ("--accept", "SAN-POOL-033"), ("--leave-failed-flash",)):
        assert run("pool", "prepare", "main", "--distrust", *other)[0] == 2
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)
    status, out, _ = run("pool", "prepare", "main", "--distrust")
    assert status == 0 and "count as suspect; vm2 has its only replica there" in out
    assert "vm1" not in out and "'sanctl node online n2'" in out
    assert pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)
    status, out, _ = run("pool", "prepare", "main", "--distrust", "--output", "json")
    assert status == 0 and breaches("pool prepare", out) == []


def test_a_replica_in_use_is_not_made_suspect(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "backing_files", lambda: (f"{pool.path}/devices/vm1.data",))
    with pytest.raises(Refused, match="still started on n2"):
        distrust_pool(pool, "n2", is_standby=True)
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)
