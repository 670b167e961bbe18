# SPDX-License-Identifier: GPL-2.0-or-later
"""A promotion serves the size that DRBD has, also before a monitor has grown the standby's LUN."""

from __future__ import annotations

import pytest

from sanctl.agents import device, ocf
from sanctl.agents.fencing import outdate
from sanctl.agents.replica import gate_size
from sanctl.drivers import drbd_kernel, gate
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode
from tests.unit.agents.test_no_room import Node

OLD, NEW = 1 << 20, 1 << 21


@pytest.mark.parametrize("grows", [True, False])
def test_the_gate_grows_before_it_is_opened_and_hosts_are_let_in(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, *, grows: bool
) -> None:
    fake_node.ask_for_monitor(monkeypatch)
    node = Node(fake_node, monkeypatch)
    (fake_node.folder / "drbd.d").mkdir()
    (fake_node.folder / "drbd.d" / "vol1.res").write_text("    flexible-meta-disk /dev/loop1;\n")
    outdate.make_lock("vol1")
    done: list[str] = []
    sizes = [OLD]

    def grow(_device: object, size_bytes: int) -> bool:
        assert node.alua == "Standby" and node.gate == "error"
        assert size_bytes == NEW
        done.append("grown")
        if not grows:
            raise CommandError(Problem("SAN-DM-001", "no answer"))
        sizes.append(NEW)
        return True

    def open_gate(_name: str, *, below: str, size_bytes: int) -> None:
        assert fake_node.states["vol1"] is not None and fake_node.states["vol1"].is_primary
        done.append(f"{below} opened, {size_bytes}")
        node.gate = "drbd3"

    monkeypatch.setattr(drbd_kernel, "size_bytes", lambda _minor: NEW)
    monkeypatch.setattr(gate_size, "finish_growth", grow)
    monkeypatch.setattr(gate, "size_bytes", lambda _name: sizes[-1])
    monkeypatch.setattr(gate, "open_gate", open_gate)
    assert device.promote() == ocf.SUCCESS
    assert done == ["grown", f"/dev/drbd3 opened, {NEW if grows else OLD}"]
    assert node.alua == "Active/Optimized"
