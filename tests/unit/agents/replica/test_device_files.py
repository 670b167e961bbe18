# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a replica that is being started."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import device_files
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
        device_files.prepare(FakeRunner(), VOL, str(tmp_path))
        assert held.read() == b"left" * 1024
    assert not new.read_bytes().strip(b"\0")
    assert over[-1] == new.stat().st_ino


def test_metadata_without_data_are_never_taken_for_a_good_replica(
    fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say UpToDate of what is gone; the file of zeros begins with new ones, Inconsistent."""
    meta = tmp_path / "devices" / f"vol.{'0' * 32}.meta"
    meta.parent.mkdir()
    meta.write_bytes(b"UpToDate")
    seen_at_first: list[bool] = []

    def attach(path: str, *, block_bytes: int = 0) -> str:
        if path.endswith(".data"):
            seen_at_first.append(meta.exists())
        return "/dev/loop1"

    monkeypatch.setattr(loop, "attach", attach)
    fake_node.states["vol"] = None
    monkeypatch.setattr(backing_device, "create", lambda *_, over: None)
    monkeypatch.setattr(ram_cache, "remove_parts", lambda *_: None)
    device_files.prepare(FakeRunner(), VOL, str(tmp_path))
    assert seen_at_first == [False] and not meta.exists()
    assert not (meta.parent / f"{meta.name}.new").read_bytes().strip(b"\0")
