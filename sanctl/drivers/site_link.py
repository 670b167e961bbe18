# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster's end of a connection to a second site, by ssh(1); the site's is site_receiver.py.

The server's key is the one that was seen when the site was added: ssh takes no other. Nothing of
the user's or the machine's configuration of ssh is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
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
from sanctl.drivers.site_protocol import (
    CHUNK_BYTES,
    HEADER,
    PART,
    RANGE,
    UPDATED,
    WANTED,
    ZEROS,
    chunk_count,
    with_updated,
)
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.site import ProvenCopy, Site, is_host_key
from sanctl.model.site_takeover import Claim, Ending, SiteTakeovers, Successor
from sanctl.plan.site import moments, pacing
from sanctl.system.clock import Clock, SystemClock
from sanctl.system.files import exists, read_text
from sanctl.system.piped_process import PipedProcess

#: The name under which ssh looks the server's key up, whatever its address.
_ALIAS = "site.sanctl"
#: The site gives a sign of life every 15 s, whatever it does.
_SILENCE_S = 90.0
_SSH_FAILED = 255
_KEY_CHANGED = "Host key verification failed"
_OPTIONS = (
    "BatchMode=yes", "IdentitiesOnly=yes", "GlobalKnownHostsFile=/dev/null",
    f"HostKeyAlias={_ALIAS}", "CheckHostIP=no", "HashKnownHosts=no", "UpdateHostKeys=no",
    "ConnectTimeout=20", "ServerAliveInterval=15", "ServerAliveCountMax=4",
    "ClearAllForwardings=yes", "ForwardAgent=no", "LogLevel=ERROR",
    "PreferredAuthentications=publickey",
)  # fmt: skip
_LOADER = """import os,zlib
d=b""
while len(d)<{length}:
 c=os.read(0,{length}-len(d))
 if not c: raise SystemExit(1)
 d+=c
d=zlib.decompress(d)
exec(compile(d,"sanctl","exec"))"""
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


