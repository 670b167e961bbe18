# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a replica that is being started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, loop, ram_cache
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

VOL = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=7, initiators=()
)


def test_metadata_are_not_made_in_a_left_over_file(
    fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop device that is still held open is over the left-over file, and goes later."""
    new = tmp_path / "devices" / f"vol.{'0' * 32}.meta.new"
    new.parent.mkdir()
    new.write_bytes(b"left" * 1024)
    held = new.open("rb")
    over: list[int] = []

    def attach(path: str, *, block_bytes: int = 0) -> str:
        over.append(Path(path).stat().st_ino)
        return "/dev/loop1"

    monkeypatch.setattr(loop, "attach", attach)
    fake_node.states["vol"] = None
    monkeypatch.setattr(backing_device, "create", lambda *_, over: None)
    monkeypatch.setattr(ram_cache, "remove_parts", lambda *_: None)
    with held:
        parts.prepare_files(FakeRunner(), VOL, str(tmp_path))
        assert held.read() == b"left" * 1024
    assert not new.read_bytes().strip(b"\0")
    assert over[-1] == new.stat().st_ino
