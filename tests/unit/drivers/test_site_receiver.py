# SPDX-License-Identifier: GPL-2.0-or-later
"""The receiver of a second site: what is not proven equal is no copy, and a copy is never touched.

The real program in a process of its own, with files on this machine.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from sanctl.drivers.site_link import SiteLink, receiver_source
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    HEADER,
    chunk_digests,
    digest_of,
    read_all,
)
from sanctl.errors import CommandError
from sanctl.model.site import ProvenCopy
from sanctl.model.site_takeover import Claim, Ending, Successor
from tests.fakes.local_site import local_link

MARK, DEVICE = "a" * 32, f"web.{'b' * 32}"
SIZE = 2 * CHUNK_BYTES + 8192
ONE, TWO = "1" * 16, "2" * 16
WHOLE: dict[str, object] = {"size_bytes": 1, "needed_bytes": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the directory of a site."""
    path = tmp_path / "site"
    path.mkdir()
    with local_link() as link:
        assert link.survey(str(path), MARK) == MARK
    return path


def digest(content: bytes) -> str:
    chunks = (content[at : at + CHUNK_BYTES] for at in range(0, len(content), CHUNK_BYTES))
    return digest_of(b"".join(hashlib.sha256(c).digest() for c in chunks), len(content))


def proven(token: str, content: bytes, name: str = "to-far") -> ProvenCopy:
    return ProvenCopy(name, token, 1, 2, len(content), 3, 4, digest(content))


def opened(link: SiteLink, folder: Path) -> tuple[ProvenCopy, ...]:
    return link.open(str(folder), MARK, DEVICE)


def make(folder: Path, token: str, content: bytes, base: str = "") -> None:
    with local_link() as link:
        opened(link, folder)
        link.begin(token, base, len(content), len(content))
        for at in range(0, len(content), CHUNK_BYTES):
            link.put(at, content[at : at + CHUNK_BYTES])
        link.ask_chunks()
        link.chunks()
        link.prove(proven(token, content))


def names(folder: Path) -> list[str]:
    return sorted({*os.listdir(folder / DEVICE)} - {"counter.json"})


def beside(token: str) -> list[str]:
    """Return the names of the files of one proven copy."""
    return [f"to-far.{token}{suffix}" for suffix in ("", ".chunks", ".json")]


def test_a_copy_is_made_and_another_one_of_it(folder: Path) -> None:
    first = os.urandom(SIZE - 8192) + bytes(8192)
    make(folder, ONE, first)
    file = folder / DEVICE / f"to-far.{ONE}"
    assert file.read_bytes() == first and file.stat().st_mode & 0o777 == 0o400
    second = first[:4096] + os.urandom(4096) + first[8192:CHUNK_BYTES]
    second += bytes(SIZE + 4096 - CHUNK_BYTES)
    with local_link() as link:
        assert opened(link, folder) == (proven(ONE, first)._replace(number=1),)
        link.begin(TWO, ONE, len(second), 4096)
        link.put(4096, second[4096:8192])
        link.zero(CHUNK_BYTES, len(second) - CHUNK_BYTES)
        link.ask_chunks()
        chunks = link.chunks()
        assert digest_of(chunks, len(second)) == digest(second)
        link.prove(proven(TWO, second))
    assert file.read_bytes() == first
    assert (folder / DEVICE / f"to-far.{TWO}").read_bytes() == second
    with local_link() as link:
        both = proven(ONE, first)._replace(number=1), proven(TWO, second)._replace(number=2)
        assert opened(link, folder) == both
        assert link.remove([ONE, "9" * 16]) == ("to-far",)
        assert opened(link, folder) == both[1:]
    assert names(folder) == beside(TWO)


