# SPDX-License-Identifier: GPL-2.0-or-later
"""How an agent waits for a change of DRBD's state, by /proc/drbd."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.drivers import drbd_kernel

WAITS, CONNECTED = (
    f" 3: cs:{each} ro:Secondary/Unknown ds:Inconsistent/DUnknown C r-----\n"
    for each in ("WFConnection", "Connected")
)


def waited_s(
    monkeypatch: pytest.MonkeyPatch, proc: Callable[[float], str], before: str, deadline_s: float
) -> float:
    """Return how long the wait takes; `proc` is /proc/drbd by the time that has passed."""
    passed = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(time, "sleep", lambda s: passed.__setitem__(0, passed[0] + s))
    monkeypatch.setattr(drbd_kernel, "read_text_or", lambda *_: proc(passed[0]))
    drbd_kernel.wait_for_change(3, before, deadline_s)
    return passed[0]


def test_a_change_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    before = WAITS.strip().removeprefix("3: ").removesuffix(" C r-----")

    def proc(passed_s: float) -> str:
        return CONNECTED if passed_s > 0.5 else WAITS

    assert waited_s(monkeypatch, proc, before, 8.0) == pytest.approx(0.55, abs=0.06)
    assert waited_s(monkeypatch, lambda _: WAITS, before, 0.3) == pytest.approx(0.3, abs=0.06)
    assert waited_s(monkeypatch, lambda _: WAITS, before, 8.0) < 2.1, "it looks anyway"
    assert waited_s(monkeypatch, lambda _: CONNECTED, before, 8.0) == 0.0, "missed"


def test_a_wait_for_a_state_line_looks_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, looks = [0.0], [0]

    def proc(*_: object) -> str:
        looks[0] += 1
        return WAITS if passed[0] < 6.0 else CONNECTED

    monkeypatch.setattr(time, "monotonic", lambda: passed[0])
    monkeypatch.setattr(time, "sleep", lambda s: passed.__setitem__(0, passed[0] + s))
    monkeypatch.setattr(drbd_kernel, "read_text_or", proc)
    drbd_kernel.wait_while(3, lambda line: line.startswith("cs:WFConnection"), 8.0)
    assert 6.0 <= passed[0] <= 6.25 and looks[0] < 45
    drbd_kernel.wait_while(3, lambda line: line.startswith("cs:Connected"), 8.0)
    assert passed[0] == pytest.approx(8.0), "to the deadline, and not past it"
    drbd_kernel.wait_while(4, lambda _: True, 99.0)
    assert passed[0] == pytest.approx(8.0), "DRBD 9 has no such line, nor has a minor that is gone"


def test_without_such_a_file_the_wait_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < waited_s(monkeypatch, lambda _: "", "", 8.0) <= 0.25


def test_the_minors_of_all_devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("drbd0", "drbd17", "drbdx", "loop3", "dm-drbd4", "drbd"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr(drbd_kernel, "_BLOCK", str(tmp_path))
    assert drbd_kernel.minors() == {0, 17}
    monkeypatch.setattr(drbd_kernel, "_BLOCK", f"{tmp_path}/gone")
    with pytest.raises(OSError, match="gone"):
        drbd_kernel.minors()
