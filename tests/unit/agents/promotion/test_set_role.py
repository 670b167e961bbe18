# SPDX-License-Identifier: GPL-2.0-or-later
"""A promotion after a crash that the cluster noticed before DRBD did, and the demotion."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from sanctl.agents.fencing import outdate, shared_marks
from sanctl.agents.promotion import set_role
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from tests.fakes.node import FakeNode
from tests.fakes.runner import Answer, FakeRunner

_TWO = CommandError(Problem("SAN-CMD-003", "(-1) Multiple primaries not allowed by config"))
_NOT_OUTDATED = CommandError(
    Problem("SAN-CMD-003", "(-7) Refusing to be Primary while peer is not outdated")
)
_EVENTS = """\
exists resource name:vol1 role:Secondary suspended:no
exists connection name:vol1 peer-node-id:1 conn-name:n2 local:a peer:b connection:Connecting role:Unknown
exists device name:vol1 volume:0 minor:1 disk:UpToDate size:1024
exists peer-device name:vol1 peer-node-id:1 conn-name:n2 volume:0 replication:Off peer-disk:{peer}
exists -
"""  # noqa: E501 - as drbdsetup prints it


pytestmark = pytest.mark.usefixtures("fake_node")


def _node(answers: Sequence[Answer], peer: str = "Outdated") -> tuple[FakeRunner, list[str]]:
    left: Iterator[Answer] = iter(answers)
    asked: list[str] = []

    def answer(argv: Sequence[str]) -> Answer:
        if argv[1] == "events2":
            return _EVENTS.format(peer=peer)
        asked.append(argv[1])
        return next(left)

    return FakeRunner(answer), asked


def _become(node: FakeRunner) -> None:
    set_role.promote(node, "vol1", 1, time.monotonic() + 30.0)


def test_a_promotion_waits_until_drbd_has_noticed_the_dead_peer() -> None:
    node, asked = _node([_TWO, _TWO, ""])
    _become(node)
    assert asked == ["primary"] * 3


def test_a_dead_peer_noticed_in_the_last_attempt_gets_one_more() -> None:
    """What broke: the handler had said 'fenced', and the promotion failed all the same."""
    node, asked = _node([_TWO, _NOT_OUTDATED, ""])
    _become(node)
    assert asked == ["primary"] * 3


def test_only_one_more_attempt_is_made() -> None:
    node, asked = _node([_NOT_OUTDATED, _NOT_OUTDATED, ""])
    with pytest.raises(CommandError, match="-7"):
        _become(node)
    assert asked == ["primary"] * 2


@pytest.mark.parametrize("peer", ["DUnknown", "UpToDate"])
def test_no_promotion_without_certainty_about_the_peer(peer: str) -> None:
    node, asked = _node([_NOT_OUTDATED, ""], peer)
    with pytest.raises(CommandError, match="-7"):
        _become(node)
    assert asked == ["primary"]


def test_no_promotion_while_the_peer_stays_primary(fake_node: FakeNode) -> None:
    """It waits for as long as a peer's monitor may need to demote it (forgotten_role.py)."""
    node, asked = _node([_TWO] * 100)
    with pytest.raises(CommandError, match="-1"):
        set_role.promote(node, "vol1", 1, time.monotonic() + 57.0)
    assert 30.0 <= fake_node.clock.passed_s < 31.0
    assert len(asked) < 80


def test_the_wait_for_a_primary_ends_with_the_actions_time(fake_node: FakeNode) -> None:
    node, _ = _node([_TWO] * 100)
    with pytest.raises(CommandError, match="-1"):
        set_role.promote(node, "vol1", 1, time.monotonic() + 12.0)
    assert fake_node.clock.passed_s < 13.0


def test_a_note_tells_the_handler_of_a_running_promotion() -> None:
    """The note is removed afterwards, also after a failure: a handler may be late."""
    note = state_files.of_device("vol1", "promoting")
    seen = []

    def answer(argv: Sequence[str]) -> Answer:
        seen.append(note.exists())
        return _EVENTS.format(peer="DUnknown") if argv[1] == "events2" else _NOT_OUTDATED

    with pytest.raises(CommandError):
        _become(FakeRunner(answer))
    assert seen == [True, False]
    assert not note.exists()


def test_the_demotion_holds_the_fencing_lock() -> None:
    state_files.of_device("vol1", "promoting").write()
    free = []

    def answer(argv: Sequence[str]) -> Answer:
        with outdate.locked("vol1", wait_s=0.0) as is_mine:
            free.append(is_mine)
        return ""

    node = FakeRunner(answer)
    set_role.demote(node, "vol1", 1, time.monotonic() + 30.0)
    assert [argv for argv, _ in node.calls] == [("drbdsetup", "secondary", "1")]
    assert free == [False]
    assert not state_files.of_device("vol1", "promoting").exists()


def test_no_demotion_while_another_devices_handler_marks_for_this_one(fake_node: FakeNode) -> None:
    """Whatever its own handler does: the one that leads may be paused before its change."""
    node = FakeRunner("")
    with (
        shared_marks.change_lock("vol1", wait_s=0.0),
        pytest.raises(CommandError, match="has been marking"),
    ):
        set_role.demote(node, "vol1", 1, time.monotonic() + 30.0)
    assert node.calls == []
    assert 30.0 <= fake_node.clock.passed_s < 31.0


def test_a_demotion_needs_no_room_for_a_lock_that_nobody_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shared_marks, "change_lock", refuse)
    node = FakeRunner("")
    set_role.demote(node, "vol1", 1, time.monotonic() + 30.0)
    assert len(node.calls) == 1


def test_no_demotion_while_a_handler_marks_the_peer(fake_node: FakeNode) -> None:
    node = FakeRunner("")
    with (
        outdate.locked("vol1", wait_s=0.0),
        pytest.raises(CommandError, match="has been marking"),
    ):
        set_role.demote(node, "vol1", 1, time.monotonic() + 30.0)
    assert node.calls == []
    assert 30.0 <= fake_node.clock.passed_s < 31.0
