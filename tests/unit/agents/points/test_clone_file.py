# SPDX-License-Identifier: GPL-2.0-or-later
"""The data file of a clone: made while the device is new, whole or not at all, and never again."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from sanctl.agents.points import clone_file, room, room_claims
from sanctl.agents.promotion import first_activation
from sanctl.agents.replica.parts import Device
from sanctl.drivers import loop, point_files, pool_files, reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.clone_origin import CloneOrigin
from sanctl.plan.device.point_room import ClaimedFile, DataFile
from sanctl.system import state_files
from tests.fakes.runner import FakeRunner

HERE = os.uname().nodename
ORIGIN = CloneOrigin("web", "one", "1" * 16, "a" * 32, 4, (HERE, "n9"))
CLONE = Device(
    name="copy", uuid="c" * 32, size_bytes=4, pool="main", nodes=(HERE, "n9"), minor=7,
    initiators=(), origin=str(ORIGIN),
)  # fmt: skip


class Pool:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.point = Path(point_files.final_path(str(path), "web", "a" * 32, "1" * 16))
        files = pool_files.files_of(str(path), "copy", "c" * 32)
        self.data, self.metadata = Path(files.data), Path(files.metadata)
        self.is_new = True
        self.error: Exception | None = None
        self.checked: list[DataFile] = []
        self.has_died = False

    def make(self, device: Device = CLONE) -> None:
        clone_file.make(FakeRunner(), device, str(self.path))

    def names(self) -> list[str]:
        return sorted(
            file.name.removeprefix(f"copy.{'c' * 32}.") for file in self.data.parent.iterdir()
        )


@pytest.fixture
def pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool(tmp_path)
    made.point.parent.mkdir()
    made.point.write_bytes(b"held")
    made.data.parent.mkdir()

    def clone(origin: int, copy: int) -> None:
        os.write(copy, os.pread(origin, 2, 0))
        if made.error:
            raise made.error
        os.write(copy, os.pread(origin, 99, 2))

    def is_new(*_: object) -> bool:
        if made.has_died:
            raise CommandError(Problem("SAN-CMD-002", "the cluster does not answer"))
        return made.is_new

    monkeypatch.setattr(reflink, "clone", clone)
    monkeypatch.setattr(loop, "detach", lambda _path: None)
    monkeypatch.setattr(first_activation, "is_new", is_new)
    monkeypatch.setattr(
        room, "check", lambda _name, _path, wanted, **_: made.checked.append(wanted)
    )
    return made


def test_it_is_the_restore_point(pool: Pool) -> None:
    pool.make()
    assert pool.data.read_bytes() == b"held"
    assert pool.names() == ["data", "origin"]
    assert pool.checked == [DataFile(4, 0, 0)]


def test_what_the_file_has_behind_the_end_of_the_point_is_no_part_of_it(pool: Pool) -> None:
    """The origin was growing at that moment: its file had another size, on one node perhaps."""
    pool.point.write_bytes(b"held, and more")
    pool.make()
    assert pool.data.read_bytes() == b"held"


def test_a_point_that_has_lost_its_end_is_not_filled_with_zeros(pool: Pool) -> None:
    with pytest.raises(CommandError, match=r"SAN-CLONE-006: .*ends at byte 4, .* has 20"):
        pool.make(CLONE._replace(origin=str(ORIGIN._replace(size_bytes=20))))
    assert pool.names() == []


def test_a_point_that_has_no_name_yet(pool: Pool) -> None:
    pool.point.rename(point_files.unnamed_path(str(pool.point)))
    pool.make()
    assert pool.data.read_bytes() == b"held"


def test_metadata_without_data_go_first(pool: Pool) -> None:
    pool.metadata.write_bytes(b"UpToDate")
    pool.make()
    assert pool.names() == ["data", "origin"]


def test_what_a_killed_start_left_is_made_anew(pool: Pool) -> None:
    Path(f"{pool.data}.cloning").write_bytes(b"ha")
    pool.make()
    assert pool.data.read_bytes() == b"held"
    assert pool.names() == ["data", "origin"]


def test_data_that_are_there_are_not_touched(pool: Pool) -> None:
    pool.data.write_bytes(b"of hosts")
    pool.make()
    assert pool.data.read_bytes() == b"of hosts"


def test_a_device_that_was_active_is_not_made_again(pool: Pool) -> None:
    pool.is_new = False
    pool.make()
    assert pool.names() == []


def test_without_an_answer_of_the_cluster_nothing_is_made(pool: Pool) -> None:
    pool.has_died = True
    with pytest.raises(CommandError, match="SAN-CMD-002"):
        pool.make()
    assert pool.names() == []


def test_a_node_without_the_point_makes_nothing(pool: Pool) -> None:
    pool.make(CLONE._replace(origin=str(ORIGIN._replace(nodes=("n8", "n9")))))
    assert pool.names() == []


def test_an_origin_that_cannot_be_read(pool: Pool) -> None:
    with pytest.raises(CommandError, match="SAN-CLONE-007"):
        pool.make(CLONE._replace(origin="of a newer release"))
    assert pool.names() == []


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EOPNOTSUPP, errno.EIO])
def test_a_copy_that_fails_leaves_nothing(pool: Pool, number: int) -> None:
    pool.error = OSError(number, os.strerror(number))
    with pytest.raises(CommandError, match="SAN-CLONE-006"):
        pool.make()
    assert pool.names() == []


def test_a_point_that_is_gone(pool: Pool) -> None:
    pool.point.unlink()
    with pytest.raises(CommandError, match="SAN-CLONE-006: restore point web@one"):
        pool.make()
    assert pool.names() == []


def test_others_count_it_until_it_has_its_name(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[object] = []

    def rename(old: str, new: str) -> None:
        during.append(room_claims.present("main"))
        os.rename(old, new)

    monkeypatch.setattr(pool_files, "rename", rename)
    pool.make(CLONE._replace(size_bytes=6))
    assert during == [(ClaimedFile(pool.data.name, 6),)]
    assert room_claims.present("main") == ()
    pool.data.unlink()
    pool.error = OSError(errno.EIO, "no disk")
    with pytest.raises(CommandError):
        pool.make()
    assert room_claims.present("main") == ()


def test_a_pool_without_room(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = state_files.RUNTIME
    monkeypatch.undo()
    monkeypatch.setattr(state_files, "RUNTIME", runtime)
    monkeypatch.setattr(first_activation, "is_new", lambda *_: True)
    monkeypatch.setattr(
        reflink, "blocks_of", lambda _path: reflink.FileBlocks(own=0, shared=0, reserved=0)
    )
    huge = CLONE._replace(size_bytes=1 << 60)
    with pytest.raises(CommandError, match="SAN-SNAP-003"):
        pool.make(huge)
    assert pool.names() == []


def test_room_counts_what_other_devices_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    devices = tmp_path / "devices"
    devices.mkdir()
    for name in ("a.data", "b.data", "b.meta", "gone.data"):
        (devices / name).write_bytes(b"x" * 10)

    def blocks_of(path: str) -> reflink.FileBlocks:
        asked.append(os.path.basename(path))
        if path.endswith("gone.data"):
            raise FileNotFoundError
        return reflink.FileBlocks(own=4, shared=6, reserved=0)

    monkeypatch.setattr(reflink, "blocks_of", blocks_of)
    room.check("main", str(tmp_path), DataFile(1, 0, 0), without=(f"{devices}/a.data",))
    assert sorted(asked) == ["b.data", "gone.data"]
    assert room.of_file(f"{devices}/a.data") == DataFile(10, 4, 0)


def test_a_deletion_takes_everything_along(pool: Pool) -> None:
    pool.make()
    Path(f"{pool.data}.cloning").write_bytes(b"ha")
    pool_files.delete(pool_files.files_of(str(pool.path), "copy", "c" * 32))
    assert pool.names() == []
    assert pool.point.exists()
