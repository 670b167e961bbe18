# SPDX-License-Identifier: GPL-2.0-or-later
"""A copy that a site gives back: of what differs alone, and none that is not what was proven."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sanctl.drivers.range_copy import RangeCopy
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import CHUNK_BYTES, HEADER, PART, WANTED
from sanctl.drivers.site_source import SiteSource, digest_of_device
from sanctl.errors import CommandError
from sanctl.model.site_copy import SiteCopy
from tests.fakes.local_site import local_link
from tests.unit.drivers import test_site_receiver
from tests.unit.drivers.test_site_receiver import DEVICE, MARK, ONE, digest, make, names, opened

SIZE = 20 * CHUNK_BYTES + 8192
folder = test_site_receiver.folder


@pytest.fixture(autouse=True)
def _files_without_direct_io(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "O_DIRECT", 0)


def source(content: bytes) -> SiteCopy:
    device, _, uuid = DEVICE.partition(".")
    return SiteCopy("far", device, uuid, "to-far", ONE, digest(content))


def filled(folder: Path, device: Path, copy: SiteCopy, *, more: bytes = b"") -> int:
    """Make a device what the copy is; return how many bytes came for it."""
    with local_link(more=more) as link:
        (proven,) = opened(link, folder)
        chunks = link.read(ONE, proven.size_bytes)
        before = link.received_bytes
        image = SiteSource(link, copy, str(device), proven.size_bytes, chunks)
        with RangeCopy(image, str(device)) as fill:
            while fill.step():
                pass
            fill.flush()
        return link.received_bytes - before


def test_only_what_differs_comes(folder: Path, tmp_path: Path) -> None:
    content = os.urandom(15 * CHUNK_BYTES) + bytes(SIZE - 15 * CHUNK_BYTES)
    make(folder, ONE, content)
    device = tmp_path / "device"
    device.write_bytes(content)
    assert filled(folder, device, source(content)) == 0
    changed = bytearray(content)
    for at in (0, 5 * CHUNK_BYTES - 4096, 16 * CHUNK_BYTES, SIZE - 4096):
        changed[at : at + 8192] = os.urandom(8192)[: SIZE - at]
    device.write_bytes(changed)
    came = filled(folder, device, source(content))
    assert device.read_bytes() == content
    # The last ones are zeros at the site.
    assert 12288 <= came <= 1.05 * 3 * 8192
    assert digest_of_device(str(device), SIZE) == digest(content)


def test_a_new_device_gets_all_that_is_written(folder: Path, tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK_BYTES) + bytes(SIZE - 2 * CHUNK_BYTES)
    make(folder, ONE, content)
    device = tmp_path / "device"
    # Larger than the copy: what is behind its end becomes zeros.
    device.write_bytes(bytes(SIZE) + b"old " * 1024)
    came = filled(folder, device, source(content))
    assert device.read_bytes() == content + bytes(4096)
    assert 2 * CHUNK_BYTES <= came <= 1.01 * 2 * CHUNK_BYTES
    device.write_bytes(bytes(4096))
    with pytest.raises(OSError, match="smaller"):
        filled(folder, device, source(content))


def test_a_copy_that_is_not_what_was_proven(folder: Path, tmp_path: Path) -> None:
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    device, file = tmp_path / "device", folder / DEVICE / f"to-far.{ONE}"
    device.write_bytes(bytes(SIZE))
    file.chmod(0o600)
    with file.open("r+b") as handle:
        handle.seek(3 * CHUNK_BYTES)
        handle.write(b"x")
    with pytest.raises(CommandError, match=r"SAN-SITE-017.*another digest"):
        filled(folder, device, source(content))
    assert device.read_bytes() == bytes(SIZE), "nothing was written"
    with file.open("r+b") as handle:
        handle.truncate(SIZE - 4096)
    with pytest.raises(CommandError, match=r"SAN-SITE-017.*were noted"):
        filled(folder, device, source(content))
    assert device.read_bytes() == bytes(SIZE)


def test_data_that_comes_wrong_is_not_written(folder: Path, tmp_path: Path) -> None:
    """As if the site's disk gave other data the second time."""
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    device = tmp_path / "device"
    device.write_bytes(bytes(SIZE))
    wrong = b"r = sys.modules['sanctl.drivers.site_reader']\n_real = r.read_all\n"
    wrong += b"def other(*w):\n"
    wrong += b"    data = _real(*w)\n    return data if w[1] < 2**22 else b'x' + data[1:]\n"
    wrong += b"r.read_all = other\n"
    with pytest.raises(CommandError, match=r"SAN-SITE-017.*for byte 4194304"):
        filled(folder, device, source(content), more=wrong)
    found = device.read_bytes()
    assert found[: 4 << 20] == content[: 4 << 20] and not any(found[4 << 20 :])


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param((b"D", PART.pack(2 * CHUNK_BYTES, False) + b"x"), id="another chunk"),
        pytest.param((b"D", PART.pack(CHUNK_BYTES - 1, False) + b"xx"), id="behind its end"),
        pytest.param((b"D", PART.pack(0, True) + b"xx"), id="not compressed"),
        pytest.param((b"D", b"x"), id="too short"),
        pytest.param((b"E", WANTED.pack(5)), id="the end of another"),
        pytest.param((b"J", b"{}"), id="an answer"),
    ],
)
def test_what_was_not_asked(frame: tuple[bytes, bytes]) -> None:
    text = "".join(f"\\{byte:03o}" for byte in HEADER.pack(frame[0], len(frame[1])) + frame[1])
    with (
        SiteLink(["sh", "-c", f"printf '{text}'; cat >/dev/null", "x"], "far", b"") as link,
        pytest.raises(CommandError, match="SAN-SITE-008"),
    ):
        link.take(0, bytearray(CHUNK_BYTES))


def test_what_a_site_does_not_give(folder: Path) -> None:
    make(folder, ONE, os.urandom(CHUNK_BYTES))
    for token, number, blocks, code in (
        ("9" * 16, 0, b"", "SAN-SITE-018"),
        (ONE, 1, b"", "SAN-SITE-008.*no chunk 1"),
        (ONE, 0, b"x" * 16, "SAN-SITE-008.*16 bytes of digests"),
    ):
        with local_link() as link:
            opened(link, folder)
            with pytest.raises(CommandError, match=code):
                link.read(token, CHUNK_BYTES)
                link.want(number, blocks)
                link.take(number, bytearray(CHUNK_BYTES))
    with local_link() as link:
        opened(link, folder)
        link.want(0, b"")
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            link.take(0, bytearray(CHUNK_BYTES))


def test_a_copy_that_is_read_is_not_removed(folder: Path) -> None:
    make(folder, ONE, os.urandom(CHUNK_BYTES))
    with local_link() as reader, local_link() as other:
        opened(reader, folder)
        reader.read(ONE, CHUNK_BYTES)
        opened(other, folder)
        assert other.remove([ONE]) == ()
        assert f"to-far.{ONE}" in names(folder)
    with local_link() as other:
        opened(other, folder)
        assert other.remove([ONE]) == ("to-far",)


def test_the_copies_of_all_devices(folder: Path) -> None:
    make(folder, ONE, os.urandom(4096))
    (folder / "notes").mkdir()
    (folder / f"db.{'c' * 32}").mkdir()
    with local_link() as link:
        found = link.folders(str(folder), MARK)
    assert {each: len(copies) for each, copies in found.items()} == {
        DEVICE: 1,
        f"db.{'c' * 32}": 0,
    }
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-006"):
        link.folders(str(folder), "0" * 32)