def test_half_a_copy_is_none_and_the_next_run_removes_it(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    whole = names(folder)
    with local_link() as link:
        opened(link, folder)
        link.begin(TWO, ONE, 4096, 0)
        link.put(0, b"y" * 4096)
    assert names(folder) == whole, "the connection ended"
    dead = (f"{TWO}.partial", f"gone.{TWO}.json", f"gone.{TWO}.chunks")
    for left in (*dead, f"to-far.{TWO}.json.new", f"to-far.{TWO}.chunks.new"):
        (folder / DEVICE / left).write_bytes(b"")
    with local_link() as link:
        assert [each.token for each in opened(link, folder)] == [ONE]
        link.begin(TWO, ONE, 4096, 0)
    assert names(folder) == whole


def test_a_later_run_takes_over(folder: Path) -> None:
    content = os.urandom(4096)
    with local_link() as link, local_link() as later:
        opened(link, folder)
        link.begin(ONE, "", 4096, 0)
        link.put(0, content)
        link.ask_chunks()
        link.chunks()
        opened(later, folder)
        later.begin(TWO, "", 4096, 0)
        with pytest.raises(CommandError, match="SAN-SITE-016"):
            link.prove(proven(ONE, content))
        later.put(0, content)
        later.ask_chunks()
        later.chunks()
        later.prove(proven(TWO, content))
    assert names(folder) == beside(TWO)


def test_a_copy_of_which_nothing_is_known_is_left_alone(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    (folder / DEVICE / f"to-far.{ONE}.json").write_text("{}")
    with local_link() as link:
        assert opened(link, folder) == ()
        assert link.remove([ONE]) == ()
    assert f"to-far.{ONE}" in names(folder)


@contextmanager
def held(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Keep the lock of the device's folder, as another connection; for a time, if one is given."""
    (folder / DEVICE).mkdir(exist_ok=True)
    handle = os.open(folder / DEVICE, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    timer = threading.Timer(seconds, fcntl.flock, (handle, fcntl.LOCK_UN))
    if seconds:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
        os.close(handle)


def test_who_waits_for_a_folder_gives_signs_of_life(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sanctl.drivers.site_connection._SILENCE_S", 1.5)
    often = b"sys.modules['sanctl.drivers.site_protocol'].ALIVE_S = 1.1\n"
    with local_link(more=often) as link:
        opened(link, folder)
        with held(folder, 4.0):
            link.begin(ONE, "", 4096, 0)
    soon = b"sys.modules['sanctl.drivers.site_files'].STALLED_S = 0.3\n"
    with local_link(more=soon) as link, held(folder):
        opened(link, folder)
        with pytest.raises(CommandError, match=r"SAN-SITE-014.*kept .* locked for 0.3 s"):
            link.begin(ONE, "", 4096, 0)
    assert names(folder) == []


@pytest.mark.parametrize("ended", ["stdin", "stdout", "both"])
@pytest.mark.parametrize("command", ["take_over", "give_back"])
def test_an_order_that_was_given_up_is_not_carried_out_later(
    folder: Path, command: str, ended: str
) -> None:
    """What a review found: the command had failed, and its takeover was noted minutes later."""
    successor = Successor("dr", "c" * 32, "p1", 5)
    if command == "give_back":
        with local_link() as link:
            link.take_over(str(folder), MARK, {DEVICE: Claim(successor)})
    fields: dict[str, dict[str, object]] = {
        "take_over": {"claims": {DEVICE: Claim(successor).fields}},
        "give_back": {"device": DEVICE, "ending": Ending(successor, 6, "n1").fields},
    }
    order = {"do": command, "path": str(folder), "id": MARK, **fields[command]}
    body = json.dumps(order).encode()
    with subprocess.Popen(
        [sys.executable, "-c", receiver_source()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None and program.stdout is not None
        with held(folder):
            program.stdin.write(HEADER.pack(b"J", len(body)) + body)
            program.stdin.flush()
            # It waits by now; a program that did not begin would find the other end gone, too.
            wait_for_lock(program.pid, folder / DEVICE)
            if ended != "stdout":
                program.stdin.close()
            if ended != "stdin":
                program.stdout.close()
        assert program.wait(10) == 0
    is_noted = (folder / DEVICE / "takeover.json").exists()
    assert is_noted is (command == "give_back")


def wait_for_lock(process: int, folder: Path) -> None:
    """Return when a process has a folder open."""
    deadline = time.monotonic() + 20
    while True:
        for each in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):  # It has closed it meanwhile.
                if os.readlink(each) == str(folder):
                    return
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_no_room(folder: Path) -> None:
    with local_link() as link:
        opened(link, folder)
        with pytest.raises(CommandError, match=r"SAN-SITE-007.*MiB free"):
            link.begin(ONE, "", 4096, 1 << 60)
    with local_link() as link:
        opened(link, folder)
        # The list of its chunks' digests, which comes when all of it was sent.
        with pytest.raises(CommandError, match=r"SAN-SITE-007.*MiB free"):
            link.begin(ONE, "", 1 << 62, 0)
    full = b"def write_all(handle, data, at):\n    raise OSError(errno.ENOSPC, 'full')\n"
    with local_link(more=full) as link:
        opened(link, folder)
        link.begin(ONE, "", 4096, 0)
        with pytest.raises(CommandError, match=r"SAN-SITE-007.*full"):
            link.put(0, b"x" * 4096)
            link.ask_chunks()
            link.chunks()
    broken = b"def write_all(handle, data, at):\n    raise OSError(errno.EIO, 'broken')\n"
    with local_link(more=broken) as link:
        opened(link, folder)
        link.begin(ONE, "", 4096, 0)
        with pytest.raises(CommandError, match=r"SAN-SITE-014.*broken"):
            # More than the pipe holds: the receiver is gone before it was sent.
            for _ in range(64):
                link.put(0, os.urandom(4096))
            link.ask_chunks()
            link.chunks()
    assert names(folder) == []


def test_frames_that_are_too_long_or_cut(folder: Path) -> None:
    with local_link() as link:
        link._write(HEADER.pack(b"R", 1 << 30))
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            link._ask("hello")
    with local_link() as link:
        opened(link, folder)
        link.begin(ONE, "", 4096, 0)
        link._write(HEADER.pack(b"R", 100) + b"half")
    assert names(folder) == []


@pytest.mark.parametrize(
    ("command", "code", "fields"),
    [
        ("open", "SAN-SITE-008", {"device": "../etc"}),
        ("begin", "SAN-SITE-008", {"token": "../x", "base": "", **WHOLE}),
        ("begin", "SAN-SITE-018", {"token": ONE, "base": TWO, **WHOLE}),
        ("begin", "SAN-SITE-008", {"token": ONE, "base": TWO, "folder": "../etc", **WHOLE}),
    ],
)
def test_names_lead_nowhere_else(
    folder: Path, command: str, code: str, fields: dict[str, object]
) -> None:
    with local_link() as link:
        opened(link, folder)
        where = {"path": str(folder), "id": MARK} if command == "open" else {}
        with pytest.raises(CommandError, match=code):
            link._ask(command, **where, **fields)
    with local_link() as link:
        opened(link, folder)
        link.begin(ONE, "", 0, 0)
        link.ask_chunks()
        link.chunks()
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            link.prove(proven(ONE, b"", name="../x"))
    assert sorted(os.listdir(folder.parent)) == ["site"]


def test_digests_do_not_depend_on_holes(tmp_path: Path) -> None:
    content = bytes(CHUNK_BYTES) + os.urandom(4096) + bytes(2 * CHUNK_BYTES - 5)
    full, holes = tmp_path / "full", tmp_path / "holes"
    full.write_bytes(content)
    with holes.open("wb") as file:
        file.truncate(len(content))
        file.seek(CHUNK_BYTES)
        file.write(content[CHUNK_BYTES : CHUNK_BYTES + 4096])
    looks: list[int] = []
    found = []
    for path in (full, holes):
        with path.open("rb") as file:
            found.append(chunk_digests(file.fileno(), len(content), looks.append))
            with pytest.raises(OSError, match="ends before"):
                read_all(file.fileno(), len(content), 1)
    assert found[0] == found[1] and len(found[0]) == 4 * 32
    assert digest_of(found[0], len(content)) == digest(content)
    assert looks[3] == len(content)


def test_a_number_is_given_once(folder: Path) -> None:
    """Also where the note of the copy that has it cannot be read, or the copy is gone."""
    for number, token in enumerate((ONE, TWO), 1):
        make(folder, token, b"x" * 4096)
        with local_link() as link:
            assert [each.number for each in opened(link, folder)][-1] == number
    note = folder / DEVICE / f"to-far.{TWO}.json"
    note.write_text("{")
    make(folder, "3" * 16, b"y" * 4096)
    with local_link() as link:
        assert [each.number for each in opened(link, folder)] == [1, 3]
    # Without the counter nothing says which one the other copy has.
    counter = folder / DEVICE / "counter.json"
    counter.write_text("")
    with pytest.raises(CommandError, match=f"SAN-SITE-035.*{TWO}"):
        make(folder, "4" * 16, b"z" * 4096)
    assert f"to-far.{'4' * 16}" not in names(folder)
    note.unlink()
    (folder / DEVICE / f"to-far.{TWO}").unlink()
    make(folder, "4" * 16, b"z" * 4096)
    with local_link() as link:
        assert [each.number for each in opened(link, folder)] == [1, 3, 4]


def test_what_an_earlier_release_has_proven_has_no_number(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    note = folder / DEVICE / f"to-far.{ONE}.json"
    known = json.loads(note.read_text())
    assert (known.pop("number"), known.pop("after")) == (1, -1)
    note.write_text(json.dumps(known))
    (folder / DEVICE / "counter.json").unlink()
    make(folder, TWO, b"y" * 4096)
    with local_link() as link:
        found = opened(link, folder)
    assert [(each.number, each.is_numbered) for each in found] == [(0, False), (1, False)]
