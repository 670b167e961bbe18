# SPDX-License-Identifier: GPL-2.0-or-later
"""The copy that a second site makes: what is written, flushed in time, and proven equal.

The real receiver in a process of its own, with files on this machine.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from sanctl.drivers import site_protocol
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    RANGE,
    digest_of,
)
from sanctl.errors import CommandError
from tests.fakes.local_site import local_link
from tests.unit.drivers.test_site_receiver import (
    DEVICE,
    ONE,
    TWO,
    beside,
    digest,
    folder,
    names,
    opened,
    proven,
)

__all__ = ["folder"]


def test_what_is_compressed_and_what_is_zero(folder: Path) -> None:
    content = b"text " * (CHUNK_BYTES // 5) + bytes(CHUNK_BYTES - 7)
    with local_link() as link:
        opened(link, folder)
        link.begin(ONE, "", len(content), 0)
        before = link.sent_bytes
        link.put(0, content[:CHUNK_BYTES])
        link.put(CHUNK_BYTES, content[CHUNK_BYTES:])
        assert link.sent_bytes - before < CHUNK_BYTES // 50
        link.ask_chunks()
        assert digest_of(link.chunks(), len(content)) == digest(content)


@pytest.mark.parametrize("case", ["differs", "never read", "written since"])
def test_what_is_not_equal_is_no_copy(folder: Path, case: str) -> None:
    content = os.urandom(8192)
    with local_link() as link:
        opened(link, folder)
        link.begin(ONE, "", 8192, 0)
        link.put(0, content if case != "differs" else content[:-1] + bytes([content[-1] ^ 1]))
        if case != "never read":
            link.ask_chunks()
            link.chunks()
        if case == "written since":
            link.put(0, os.urandom(4096))
        with pytest.raises(CommandError, match="SAN-SITE-009"):
            link.prove(proven(ONE, content))
    assert names(folder) == []


@pytest.mark.parametrize("is_written", [True, False])
def test_what_a_later_run_has_removed_ends_at_once(folder: Path, *, is_written: bool) -> None:
    """Not days later, when all is sent."""
    with local_link() as link, local_link() as later:
        opened(link, folder)
        link.begin(ONE, "", 64 << 20, 0)
        opened(later, folder)
        later.begin(TWO, "", 4096, 0)
        with pytest.raises(CommandError, match="SAN-SITE-016"):
            for at in range(0, (32 << 20) * is_written, CHUNK_BYTES):
                link.put(at, os.urandom(CHUNK_BYTES))
            if not is_written:
                link.ask_chunks()
            link.chunks()
        assert (folder / DEVICE / f"{TWO}.partial").exists()


def frame(at: int, data: bytes, wanted: bytes, *, packed: bool = False) -> tuple[bytes, bytes]:
    return b"R", RANGE.pack(at, len(data), packed, hashlib.sha256(wanted).digest()) + data


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        pytest.param(*frame(0, b"x" * 99, b"y" * 99), id="another hash"),
        pytest.param(*frame(0, b"no zlib", b"", packed=True), id="not compressed"),
        pytest.param(*frame(4000, b"x" * 99, b"x" * 99), id="behind the end"),
        pytest.param(b"Z", site_protocol.ZEROS.pack(4000, 100), id="zeros behind the end"),
        pytest.param(b"J", json.dumps({"do": "remove", "tokens": 5}).encode(), id="tokens"),
        pytest.param(b"J", json.dumps({"do": "fly"}).encode(), id="another command"),
    ],
)
def test_what_did_not_come_as_it_was_sent(folder: Path, kind: bytes, body: bytes) -> None:
    with local_link() as link:
        opened(link, folder)
        link.begin(ONE, "", 4096, 0)
        link._send(kind, body)
        with pytest.raises(CommandError, match=r"SAN-SITE-00[58]"):
            link.ask_chunks()
            link.chunks()
    assert [each for each in names(folder) if not each.endswith(".partial")] == []


def test_what_is_sent_to_a_site_whose_disk_hangs_ends_with_its_error(folder: Path) -> None:
    may_end, has_ended = folder / DEVICE / "may-end", folder / DEVICE / "has-ended"
    hung = f"""
import time

def unlink_if_there(path):
    deadline = time.monotonic() + 20
    while not os.path.exists({str(may_end)!r}) and time.monotonic() < deadline:
        time.sleep(0.01)
    open({str(has_ended)!r}, "w").close()
"""
    data = os.urandom(CHUNK_BYTES)
    with local_link(more=hung.encode()) as link:
        opened(link, folder)
        link.begin(ONE, "", 4 * CHUNK_BYTES, 0)
        with pytest.raises(CommandError, match=r"SAN-SITE-008.*outside of the copy"):
            for at in range(0, 9 * CHUNK_BYTES, CHUNK_BYTES):
                link.put(at, data)
        assert not has_ended.exists(), "the sender waited for the end of the program"
        may_end.touch()


_SLOW = b"""
import time
p = sys.modules['sanctl.drivers.site_protocol']
p.ALIVE_S, p.STALLED_S = 1.2, %f
_flush = os.fsync
def _slow(handle):
    if os.fstat(handle).st_size > 1 << 19:
        time.sleep(%f)
    _flush(handle)
os.fsync = os.fdatasync = _slow
"""


def test_a_slow_disk_makes_it_slow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each flush takes longer than the other end waits for a sign of life."""
    monkeypatch.setattr("sanctl.drivers.site_connection._SILENCE_S", 1.0)
    content = os.urandom(1 << 20)
    with local_link(more=_SLOW % (60.0, 2.0)) as link:
        opened(link, folder)
        link.begin(ONE, "", len(content), 0)
        link.put(0, content)
        link.ask_chunks()
        looks: list[int] = []
        assert digest_of(link.chunks(lambda: looks.append(1)), len(content)) == digest(content)
        assert looks
        link.prove(proven(ONE, content))
    assert names(folder) == beside(ONE)


def test_a_disk_that_hangs_has_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sanctl.drivers.site_connection._SILENCE_S", 5.0)
    content = os.urandom(1 << 20)
    with local_link(more=_SLOW % (0.5, 4.0)) as link:
        opened(link, folder)
        link.begin(ONE, "", len(content), 0)
        link.put(0, content)
        link.ask_chunks()
        with pytest.raises(CommandError, match=r"SAN-SITE-014.*has ended nothing"):
            link.chunks()


def test_what_is_sent_is_flushed_as_it_comes(folder: Path) -> None:
    """Else all of a first copy might be flushed in one step, at its end."""
    count = b"""
_FLUSHED_BYTES = 2 * CHUNK_BYTES
def _counted(handle, path=%a):
    with open(path, 'a') as file:
        file.write('x')
os.fdatasync = _counted
"""
    counted = folder.parent / "counted"
    content = os.urandom(CHUNK_BYTES) * 7
    with local_link(more=count % str(counted)) as link:
        opened(link, folder)
        link.begin(ONE, "", len(content), 0)
        for at in range(0, len(content), CHUNK_BYTES):
            link.put(at, content[at : at + CHUNK_BYTES])
        link.ask_chunks()
        assert digest_of(link.chunks(), len(content)) == digest(content)
    assert counted.read_text() == "xxx"
