# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of deleted devices are removed only by a tombstone in the CIB, and with quorum."""

from __future__ import annotations

import pytest

from sanctl.agents import pool as agent
from sanctl.drivers import loop, node_attributes, outdated_marks, pool_files
from sanctl.parse.corosync import Membership

UUID = "0" * 32
NOTED = {"sanctl-delete-vol1": f"{UUID} main"}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The attributes that were dropped, `files` for the files, `marks` and of which device."""
    found: list[str] = []
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


def reap(monkeypatch: pytest.MonkeyPatch, noted: dict[str, str], *, is_quorate: bool) -> None:
    seen = Membership(is_quorate=is_quorate, members=frozenset({"n1"}))
    monkeypatch.setattr(agent, "membership", lambda _runner: seen)
    agent._delete_files_of_deleted_devices({"main": "/srv/sanctl/main"}, noted)


def test_the_outdated_mark_is_removed_after_the_files_and_the_tombstone_last(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done == ["files", f"marks vol1 {UUID}", "sanctl-delete-vol1"]


def test_a_node_that_was_cut_off_changes_nothing(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CIB of such a node would become newer with each change, and could replace the others'."""
    reap(monkeypatch, NOTED, is_quorate=False)
    assert done == []


def test_corosync_is_asked_only_if_there_is_a_tombstone(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked(_runner: object) -> Membership:
        raise AssertionError("asked with every monitor")

    monkeypatch.setattr(agent, "membership", unasked)
    agent._delete_files_of_deleted_devices({"main": "/srv/sanctl/main"}, {"sanctl-votes": "x"})
    assert done == []
