# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica that cannot grow serves what it has; one that has grown is served whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sanctl.agents.replica import device_files, gate_size
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbd_kernel, drbdadm, gate, pool_files, ram_cache
from sanctl.errors import CommandError, Problem
from tests.fakes.node import FakeNode
from tests.fakes.runner import FakeRunner

MIB = 1 << 20
VOL = Device("vol", "0" * 32, 64 * MIB, "main", ("n1", "n2"), 7, ())
NO_ROOM = CommandError(Problem("SAN-DM-001", "no"))


@pytest.fixture
def files(
    fake_node: FakeNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> pool_files.DeviceFiles:
    """The files of a replica of 1 MiB that is not started, and is to have 64 MiB."""
    (tmp_path / "devices").mkdir()
    made = pool_files.files_of(str(tmp_path), VOL.name, VOL.uuid)
    Path(made.data).write_bytes(b"data" * (MIB // 4))
    Path(made.metadata).write_bytes(b"meta" * (MIB // 4))
    fake_node.states[VOL.name] = None
    monkeypatch.setattr(drbdadm, "recorded_size_bytes", lambda *_, **__: MIB)
    monkeypatch.setattr(drbd_kernel, "has_device", lambda _minor: False)
    monkeypatch.setattr(backing_device, "create", lambda *_, over: None)
    monkeypatch.setattr(ram_cache, "remove_parts", lambda *_: None)
    return made


def refuse(monkeypatch: pytest.MonkeyPatch, number: int = errno.EFBIG, *, above: int = 0) -> None:
    made = os.ftruncate

    def grow(handle: int, size: int) -> None:
        if size > above:
            raise OSError(number, os.strerror(number))
        made(handle, size)

    monkeypatch.setattr(os, "ftruncate", grow)


@pytest.mark.parametrize("number", [errno.EFBIG, errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_files_that_cannot_grow_are_started_as_they_are(
    files: pool_files.DeviceFiles,
    fake_node: FakeNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    """ext4 has no file above 16 TiB: after a resize beyond it no start succeeded any more."""
    refuse(monkeypatch, number)
    assert device_files.prepare(FakeRunner(), VOL, str(tmp_path)) == files
    assert Path(files.data).stat().st_size == MIB
    assert set(fake_node.loops) == {*files}
    assert sum("cannot grow to 67108864 bytes" in line for line in fake_node.journal) == 2


def test_a_file_that_has_lost_its_end_is_refused_all_the_same(
    files: pool_files.DeviceFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch)
    monkeypatch.setattr(drbdadm, "recorded_size_bytes", lambda *_, **__: 2 * MIB)
    with pytest.raises(CommandError, match="SAN-AGENT-009"):
        device_files.prepare(FakeRunner(), VOL, str(tmp_path))
    assert Path(files.data).stat().st_size == MIB


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_replica_that_is_made_has_its_size_or_is_none(
    files: pool_files.DeviceFiles,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_empty: bool,
) -> None:
    for path in files:
        Path(path).unlink()
    if is_empty:
        Path(files.data).touch()
    # Its metadata would have room.
    refuse(monkeypatch, above=32 * MIB)
    for _ in range(2):
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            device_files.prepare(FakeRunner(), VOL, str(tmp_path))


def test_a_pool_that_takes_no_writes_is_refused_all_the_same(
    files: pool_files.DeviceFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def open_it(path: str, flags: int, *args: int) -> int:
        if path == files.data and flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opened(path, flags, *args)

    monkeypatch.setattr(os, "open", open_it)
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        device_files.prepare(FakeRunner(), VOL, str(tmp_path))


class Gate:
    """A closed gate of 1 MiB; `grow_standby` grows it as far as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, drbd_bytes: int) -> None:
        self.size_bytes = MIB
        self.grows: Callable[[int], None] = lambda size: setattr(self, "size_bytes", size)
        for module, name, value in (
            (drbd_kernel, "size_bytes", lambda _minor: drbd_bytes),
            (gate, "size_bytes", lambda _name: self.size_bytes),
            (gate, "gate_table", lambda _name: "error"),
            (gate, "grow_standby", lambda _name, *, shape, size_bytes: self.grows(size_bytes)),
        ):
            monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("fake_node")
def test_a_gate_is_as_large_as_drbd_before_it_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Gate(monkeypatch, 2 * MIB).size_bytes == MIB
    assert gate_size.grow_closed_gate(VOL, MIB) == 2 * MIB


@pytest.mark.parametrize("drbd_bytes", [0, MIB])
@pytest.mark.usefixtures("fake_node")
def test_in_the_usual_case_nothing_is_grown(
    monkeypatch: pytest.MonkeyPatch, drbd_bytes: int
) -> None:
    Gate(monkeypatch, drbd_bytes).grows = lambda _: pytest.fail("grown")
    assert gate_size.grow_closed_gate(VOL, MIB) == MIB


@pytest.mark.parametrize("error", [NO_ROOM, OSError(errno.ENOSPC, "no room")])
@pytest.mark.parametrize("has_grown", [True, False])
def test_a_gate_that_cannot_grow_is_opened_in_the_size_it_has(
    fake_node: FakeNode, monkeypatch: pytest.MonkeyPatch, error: Exception, *, has_grown: bool
) -> None:
    """Half way, the upper device may have grown: what is below has to be as large."""
    found = Gate(monkeypatch, 2 * MIB)

    def fail(size_bytes: int) -> None:
        if has_grown:
            found.size_bytes = size_bytes
        raise error

    found.grows = fail
    assert gate_size.grow_closed_gate(VOL, MIB) == (2 * MIB if has_grown else MIB)
    assert any("cannot grow" in line for line in fake_node.journal)
