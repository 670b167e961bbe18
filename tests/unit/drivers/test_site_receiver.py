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

from sanctl.drivers import site_protocol, site_receiver
from sanctl.drivers.site_link import SiteLink, receiver_source
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    HEADER,
    RANGE,
    chunk_digests,
    digest_of,
    read_all,
)
from sanctl.errors import CommandError
from sanctl.model.site import ProvenCopy
from sanctl.model.site_takeover import Claim, Ending, SiteTakeovers, Successor
from tests.fakes.local_site import local_link

MARK, DEVICE = "a" * 32, f"web.{'b' * 32}"
SIZE = 2 * CHUNK_BYTES + 8192
ONE, TWO = "1" * 16, "2" * 16
SAID = json.dumps({"code": "SAN-SITE-014", "error": "a disk has ended nothing"})
#: A frame with that, as printf(1) takes it.
HUNG = f"J\\0\\0\\0\\{len(SAID):o}{SAID}"
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
    monkeypatch.setattr("sanctl.drivers.site_link._SILENCE_S", 1.5)
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


def test_directories_that_are_no_site(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    for path, code in ((other, "SAN-SITE-006"), (tmp_path, "SAN-SITE-006.*not empty")):
        with local_link() as link, pytest.raises(CommandError, match=code):
            link.survey(str(path), MARK)
    other.mkdir()
    refused = pytest.raises(CommandError, match=r"SAN-SITE-006.*XFS or btrfs")
    with local_link(shares_blocks=False) as link, refused:
        link.survey(str(other), MARK)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-006.*mounted"):
        opened(link, other)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-006.*another site"):
        link.open(str(folder), "c" * 32, DEVICE)
    assert os.listdir(other) == []
    for text, code in (
        ('{"format": 2, "id": "x"}', "SAN-SITE-013"),
        ("[]", "SAN-SITE-006"),
        ("{", "SAN-SITE-006"),
    ):
        (folder / site_receiver.MARK).write_text(text)
        with local_link() as link, pytest.raises(CommandError, match=code):
            opened(link, folder)
        with local_link() as link, pytest.raises(CommandError, match=code):
            link.survey(str(folder), MARK)
        assert (folder / site_receiver.MARK).read_text() == text


def test_a_site_is_marked_once(folder: Path) -> None:
    with local_link() as link:
        link.hello()
        assert link.survey(str(folder), "c" * 32) == MARK


@pytest.mark.parametrize("number", ["EROFS", "ENOSPC", "EIO"])
def test_a_site_that_takes_nothing_more_is_found_and_read(
    folder: Path, tmp_path: Path, number: str
) -> None:
    """As one that is full, or was mounted read-only to save it."""
    content = os.urandom(4096)
    make(folder, ONE, content)
    other = tmp_path / "other"
    other.mkdir()
    takes_nothing = f"""
_open = os.open
def _no_new(path, flags, *words, **more):
    if flags & (os.O_CREAT | os.O_WRONLY | os.O_RDWR):
        raise OSError(errno.{number}, os.strerror(errno.{number}))
    return _open(path, flags, *words, **more)
os.open = _no_new
"""
    with local_link(more=takes_nothing.encode()) as link:
        assert link.survey(str(folder), "c" * 32) == MARK
        assert [each.token for each in opened(link, folder)] == [ONE]
        assert list(link.folders(str(folder), MARK)) == [DEVICE]
        link.read(ONE, len(content))
        with pytest.raises(CommandError, match="SAN-SITE"):
            link.begin(TWO, ONE, len(content), 0)
    refused = pytest.raises(CommandError, match="SAN-SITE")
    with local_link(more=takes_nothing.encode()) as link, refused:
        link.survey(str(other), "c" * 32)
    assert os.listdir(other) == []


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


def test_a_site_that_says_nothing_or_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sanctl.drivers.site_link._SILENCE_S", 0.2)
    for argv, code in (
        (["sh", "-c", "exec sleep 1", "sh"], "SAN-SITE-005.*said nothing"),
        # The disk hangs: it reads no more, and what it says before it hangs is why.
        (["sh", "-c", "exec sleep 2", "hung"], "SAN-SITE-005.*said nothing"),
        (["sh", "-c", f"printf '{HUNG}'; exec sleep 2", "hung"], "SAN-SITE-014.*ended nothing"),
        (
            ["sh", "-c", "echo Host key verification failed. >&2; exit 255", "x"],
            "SAN-SITE-015.*'sanctl site set far --host-key SHA256:...'",
        ),
        (["sh", "-c", "echo no route >&2; exit 255", "x"], "SAN-SITE-005.*reached: no route"),
        (
            ["sh", "-c", "exit 3", "x"],
            "SAN-SITE-005.*ended the connection: ssh ended with status 3",
        ),
        (["sh", "-c", "printf 'J\\0\\0\\0\\1x'; cat >/dev/null", "x"], "SAN-SITE-008"),
        (["/nonexistent"], "SAN-CMD-001"),
    ):
        # More than a pipe holds, for those that read nothing and end.
        script = os.urandom(1 if argv[-1] == "sh" else 1 << 20)
        link = SiteLink(argv, "far", script)
        with pytest.raises(CommandError, match=code), link:
            link.hello()


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


SUCCESSOR = Successor("web-dr", "e" * 32, "to-far", 5)
ENDING = Ending(SUCCESSOR, 9, "n1")


def taken_over(
    link: SiteLink, folder: Path, successor: Successor, *, device: str = DEVICE, mark: str = MARK
) -> bool:
    """Note a takeover, whatever copies there are; return whether it is new."""
    return link.take_over(str(folder), mark, {device: Claim(successor)})[device]


def test_no_copy_is_begun_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        opened(link, folder)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.begin(TWO, "", 4096, 0)


def test_no_copy_that_is_under_way_counts_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    whole = names(folder)
    with local_link() as link, local_link() as other:
        opened(link, folder)
        link.begin(TWO, "", 4096, 0)
        link.put(0, b"y" * 4096)
        link.ask_chunks()
        link.chunks()
        assert taken_over(other, folder, SUCCESSOR)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.prove(proven(TWO, b"y" * 4096))
    assert names(folder) == sorted([*whole, "takeover.json"])


def test_no_copy_is_removed_once_another_device_goes_on(folder: Path) -> None:
    make(folder, ONE, b"x" * 4096)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        assert [each.token for each in opened(link, folder)] == [ONE], "it can be read"
        with pytest.raises(CommandError, match="SAN-SITE-021"):
            link.remove([ONE])
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}
        assert not taken_over(link, folder, SUCCESSOR), "again"
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            taken_over(link, folder, SUCCESSOR._replace(uuid="f" * 32))
    with local_link() as link:
        assert link.give_back(str(folder), MARK, DEVICE, ENDING)
        assert not link.give_back(str(folder), MARK, DEVICE, ENDING)
        assert link.takeovers(str(folder), MARK) == SiteTakeovers({}, {DEVICE: (ENDING,)})
    make(folder, TWO, b"y" * 4096)


