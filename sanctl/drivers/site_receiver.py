# SPDX-License-Identifier: GPL-2.0-or-later
"""Program that a second site runs: takes copies of restore points, proves them, gives them back.

The cluster sends this module by ssh with each connection, as one script with the modules that it
imports; site_link.receiver_script lists them, so a new one has to be named there, too. Beside them
the program needs Python's standard library alone (3.9 or later). So both ends are of one release,
whatever the site's was before. The files at the site outlive releases, and have a format of their
own (site_mark.py).

    PATH/sanctl-site.json          the mark: the format, and an id that the cluster knows
    PATH/DEVICE.UUID/POINT.TOKEN   a proven copy, as raw as the device; nobody ever writes it
    PATH/DEVICE.UUID/POINT.TOKEN.json      what is known of it (site_copies.py)
    PATH/DEVICE.UUID/POINT.TOKEN.chunks    the digests of its chunks (site_chunks.py)
    PATH/DEVICE.UUID/counter.json  the highest number that a copy of it was given
    PATH/DEVICE.UUID/TOKEN.partial one that is being made (site_partial.py)
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
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from sanctl.drivers.site_chunks import SUFFIX, chunks_of
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
    open_copy,
    protected_in,
    unread_in,
)
from sanctl.drivers.site_files import is_read, locked, sync_folder, unlink_if_there, write_file
from sanctl.drivers.site_mark import mark_site, require_site
from sanctl.drivers.site_partial import PartialCopy
from sanctl.drivers.site_protocol import DIGEST_BYTES, Line, SiteError, chunk_count
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

#: What is left free at a site, beside what a copy needs.
_SPARE_BYTES = 64 << 20
#: How long what was removed may take until its blocks are free.
_FREED_S = 120.0
_ROOM_POLL_S = 0.5
_PARTIAL = re.compile(r"[0-9a-f]{16}\.partial")
_TOKEN = re.compile(r"[0-9a-f]{16}")


class Receiver:
    """One connection's state: the site, the device's folder, the copy that is being made."""

    def __init__(self, line: Line, partial: PartialCopy) -> None:
        self._line, self._partial = line, partial
        self._path = self._folder = ""
        #: Copies were removed over this connection.
        self._has_removed = False

    # Commands. Each answers by one frame.

    def hello(self) -> None:
        """Answer: the connection is made, and nothing was looked at."""
        self._line.answer()

    def survey(self, path: str, new_id: str) -> None:
        """Look at a directory, and mark it as a site unless it is one; answer with its id.

        One that is marked needs no room and may be mounted read-only: what is there is of use.
        """
        self._path = path
        self._answer_state(mark_site(path, new_id))

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
        return require_site(path, wanted)

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
        if not _TOKEN.fullmatch(token):
            raise SiteError("SAN-SITE-008", f"{token!r} is no token")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        sync_folder(self._path)
        with locked(self._folder, self._line):
            refuse_taken_over(self._folder)
            self._clean_up()
            self._partial.create(f"{self._folder}/{token}.partial")
            if base:
                origin = self._path_of(folder) if folder else self._folder
                self._partial.begin_as(base, origin, size_bytes)
        has_chunks = self._partial.resize(size_bytes)
        self._line.answer(has_chunks=has_chunks)

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

    def open_copy(self, token: str) -> int:
        """Open a proven copy of the device for reading."""
        return open_copy(self._folder, token)[1]

    def list_of(self, token: str, size_bytes: int) -> bytes:
        """Return the digests of the chunks of a proven copy of the device.

        Empty: there is no such copy of that size, or no right list of its chunks.
        """
        copies = copies_in(self._folder)
        copy = next((each for each in copies if each["token"] == token), None)
        is_it = copy is not None and copy["size_bytes"] == size_bytes
        return chunks_of(self._folder, copy) if copy is not None and is_it else b""

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
        if not self._partial.is_equal(digest):
            raise SiteError(
                "SAN-SITE-009", "the copy at the site is not equal to the restore point"
            )
        final = f"{self._folder}/{name}.{token}"
        if not COPY.fullmatch(f"{name}.{token}") or set(known) != set(KNOWN):
            raise SiteError("SAN-SITE-008", f"{name!r} is no name of a copy")
        with self._locks(of_group=bool(group)):
            refuse_taken_over(self._folder)
            self._partial.require_own()
            folder = os.path.basename(self._folder)
            number = next_number(self._path, device_folders(self._path) if group else [folder])
            # First: a number is given once, also where the note of the copy cannot be read later.
            write_file(f"{self._folder}/{COUNTER_NAME}", counter_of(number))
            numbers = {"number": number, "after": after, "read_s": read_s}
            fields: dict[str, object] = {"digest": digest, **known, **numbers}
            write_file(f"{final}.json", note_of(folder, fields, group, left))
            self._partial.rename(final)
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


def serve(line: Line) -> None:
    """Do what comes over the connection until it ends."""
    partial = PartialCopy(line)
    receiver = Receiver(line, partial)
    reader = Reader(line, receiver.open_copy, receiver.list_of)
    commands: dict[str, Callable[..., None]] = {
        "hello": receiver.hello, "survey": receiver.survey, "open": receiver.open,
        "begin": receiver.begin, "chunks": partial.chunks, "prove": receiver.prove,
        "remove": receiver.remove, "folders": receiver.folders, "read": reader.read,
        "changes": reader.changes,
        "takeovers": receiver.takeovers, "take_over": receiver.take_over,
        "give_back": receiver.give_back,
    }  # fmt: skip
    ranges = {b"R": partial.put, b"Z": partial.zero, b"W": reader.want}
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
        partial.close()
        reader.close()


if __name__ == "__main__":
    serve(Line())
    sys.exit(0)
