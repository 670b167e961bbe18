# SPDX-License-Identifier: GPL-2.0-or-later
"""What has changed between two copies at a site, brought to a device that is the earlier one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sanctl.drivers.range_copy import PIECE_BYTES
from sanctl.drivers.site_chunks import SUFFIX
from sanctl.drivers.site_delta import NotTheBase, SiteDelta, are_of
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import CHUNK_BYTES
from sanctl.errors import CommandError
from sanctl.model.site_copy import SiteCopy
from tests.fakes.local_site import local_link
from tests.unit.drivers import test_site_receiver
from tests.unit.drivers.test_site_receiver import DEVICE, ONE, TWO, digest, make, opened

SIZE = 20 * CHUNK_BYTES + 8192
CHANGED_AT = (0, 5 * CHUNK_BYTES - 4096, 16 * CHUNK_BYTES, SIZE - 4096)
folder = test_site_receiver.folder


@pytest.fixture(autouse=True)
def _files_without_direct_io(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_DIRECT", 0)


def copy_of(content: bytes, token: str) -> SiteCopy:
    device, _, uuid = DEVICE.partition(".")
    return SiteCopy("far", device, uuid, "to-far", token, digest(content))


@pytest.fixture
def contents(folder: Path) -> tuple[bytes, bytes]:
    """Make two copies at the site; return their contents."""
    before = os.urandom(15 * CHUNK_BYTES) + bytes(SIZE - 15 * CHUNK_BYTES)
    changed = bytearray(before)
    for at in CHANGED_AT:
        changed[at : at + 8192] = os.urandom(8192)[: SIZE - at]
    make(folder, ONE, before)
    make(folder, TWO, bytes(changed), base=ONE)
    return before, bytes(changed)


def delta(link: SiteLink, folder: Path, device: Path, contents: tuple[bytes, bytes]) -> SiteDelta:
    opened(link, folder)
    lists = link.changes(ONE, TWO, SIZE)
    assert lists is not None
    copies = copy_of(contents[0], ONE), copy_of(contents[1], TWO)
    assert are_of(copies, lists, SIZE)
    assert not are_of((copies[1], copies[0]), lists, SIZE)
    return SiteDelta(link, copies[1], str(device), SIZE, lists)


def bring(changes: SiteDelta) -> None:
    while changes.step():
        pass
    changes.flush()


def test_only_what_has_changed_is_read_and_written(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    device = tmp_path / "device"
    # What is not looked at stays, also behind the copy.
    unread = os.urandom(CHUNK_BYTES)
    at = 9 * CHUNK_BYTES
    before = contents[0][:at] + unread + contents[0][at + CHUNK_BYTES :] + b"behind it"
    device.write_bytes(before)
    with local_link() as link, delta(link, folder, device, contents) as changes:
        # Two of the changes are at the end of a chunk, and in the one behind it.
        assert changes.size_bytes == 5 * CHUNK_BYTES + 8192 - CHUNK_BYTES
        bring(changes)
        changes.check()
        assert changes.done_bytes == changes.size_bytes
        assert 0 < changes.written_bytes <= 6 * PIECE_BYTES
        assert link.received_bytes <= 21 * 32 + 6 * 40 + 6 * 8192 + 4096
    wanted = contents[1][:at] + unread + contents[1][at + CHUNK_BYTES :] + b"behind it"
    assert device.read_bytes() == wanted


def test_what_was_begun_is_gone_on_with(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    """Where the CIB has lost the begin with the power of all nodes, chunks of both are there."""
    device = tmp_path / "device"
    device.write_bytes(contents[1][:CHUNK_BYTES] + contents[0][CHUNK_BYTES:])
    with local_link() as link, delta(link, folder, device, contents) as changes:
        bring(changes)
        changes.check()
    assert device.read_bytes() == contents[1]


def test_a_device_that_is_not_the_earlier_copy(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    device = tmp_path / "device"
    device.write_bytes(contents[0][:-1] + b"x")
    with (
        local_link() as link,
        delta(link, folder, device, contents) as changes,
        pytest.raises(NotTheBase, match="byte 20971520"),
    ):
        bring(changes)


def test_what_is_read_back_has_to_be_the_copy(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    device = tmp_path / "device"
    device.write_bytes(contents[0])
    with local_link() as link, delta(link, folder, device, contents) as changes:
        bring(changes)
        device.write_bytes(contents[0])
        with pytest.raises(CommandError, match="read back for byte 0"):
            changes.check()


def test_what_comes_has_to_be_the_copy(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "device"
    device.write_bytes(contents[0])
    monkeypatch.setattr(SiteLink, "take", lambda *_: None)
    with (
        local_link() as link,
        delta(link, folder, device, contents) as changes,
        pytest.raises(CommandError, match="what came for byte 0"),
    ):
        bring(changes)
    assert device.read_bytes() == contents[0], "nothing of it is written"


def test_a_device_that_ends_early(
    folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]
) -> None:
    device = tmp_path / "device"
    device.write_bytes(contents[0][:CHUNK_BYTES])
    with (
        local_link() as link,
        delta(link, folder, device, contents) as changes,
        pytest.raises(OSError, match="ends at byte"),
    ):
        bring(changes)


def test_the_same_content(folder: Path, tmp_path: Path, contents: tuple[bytes, bytes]) -> None:
    device = tmp_path / "device"
    device.write_bytes(contents[0])
    with local_link() as link:
        opened(link, folder)
        lists = link.changes(ONE, ONE, SIZE)
        assert lists is not None
        copy = copy_of(contents[0], ONE)
        with SiteDelta(link, copy, str(device), SIZE, lists) as changes:
            assert not changes.step()
            changes.check()
            assert changes.size_bytes == 0


@pytest.mark.parametrize("case", ["no list", "wrong list", "rotten", "gone", "another size"])
def test_a_site_that_does_not_know_what_has_changed(
    folder: Path, contents: tuple[bytes, bytes], case: str
) -> None:
    lists = {token: folder / DEVICE / f"to-far.{token}{SUFFIX}" for token in (ONE, TWO)}
    file = folder / DEVICE / f"to-far.{TWO}"
    size = SIZE
    if case == "no list":
        lists[ONE].unlink()
    elif case == "wrong list":
        lists[TWO].write_bytes(lists[ONE].read_bytes())
    elif case == "rotten":
        file.chmod(0o600)
        file.write_bytes(b"x" + contents[1][1:])
    elif case == "gone":
        (folder / DEVICE / f"to-far.{ONE}").unlink()
    else:
        size += 4096
    with local_link() as link:
        opened(link, folder)
        assert link.changes(ONE, TWO, size) is None