class SiteLink:
    """One connection; a context manager.

    Attributes:
        sent_bytes: what was sent so far, without what ssh adds.
        received_bytes: what came so far, without what ssh adds.
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
        """Talk to a site's receiver by a program.

        Args:
            argv: the program, which runs what follows its arguments on the site's server.
            name: the site's name, for messages.
            script: the receiver.
            known_hosts: the folder with ssh's list of keys, which goes with the connection.
        """
        self._name = name
        self._known_hosts = known_hosts
        self._script = zlib.compress(script, 9)
        loader = _LOADER.format(length=len(self._script))
        self._process = PipedProcess([*argv, f"python3 -c '{loader}'"])
        self.sent_bytes = self.received_bytes = 0
        self.unread: dict[str, tuple[str, ...]] = {}
        self.stuck: tuple[str, ...] = ()
        self._pace: pacing.Pace | None = None
        self._clock: Clock = SystemClock()

    @property
    def limit_bytes_s(self) -> int:
        """How much is sent in a second at most; 0: as much as the line takes."""
        return self._pace.rate_bytes_s if self._pace is not None else 0

    def limit(self, rate_bytes_s: int, clock: Clock) -> None:
        """Send so much in a second at most from now on; 0: as much as the line takes.

        What comes is not limited.
        """
        self._clock = clock
        begun = pacing.begin(rate_bytes_s, clock.monotonic_s()) if rate_bytes_s else None
        self._pace = begun

    @classmethod
    def by_ssh(cls, site: Site) -> Self:
        """Return a connection by ssh. A site without a host key takes any: it is not known yet.

        Raises:
            Refused: this node does not have the private key.
        """
        if not exists(site.identity):
            raise Refused(
                Problem(
                    "SAN-SITE-004",
                    f"{os.uname().nodename} has no {site.identity}, the private key for site "
                    f"{site.name}",
                    "put the same key on each storage node, readable by root alone",
                )
            )
        folder = tempfile.TemporaryDirectory(prefix="site-")
        known_hosts = f"{folder.name}/known_hosts"
        line = f"{_ALIAS} {site.host_key}\n" if site.host_key else ""
        Path(known_hosts).write_text(line, encoding="ascii")
        strict = "yes" if site.host_key else "accept-new"
        keys = (f"UserKnownHostsFile={known_hosts}", f"StrictHostKeyChecking={strict}")
        words = [word for option in (*_OPTIONS, *keys) for word in ("-o", option)]
        target = f"{site.user}@{site.host.strip('[]')}"
        argv = ["ssh", "-F", "none", "-T", "-i", site.identity, "-p", str(site.port), *words]
        script = receiver_script(receiver_source())
        return cls([*argv, "--", target], site.name, script, folder)

    def __enter__(self) -> Self:
        self._process.__enter__()
        try:
            self._write(self._script)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.__exit__(kind, error, trace)
        if self._known_hosts is not None:
            self._known_hosts.cleanup()

    def host_key(self) -> str:
        """Return the server's key, as this connection has seen it.

        Raises:
            CommandError: ssh has noted none.
        """
        assert self._known_hosts is not None
        for line in read_text(f"{self._known_hosts.name}/known_hosts").splitlines():
            key = " ".join(line.split(" ")[1:3])
            if is_host_key(key):
                return key
        raise CommandError(Problem("SAN-SITE-005", f"site {self._name}: ssh has noted no host key"))

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

    def _ask(self, command: str, **fields: object) -> dict[str, Any]:
        self._send(b"J", json.dumps({"do": command, **fields}).encode())
        kind, body = self._frame()
        try:
            answer: dict[str, Any] = json.loads(body)
        except ValueError:
            raise self._failed(body) from None
        if kind != b"J" or "error" in answer:
            raise self._failed(body)
        return answer

    def _send(self, kind: bytes, body: bytes) -> None:
        self._write(HEADER.pack(kind, len(body)) + body)

    def _write(self, data: bytes) -> None:
        if self._pace is None:
            self._write_piece(data)
            return
        step = pacing.piece_bytes(self._pace.rate_bytes_s)
        with memoryview(data) as view:
            for at in range(0, len(data), step):
                with view[at : at + step] as piece:
                    self._write_piece(piece)
                    length = len(piece)
                self._pace, pause_s = pacing.after(self._pace, length, self._clock.monotonic_s())
                if pause_s:
                    self._clock.sleep(pause_s)

    def _write_piece(self, data: bytes | memoryview) -> None:
        try:
            self._process.write(data, silence_s=_SILENCE_S)
        except (BrokenPipeError, TimeoutError):
            # What the site has said before it ended, or before its disk hung, says why.
            kind, body = self._frame()
            raise self._failed(body if kind == b"J" else b"") from None
        self.sent_bytes += len(data)

    def _frame(self, alive: Callable[[], None] = lambda: None) -> tuple[bytes, bytes]:
        """Return the next frame that is no sign of life."""
        try:
            while True:
                head = self._process.read(HEADER.size, silence_s=_SILENCE_S)
                if head is None:
                    raise self._broken()
                kind, length = HEADER.unpack(head)
                body = self._process.read(length, silence_s=_SILENCE_S)
                if body is None:
                    raise self._broken()
                self.received_bytes += len(head) + length
                if kind != b"A":
                    return kind, body
                alive()
        except TimeoutError:
            raise CommandError(
                Problem("SAN-SITE-005", f"site {self._name} said nothing for {_SILENCE_S:g} s")
            ) from None

    def _failed(self, body: bytes) -> CommandError:
        """Return the error that the site has reported."""
        try:
            answer = json.loads(body)
            problem = Problem(str(answer["code"]), f"site {self._name}: {answer['error']}")
        except (ValueError, KeyError, TypeError):
            problem = Problem("SAN-SITE-008", f"site {self._name} answered what was not asked")
        return CommandError(problem)

    def _broken(self) -> CommandError:
        status, said = self._process.end()
        line = said.splitlines()[-1] if said else f"ssh ended with status {status}"
        if _KEY_CHANGED in said:
            return CommandError(
                Problem(
                    "SAN-SITE-015",
                    f"the server of site {self._name} shows another key than when the site was "
                    "added",
                    "find out why: somebody else may answer. If the server was installed anew, "
                    f"'sanctl site set {self._name} --host-key SHA256:...' takes its new key; "
                    "'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' there shows it. Do not "
                    "remove the site: what is noted of takeovers would go with it",
                )
            )
        what = "cannot be reached" if status == _SSH_FAILED else "ended the connection"
        return CommandError(Problem("SAN-SITE-005", f"site {self._name} {what}: {line}"))


def _copies(found: Sequence[dict[str, Any]]) -> tuple[ProvenCopy, ...]:
    return tuple(
        ProvenCopy(**{**each, "group": tuple(each["group"]), "left": tuple(each["left"])})
        for each in found
    )
