# SPDX-License-Identifier: GPL-2.0-or-later
"""Becoming Primary where the cluster knew of a crash before DRBD did."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sanctl.agents.fencing import outdate
from sanctl.agents.promotion import set_role
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
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


@pytest.fixture(autouse=True)
def _loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    monkeypatch.setattr(drbdsetup, "is_loaded", lambda: True)
    monkeypatch.setattr(drbdsetup, "generation", lambda: 8)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)


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


def test_it_waits_until_drbd_has_noticed() -> None:
    node, asked = _node([_TWO, _TWO, ""])
    _become(node)
    assert asked == ["primary"] * 3


def test_noticed_in_the_last_try_it_is_asked_again() -> None:
    """What broke: the handler had said 'fenced', and the promotion failed all the same."""
    node, asked = _node([_TWO, _NOT_OUTDATED, ""])
    _become(node)
    assert asked == ["primary"] * 3


def test_but_only_once() -> None:
    node, asked = _node([_NOT_OUTDATED, _NOT_OUTDATED, ""])
    with pytest.raises(CommandError, match="-7"):
        _become(node)
    assert asked == ["primary"] * 2


@pytest.mark.parametrize("peer", ["DUnknown", "UpToDate"])
def test_a_peer_of_which_nothing_is_certain_is_not_passed_over(peer: str) -> None:
    node, asked = _node([_NOT_OUTDATED, ""], peer)
    with pytest.raises(CommandError, match="-7"):
        _become(node)
    assert asked == ["primary"]


def test_a_peer_that_stays_primary_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    node, _ = _node([_TWO] * 100)
    with pytest.raises(CommandError, match="-1"):
        set_role.promote(node, "vol1", 1, 130.0)
    assert 108.0 <= now[0] < 109.0


def test_while_it_asks_the_handler_knows_of_a_promotion(tmp_path: Path) -> None:
    """And afterwards not, whatever came of it: a handler may be late."""
    note = tmp_path / "devices/vol1/promoting"
    seen = []

    def answer(argv: Sequence[str]) -> Answer:
        seen.append(note.exists())
        return _EVENTS.format(peer="DUnknown") if argv[1] == "events2" else _NOT_OUTDATED

    with pytest.raises(CommandError):
        _become(FakeRunner(answer))
    assert seen == [True, False]
    assert not note.exists()


def test_it_becomes_secondary_under_the_handlers_lock(tmp_path: Path) -> None:
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
    assert not (tmp_path / "devices/vol1/promoting").exists()


def test_while_a_handler_marks_it_stays_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    node = FakeRunner("")
    with (
        outdate.locked("vol1", wait_s=0.0),
        pytest.raises(CommandError, match="has been marking"),
    ):
        set_role.demote(node, "vol1", 1, 130.0)
    assert node.calls == []
    assert 130.0 <= now[0] < 131.0