def test_a_copy_that_came_after_the_question_is_not_given_up_unasked(folder: Path) -> None:
    """The takeover was decided by what the site had some seconds before."""
    make(folder, ONE, b"x" * 4096)
    claim = {DEVICE: Claim(SUCCESSOR, (ONE,))}
    make(folder, TWO, b"y" * 4096)
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-036.*to-far of web"):
        link.take_over(str(folder), MARK, claim)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {}
        claim = {DEVICE: Claim(SUCCESSOR, (ONE, TWO))}
        assert link.take_over(str(folder), MARK, claim) == {DEVICE: True}
        # Again: no copy can have come since.
        claim = {DEVICE: Claim(SUCCESSOR, ())}
        assert link.take_over(str(folder), MARK, claim) == {DEVICE: False}
        assert link.give_back(str(folder), MARK, DEVICE, ENDING)
    # One of which nothing is known was not looked at.
    (folder / DEVICE / f"to-far.{TWO}.json").write_text("{")
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-036"):
        link.take_over(str(folder), MARK, {DEVICE: Claim(SUCCESSOR, (ONE, TWO))})


def test_of_two_that_take_the_same_devices_over_one_has_all(folder: Path) -> None:
    other = f"db.{'c' * 32}"
    third = SUCCESSOR._replace(device="third", uuid="f" * 32)
    with local_link() as link:
        assert taken_over(link, folder, third)
    claims = {other: Claim(SUCCESSOR), DEVICE: Claim(SUCCESSOR)}
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*third"):
        link.take_over(str(folder), MARK, claims)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: third}


