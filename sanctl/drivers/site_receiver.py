# SPDX-License-Identifier: GPL-2.0-or-later
"""Program that a second site runs: takes copies of restore points, proves them, gives them back.

The cluster sends this module by ssh with each connection, as one script with the modules that it
imports; site_link.receiver_script lists them, so a new one has to be named there, too. Beside them
the program needs Python's standard library alone (3.9 or later). So both ends are of one release,
whatever the site's was before. The files at the site outlive releases, and have a format of their
own (FORMAT).

    PATH/sanctl-site.json          the mark: the format, and an id that the cluster knows
    PATH/DEVICE.UUID/POINT.TOKEN   a proven copy, as raw as the device; nobody ever writes it
    PATH/DEVICE.UUID/POINT.TOKEN.json      what is known of it (site_copies.py)
    PATH/DEVICE.UUID/POINT.TOKEN.chunks    the digests of its chunks (site_chunks.py)
    PATH/DEVICE.UUID/counter.json  the highest number that a copy of it was given
    PATH/DEVICE.UUID/TOKEN.partial one that is being made
    PATH/DEVICE.UUID/takeover.json which device goes on instead of this one (site_takeover.py)
    PATH/DEVICE.UUID/given-back.json       the takeovers that were given back

A copy begins as a reflink of a proven one, `.partial`. A rename gives the copy its name when all of
it is on the disk and its digest is that of the restore point: a run that dies earlier leaves no
copy of that name. A new run for a device removes the partial copies of runs before it, and so ends
one that still goes on.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sanctl.drivers.site_chunks import SUFFIX, WrittenChunks, chunks_of
from sanctl.drivers.site_copies import (
    COPY,
    COUNTER_NAME,
    FOLDER,
    KNOWN,
    copies_in,
    copies_of,
    counter_of,
    device_folders,
    names_in,
    next_number,
    note_of,
    protected_in,
    unread_in,
)
from sanctl.drivers.site_files import (
    clone,
    is_read,
    is_same_file,
    locked,
    punch,
    require_folder,
    sync_folder,
    unlink_if_there,
    write_file,
)
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    DIGEST_BYTES,
    RANGE,
    UPDATED,
    ZEROS,
    Line,
    SiteError,
    chunk_count,
    chunk_digests,
    digest_of,
    with_updated,
    write_all,
)
from sanctl.drivers.site_reader import Reader
from sanctl.drivers.site_takeover import (
    TAKEOVER_NAME,
    note_ending,
    note_takeover,
    read_endings,
    read_takeover,
    refuse_claim,
    refuse_taken_over,
    refuse_without_claim,
)

#: The format of what lies at a site. Another one is refused.
FORMAT = 1
MARK = "sanctl-site.json"
#: What is left free at a site, beside what a copy needs.
_SPARE_BYTES = 64 << 20
#: So much is written before it is flushed. Where a disk is slower than the line, the rest would
#: else be flushed in one step at the end, of hours.
_FLUSHED_BYTES = 16 << 20
#: How long what was removed may take until its blocks are free.
_FREED_S = 120.0
_ROOM_POLL_S = 0.5
_PARTIAL = re.compile(r"[0-9a-f]{16}\.partial")


class Receiver:
    """One connection's state: the site, the device's folder, the copy that is being made."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._path = self._folder = ""
        self._partial = ""
        self._handle = -1
        self._size_bytes = 0
        #: How much was written since the last flush.
        self._dirty_bytes = 0
        #: Copies were removed over this connection.
        self._has_removed = False
        #: The digests of the base's chunks, if that list is right; empty: there is none.
        self._base_chunks = b""
        self._written = WrittenChunks(0)
        #: The digest of the partial copy, and those of its chunks, if nothing was written since;
        #: empty: not known.
        self._digest, self._chunks = "", b""

    def close(self) -> None:
        """End; a copy that is not proven goes."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
            unlink_if_there(self._partial)

    # Commands. Each answers by one frame, `_put` and `_zero` by none.

    def hello(self) -> None:
        """Answer: the connection is made, and nothing was looked at."""
        self._line.answer()

    def survey(self, path: str, new_id: str) -> None:
        """Look at a directory, and mark it as a site unless it is one; answer with its id.

        One that is marked needs no room and may be mounted read-only: what is there is of use.
        """
        self._path = path
        require_folder(path)
        others = [each for each in os.listdir(path) if each != "lost+found"]
        if MARK not in others and others:
            raise SiteError(
                "SAN-SITE-006",
                f"{path} is no site yet, and not empty: it has {', '.join(sorted(others)[:4])}",
            )
        self._require_reflink(is_marked=MARK in others)
        if MARK not in others:
            text = json.dumps({"format": FORMAT, "id": new_id})
            write_file(f"{path}/{MARK}", text.encode())
        self._answer_state(self._require_mark())

    def folders(self, path: str, id: str) -> None:
        """Answer with the proven copies of all devices, by the names of their folders.

        A folder that the disk does not give keeps no other one: it is told as such.
        """
        self._require_site(path, id)
        found = {each: copies_of(f"{path}/{each}") for each in device_folders(path)}
        self._line.answer(
            folders={name: copies for name, (copies, _) in found.items()},
            unread={name: unread for name, (_, unread) in found.items() if unread},
        )

    def open(self, path: str, id: str, device: str) -> None:
        """Open a device's folder at the site; answer with its proven copies."""
        found = self._require_site(path, id)
        self._folder = self._path_of(device)
        self._answer_state(found)

    def takeovers(self, path: str, id: str) -> None:
        """Answer with who has taken which device over, by the names of their folders.

        What was given back is read last: it is written before the takeover is removed.
        """
        self._require_site(path, id)
        names = device_folders(path)
        found = {each: read_takeover(f"{path}/{each}") for each in names}
        ended = {each: read_endings(f"{path}/{each}") for each in names}
        self._line.answer(
            takeovers={name: known for name, known in found.items() if known is not None},
            endings={name: each for name, each in ended.items() if each},
        )

    def take_over(self, path: str, id: str, claims: dict[str, dict[str, Any]]) -> None:
        """Note which devices go on instead of others, all or none; answer which of that is new.

        Under the locks of the site and of each folder: whatever is decided by is there still when
        it is written. No copy comes meanwhile, and of two clusters that take the same devices over
        one has all. A takeover that a claim names ends by it.
        """
        self._require_site(path, id)
        folders = {device: self._made_folder(device) for device in sorted(claims)}
        with contextlib.ExitStack() as held:
            for each in (self._path, *folders.values()):
                held.enter_context(locked(each, self._line))
            for device, folder in folders.items():
                refuse_claim(folder, **claims[device])
            changed = {
                device: note_takeover(
                    folder, claims[device]["wanted"], claims[device].get("replaced")
                )
                for device, folder in folders.items()
            }
        self._line.answer(changed=changed)

    def give_back(
        self,
        path: str,
        id: str,
        device: str,
        ending: dict[str, object],
        holder: Sequence[str] = (),
    ) -> None:
        """End a takeover, also one that was lost here; answer whether there was one here.

        A device that takes it back has to go on instead of the other one still: `holder` is the
        folder of that one, and the UUID of the device.
        """
        self._require_site(path, id)
        folder = self._made_folder(device)
        with locked(self._path, self._line), locked(folder, self._line):
            if holder:
                refuse_without_claim(self._path_of(holder[0]), holder[1])
            changed = note_ending(folder, ending)
            unlink_if_there(f"{folder}/{TAKEOVER_NAME}")
            sync_folder(folder)
        self._line.answer(changed=changed)

    def _made_folder(self, device: str) -> str:
        folder = self._path_of(device)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        sync_folder(self._path)
        return folder

    def _require_site(self, path: str, wanted: str) -> str:
        """Return the mark of the site's directory, which has to be that one."""
        self._path = path
        found = self._require_mark()
        if found != wanted:
            raise SiteError(
                "SAN-SITE-006",
                f"{path} is another site than the one that was added: its mark is {found[:8]}..., "
                f"not {wanted[:8]}...",
            )
        return found

    def _path_of(self, device: str) -> str:
        if not FOLDER.fullmatch(device):
            raise SiteError("SAN-SITE-008", f"{device!r} is no name of a device's folder")
        return f"{self._path}/{device}"

    def _answer_state(self, mark: str) -> None:
        status = os.statvfs(self._path)
        self._line.answer(
            id=mark,
            copies=copies_in(self._folder) if self._folder else [],
            unread=unread_in(self._folder) if self._folder else [],
            free_bytes=status.f_bavail * status.f_frsize,
            total_bytes=status.f_blocks * status.f_frsize,
        )

    def begin(
        self, token: str, base: str, size_bytes: int, needed_bytes: int, folder: str = ""
    ) -> None:
        """Begin a copy: as the proven one with the token `base`, or all zeros.

        The base is in the folder of another device, if one is named. Answers whether there is a
        right list of the digests of its chunks, so that the copy may be proven by what changes.
        """
        list_bytes = chunk_count(size_bytes) * DIGEST_BYTES
        self._require_room(needed_bytes + list_bytes + _SPARE_BYTES)
        if not re.fullmatch(r"[0-9a-f]{16}", token):
            raise SiteError("SAN-SITE-008", f"{token!r} is no token")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        sync_folder(self._path)
        with locked(self._folder, self._line):
            refuse_taken_over(self._folder)
            self._clean_up()
            self._partial = f"{self._folder}/{token}.partial"
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            self._handle = os.open(self._partial, flags, 0o600)
            self._base_chunks = b""
            if base:
                self._clone(base, self._path_of(folder) if folder else self._folder, size_bytes)
        os.ftruncate(self._handle, size_bytes)
        self._size_bytes, self._dirty_bytes, self._digest = size_bytes, 0, ""
        self._written = WrittenChunks(size_bytes)
        self._line.answer(has_chunks=bool(self._base_chunks))

    def _require_room(self, needed_bytes: int) -> None:
        """Raise SiteError unless so much is free. XFS frees what was removed some time later."""
        deadline = time.monotonic() + (_FREED_S if self._has_removed else 0.0)
        while True:
            status = os.statvfs(self._path)
            free = status.f_bavail * status.f_frsize
            if free >= needed_bytes:
                return
            if time.monotonic() >= deadline:
                raise SiteError(
                    "SAN-SITE-007",
                    f"{self._path} has {free >> 20} MiB free, and the copy needs "
                    f"{needed_bytes >> 20} MiB",
                )
            self._line.alive()
            time.sleep(_ROOM_POLL_S)

    def _clone(self, base: str, folder: str, size_bytes: int) -> None:
        copy, origin = self._open_copy_in(folder, base)
        try:
            self._line.patiently(lambda: clone(origin, self._handle))
            # In a copy that has grown the last chunk of the list may be shorter than it is now.
            if size_bytes == copy["size_bytes"] == os.fstat(origin).st_size:
                self._base_chunks = chunks_of(folder, copy)
        finally:
            os.close(origin)

    def open_copy(self, token: str) -> int:
        """Open a proven copy of the device for reading."""
        return self._open_copy_in(self._folder, token)[1]

    def list_of(self, token: str, size_bytes: int) -> bytes:
        """Return the digests of the chunks of a proven copy of the device.

        Empty: there is no such copy of that size, or no right list of its chunks.
        """
        copies = copies_in(self._folder)
        copy = next((each for each in copies if each["token"] == token), None)
        is_it = copy is not None and copy["size_bytes"] == size_bytes
        return chunks_of(self._folder, copy) if copy is not None and is_it else b""

    def _open_copy_in(self, folder: str, token: str) -> tuple[dict[str, Any], int]:
        copy = next((each for each in copies_in(folder) if each["token"] == token), None)
        if copy is None:
            raise SiteError("SAN-SITE-018", f"the site has no copy {token}")
        path = f"{folder}/{copy['name']}.{token}"
        return copy, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _put(self, body: bytes) -> None:
        """Write a range of data."""
        at, length, is_compressed, wanted = RANGE.unpack_from(body)
        data = body[RANGE.size :]
        if is_compressed:
            try:
                data = zlib.decompressobj().decompress(data, CHUNK_BYTES)
            except zlib.error as error:
                raise SiteError("SAN-SITE-008", f"a range at byte {at}: {error}") from None
        if len(data) != length or hashlib.sha256(data).digest() != wanted:
            raise SiteError("SAN-SITE-008", f"the range at byte {at} did not come as it was sent")
        self._check_range(at, length)
        # A disk that is full of what is to be written holds up writers, for as long as it likes.
        self._line.patiently(lambda: write_all(self._handle, data, at))
        self._dirty_bytes += length
        if self._dirty_bytes >= _FLUSHED_BYTES:
            self._dirty_bytes = 0
            self._require_own()
            self._line.patiently(lambda: os.fdatasync(self._handle))

    def _zero(self, body: bytes) -> None:
        """Make a range zeros."""
        at, length = ZEROS.unpack(body)
        self._check_range(at, length)
        self._line.patiently(lambda: punch(self._handle, at, length))

    def _check_range(self, at: int, length: int) -> None:
        if self._handle < 0 or at + length > self._size_bytes:
            raise SiteError("SAN-SITE-008", f"a range at byte {at} is outside of the copy")
        self._digest = ""
        self._written.mark(at, length)
        self._line.alive()

    def _require_own(self) -> None:
        """Raise SiteError if a later run has removed the copy: what is sent would go nowhere."""
        if not is_same_file(self._handle, self._partial):
            raise SiteError("SAN-SITE-016", "a later run for this device has taken over")

    def chunks(self, *, only_changed: bool = False) -> None:
        """Flush, read the copy from the disk, and answer with the digests of its chunks.

        With `only_changed` what was written is read, and the answer has the base's list as well.
        """
        self._require_own()
        self._line.patiently(lambda: os.fsync(self._handle))
        os.posix_fadvise(self._handle, 0, 0, os.POSIX_FADV_DONTNEED)
        if not only_changed:
            self._chunks = chunk_digests(self._handle, self._size_bytes, self._line.alive)
            self._digest = digest_of(self._chunks, self._size_bytes)
            self._line.send(b"C", self._chunks)
            return
        if not self._base_chunks:
            raise SiteError("SAN-SITE-008", "there is no list of the base's chunks")
        written = self._written
        found = chunk_digests(self._handle, self._size_bytes, self._line.alive, written.numbers())
        self._chunks = with_updated(self._base_chunks, written.numbers(), found)
        self._digest = digest_of(self._chunks, self._size_bytes)
        self._line.send(b"C", self._base_chunks)
        updated = bytearray()
        for number in written.numbers():
            at = number * DIGEST_BYTES
            updated += UPDATED.pack(number, self._chunks[at : at + DIGEST_BYTES])
        self._line.send(b"U", bytes(updated))

    def prove(
        self,
        digest: str,
        name: str,
        token: str,
        *,
        group: Sequence[str] = (),
        left: Sequence[str] = (),
        after: int = -1,
        read_s: int = 0,
        **known: int,
    ) -> None:
        """Give the copy its name if its digest is that of the restore point; answer its number.

        It says the highest number that the device's copies had before its restore point was made.
        One of a group says which devices are of it, and which have left it. `read_s` is when the
        copy that it goes back to was read as a whole, if what has changed was alone.
        """
        if not self._digest or self._digest != digest:
            raise SiteError(
                "SAN-SITE-009", "the copy at the site is not equal to the restore point"
            )
        final = f"{self._folder}/{name}.{token}"
        if not COPY.fullmatch(f"{name}.{token}") or set(known) != set(KNOWN):
            raise SiteError("SAN-SITE-008", f"{name!r} is no name of a copy")
        with self._locks(of_group=bool(group)):
            refuse_taken_over(self._folder)
            self._require_own()
            folder = os.path.basename(self._folder)
            number = next_number(self._path, device_folders(self._path) if group else [folder])
            # First: a number is given once, also where the note of the copy cannot be read later.
            write_file(f"{self._folder}/{COUNTER_NAME}", counter_of(number))
            numbers = {"number": number, "after": after, "read_s": read_s}
            fields: dict[str, object] = {"digest": digest, **known, **numbers}
            write_file(f"{final}.json", note_of(folder, fields, group, left))
            write_file(f"{final}{SUFFIX}", self._chunks)
            os.fchmod(self._handle, 0o400)
            self._line.patiently(lambda: os.fsync(self._handle))
            os.rename(self._partial, final)
            sync_folder(self._folder)
        os.close(self._handle)
        self._handle = -1
        self._line.answer(number=number)

    def remove(self, tokens: list[str]) -> None:
        """Remove proven copies that nobody reads, and answer with their names.

        Those of a group's newest complete moment stay. Of copies of groups one removes or proves at
        a time at the site: else two that remove in the folders of one group might each count on a
        moment that the other one breaks. What a copy says of its group never changes.

        One that cannot be removed, as of a damaged filesystem, keeps no other one; the answer says
        which, and why.
        """
        removed, stuck = [], []
        has_group = any(
            each["group"] for each in copies_in(self._folder) if each["token"] in tokens
        )
        with self._locks(of_group=has_group):
            refuse_taken_over(self._folder)
            name = os.path.basename(self._folder)
            protected: frozenset[str] = protected_in(self._path, name) if has_group else frozenset()
            for each in copies_in(self._folder):
                token, path = str(each["token"]), f"{self._folder}/{each['name']}.{each['token']}"
                if token not in tokens or token in protected or (each["group"] and not has_group):
                    continue
                try:
                    if not is_read(path):
                        unlink_if_there(path)
                        sync_folder(self._folder)
                        removed.append(each["name"])
                        unlink_if_there(f"{path}.json")
                        unlink_if_there(f"{path}{SUFFIX}")
                except OSError as error:
                    stuck.append(f"{each['name']}: {error.strerror}")
        self._has_removed = self._has_removed or bool(removed)
        self._line.answer(removed=removed, stuck=stuck)

    @contextlib.contextmanager
    def _locks(self, *, of_group: bool) -> Iterator[None]:
        """Hold the device's lock, and with a copy of a group before that the site's."""
        with contextlib.ExitStack() as held:
            if of_group:
                held.enter_context(locked(self._path, self._line))
            held.enter_context(locked(self._folder, self._line))
            yield

    def _clean_up(self) -> None:
        """Remove what runs that died have left. Only one run has the lock, so none is at it."""
        names = names_in(self._folder)
        for name in names:
            copy, suffix = os.path.splitext(name)
            is_beside = suffix in {".json", SUFFIX} and COPY.fullmatch(copy)
            is_new = name.endswith((".json.new", f"{SUFFIX}.new"))
            if _PARTIAL.fullmatch(name) or (is_beside and copy not in names) or is_new:
                unlink_if_there(f"{self._folder}/{name}")

    def _require_mark(self) -> str:
        require_folder(self._path)
        try:
            with open(f"{self._path}/{MARK}", encoding="ascii") as file:
                mark = json.load(file)
            number, found = int(mark["format"]), str(mark.get("id", ""))
        except FileNotFoundError:
            raise SiteError(
                "SAN-SITE-006", f"{self._path} is no site: it has no {MARK}; is it mounted?"
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SiteError("SAN-SITE-006", f"{self._path}/{MARK} cannot be read") from None
        if number != FORMAT:
            raise SiteError(
                "SAN-SITE-013",
                f"{self._path} has format {number}, and this release of sanctl writes {FORMAT}",
            )
        return found

    def _require_reflink(self, *, is_marked: bool) -> None:
        """Raise SiteError unless files in the directory can share blocks; tried with two.

        In one that is marked no file may be possible: then a copy fails as it begins, and says why.
        """
        flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
        handles: list[int] = []
        try:
            for _ in range(2):
                handles.append(os.open(self._path, flags, 0o600))  # noqa: PERF401 - each is closed
            clone(*handles)
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY}:
                if is_marked:
                    return
                raise
            raise SiteError(
                "SAN-SITE-006",
                f"the filesystem of {self._path} cannot share blocks between files: XFS or btrfs "
                "is needed",
            ) from None
        finally:
            for each in handles:
                os.close(each)


