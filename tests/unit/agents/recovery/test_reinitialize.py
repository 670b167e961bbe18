# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica that gets new metadata releases its loop device before another device attaches it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from sanctl.agents import cluster_toml
from sanctl.agents.replica import device_files, lost_writes, reinitialize, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, loop
from tests.fakes.runner import FakeRunner
from tests.fakes.topology import topology

VOL = Device(
    name="vol", uuid="0" * 32, size_bytes=0, pool="main", nodes=("n1", "n2"), minor=7, initiators=()
)


def test_no_two_resource_files_name_one_loop_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen with three devices as a node came back: drbdadm refused, and two stayed down."""
    pool = replace(topology().pools[0], path=PurePosixPath(tmp_path))
    (tmp_path / "devices").mkdir()
    mine, others = tmp_path / "vol.res", tmp_path / "other.res"
    mine.write_text("    flexible-meta-disk /dev/loop5;\n")
    steps: list[str] = []

    def metadata_named() -> list[str]:
        texts = [path.read_text() for path in (mine, others) if path.exists()]
        return [name for text in texts for name in re.findall("meta-disk (.*);", text)]

    def detach(*_args: object) -> None:
        steps.append("detach")
        others.write_text("    flexible-meta-disk /dev/loop5;\n")

    def write(*_args: object) -> None:
        mine.write_text("    flexible-meta-disk /dev/loop2;\n")

    def step(name: str) -> None:
        named = metadata_named()
        assert len(named) == len(set(named)), (name, named)
        steps.append(name)

    monkeypatch.setattr(cluster_toml, "load_topology", lambda: replace(topology(), pools=(pool,)))
    monkeypatch.setattr(resource_file, "path_of", lambda name: str(tmp_path / f"{name}.res"))
    monkeypatch.setattr(drbdsetup, "down", lambda *_: step("down"))
    monkeypatch.setattr(loop, "detach", detach)
    monkeypatch.setattr(lost_writes, "clear_marker", lambda *_: step("clear"))
    monkeypatch.setattr(device_files, "prepare", lambda *_: step("prepare"))
    monkeypatch.setattr(resource_file, "write", write)
    monkeypatch.setattr(resource_file, "bring_up", lambda *_: step("up"))
    reinitialize.reset(FakeRunner(), VOL)
    assert steps == ["down", "detach", "clear", "prepare", "up"]
    assert metadata_named() == ["/dev/loop2", "/dev/loop5"]
