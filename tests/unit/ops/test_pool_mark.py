# SPDX-License-Identifier: GPL-2.0-or-later
"""`pool prepare --anew` of a pool without flash marks a new, empty filesystem, and nothing else."""

from __future__ import annotations

import os
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
from sanctl.ops.pool_mark import mark_pool, refuse_marking
from sanctl.ops.session import Session
from sanctl.plan.pool.marking import DEVICES, MARKER
from tests.fakes.pacemaker import FakeReporter
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology
from tests.unit.cli.test_commands import FakeEnvironment, Run, env, run
from tests.unit.ops.test_device import codes

__all__ = ["env", "run"]


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
    path = tmp_path / "main"
    path.mkdir()
    (path / "lost+found").mkdir()
    mounted.add(str(path))
    return replace(topology().pools[0], path=PurePosixPath(str(path)))


def content(pool: Pool) -> list[str]:
    return sorted(str(each) for each in Path(pool.path).rglob("*"))


def test_an_empty_filesystem_becomes_the_pool(pool: Pool) -> None:
    pool_notes.write(pool.name, pool_notes.SHUT_DOWN)
    assert mark_pool(pool, "n2", fine)
    pool_files.check_marker(str(pool.path), pool.uuid)
    assert os.stat(f"{pool.path}/{DEVICES}").st_mode & 0o777 == 0o700
    assert not pool_notes.exists(pool.name, pool_notes.SHUT_DOWN)


@pytest.mark.parametrize("left", [(), (".sanctl-pool.new.77",), (MARKER,), (MARKER, DEVICES)])
def test_after_an_interruption_it_goes_on(pool: Pool, left: tuple[str, ...]) -> None:
    for each in left:
        if each == DEVICES:
            Path(pool.path, each).mkdir()
        else:
            Path(pool.path, each).write_text(f"{pool.uuid}\n")
    assert mark_pool(pool, "n2", fine)
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
    mark_pool(pool, "n2", fine)
    Path(pool.path, DEVICES, "vm1.data").write_text("replica")


@pytest.mark.parametrize(
    "made", [not_mounted, another_pools, somebodys, devices_alone, the_pool_itself]
)
def test_anything_else_stays_as_it_is(
    pool: Pool, mounted: set[str], made: Callable[[Pool, set[str]], None]
) -> None:
    made(pool, mounted)
    before = content(pool)
    for act in (lambda: mark_pool(pool, "n2", fine), lambda: refuse_marking(pool, "n2")):
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
        mark_pool(replace(pool, path=PurePosixPath(str(link))), "n2", fine)
    assert not Path(pool.path, MARKER).exists()


def test_a_disk_that_does_not_answer_is_not_an_empty_one(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread(path: str) -> list[str]:
        raise OSError(5, "Input/output error", path)

    with monkeypatch.context() as patched:
        patched.setattr(os, "listdir", unread)
        with pytest.raises(CommandError) as caught:
            mark_pool(pool, "n2", fine)
    assert codes(caught.value) == ["SAN-POOL-003"]
    assert not Path(pool.path, MARKER).exists()


def test_a_replica_that_became_the_last_one_since_the_question_is_not_given_up(pool: Pool) -> None:
    def check() -> None:
        raise Refused(Problem("SAN-POOL-020", "not known to be good elsewhere"))

    with pytest.raises(Refused, match="SAN-POOL-020"):
        mark_pool(pool, "n2", check)
    assert not Path(pool.path, MARKER).exists()


def test_restore_points_are_given_up_before_the_marker(pool: Pool) -> None:
    seen: list[bool] = []
    mark_pool(pool, "n2", lambda: seen.append(Path(pool.path, MARKER).exists()))
    assert seen == [False]
    Path(pool.path, DEVICES, "vm1.data").write_text("replica")
    with pytest.raises(Refused):
        mark_pool(pool, "n2", lambda: seen.append(True))
    assert seen == [False], "what is refused gives up nothing"


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


def test_the_command_gives_up_restore_points(run: Run, plain: FakeEnvironment, pool: Pool) -> None:
    assert run("device", "create", "vm1", "--size", "1G")[0] == 0
    assert run("snapshot", "create", "vm1", "--name", "kept")[0] == 0
    status, out, _ = run("pool", "prepare", "main", "--anew", "--yes")
    assert status == 0 and "n2 has no more of restore points vm1@kept" in out
    (point,) = Session(plain.pacemaker, plain.clock, FakeReporter()).observe().cib.points
    assert point.nodes == ("n1",)
    assert pool_command._given_up_text([f"vm1@p{n}" for n in range(9)], "n2").endswith("vm1@p7 ...")
