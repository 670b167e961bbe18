# SPDX-License-Identifier: GPL-2.0-or-later
"""The digests beside a proven copy: they let what has changed prove the next one, or are not used.

The real receiver in a process of its own, with files on this machine.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from sanctl.drivers.site_chunks import WrittenChunks, chunks_of
from sanctl.drivers.site_copies import COPY, copies_in
from sanctl.drivers.site_link import SiteLink
from sanctl.drivers.site_protocol import CHUNK_BYTES, UPDATED, digest_of
from sanctl.errors import CommandError
from tests.fakes.local_site import local_link
from tests.unit.drivers.test_site_receiver import (
    DEVICE,
    ONE,
    TWO,
    beside,
    digest,
    folder,
    make,
    names,
    opened,
    proven,
)

__all__ = ["folder"]

#: The last chunk is a part of one.
SIZE = 10 * CHUNK_BYTES + 8192


def list_file(folder: Path, token: str = ONE) -> Path:
    return folder / DEVICE / f"to-far.{token}.chunks"


def list_there(folder: Path, token: str = ONE) -> bytes:
    (copy,) = (each for each in copies_in(str(folder / DEVICE)) if each["token"] == token)
    return chunks_of(str(folder / DEVICE), copy)


def begun(link: SiteLink, folder: Path, size_bytes: int = SIZE) -> bool:
    opened(link, folder)
    return link.begin(TWO, ONE, size_bytes, 0)


#: The receiver says which chunks it reads.
LOOKS = b"""
_digests = chunk_digests
def chunk_digests(handle, size, look, numbers=None):
    numbers = None if numbers is None else list(numbers)
    with open(%a, "a") as file:
        print(numbers, file=file)
    return _digests(handle, size, look, numbers)
"""


def test_what_was_written_alone_is_read(folder: Path) -> None:
    content = bytearray(os.urandom(SIZE))
    make(folder, ONE, bytes(content))
    assert digest_of(list_there(folder), SIZE) == digest(bytes(content))
    before = list_there(folder)
    looks = folder.parent / "looks"
    with local_link(more=LOOKS % str(looks)) as link:
        assert begun(link, folder)
        # Over the edge of two chunks, in the last one, and zeros over three.
        edge, end = 2 * CHUNK_BYTES - 4096, SIZE - 4096
        for at, length in ((edge, 8192), (end, 4096)):
            content[at : at + length] = os.urandom(length)
        link.put(edge, bytes(content[edge : 2 * CHUNK_BYTES]))
        link.put(2 * CHUNK_BYTES, bytes(content[2 * CHUNK_BYTES : edge + 8192]))
        link.put(end, bytes(content[end:]))
        content[5 * CHUNK_BYTES + 8 : 7 * CHUNK_BYTES + 8] = bytes(2 * CHUNK_BYTES)
        link.zero(5 * CHUNK_BYTES + 8, 2 * CHUNK_BYTES)
        link.ask_chunks(only_changed=True)
        base, chunks = link.changed_chunks(SIZE)
        assert base == before and digest_of(chunks, SIZE) == digest(bytes(content))
        link.prove(proven(TWO, bytes(content))._replace(read_s=7))
    assert looks.read_text() == "[1, 2, 5, 6, 7, 10]\n"
    assert (folder / DEVICE / f"to-far.{TWO}").read_bytes() == content
    assert list_there(folder, TWO) == chunks
    with local_link() as link:
        assert [each.read_s for each in opened(link, folder)] == [0, 7]


def test_what_came_wrong_is_no_copy(folder: Path) -> None:
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    wrong = b"""
_write = write_all
def write_all(handle, data, at):
    _write(handle, data if len(data) > 4096 else bytes(len(data)), at)