def serve(line: Line) -> None:
    """Do what comes over the connection until it ends."""
    receiver = Receiver(line)
    reader = Reader(line, receiver.open_copy, receiver.list_of)
    commands: dict[str, Callable[..., None]] = {
        "hello": receiver.hello, "survey": receiver.survey, "open": receiver.open,
        "begin": receiver.begin, "chunks": receiver.chunks, "prove": receiver.prove,
        "remove": receiver.remove, "folders": receiver.folders, "read": reader.read,
        "changes": reader.changes,
        "takeovers": receiver.takeovers, "take_over": receiver.take_over,
        "give_back": receiver.give_back,
    }  # fmt: skip
    ranges = {b"R": receiver._put, b"Z": receiver._zero, b"W": reader.want}
    try:
        while (frame := line.read()) is not None:
            kind, body = frame
            if kind in ranges:
                ranges[kind](body)
                continue
            wanted = json.loads(body)
            commands[wanted.pop("do")](**wanted)
    except SiteError as error:
        line.answer(code=error.code, error=str(error))
    except OSError as error:
        if error.errno == errno.EPIPE:
            return  # Nobody listens any more.
        code = "SAN-SITE-007" if error.errno in {errno.ENOSPC, errno.EDQUOT} else "SAN-SITE-014"
        line.answer(code=code, error=str(error))
    except EOFError:
        pass
    finally:
        line.take_no_more()
        receiver.close()
        reader.close()


if __name__ == "__main__":
    serve(Line())
    sys.exit(0)
