# SPDX-License-Identifier: GPL-2.0-or-later
"""A standby waits for the copy as long as the active node may take, and tells why it refuses."""

from __future__ import annotations

from typing import Any, Self, cast

import pytest

from sanctl.agents.points import follower
from sanctl.drivers import drbd_kernel
from sanctl.drivers.node_channel import Channel
from sanctl.errors import CommandError, Problem
from sanctl.parse.drbd import ProcState
from sanctl.plan.device.hold import HOLD_S

IN_SYNC = ProcState("Connected", "Secondary", "Primary", "UpToDate", "UpToDate", False, 0)
WANTED = {"device": "web", "minor": 1, "pool": "main", "uuid": "a" * 32, "token": "1" * 16}


class Copy:
    """A copy that is made at once."""

    may_be_known = False
    within_s = 0.0

    def __init__(self, *_: object) -> None:
        self.is_kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self) -> int:
        return 3

    def take(self, *, within_s: float, unless_readable: int) -> float:
        assert unless_readable == Line.DESCRIPTOR
        Copy.within_s = within_s
        return 0.1

    def catch_up(self, *, within_s: float = 20.0) -> None:
        pass

    def make_stable(self) -> None:
        pass

    def keep(self) -> None:
        self.is_kept = True


class Line:
    """A channel whose other end says all at once; notes how long each word was waited for."""

    DESCRIPTOR = 77

    def __init__(self, left_s: float | None = None) -> None:
        self.waits: dict[str, float] = {}
        self.said: list[dict[str, Any]] = []
        self.more = {} if left_s is None else {"left_s": left_s}

    def fileno(self) -> int:
        return self.DESCRIPTOR

    def send(self, kind: str, **fields: Any) -> None:
        self.said.append({"kind": kind, **fields})

    def receive(self, kind: str, *, within_s: float) -> dict[str, Any]:
        self.waits[kind] = within_s
        return {"kind": kind, **(self.more if kind == "copy" else {})}

    def expect(self, kinds: tuple[str, ...], *, within_s: float) -> dict[str, Any]:
        return self.receive(kinds[0], within_s=within_s)


@pytest.fixture(autouse=True)
def drbd_8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbd_kernel, "generation", lambda: 8)


def serve(monkeypatch: pytest.MonkeyPatch, *, left_s: float | None = None, **more: Any) -> Line:
    line = Line(left_s)
    monkeypatch.setattr(follower, "LocalCopy", Copy)
    follower.serve(cast("Channel", line), {**WANTED, **more})
    return line


def test_it_waits_longer_for_what_a_hook_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _: IN_SYNC)
    line = serve(monkeypatch, hook_s=165.0)
    assert line.waits["settle"] == 295.0
    assert [each["kind"] for each in line.said] == ["ready", "settled", "copied", "flushed", "kept"]
    # One of a release before, and one that says what no hook takes.
    assert serve(monkeypatch).waits["settle"] == 130.0
    assert serve(monkeypatch, hook_s=10**9).waits["settle"] == 430.0


def test_it_says_why_it_refuses_and_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise CommandError(Problem("SAN-SNAP-002", "too many extents", "copy it"))

    monkeypatch.setattr(drbd_kernel, "proc_state", refuse)
    (said,) = serve(monkeypatch).said
    wanted = {"code": "SAN-SNAP-002", "text": "too many extents", "hint": "copy it"}
    assert said == {"kind": "refused", **wanted}
    (said,) = serve(monkeypatch, minor="x").said
    assert said["kind"] == "refused" and said["code"] == "SAN-SNAP-005"


@pytest.mark.parametrize(("left_s", "within_s"), [(None, HOLD_S), (0.3, 0.3), (10**9, HOLD_S)])
def test_it_copies_for_no_longer_than_the_active_node_holds(
    monkeypatch: pytest.MonkeyPatch, left_s: float | None, within_s: float
) -> None:
    """What broke: its copy went on after the hold, and hosts' writes waited for it."""
    monkeypatch.setattr(drbd_kernel, "proc_state", lambda _: IN_SYNC)
    serve(monkeypatch, left_s=left_s)
    assert Copy.within_s == within_s
