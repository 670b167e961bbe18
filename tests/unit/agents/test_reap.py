# SPDX-License-Identifier: GPL-2.0-or-later
"""Files of deleted devices are removed by order of a quorate cluster only."""

from __future__ import annotations

import pytest

from sanctl.agents import pool as agent
from sanctl.drivers import loop, node_attributes, pool_files
from sanctl.parse.corosync import Membership

UUID = "0" * 32
NOTED = {"sanctl-delete-vol1": f"{UUID} main", "sanctl-outdated-vol1": UUID}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The attributes that were dropped, and `files` for the files."""
    found: list[str] = []
    monkeypatch.setattr(loop, "find", lambda _path: None)
    monkeypatch.setattr(pool_files, "delete", lambda _files: found.append("files"))
    monkeypatch.setattr(
        node_attributes,
        "delete_permanent",
        lambda _runner, _node, name, **_more: found.append(name),
    )
    return found


def reap(monkeypatch: pytest.MonkeyPatch, noted: dict[str, str], *, is_quorate: bool) -> None:
    seen = Membership(is_quorate=is_quorate, members=frozenset({"n1"}))
    monkeypatch.setattr(agent, "membership", lambda _runner: seen)
    agent._reap({"main": "/srv/sanctl/main"}, noted)


def test_the_mark_goes_with_the_files_and_the_order_last(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reap(monkeypatch, NOTED, is_quorate=True)
    assert done == ["files", "sanctl-outdated-vol1", "sanctl-delete-vol1"]


def test_the_mark_of_another_device_of_that_name_stays(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reap(monkeypatch, NOTED | {"sanctl-outdated-vol1": "1" * 32}, is_quorate=True)
    assert done == ["files", "sanctl-delete-vol1"]


def test_a_node_that_was_cut_off_changes_nothing(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its CIB would become newer with each change, and could outrank the others'."""
    reap(monkeypatch, NOTED, is_quorate=False)
    assert done == []


def test_corosync_is_asked_only_where_there_is_something_to_do(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unasked(_runner: object) -> Membership:
        raise AssertionError("asked with every monitor")

    monkeypatch.setattr(agent, "membership", unasked)
    agent._reap({"main": "/srv/sanctl/main"}, {"sanctl-outdated-vol1": UUID})
    assert done == []
