# SPDX-License-Identifier: GPL-2.0-or-later
"""The states of a node's replicas are published together, by whoever comes first."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from sanctl.agents.fencing import cluster_run
from sanctl.agents.publish import attrd_cache, node_states
from sanctl.errors import CommandError, Problem
from sanctl.model import answered_monitors
from sanctl.model.packed_states import STATES_ATTRIBUTE, unpack
from sanctl.system import state_files
from tests.fakes.node import FakeNode

UP, DOWN = "disk=UpToDate role=Primary", "disk=Down"


@pytest.fixture
def node(fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "7")
    return fake_node


def told(node: FakeNode) -> list[tuple[str, ...]]:
    """What attrd_updater was told since the last call."""
    calls = [argv[1:] for argv, _ in node.calls if argv[0] == "attrd_updater"]
    node.calls.clear()
    return calls


def states(call: tuple[str, ...]) -> dict[str, str]:
    assert call[:2] == ("--name", STATES_ATTRIBUTE) and call[3:] == ("--private",)
    return unpack(call[2].removeprefix("--update="))


def test_each_publication_has_what_all_have_now(node: FakeNode) -> None:
    node_states.publish(node, "a", UP)
    node_states.publish(node, "b", DOWN)
    node_states.publish(node, "a", DOWN)
    assert [states(call) for call in told(node)] == [
        {"a": UP},
        {"a": UP, "b": DOWN},
        {"a": DOWN, "b": DOWN},
    ]


def test_what_another_has_published_along_starts_no_program(node: FakeNode) -> None:
    state_files.of_device("b", "published").write(DOWN)
    node_states.publish(node, "a", UP)
    told(node)
    node_states.publish(node, "b", DOWN)
    node_states.publish_if_due(node)
    assert told(node) == []


def test_all_is_published_again_after_a_minute_and_to_a_new_daemon(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    node_states.publish(node, "a", UP)
    then = time.time() - 61
    os.utime(Path(attrd_cache.of_states().path), (then, then))
    node_states.publish_if_due(node)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "8")
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": UP}] * 3


def test_a_node_without_replicas_makes_the_attribute_a_private_one(node: FakeNode) -> None:
    """Made by a deletion it would not be private, for good, and each state be in the CIB."""
    node_states.publish_if_due(node)
    node_states.publish_if_due(node)
    assert told(node) == [("--name", STATES_ATTRIBUTE, "--update=-", "--private")]


def test_the_last_replica_leaves_no_state(node: FakeNode) -> None:
    node_states.publish(node, "a", UP)
    node_states.publish(node, "b", UP)
    told(node)
    node_states.withdraw(node, "a")
    node_states.withdraw(node, "b")
    kept, nothing = told(node)
    assert states(kept) == {"b": UP}
    assert states(nothing) == {}
    then = time.time() - 61
    os.utime(Path(attrd_cache.of_states().path), (then, then))
    node_states.publish_if_due(node)
    assert told(node) == []


def test_a_publication_that_failed_is_made_again_by_the_next_one(node: FakeNode) -> None:
    """Also where the value is the one that was published before: the failed one may be late."""
    node_states.publish(node, "a", UP)
    answer = node.answer
    node.answer = CommandError(Problem("SAN-CMD-002", "no answer within 5 s"))
    with pytest.raises(CommandError):
        node_states.publish(node, "a", DOWN)
    node.answer = answer
    told(node)
    node_states.publish(node, "a", UP)
    assert [states(call) for call in told(node)] == [{"a": UP}]


def test_a_state_for_which_there_is_no_room_is_published_all_the_same(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never an older one: without its file it is not known to who publishes next."""
    node_states.publish(node, "a", UP)

    def full(_self: state_files.StateFile, _text: str = "") -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(state_files.StateFile, "write", full)
    node_states.publish(node, "a", DOWN)
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": UP}, {"a": DOWN}, {}]


