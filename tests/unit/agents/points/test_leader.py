# SPDX-License-Identifier: GPL-2.0-or-later
"""When the point of a device is begun, and what is looked for before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.agents.points import leader, unit
from sanctl.agents.points.group_barrier import GroupBarrier
from sanctl.drivers import lio
from sanctl.errors import CommandError, Problem
from sanctl.model.device import DeviceSpec
from sanctl.model.restore_point import PointOrder
from sanctl.system import state_files
from tests.unit.agents.points.test_held_copies import DEVICE


def test_standbys_are_looked_for_after_the_hook_of_a_point_before_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That may take minutes, and a standby is lost meanwhile."""
    did: list[str] = []

    def standbys(_: DeviceSpec) -> tuple[str, ...]:
        did.append("standbys")
        raise CommandError(Problem("SAN-SNAP-005", "not served here"))

    quiet = SimpleNamespace(check=lambda: did.append("check"))
    monkeypatch.setattr(leader, "Quiet", lambda *_: quiet)
    monkeypatch.setattr(leader, "_standbys", standbys)
    order = cast("PointOrder", SimpleNamespace(hook=None))
    nothing = cast("Any", None)
    alone = GroupBarrier("web", PointOrder("one", "5" * 16, 1000))
    with pytest.raises(CommandError, match="not served here"):
        leader._make_point(nothing, DEVICE, order, nothing, alone, slot=None)
    assert did == ["check", "standbys"]


@pytest.mark.parametrize(("entries", "is_made"), [(frozenset({"iqn.x:host"}), False), ((), True)])
def test_what_a_restore_keeps_is_copied_once_hosts_are_kept_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, entries: object, *, is_made: bool
) -> None:
    """The pool agent may start this for a schedule: later a monitor does, and then it is tried."""
    monkeypatch.setattr(state_files, "RUNTIME", str(tmp_path))
    state_files.make_folder()
    order = PointOrder("before-restore-1", "5" * 16, 1000)
    device = replace(DEVICE, is_restoring=True)
    made: list[DeviceSpec] = []
    monkeypatch.setattr(leader, "Session", lambda *_: SimpleNamespace(observe=lambda: None))
    monkeypatch.setattr(leader, "due_order", lambda *_: (device, order))
    monkeypatch.setattr(leader, "_carry_out", lambda _session, each, *_: made.append(each))
    monkeypatch.setattr(leader, "_keep_schedule", lambda *_: pytest.fail("not of its schedule"))
    monkeypatch.setattr(lio, "access", lambda _: entries)
    leader._main("web")
    assert made == ([device] if is_made else [])
    assert unit.tried_note("web").read() == (order.token if is_made else "")
