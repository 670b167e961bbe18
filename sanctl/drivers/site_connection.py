# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection to a second site by ssh(1): frames there and back, at a rate, and how it ended.

What is asked over it is in site_link.py. The server's key is the one that was seen when the site
was added: ssh takes no other. Nothing of the user's or the machine's configuration of ssh is read.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sanctl.drivers.site_protocol import HEADER
from sanctl.errors import CommandError, Problem, Refused
from sanctl.model.site import Site, is_host_key
from sanctl.plan.site import pacing
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


class SiteConnection:
    """One connection; a context manager.

    Attributes:
        sent_bytes: what was sent so far, without what ssh adds.
        received_bytes: what came so far, without what ssh adds.
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
    def _over_ssh(cls, site: Site, script: bytes) -> Self:
        """Return a connection by ssh. A site without a host key takes any: it is not known yet.

        Args:
            site: the site.
            script: the receiver.

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