def test_who_waits_too_long_publishes_nothing(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_states, "_LOCK_S", 0.0)
    with (
        state_files.locked_without_file(wait_s=0.0),
        pytest.raises(CommandError),
    ):
        node_states.publish(node, "a", UP)
    assert told(node) == []
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": UP}]


def test_a_state_from_before_an_earlier_release_ran_is_not_published(node: FakeNode) -> None:
    """An operator has gone back, and forward again: only what its monitor finds now counts."""
    node_states.publish(node, "a", UP)
    state_files.of_device("a", "attrd-cache").write("7 disk=Inconsistent")
    node_states.publish(node, "b", DOWN)
    node_states.publish(node, "a", DOWN)
    assert [states(call) for call in told(node)][1:] == [{"b": DOWN}, {"a": DOWN, "b": DOWN}]


def test_states_of_an_earlier_release_go_once_they_are_published_anew(node: FakeNode) -> None:
    left = {
        "sanctl-a": UP,
        "sanctl-b": UP,
        "sanctl-pool-main": "total=1",
        "sanctl-delete-c": "0 main",
        "sanctl-votes": "x",
    }
    for name in ("a", "b"):
        state_files.of_device(name, "attrd-cache").write(f"7 {UP}")
    node_states.publish(node, "a", UP)
    told(node)
    node_states.delete_of_earlier_release(node, left)
    assert told(node) == [("--name", "sanctl-a", "--delete")]


def test_what_was_said_of_hosts_in_an_earlier_run_is_not_published(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pacemaker ended without a stop of the replicas; another node would let hosts in by that."""
    run, later = "0123456789ab-77", "0123456789ab-78"
    monkeypatch.setattr(cluster_run, "here", lambda: run)
    node_states.publish(node, "a", f"{UP} let-in={run} x=1")
    node_states.publish(node, "b", f"{DOWN} held={run}:asking")
    monkeypatch.setattr(cluster_run, "here", lambda: later)
    monkeypatch.setattr(attrd_cache, "attrd_pid", lambda: "8")
    told(node)
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": f"{UP} x=1", "b": DOWN}]
    node_states.publish(node, "a", f"{UP} let-in={later}")
    assert [states(call) for call in told(node)] == [{"a": f"{UP} let-in={later}", "b": DOWN}]

    def unreadable() -> str:
        raise OSError(errno.ENOMEM, "no memory")

    monkeypatch.setattr(cluster_run, "here", unreadable)
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": UP, "b": DOWN}], "not known is another"


def test_without_such_words_no_run_is_asked_for(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_run, "here", lambda: pytest.fail("nothing needs it"))
    node_states.publish(node, "a", UP)
    assert [states(call) for call in told(node)] == [{"a": UP}]


def test_monitors_that_were_answered_for_are_published_by_the_pool_agent(node: FakeNode) -> None:
    """The replica's own agent does not come to it."""
    node_states.publish(node, "a", UP)
    node_states.publish(node, "b", UP)
    told(node)
    note = state_files.of_node(f"{answered_monitors.NOTE_KIND}.a")
    for count in (1, 2, 3):
        note.write(f"1764150000 {count}")
        node_states.publish_if_due(node)
    assert [states(call)["a"] for call in told(node)] == [
        f"{UP} answered-for=1764150000:1",
        f"{UP} answered-for=1764150000:2",
    ], "the third says nothing new"
    old_s = time.time() - 301
    os.utime(note.path, (old_s, old_s))
    node_states.publish_if_due(node)
    assert [states(call) for call in told(node)] == [{"a": UP, "b": UP}]


def test_a_note_that_cannot_be_read_keeps_no_state_back(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(_self: state_files.StateFile) -> float:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(state_files.StateFile, "age_s", unreadable)
    monkeypatch.setattr(attrd_cache, "is_current", lambda *_, **__: False)
    node_states.publish(node, "a", UP)
    assert [states(call) for call in told(node)] == [{"a": UP}]