"""
    wanted = b"x" * 4096 + content[4096:]
    with local_link(more=wrong) as link:
        assert begun(link, folder)
        link.put(0, wanted[:4096])
        link.ask_chunks(only_changed=True)
        base, chunks = link.changed_chunks(SIZE)
        assert chunks != base and digest_of(chunks, SIZE) != digest(wanted)
        with pytest.raises(CommandError, match="SAN-SITE-009"):
            link.prove(proven(TWO, wanted))
    assert names(folder) == beside(ONE)


def test_what_is_written_after_it_was_read_has_to_be_read_again(folder: Path) -> None:
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    with local_link() as link:
        assert begun(link, folder)
        link.ask_chunks(only_changed=True)
        link.changed_chunks(SIZE)
        link.put(0, content[:4096])
        with pytest.raises(CommandError, match="SAN-SITE-009"):
            link.prove(proven(TWO, content))


@pytest.mark.parametrize(
    "spoilt",
    ["gone", "empty", "short", "long", "another", "link", "folder", "pipe", "size", "cut", "note"],
)
def test_a_list_that_is_not_right_is_none(folder: Path, spoilt: str) -> None:
    make(folder, ONE, os.urandom(SIZE))
    file, right = list_file(folder), list_file(folder).read_bytes()
    copy = folder / DEVICE / f"to-far.{ONE}"
    size_bytes = SIZE
    if spoilt in {"gone", "link", "folder", "pipe"}:
        moved = file.rename(folder.parent / "moved")
    if spoilt == "link":
        file.symlink_to(moved)
    elif spoilt == "folder":
        file.mkdir()
    elif spoilt == "pipe":
        os.mkfifo(file)
    elif spoilt == "size":
        size_bytes += 4096
    elif spoilt == "cut":
        copy.chmod(0o600)
        os.truncate(copy, SIZE - 4096)
    elif spoilt == "note":
        note = folder / DEVICE / f"to-far.{ONE}.json"
        note.write_text(json.dumps({**json.loads(note.read_text()), "digest": "f" * 64}))
    elif spoilt != "gone":
        other = bytes([right[0] ^ 1]) + right[1:]
        file.write_bytes(
            {"empty": b"", "short": right[:-32], "long": right + b"x", "another": other}[spoilt]
        )
    with local_link() as link:
        assert not begun(link, folder, size_bytes)
        link.ask_chunks(only_changed=True)
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            link.chunks()


def test_a_copy_that_has_grown_has_a_list_of_its_own(folder: Path) -> None:
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    grown = content + bytes(CHUNK_BYTES)
    with local_link() as link:
        assert not begun(link, folder, len(grown))
        link.ask_chunks()
        link.chunks()
        link.prove(proven(TWO, grown))
    assert digest_of(list_there(folder, TWO), len(grown)) == digest(grown)


@pytest.mark.parametrize("dies_at", [".json", ".chunks.new", ".chunks", ".partial"])
def test_the_power_fails_before_the_copy_has_its_name(folder: Path, dies_at: str) -> None:
    """The list is there, or a part of it, and no copy: the next run removes it."""
    content = os.urandom(SIZE)
    make(folder, ONE, content)
    dies = f"""
_rename = os.rename
def _dead(old, new):
    if new.endswith({dies_at!r}) or old.endswith({dies_at!r}):
        os._exit(9)
    _rename(old, new)
os.rename = _dead
"""
    with local_link(more=dies.encode()) as link:
        assert begun(link, folder)
        link.ask_chunks(only_changed=True)
        link.changed_chunks(SIZE)
        with pytest.raises(CommandError, match="SAN-SITE-005"):
            link.prove(proven(TWO, content))
    left = set(names(folder)) - set(beside(ONE))
    assert f"{TWO}.partial" in left and f"to-far.{TWO}" not in left
    assert (f"to-far.{TWO}.chunks" in left) is (dies_at == ".partial")
    with local_link() as link:
        assert [each.token for each in opened(link, folder)] == [ONE]
        assert link.folders(str(folder), "a" * 32)[DEVICE][0].token == ONE
        assert begun(link, folder)
    assert names(folder) == beside(ONE)


def test_it_goes_with_the_copy(folder: Path) -> None:
    for token in (ONE, TWO):
        make(folder, token, os.urandom(8192))
    with local_link() as link:
        opened(link, folder)
        assert link.remove([ONE]) == ("to-far",)
    assert names(folder) == beside(TWO)


def test_a_copy_of_an_earlier_release_has_none_and_was_read_as_a_whole(folder: Path) -> None:
    make(folder, ONE, os.urandom(SIZE))
    note = folder / DEVICE / f"to-far.{ONE}.json"
    known = json.loads(note.read_text())
    assert known.pop("read_s") == 0
    note.write_text(json.dumps(known))
    list_file(folder).unlink()
    with local_link() as link:
        (copy,) = opened(link, folder)
        assert (copy.read_s, copy.read_whole_s) == (0, copy.proven_s)
        assert not begun(link, folder)


def test_an_earlier_release_takes_the_list_for_no_copy() -> None:
    """It knows copies by this pattern, as each release has."""
    assert COPY.pattern == r"([a-z0-9-]{1,40})\.([0-9a-f]{16})"
    assert not any(COPY.fullmatch(each) for each in beside(ONE)[1:])


def test_answers_that_fit_no_copy_are_refused() -> None:
    class Said(SiteLink):
        def __init__(self, *frames: tuple[bytes, bytes]) -> None:
            self._name, self._said = "far", list(frames)

        def _frame(self, *_: Any) -> tuple[bytes, bytes]:
            return self._said.pop(0)

    base = b"a" * 64
    fine = UPDATED.pack(1, b"b" * 32)
    given = (b"C", base), (b"U", fine)
    assert Said(*given).changed_chunks(CHUNK_BYTES + 1) == (base, b"a" * 32 + b"b" * 32)
    for body in (fine[:-1], UPDATED.pack(2, b"b" * 32)):
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            Said((b"C", base), (b"U", body)).changed_chunks(CHUNK_BYTES + 1)
    with pytest.raises(CommandError, match="SAN-SITE-008"):
        Said((b"C", base), (b"C", base)).changed_chunks(CHUNK_BYTES + 1)


def test_a_bit_for_each_chunk() -> None:
    written = WrittenChunks(SIZE)
    assert list(written.numbers()) == []
    for begin, length in ((0, 1), (CHUNK_BYTES - 1, 1), (8 * CHUNK_BYTES, 0), (SIZE - 1, 1)):
        written.mark(begin, length)
    assert list(written.numbers()) == [0, 10]
    written.mark(0, SIZE)
    assert list(written.numbers()) == list(range(11))
    assert list(WrittenChunks(0).numbers()) == []
