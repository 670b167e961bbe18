# SPDX-License-Identifier: GPL-2.0-or-later
"""A node is taken off restore points whose file is certainly gone, and off none else."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.points import deleted_points, found_files, lost_files, upkeep
from sanctl.drivers import backup_notes, node_attributes, point_files, pool_notes
from sanctl.errors import CommandError, Problem
from sanctl.model.cib_change import RemovePoint, SetPoint
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import SIZES_ATTRIBUTE, PointOrder, RestorePoint
from sanctl.ops.session import Session
from sanctl.plan.device.lost_files import is_deleted
from sanctl.plan.device.restore_points import plan_file_removed, plan_point_deletion
from sanctl.render.cib import render_patchset
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner
from tests.fakes.topology import topology
from tests.unit.ops.test_snapshot import Bed, bed

__all__ = ["bed"]


class Node:
    """The node n1, its pool, and two restore points of device web on n1 and n2, an hour old."""

    def __init__(self, made: Bed, pool: Path) -> None:
        self.bed, self.pool = made, pool
        self.usable = {"main": str(pool)}
        self.patches = 0
        self.logged: list[str] = []
        self.one, self.two = made.create("one"), made.create("two", 2)

    def points(self) -> tuple[RestorePoint, ...]:
        return self.bed.seen().cib.points

    def file(self, point: RestorePoint) -> Path:
        return Path(point_files.final_path(str(self.pool), point.device, point.uuid, point.token))

    def put(self, point: RestorePoint) -> None:
        self.bed.cluster.patch(render_patchset(self.bed.cluster.root, (SetPoint(point=point),)))

    def monitor(self) -> dict[str, tuple[str, ...]]:
        """Look once; return the nodes of each restore point as the CIB has them then."""
        lost_files.take_off(self.bed.session, self.usable, self.points())
        return {point.name: point.nodes for point in self.points()}

    def add_again(self) -> dict[str, tuple[str, ...]]:
        found_files.add_again(self.bed.session, self.usable, self.points())
        return {point.name: point.nodes for point in self.points()}

    def forget(self) -> None:
        found_files.forget(self.usable, self.points())

    def delete(self, point: RestorePoint) -> None:
        """Delete a restore point; n2 removes its file, and the CIB waits for nobody else."""
        session = self.bed.session
        session.change(lambda seen: plan_point_deletion(seen, DeviceName.parse("web"), point.name))
        session.change(lambda seen: plan_file_removed(seen, point, "n2"))
        assert point.token not in {each.token for each in self.points()}

    def remove_deleted(self, **more: str) -> set[str]:
        """Look for files of deleted restore points; return the names of those that have a file."""
        own = {"sanctl-pool-main": "total=1"}
        properties = {point.id: point.value for point in self.points()} | (more or own)
        deleted_points.remove_files(self.bed.session, self.usable, properties)
        return {each.name for each in (self.one, self.two) if self.file(each).exists()}

    def names(self) -> set[str]:
        tokens = lost_files.noted()
        return {point.name for point in self.points() if point.token in tokens}


BOTH = {"one": ("n1", "n2"), "two": ("n1", "n2")}


@pytest.fixture
def node(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    pool = tmp_path / "main"
    pool.mkdir()
    made = Node(bed, pool)
    plain = topology()
    here = replace(plain, pools=(replace(plain.pools[0], path=PurePosixPath(str(pool))),))
    (pool / ".sanctl-pool").write_text(f"{here.pools[0].uuid}\n")
    point_files.make_folder(str(pool))
    for point in (made.one, made.two):
        made.file(point).write_text("x")
    patch = bed.cluster.patch

    def counted(text: str) -> None:
        made.patches += 1
        patch(text)

    for owner, name, value in (
        (state_files, "RUNTIME", str(tmp_path / "run")),
        (pool_notes, "_FOLDER", str(tmp_path / "pools")),
        (os, "uname", lambda: SimpleNamespace(nodename="n1")),
        (time, "time", lambda: float(made.one.made_s + 3600)),
        (cluster_toml, "load_topology", lambda: here),
        (journal, "write", lambda text, **_: made.logged.append(text)),
        (bed.cluster, "patch", counted),
    ):
        monkeypatch.setattr(owner, name, value)
    state_files.make_folder()
    return made


def test_files_that_are_there_change_nothing(node: Node) -> None:
    node.file(node.two).rename(f"{node.file(node.two)}.taking")
    assert node.monitor() == BOTH and node.patches == 0
    assert node.names() == set() and node.logged == []


def test_a_file_that_is_gone_takes_the_node_off(node: Node) -> None:
    node.file(node.one).unlink()
    assert node.monitor() == {"one": ("n2",), "two": ("n1", "n2")}
    assert node.names() == {"one"}
    assert len(node.logged) == 1 and "the file of restore point one is gone" in node.logged[0]
    # It stays noted, since the CIB does not tell any more; it is logged, and changed, once.
    assert node.monitor()["one"] == ("n2",) and node.names() == {"one"}
    assert len(node.logged) == node.patches == 1


def test_an_empty_pool_is_one_change(node: Node) -> None:
    for file in (node.pool / "points").iterdir():
        file.unlink()
    (node.pool / "points").rmdir()
    assert node.monitor() == {"one": ("n2",), "two": ("n2",)}
    assert node.patches == 1 and node.names() == {"one", "two"}


def test_the_last_node_stays_and_is_told_of(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put(node.one._replace(nodes=("n1",)))
    node.file(node.one).unlink()

    def change(*_: object, **__: object) -> None:
        raise AssertionError("each monitor would ask for the whole CIB")

    with monkeypatch.context() as patched:
        patched.setattr(Session, "change", change)
        assert node.monitor() == {"one": ("n1",), "two": ("n1", "n2")}
        node.monitor()
    assert node.names() == {"one"} and len(node.logged) == 1
    node.file(node.one).write_text("x")
    node.monitor()
    assert node.names() == set(), "it is there again"


def test_a_point_that_is_deleted_is_noted_no_more(node: Node) -> None:
    node.file(node.one).unlink()
    node.monitor()
    (one,) = (point for point in node.points() if point.name == "one")
    node.put(one._replace(is_deleting=True))
    node.monitor()
    assert lost_files.noted() == frozenset()


def young(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: node.one.made_s + 600.0)


def not_mounted(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.pool / ".sanctl-pool").unlink()


def another_pool(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.pool / ".sanctl-pool").write_text("9" * 32)


def not_usable(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.usable.clear()


def not_of_this_node(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_toml, "load_topology", lambda: replace(topology(), pools=()))


def not_readable(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir

    def listdir(path: str) -> list[str]:
        if path.endswith("/points"):
            raise OSError(5, "Input/output error", path)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)


def no_folder(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    (node.pool / "points").rename(node.pool / "other")
    (node.pool / "points").write_text("no folder")


def not_there_for_a_moment(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A listing that misses a file which is being renamed."""
    node.file(node.one).write_text("x")
    monkeypatch.setattr(point_files, "listed", lambda _path: [])


