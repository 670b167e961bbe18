# SPDX-License-Identifier: GPL-2.0-or-later
"""What the cluster asks a second site, and what it sends there: the receiver, ranges, orders.

The site's end is site_receiver.py; the connection is in site_connection.py. The rollout asks nodes
of other releases for `receiver_source` and `receiver_script` here (rollout/site_access.py).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from sanctl.drivers import (
    site_chunks,
    site_copies,
    site_files,
    site_mark,
    site_partial,
    site_protocol,
    site_reader,
    site_receiver,
    site_takeover,
)
from sanctl.drivers.site_connection import SiteConnection
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    PART,
    RANGE,
    UPDATED,
    WANTED,
    ZEROS,
    chunk_count,
    with_updated,
)
from sanctl.model.site import ProvenCopy, Site
from sanctl.model.site_takeover import Claim, Ending, SiteTakeovers, Successor
from sanctl.plan.site import moments

_ZEROS = bytes(CHUNK_BYTES)


def receiver_source() -> bytes:
    """Return the text of the module that a site runs."""
    return Path(site_receiver.__file__).read_bytes()


def receiver_script(main: bytes) -> bytes:
    """Return the program that a site runs: a module, and before it those of ours that it imports.

    Args:
        main: the module's text.
    """
    lines = ["import sys, types"]
    for module in (
        site_protocol, moments, site_chunks, site_copies, site_files, site_mark, site_partial,
        site_reader, site_takeover,
    ):  # fmt: skip
        name, text = module.__name__, Path(str(module.__file__)).read_bytes()
        lines += [
            f"m = sys.modules[{name!r}] = types.ModuleType({name!r})",
            f"exec(compile({text!r}, {name!r}, 'exec'), m.__dict__)",
        ]
    lines.append(f"exec(compile({main!r}, 'sanctl', 'exec'))")
    return "\n".join(lines).encode()


class SiteLink(SiteConnection):
    """One connection, and what a site is asked over it; a context manager.

    Attributes:
        unread: the names of copies whose notes the site cannot read, by folder, as it said with
            the copies that it was asked for last. Each may be a newer one than those.
        stuck: which copies the site could not remove when it was told to last, and why.
    """

    def __init__(
        self,
        argv: Sequence[str],
        name: str,
        script: bytes,
        known_hosts: tempfile.TemporaryDirectory[str] | None = None,
    ) -> None:
        """Talk to a site's receiver by a program, as SiteConnection."""
        super().__init__(argv, name, script, known_hosts)
        self.unread: dict[str, tuple[str, ...]] = {}
        self.stuck: tuple[str, ...] = ()

    @classmethod
    def by_ssh(cls, site: Site) -> Self:
        """Return a connection by ssh. A site without a host key takes any: it is not known yet.

        Raises:
            Refused: this node does not have the private key.
        """
        return cls._over_ssh(site, receiver_script(receiver_source()))

    def hello(self) -> None:
        """Return once the connection is made."""
        self._ask("hello")

    def survey(self, path: str, new_id: str) -> str:
        """Have the site look at its directory, and mark it unless it is marked; return the mark."""
        return str(self._ask("survey", path=path, new_id=new_id)["id"])

    def open(self, path: str, mark: str, folder: str) -> tuple[ProvenCopy, ...]:
        """Open the folder of a device, DEVICE.UUID; return its proven copies."""
        answer = self._ask("open", path=path, id=mark, device=folder)
        self.unread = {folder: tuple(answer["unread"])} if answer["unread"] else {}
        return _copies(answer["copies"])

    def folders(self, path: str, mark: str) -> dict[str, tuple[ProvenCopy, ...]]:
        """Return the proven copies of all devices at the site, by folder, DEVICE.UUID."""
        found = self._ask("folders", path=path, id=mark)
        self.unread = {folder: tuple(names) for folder, names in found["unread"].items()}
        return {folder: _copies(copies) for folder, copies in found["folders"].items()}

    def takeovers(self, path: str, mark: str) -> SiteTakeovers:
        """Return which device goes on instead of which, and what was given back."""
        found = self._ask("takeovers", path=path, id=mark)
        return SiteTakeovers(
            {folder: Successor.of(fields) for folder, fields in found["takeovers"].items()},
            {folder: tuple(map(Ending.of, each)) for folder, each in found["endings"].items()},
        )

    def take_over(self, path: str, mark: str, claims: Mapping[str, Claim]) -> dict[str, bool]:
        """Note which devices go on instead of others, by the folders of these: all or none.

        Returns:
            Of each whether that is new.

        Raises:
            CommandError: a third one does already, a copy has come that was not seen, or the site
                cannot be reached.
        """
        fields = {folder: claim.fields for folder, claim in claims.items()}
        changed = self._ask("take_over", path=path, id=mark, claims=fields)["changed"]
        return {folder: bool(changed[folder]) for folder in claims}

    def give_back(
        self, path: str, mark: str, folder: str, ending: Ending, holder: Sequence[str] = ()
    ) -> bool:
        """End the takeover of a device, and note that; return whether the site had it.

        Args:
            path: the site's directory.
            mark: its mark.
            folder: the folder of the device that was taken over, DEVICE.UUID.
            ending: which takeover ends, and when.
            holder: only while a device goes on instead of another one: the folder of that one, and
                the UUID of the device.

        Raises:
            CommandError: another device has taken over meanwhile, `holder` is not so, or the site
                cannot be reached.
        """
        fields = ending.fields
        answer = self._ask(
            "give_back", path=path, id=mark, device=folder, ending=fields, holder=list(holder)
        )
        return bool(answer["changed"])

    def read(self, token: str, size_bytes: int) -> bytes:
        """Have the site read a proven copy of the opened device; return its chunks' digests.

        From then on `want` and `take` give its content.
        """
        self._send(
            b"J", json.dumps({"do": "read", "token": token, "size_bytes": size_bytes}).encode()
        )
        return self.chunks()

    def changes(self, base: str, token: str, size_bytes: int) -> tuple[bytes, bytes] | None:
        """Have the site read what a proven copy of the opened device has not from an earlier one.

        From then on `want` and `take` give the later one's content.

        Args:
            base: the earlier copy's token.
            token: the later copy's token.
            size_bytes: the size of both.

        Returns:
            The digests of the chunks of both; None: it has no right lists of both, or what it read
            is not as its list says.
        """
        answer = self._ask("changes", base=base, token=token, size_bytes=size_bytes)
        return self.changed_chunks(size_bytes) if answer["has_changes"] else None

    def want(self, number: int, blocks: bytes) -> None:
        """Ask for a chunk of the copy that is read.

        Args:
            number: the chunk's.
            blocks: the digests of the blocks that are there in its place; empty: send all of it.
        """
        self._send(b"W", WANTED.pack(number) + blocks)

    def take(self, number: int, chunk: bytearray) -> None:
        """Put what comes for the chunk that was wanted first into what is there in its place.

        Raises:
            CommandError: something else comes, or the connection is gone.
        """
        while True:
            kind, body = self._frame()
            if kind == b"E" and body == WANTED.pack(number):
                return
            if kind != b"D" or len(body) < PART.size:
                raise self._failed(body)
            begin, is_compressed = PART.unpack_from(body)
            data, at = body[PART.size :], begin - number * CHUNK_BYTES
            if is_compressed:
                try:
                    data = zlib.decompressobj().decompress(data, CHUNK_BYTES)
                except zlib.error:
                    raise self._failed(b"") from None
            if at < 0 or at + len(data) > len(chunk):
                raise self._failed(b"")
            chunk[at : at + len(data)] = data

    def begin(
        self, token: str, base: str, size_bytes: int, needed_bytes: int, folder: str = ""
    ) -> bool:
        """Begin a copy; return whether the site has the digests of the base's chunks, all right.

        Args:
            token: the token of the restore point.
            base: the token of the proven copy that it begins as; empty: all zeros.
            size_bytes: its size.
            needed_bytes: the room that it may need.
            folder: the folder of another device, DEVICE.UUID, that has the base; empty: the
                opened one.
        """
        answer = self._ask(
            "begin",
            token=token,
            base=base,
            size_bytes=size_bytes,
            needed_bytes=needed_bytes,
            folder=folder,
        )
        return bool(answer["has_chunks"])

    def put(self, at: int, data: bytes) -> None:
        """Send a range of data, of one chunk at most."""
        if data == _ZEROS[: len(data)]:
            self.zero(at, len(data))
            return
        packed = zlib.compress(data, 1)
        is_smaller = len(packed) < len(data)
        head = RANGE.pack(at, len(data), is_smaller, hashlib.sha256(data).digest())
        self._send(b"R", head + (packed if is_smaller else data))

    def zero(self, at: int, length: int) -> None:
        """Say that a range is zeros."""
        self._send(b"Z", ZEROS.pack(at, length))

    def ask_chunks(self, *, only_changed: bool = False) -> None:
        """Ask for the digests of all chunks of the copy; the site begins to read it.

        With `only_changed` it reads those that were written since the copy began.
        """
        self._send(b"J", json.dumps({"do": "chunks", "only_changed": only_changed}).encode())

    def chunks(self, alive: Callable[[], None] = lambda: None) -> bytes:
        """Return the digests of all chunks, one behind the other, once `ask_chunks` was called.

        `alive` is called at each sign of life of the site, which may read for hours.
        """
        kind, body = self._frame(alive)
        if kind != b"C":
            raise self._failed(body)
        return body

    def changed_chunks(
        self, size_bytes: int, alive: Callable[[], None] = lambda: None
    ) -> tuple[bytes, bytes]:
        """Return the digests of all chunks of the base, and of the copy that began as it.

        Once `ask_chunks` was called for those that have changed; of a copy of that size.
        """
        base = self.chunks(alive)
        kind, body = self._frame(alive)
        if kind != b"U" or len(body) % UPDATED.size:
            raise self._failed(body)
        updated = dict(UPDATED.iter_unpack(body))
        if any(number >= chunk_count(size_bytes) for number in updated):
            raise self._failed(b"")
        return base, with_updated(base, updated, b"".join(updated.values()))

    def prove(self, copy: ProvenCopy) -> ProvenCopy:
        """Have the copy become a proven one, if its digest is the restore point's.

        Returns:
            The copy with the number that the site has given it.
        """
        fields = {name: value for name, value in copy._asdict().items() if name != "number"}
        return copy._replace(number=int(self._ask("prove", **fields)["number"]))

    def remove(self, tokens: Sequence[str]) -> tuple[str, ...]:
        """Remove proven copies; return their names. Those that could not be are in `stuck`."""
        answer = self._ask("remove", tokens=list(tokens))
        self.stuck = tuple(answer["stuck"])
        return tuple(answer["removed"])


def _copies(found: Sequence[dict[str, Any]]) -> tuple[ProvenCopy, ...]:
    return tuple(
        ProvenCopy(**{**each, "group": tuple(each["group"]), "left": tuple(each["left"])})
        for each in found
    )
