# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of deleted devices are removed only by a tombstone in the CIB, and with quorum."""

from __future__ import annotations

import errno
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import pytest

from sanctl.agents import deleted_devices, pool_attributes
from sanctl.agents import pool as agent
from sanctl.agents.connections import standby_first
from sanctl.drivers import backup_notes, cib, loop, node_attributes, outdated_marks, pool_files
from sanctl.errors import CommandError, Problem
from sanctl.parse.corosync import Membership
from sanctl.system import journal, state_files
from tests.fakes.node import FakeNode
from tests.fakes.topology import topology

UUID = "0" * 32
NOTED = {"sanctl-delete-vol1": f"{UUID} main"}


def nvpairs(values: dict[str, str]) -> ET.Element:
    """Return an answer of the CIB."""
    root = ET.Element("xpath-query")
    for name, value in values.items():
        ET.SubElement(root, "nvpair", name=name, value=value)
    return root


@pytest.fixture
def done(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The attributes that were dropped, `files` for the files, `marks` and of which device."""
    monkeypatch.setattr(deleted_devices, "_RUNNER", fake_node)  # its /run/sanctl has the lock
    found: list[str] = []
    has_tombstones(monkeypatch, NOTED)
    monkeypatch.setattr(loop, "find", lambda _path: None)
    monkeypatch.setattr(pool_files, "delete", lambda _files: found.append("files"))
    monkeypatch.setattr(
        node_attributes,
        "delete_permanent",
        lambda _runner, _node, name, **_more: found.append(name),
    )
    monkeypatch.setattr(
        outdated_marks,
        "clear_own",
        lambda _runner, device, uuid: found.append(f"marks {device} {uuid}"),
    )
    return found


def has_tombstones(monkeypatch: pytest.MonkeyPatch, noted: dict[str, str]) -> None:
    """Have the CIB hold these tombstones, and nothing else."""
    monkeypatch.setattr(
        cib,
        "query",
        lambda _runner, xpath: nvpairs(noted) if "sanctl-delete-" in xpath else None,
    )


def reap(monkeypatch: pytest.MonkeyPatch, noted: dict[str, str], *, is_quorate: bool) -> None:
    seen = Membership(is_quorate=is_quorate, members=frozenset({"n1"}))
    monkeypatch.setattr(deleted_devices, "membership", lambda _runner: seen)
    deleted_devices.delete_files({"main": "/srv/sanctl/main"}, noted)


def test_the_outdated_mark_is_removed_after_the_files_and_the_tombstone_last(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done == ["files", f"marks vol1 {UUID}", "sanctl-delete-vol1"]


def test_the_note_of_a_replica_that_was_whole_goes_with_it(
    done: list[str], fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its attribute that is a part: the one is gone once the other is."""
    standby_first.keep(fake_node, "vol1")
    note = Path(state_files.RUNTIME) / "node" / "kept.vol1"
    assert note.exists()
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done[-1] == "sanctl-delete-vol1"
    assert not note.exists()


@pytest.mark.parametrize("is_readable", [True, False])
def test_when_it_had_its_turns_of_backups_is_forgotten(
    done: list[str], monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    def forget(device: str) -> None:
        done.append(f"turns {device}")
        if not is_readable:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(backup_notes, "forget_turns", forget)
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done[-2:] == ["sanctl-delete-vol1", "turns vol1"]


def test_the_tombstones_of_several_go_by_one_change_after_the_files_of_all(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by its value, too; who keeps a file keeps its tombstone, and no other."""
    monkeypatch.setattr(loop, "find", lambda path: "/dev/loop3" if "vol2" in path else None)

    def remove(files: pool_files.DeviceFiles) -> None:
        if "vol4" in files.data:
            raise OSError(errno.EIO, "Input/output error", files.data)
        done.append("files")

    monkeypatch.setattr(pool_files, "delete", remove)
    monkeypatch.setattr(
        cib, "delete_at", lambda _runner, paths, **_more: done.append(" ".join(paths))
    )
    noted = {f"sanctl-delete-vol{number}": f"{str(number) * 32} main" for number in range(6)}
    has_tombstones(monkeypatch, noted)
    reap(monkeypatch, noted, is_quorate=True)
    assert done[:4] == ["files"] * 4
    (paths,) = done[4:]
    for number in (0, 1, 3, 5):
        assert f"[@name='sanctl-delete-vol{number}'][@value='{str(number) * 32} main']" in paths
        assert f"[@name='sanctl-outdated-vol{number}'][@value='{str(number) * 32}']" in paths
    assert "vol2" not in paths
    assert "vol4" not in paths


def test_what_a_stop_could_not_withdraw_goes_before_the_tombstone(
    done: list[str], fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen on a busy machine: a score of 10000 was left, for the next device of that name."""
    asked: list[str] = []

    def query(_runner: object, xpath: str) -> ET.Element:
        if "sanctl-delete-" in xpath:
            return nvpairs(NOTED)
        asked.append(xpath)
        return nvpairs({"master-vol1": "10000"})

    monkeypatch.setattr(cib, "query", query)
    monkeypatch.setattr(node_attributes, "delete", lambda _runner, name: done.append(name))
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done == ["files", "master-vol1", f"marks vol1 {UUID}", "sanctl-delete-vol1"]
    names = " or ".join(f"@name='{each}-vol1'" for each in ("master", "kept", "sanctl"))
    assert f"[{names}]" in asked[-1]

    def busy(_runner: object, _name: str) -> None:
        raise CommandError(Problem("SAN-CMD-002", "no answer within 5 s"))

    del done[:]
    monkeypatch.setattr(node_attributes, "delete", busy)
    with pytest.raises(CommandError):
        reap(monkeypatch, NOTED, is_quorate=True)
    assert done == ["files"], "it is done again"


@pytest.mark.parametrize("now", [{}, {"sanctl-delete-vol1": f"{'1' * 32} main"}])
def test_a_tombstone_that_another_one_has_carried_out_is_left_alone(
    done: list[str], monkeypatch: pytest.MonkeyPatch, now: dict[str, str]
) -> None:
    """A monitor that has read it acts later: the device may have been made again by then."""
    has_tombstones(monkeypatch, now)
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done == []


def replicas_of(
    monkeypatch: pytest.MonkeyPatch, nodes: str, uuid: str, scores: dict[str, str]
) -> list[str]:
    """Have the CIB hold vol1, and these scores of it by node; return what is asked for."""
    asked: list[str] = []

    def query(_runner: object, xpath: str) -> ET.Element | None:
        asked.append(xpath)
        if "sanctl-delete-" in xpath:
            return nvpairs(NOTED)
        root = ET.Element("xpath-query")
        if "primitive" in xpath:
            primitive = ET.SubElement(root, "primitive", id="vol1")
            ET.SubElement(primitive, "nvpair", name="uuid", value=uuid)
            ET.SubElement(primitive, "nvpair", name="nodes", value=nodes)
        elif "ancestor::node_state" in xpath:
            for node, score in scores.items():
                state = ET.SubElement(root, "node_state", uname=node)
                ET.SubElement(state, "nvpair", name="master-vol1", value=score)
        return root

    monkeypatch.setattr(cib, "query", query)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(nodename="n2"))
    return asked


@pytest.mark.parametrize(
    ("nodes", "scores", "goes"),
    [
        ("n1", {"n1": "10000"}, True),
        ("n1", {}, False),
        ("n1", {"n1": "-INFINITY"}, False),
        ("n1", {"n1": "1000"}, False),
        ("n1", {"n3": "10000"}, False),
        ("n1 n2", {"n2": "10000"}, False),
    ],
)
def test_a_dropped_replica_stays_until_another_one_serves(
    done: list[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    nodes: str,
    scores: dict[str, str],
    goes: bool,
) -> None:
    """What the drop relied on may be lost since: this node was away, or the other has burnt."""
    logged: list[str] = []
    monkeypatch.setattr(journal, "write", lambda text, **_: logged.append(text))
    replicas_of(monkeypatch, nodes, UUID, scores)
    reap(monkeypatch, NOTED, is_quorate=True)
    assert ("files" in done) is goes
    assert ("sanctl-delete-vol1" in done) is goes
    reap(monkeypatch, NOTED, is_quorate=True)
    kept = [text for text in logged if "its files stay" in text]
    assert len(kept) == (0 if goes else 1), "said once"
    if not goes:
        replicas_of(monkeypatch, "n1", UUID, {"n1": "10000"})
        reap(monkeypatch, NOTED, is_quorate=True)
        assert "sanctl-delete-vol1" in done, "no dead end"


def test_of_a_deleted_device_nothing_stays(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one of its name may have been created, and wait for its first node."""
    asked = replicas_of(monkeypatch, "n1", "1" * 32, {})
    reap(monkeypatch, NOTED, is_quorate=True)
    assert "sanctl-delete-vol1" in done
    assert not any("ancestor::node_state" in each for each in asked)


def test_who_serves_counts_only_with_quorum(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas_of(monkeypatch, "n1", UUID, {"n1": "10000"})
    seen = [True, False]
    monkeypatch.setattr(
        deleted_devices,
        "membership",
        lambda _runner: Membership(is_quorate=seen.pop(0), members=frozenset({"n2"})),
    )
    deleted_devices.delete_files({"main": "/srv/sanctl/main"}, NOTED)
    assert done == []


def test_a_node_that_was_cut_off_changes_nothing(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CIB of such a node would become newer with each change, and could replace the others'."""
    reap(monkeypatch, NOTED, is_quorate=False)
    assert done == []


def test_of_a_monitor_and_a_request_at_once_one_does_it(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with state_files.locked(state_files.node_lock("deleted")):
        reap(monkeypatch, NOTED, is_quorate=True)
        assert done == []
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done[0] == "files"


def test_a_request_does_what_the_monitor_does_and_only_where_that_runs(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Membership(is_quorate=True, members=frozenset({"n1"}))
    monkeypatch.setattr(deleted_devices, "membership", lambda _runner: seen)
    monkeypatch.setattr(pool_attributes, "read", lambda _runner: NOTED)
    monkeypatch.setattr(agent, "_pools_here", lambda: topology().pools)
    monkeypatch.setattr(pool_files, "check_marker", lambda _path, _uuid: None)
    agent.delete_files_of_deleted_devices()
    assert done == [], "the agent is stopped here"
    agent._running_note().write()
    agent.delete_files_of_deleted_devices()
    assert done == ["files", f"marks vol1 {UUID}", "sanctl-delete-vol1"]
    del done[:]

    def refuse(_path: str, _uuid: str) -> None:
        raise CommandError(Problem("SAN-POOL-003", "not mounted"))

    monkeypatch.setattr(pool_files, "check_marker", refuse)
    agent.delete_files_of_deleted_devices()
    assert done == [], "its pool is not mounted"


def test_corosync_is_asked_only_if_there_is_a_tombstone(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked(_runner: object) -> Membership:
        raise AssertionError("asked with every monitor")

    monkeypatch.setattr(deleted_devices, "membership", unasked)
    deleted_devices.delete_files({"main": "/srv/sanctl/main"}, {"sanctl-votes": "x"})
    assert done == []
