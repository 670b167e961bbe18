# SPDX-License-Identifier: GPL-2.0-or-later
"""The one line of a resource file that says that a disk is not flushed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sanctl.agents.replica import resource_file
from sanctl.drivers import drbdadm
from sanctl.model.sync_policy import DEFAULT_SYNC_POLICY
from sanctl.render.drbd import BackingDevices, ReplicaAddress, render_resource


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file as it is rendered, in its place."""
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    rendered = render_resource(
        name="vol1",
        minor=1,
        size_bytes=1 << 30,
        secret="0" * 32,
        replicas=(ReplicaAddress("n1", 1, "192.0.2.1"), ReplicaAddress("n2", 2, "192.0.2.2")),
        backing=BackingDevices("/dev/mapper/sanctl-vol1.disk", "/dev/loop1"),
        handlers="/usr/lib/sanctl",
        generation=8,
        sync=DEFAULT_SYNC_POLICY,
        link_bytes_s=None,
    )
    path = Path(resource_file.path_of("vol1"))
    path.parent.mkdir()
    path.write_text(rendered)
    return rendered


def test_it_comes_and_goes_and_nothing_else_changes(text: str) -> None:
    path = Path(resource_file.path_of("vol1"))
    assert resource_file.flushes("vol1")
    for _ in range(2):
        assert resource_file.set_flushes("vol1", on=False)
        assert not resource_file.flushes("vol1")
    without = path.read_text().splitlines()
    assert [line for line in without if line not in text.splitlines()] == ["    disk-flushes no;"]
    # In the section of the disk, as DRBD wants it.
    assert without[without.index("    disk-flushes no;") - 1] == "  disk {"
    assert resource_file.set_flushes("vol1", on=True)
    assert path.read_text() == text


def test_what_is_not_there_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drbdadm, "RESOURCE_FILES", str(tmp_path / "drbd.d"))
    assert not resource_file.set_flushes("vol1", on=False)
    assert resource_file.flushes("vol1")