def test_a_takeover_that_a_claim_names_ends_by_it(folder: Path) -> None:
    third = Successor("third", "3" * 32, "to-far", 9)
    other = f"db.{'d' * 32}"
    with local_link() as link:
        assert link.take_over(str(folder), MARK, {DEVICE: Claim(SUCCESSOR)}) == {DEVICE: True}
    stale = Ending(SUCCESSOR._replace(at_s=SUCCESSOR.at_s + 1), 9, "n1")
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*\.[0-9a-f]{8}$"):
        claims = {other: Claim(third), DEVICE: Claim(third, None, stale)}
        link.take_over(str(folder), MARK, claims)
    ending = Ending(SUCCESSOR, 9, "n1")
    with local_link() as link:
        assert list(link.takeovers(str(folder), MARK).successors) == [DEVICE], "all or none"
        claims = {other: Claim(third), DEVICE: Claim(third, None, ending)}
        changed = {DEVICE: True, other: True}
        assert link.take_over(str(folder), MARK, claims) == changed
        found = link.takeovers(str(folder), MARK)
        assert found.successors == {DEVICE: third, other: third}
        assert found.endings == {DEVICE: (ending,)}
        assert not any(link.take_over(str(folder), MARK, claims).values())
        assert link.takeovers(str(folder), MARK) == found


def test_of_two_that_take_each_other_over_one_goes_on(folder: Path) -> None:
    """Each ended the other's takeover, and said that it goes on; both were copied."""
    back, back_uuid = f"web-dr.{SUCCESSOR.uuid}", DEVICE.partition(".")[2]
    home = Successor("web", back_uuid, "to-far", 6)
    with local_link() as link, local_link() as first:
        assert taken_over(link, folder, SUCCESSOR)
        assert taken_over(link, folder, home, device=back)
        ending = ENDING._replace(successor=home)
        assert first.give_back(str(folder), MARK, back, ending, (DEVICE, SUCCESSOR.uuid))
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*has ended meanwhile"):
            link.give_back(str(folder), MARK, DEVICE, ENDING, (back, back_uuid))
    with local_link() as link:
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}


def test_what_was_given_back_is_kept_and_one_that_is_lost_can_be(folder: Path) -> None:
    path = str(folder)
    again = ENDING._replace(successor=SUCCESSOR._replace(at_s=7))
    with local_link() as link:
        assert not link.give_back(path, MARK, DEVICE, ENDING), "the site does not have it"
        assert taken_over(link, folder, again.successor)
        assert link.give_back(path, MARK, DEVICE, again)
        assert link.takeovers(path, MARK).endings == {DEVICE: (ENDING, again)}
    # One that cannot be read has ended nothing.
    file = folder / DEVICE / "given-back.json"
    for content in ("", "{", "{}", '["x", 5]'):
        file.write_text(content)
        with local_link() as link:
            assert link.takeovers(path, MARK) == SiteTakeovers({}, {})
    with local_link() as link:
        assert not link.give_back(path, MARK, DEVICE, ENDING)
        assert link.takeovers(path, MARK).endings == {DEVICE: (ENDING,)}


def test_another_takeover_than_was_meant_is_not_given_back(folder: Path) -> None:
    """It came after the question; one that cannot be read is any."""
    third = SUCCESSOR._replace(device="third", uuid="f" * 32)
    with local_link() as link:
        assert taken_over(link, folder, third)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*third"):
            link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        assert link.takeovers(str(folder), MARK) == SiteTakeovers({DEVICE: third}, {})
    (folder / DEVICE / "takeover.json").write_text("{")
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*unknown"):
        link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        unknown = link.takeovers(str(folder), MARK).successors[DEVICE]
        assert link.give_back(str(folder), MARK, DEVICE, ENDING._replace(successor=unknown))
        assert link.takeovers(str(folder), MARK).successors == {}


