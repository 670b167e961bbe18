# SPDX-License-Identifier: GPL-2.0-or-later
"""What hosts of a cluster conclude of what paths answer (tests/support, *_runner.py)."""

from __future__ import annotations

from typing import cast

import pytest

from tests.support import arbitration_runner, offload_runner
from tests.support.heartbeat_runner import Slot, State, image

OWNER, BLOCK = "esx0", 3
LOST, STANDBY = "status 0 host 15 sense 00/00/00", "status 2 host 0 sense 02/04/0b"


class Paths:
    """A block, and what becomes of each command that is sent to it."""

    def __init__(self, script: list[str]) -> None:
        self.block, self.script = b"", script

    def read(self, offset: int, size: int) -> bytes:
        assert (offset, size) == (BLOCK * 512, 512)
        return self.block

    def write(self, offset: int, data: bytes) -> None:
        assert offset == BLOCK * 512
        self.block = data

    def command(self, cdb: bytes, data: bytes) -> str:
        what = self.script.pop(0) if self.script else "done"
        if what not in {"done", "done, not answered"}:
            return what
        if self.block != data[:512]:
            return "miscompare"
        self.block = data[512:]
        return "good" if what == "done" else LOST


def beats(script: list[str], count: int) -> tuple[State, Paths]:
    """Send heartbeats by two paths to one block."""
    disk, state = Paths(script), State(by_path=[0, 0])
    slot = Slot(OWNER, BLOCK, [cast(offload_runner.Disk, disk)] * 2)
    slot.write(image(OWNER, 0))
    for _ in range(count):
        slot.beat(state)
    return state, disk


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)


def test_each_is_acknowledged() -> None:
    state, disk = beats([], 3)
    assert (state.counter, state.acknowledged, state.unanswered) == (3, 3, 0)
    assert disk.block == image(OWNER, 3)


def test_a_standby_is_passed_over() -> None:
    state, _ = beats([STANDBY], 2)
    assert (state.counter, state.acknowledged, state.by_path) == (2, 2, [0, 2])


def test_what_was_lost_is_sent_again() -> None:
    state, _ = beats([LOST], 1)
    assert (state.acknowledged, state.unanswered, state.taken) == (1, 0, "")


def test_what_was_done_without_an_answer_counts() -> None:
    state, disk = beats(["done, not answered"], 1)
    assert (state.counter, state.acknowledged, state.unanswered) == (1, 0, 1)
    assert disk.block == image(OWNER, 1)


def test_a_slot_that_was_changed_is_given_up() -> None:
    state, disk = beats([], 1)
    disk.block = image("free", 0)
    slot = Slot(OWNER, BLOCK, [cast(offload_runner.Disk, disk)] * 2)
    slot.beat(state)
    assert state.taken == "free 000000000000"
    assert state.counter == 1 and disk.block == image("free", 0)


def test_an_acknowledged_one_that_is_lost_shows() -> None:
    """The block is what it was before the last heartbeat: never taken for one of its own."""
    state, disk = beats([], 2)
    disk.block = image(OWNER, 1)
    Slot(OWNER, BLOCK, [cast(offload_runner.Disk, disk)] * 2).beat(state)
    assert state.taken == image(OWNER, 1).rstrip(b"\0").decode()


_KEYS = "  PR generation=0x7, 2 registered reservation keys follow:\n    0xb1\n    0xa0\n\n\n"
_HELD = """  PR generation=0x7, Reservation follows:
    Key=0xa0
    scope: LU_SCOPE,  type: Write Exclusive, registrants only
"""
_FREE = "  PR generation=0x7, there is NO reservation held\n"


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        (
            ("", _KEYS, _HELD),
            {"keys": [0xA0, 0xB1], "holder": 0xA0, "type": "Write Exclusive, registrants only"},
        ),
        (("", _KEYS, _FREE), {"keys": [0xA0, 0xB1], "holder": None, "type": ""}),
        ((None, _KEYS, _HELD), None),
        (("", None, _HELD), None),
        (("", _KEYS, None), None),
    ],
)
def test_what_the_owner_reads(
    monkeypatch: pytest.MonkeyPatch,
    answers: tuple[str | None, ...],
    found: dict[str, object] | None,
) -> None:
    """A path that is not ready, or answers one of the two alone, has said nothing."""
    told = iter(answers)
    monkeypatch.setattr(arbitration_runner, "ask", lambda *_: next(told))
    assert arbitration_runner.read("/dev/sda") == found