def not_known_whether_there(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def exists(path: str, **_: object) -> bool:
        raise OSError(5, "Input/output error", path)

    monkeypatch.setattr(lost_files, "exists", exists)


@pytest.mark.parametrize(
    "unknown",
    [
        young,
        not_mounted,
        another_pool,
        not_usable,
        not_of_this_node,
        not_readable,
        no_folder,
        not_there_for_a_moment,
        not_known_whether_there,
    ],
)
def test_what_is_not_certain_changes_nothing(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    unknown: Callable[[Node, pytest.MonkeyPatch], None],
) -> None:
    node.file(node.one).unlink()
    unknown(node, monkeypatch)
    assert node.monitor() == BOTH and node.patches == 0
    assert lost_files.noted() == frozenset()


@pytest.mark.parametrize("unknown", [not_usable, not_readable])
def test_what_was_noted_stays_while_nothing_is_known(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    unknown: Callable[[Node, pytest.MonkeyPatch], None],
) -> None:
    node.file(node.one).unlink()
    node.monitor()
    unknown(node, monkeypatch)
    node.monitor()
    assert node.names() == {"one"}


def test_a_cluster_that_does_not_answer_is_asked_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.file(node.one).unlink()

    def refuse(_text: str) -> None:
        raise CommandError(Problem("SAN-CLU-002", "no answer"))

    with monkeypatch.context() as patched:
        patched.setattr(node.bed.cluster, "patch", refuse)
        with pytest.raises(CommandError):
            node.monitor()
    assert node.names() == {"one"}
    assert node.monitor()["one"] == ("n2",)


def test_the_upkeep_looks_with_quorum_and_publishes_it(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published: list[tuple[str, str]] = []
    monkeypatch.setattr(backup_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(upkeep, "_session", lambda _runner: node.bed.session)
    monkeypatch.setattr(
        node_attributes, "publish", lambda _runner, *pair: published.append(tuple(pair))
    )
    node.file(node.one).unlink()

    def keep_up(*, is_quorate: bool) -> None:
        properties = {point.id: point.value for point in node.points()}
        upkeep.keep_up(LocalRunner(), node.usable, properties, is_quorate=is_quorate)

    keep_up(is_quorate=False)
    assert node.points()[0].nodes == ("n1", "n2")
    published.clear()
    keep_up(is_quorate=True)
    assert node.points()[0].nodes == ("n2",)
    assert f"{node.one.token}=gone" in published[-1][1].split()
    assert f"{node.two.token}=" in published[-1][1]
    node.bed.cluster.attribute("n1", SIZES_ATTRIBUTE, published[-1][1])
    seen = node.bed.seen().cib
    assert seen.lost_points == {(node.one.token, "n1")}
    assert (node.one.token, "n1") not in seen.point_bytes


def taken_off(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the node off both, have the note of this boot gone, and the files there again."""
    files = [node.file(node.one), node.file(node.two)]
    for file in files:
        file.rename(node.pool / file.name)
    assert node.monitor() == {"one": ("n2",), "two": ("n2",)}
    state_files.of_node("points-lost").remove()
    assert node.add_again() == {"one": ("n2",), "two": ("n2",)}
    for file in files:
        (node.pool / file.name).rename(file)
    node.patches = 0
    node.logged.clear()


def test_files_that_are_there_again_add_the_node_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_off(node, monkeypatch)
    assert node.add_again() == BOTH and node.patches == 1
    assert len(node.logged) == 2 and "one is in pool main on n1" in node.logged[0]
    assert node.add_again() == BOTH and node.patches == 1
    assert node.monitor() == BOTH and node.names() == set()


def test_what_anew_gave_up_and_did_not_discard_is_added_again(node: Node) -> None:
    pool_notes.write("main", pool_notes.POINTS_GIVEN_UP, f"{node.one.token} {'9' * 16}")
    node.put(node.one._replace(nodes=("n2",)))
    assert node.add_again() == BOTH and node.patches == 2


def test_a_copy_that_the_cib_never_named_is_not_added(node: Node) -> None:
    """The active node died, and the other one carried out the same order, at another moment."""
    node.put(node.one._replace(nodes=("n2",)))
    assert node.add_again()["one"] == ("n2",)


def begun_anew(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    pool_notes.write("main", pool_notes.MAKING, cluster_toml.load_topology().pools[0].uuid)


def without_its_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (node.file(node.one), node.file(node.two)):
        file.rename(f"{file}.taking")


def of_another_device(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in (node.file(node.one), node.file(node.two)):
        file.rename(str(file).replace(node.one.uuid, "9" * 32))


def unmounted_before_the_cib_was_read(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As --anew does before it takes the node off."""
    change = Session.change

    def late(self: Session, *args: object, **named: object) -> object:
        (node.pool / "points").rename(node.pool / "other")
        return change(self, *args, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Session, "change", late)


@pytest.mark.parametrize(
    "not_known",
    [
        begun_anew,
        without_its_name,
        of_another_device,
        unmounted_before_the_cib_was_read,
        young,
        not_usable,
        not_of_this_node,
    ],
)
def test_nothing_is_added_that_is_not_there_for_certain(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    not_known: Callable[[Node, pytest.MonkeyPatch], None],
) -> None:
    taken_off(node, monkeypatch)
    not_known(node, monkeypatch)
    assert node.add_again() == {"one": ("n2",), "two": ("n2",)} and node.patches == 0


@pytest.mark.parametrize("unknown", [not_mounted, another_pool])
def test_another_filesystem_adds_nothing(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    unknown: Callable[[Node, pytest.MonkeyPatch], None],
) -> None:
    taken_off(node, monkeypatch)
    unknown(node, monkeypatch)
    with pytest.raises(CommandError):
        node.add_again()
    assert node.patches == 0


def test_a_file_of_a_point_that_was_deleted_without_this_node_goes(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This node was away, or its pool was, and the named nodes finished first."""
    taken_off(node, monkeypatch)
    assert node.remove_deleted() == {"one", "two"}, "both are there still"
    node.delete(node.one)
    assert node.remove_deleted() == {"two"}
    assert "its restore point was deleted" in node.logged[-1]
    # One that goes with another pool is remembered until its filesystem is mounted again.
    node.file(node.one).write_text("x")
    assert node.remove_deleted() == {"two"}
    node.delete(node.two)
    node.usable.clear()
    assert node.remove_deleted() == {"two"}


def test_what_cannot_be_read_or_removed_holds_up_no_other_file(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_off(node, monkeypatch)
    node.delete(node.one)
    node.delete(node.two)
    # The first pool's note is damaged: those of the pools behind it were never looked at.
    node.usable = {"broken": str(node.pool), **node.usable}
    Path(pool_notes.path("broken", pool_notes.POINTS_LOST)).mkdir()
    remove = point_files.remove

    def fail_for_one(path: str) -> None:
        if path.endswith(node.one.token):
            raise OSError(5, "Input/output error", path)
        remove(path)

    with monkeypatch.context() as patched:
        patched.setattr(point_files, "remove", fail_for_one)
        assert node.remove_deleted() == {"one"}
    assert any("pool broken: files of deleted" in line for line in node.logged)
    assert any("web: the file of a deleted restore point stays" in line for line in node.logged)
    assert node.remove_deleted() == set()


def put_back_without(node: Node, point: RestorePoint) -> set[str]:
    """Put a CIB back that is older than the restore point; return the points that have a file."""
    node.bed.cluster.patch(render_patchset(node.bed.cluster.root, (RemovePoint(point=point),)))
    return node.remove_deleted()


def set_age(kind: str, age_s: float = 3600.0) -> None:
    written_s = time.time() - age_s
    os.utime(pool_notes.path("main", kind), (written_s, written_s))


@pytest.mark.parametrize("kind", [pool_notes.POINTS_LOST, pool_notes.POINTS_GIVEN_UP])
def test_a_cib_from_a_backup_takes_no_file_of_a_node_that_was_off_for_a_while(
    node: Node, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The note outlived the node's return, and the file counted as one of a deleted point."""
    taken_off(node, monkeypatch)
    pool_notes.write("main", kind, pool_notes.read("main", pool_notes.POINTS_LOST))
    for each in (pool_notes.POINTS_LOST, kind):
        set_age(each)
    node.forget()
    assert len(pool_notes.taken_off("main")) == 2, "the CIB names it for none yet"
    assert node.add_again() == BOTH
    node.forget()
    assert pool_notes.taken_off("main") == frozenset()
    assert put_back_without(node, node.one) == {"one", "two"}


def test_the_upkeep_forgets_what_the_node_is_named_for_again(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_notes, "_FOLDER", str(tmp_path / "notes"))
    monkeypatch.setattr(upkeep, "_session", lambda _runner: node.bed.session)
    monkeypatch.setattr(node_attributes, "publish", lambda *_: None)
    taken_off(node, monkeypatch)
    node.add_again()
    set_age(pool_notes.POINTS_LOST)
    properties = {point.id: point.value for point in node.points()}
    upkeep.keep_up(LocalRunner(), node.usable, properties, is_quorate=True)
    assert pool_notes.taken_off("main") == frozenset()


def test_what_the_node_is_about_to_be_taken_off_is_not_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CIB names it yet, and a change whose answer was lost may come."""
    taken_off(node, monkeypatch)
    node.add_again()
    set_age(pool_notes.POINTS_LOST, 30)
    node.forget()
    assert len(pool_notes.taken_off("main")) == 2, "the note is young"
    set_age(pool_notes.POINTS_LOST)
    node.file(node.one).unlink()
    node.forget()
    assert pool_notes.taken_off("main") == {node.one.token}, "its file is not there"
    os.utime(pool_notes.path("main", pool_notes.POINTS_LOST), (0, 0))
    assert node.monitor()["one"] == ("n2",)
    assert os.stat(pool_notes.path("main", pool_notes.POINTS_LOST)).st_mtime, "noted again"
    node.usable.clear()
    node.forget()


def test_one_file_at_least_goes_with_each_monitor(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_off(node, monkeypatch)
    node.delete(node.one)
    node.delete(node.two)
    monkeypatch.setattr(deleted_points, "_REMOVE_S", -1.0)
    assert len(node.remove_deleted()) == 1
    assert node.remove_deleted() == set()


def never_named(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for kind in (pool_notes.POINTS_LOST, pool_notes.POINTS_GIVEN_UP):
        pool_notes.clear("main", kind)
    return {}


def lost_from_the_cib(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return {"sanctl-copy.web": "far"}


def of_a_later_release(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    return {
        "sanctl-pool-main": "total=1",
        "sanctl-point.web.one": f"v9 of {node.one.token}",
    }


def made_again_just_now(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    node.put(node.one._replace(nodes=("n2",)))
    return {"sanctl-pool-main": "total=1", "sanctl-point.web.other": "read before it was"}


def with_another_pools_marker(node: Node, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (node.pool / ".sanctl-pool").write_text("9" * 32)
    return {}


@pytest.mark.parametrize(
    "not_known",
    [
        never_named,
        lost_from_the_cib,
        of_a_later_release,
        made_again_just_now,
        with_another_pools_marker,
    ],
)
def test_no_file_goes_whose_point_is_not_deleted_for_certain(
    node: Node,
    monkeypatch: pytest.MonkeyPatch,
    not_known: Callable[[Node, pytest.MonkeyPatch], dict[str, str]],
) -> None:
    taken_off(node, monkeypatch)
    node.delete(node.one)
    more = not_known(node, monkeypatch)
    with contextlib.suppress(CommandError):
        node.remove_deleted(**more)
    assert node.file(node.one).exists() and node.file(node.two).exists()


def test_a_file_of_a_device_that_the_cib_has_not_is_left_alone(node: Node) -> None:
    """It may have lost both; and what is being made is not deleted."""
    cluster = node.bed.seen()
    one, device = node.one, cluster.cib.device("web")
    assert device is not None
    assert is_deleted(cluster, "web", one.uuid, "9" * 16)
    assert not is_deleted(cluster, "web", one.uuid, one.token)
    assert not is_deleted(cluster, "web", "9" * 32, "9" * 16)
    assert not is_deleted(cluster, "other", one.uuid, "9" * 16)
    order = PointOrder("three", "9" * 16, 1)
    made = replace(device, point_order=order)
    cib = replace(cluster.cib, devices=(made,))
    assert not is_deleted(replace(cluster, cib=cib), "web", one.uuid, "9" * 16)
    assert is_deleted(replace(cluster, cib=cib), "web", one.uuid, "8" * 16)


def test_of_many_points_those_that_are_deleted_are_forgotten(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(*tokens: str) -> frozenset[str]:
        pool_notes.note_taken_off("main", pool_notes.POINTS_LOST, set(tokens), {"there"})
        return pool_notes.taken_off("main")

    assert note("there", "gone") == {"there", "gone"} == note("gone")
    monkeypatch.setattr(pool_notes, "_MOST_TAKEN_OFF", 2)
    assert note("new") == {"there", "new"}