def test_a_takeover_that_the_same_device_made_after_the_question_stays(folder: Path) -> None:
    path, later = str(folder), SUCCESSOR._replace(at_s=SUCCESSOR.at_s + 1)
    with local_link() as link:
        assert taken_over(link, folder, later)
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
            link.give_back(path, MARK, DEVICE, ENDING)
    unknown = ENDING._replace(successor=Successor.of({}))
    with local_link() as link, pytest.raises(CommandError, match=r"SAN-SITE-021.*web-dr"):
        link.give_back(path, MARK, DEVICE, unknown)
    with local_link() as link:
        assert link.takeovers(path, MARK) == SiteTakeovers({DEVICE: later}, {})
        assert link.give_back(path, MARK, DEVICE, ENDING._replace(successor=later))


@pytest.mark.parametrize(
    "field",
    [
        {},
        {"at_s": "7"},
        {"at_s": "007"},
        {"at_s": 10**10},
        {"at_s": -1},
        {"at_s": None},
        {"uuid": "F" * 32},
        {"uuid": 5},
        {"device": "WEB"},
        {"device": ["x"]},
        {"point": "a b"},
        {"point": ""},
        {"more": "x"},
    ],
)
def test_cluster_and_site_agree_on_which_takeover_it_is(
    folder: Path, field: dict[str, object]
) -> None:
    """A takeover is given back as the cluster has read it, whatever the file has."""
    path = str(folder)
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        file = folder / DEVICE / "takeover.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **field}))
        found = link.takeovers(path, MARK).successors[DEVICE]
        other = found._replace(at_s=found.at_s + 1)
        with pytest.raises(CommandError, match="SAN-SITE-021"):
            link.give_back(path, MARK, DEVICE, ENDING._replace(successor=other))
    with local_link() as link:
        assert link.give_back(path, MARK, DEVICE, ENDING._replace(successor=found))


def test_a_takeover_ends_only_once_that_is_on_the_disk(folder: Path) -> None:
    """Else the cluster that was taken over would know it as lost for ever."""
    dies = b"""
def unlink_if_there(path):
    if path.endswith("takeover.json"):
        os._exit(1)


"""
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
    with local_link(more=dies) as link, pytest.raises(CommandError, match="SAN-SITE-005"):
        link.give_back(str(folder), MARK, DEVICE, ENDING)
    with local_link() as link:
        both = SiteTakeovers({DEVICE: SUCCESSOR}, {DEVICE: (ENDING,)})
        assert link.takeovers(str(folder), MARK) == both


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "folder", "link"])
def test_a_takeover_that_cannot_be_read_is_one(folder: Path, content: str) -> None:
    make(folder, ONE, b"x" * 4096)
    file = folder / DEVICE / "takeover.json"
    if content == "folder":
        file.mkdir()
    elif content == "link":
        file.symlink_to("/nowhere")
    else:
        file.write_text(content)
    with local_link() as link:
        opened(link, folder)
        assert link.takeovers(str(folder), MARK).successors[DEVICE].device == "unknown"
        with pytest.raises(CommandError, match=r"SAN-SITE-021.*unknown"):
            link.begin(TWO, ONE, 4096, 0)


def test_a_takeover_of_a_device_without_copies_and_names_that_lead_elsewhere(folder: Path) -> None:
    with local_link() as link:
        assert taken_over(link, folder, SUCCESSOR)
        assert link.takeovers(str(folder), MARK).successors == {DEVICE: SUCCESSOR}
        with pytest.raises(CommandError, match="SAN-SITE-008"):
            taken_over(link, folder, SUCCESSOR, device="../x")
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-006"):
        taken_over(link, folder, SUCCESSOR, mark="c" * 32)
    with local_link() as link, pytest.raises(CommandError, match="SAN-SITE-008"):
        link.give_back(str(folder), MARK, "../x", ENDING)


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
    monkeypatch.setattr("sanctl.drivers.site_link._SILENCE_S", 1.0)
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
    monkeypatch.setattr("sanctl.drivers.site_link._SILENCE_S", 5.0)
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
