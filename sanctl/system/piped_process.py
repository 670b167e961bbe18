# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that is talked to over its standard input and output for as long as it runs."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from sanctl.errors import CommandError, Problem

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_END_S = 5.0
_SHOWN_CHARACTERS = 400
_MOST_BYTES = 1 << 20


class PipedProcess:
    """The program; a context manager, at whose end it is gone."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Name the program and its arguments; never a shell line, never a secret."""
        self._argv = list(argv)

    def __enter__(self) -> Self:
        # A file, not a pipe: nobody reads it meanwhile. In memory: /tmp may be full, or read-only.
        self._errors = os.fdopen(os.memfd_create("errors"), "w+b")
        try:
            self._process = subprocess.Popen(
                self._argv,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_ENVIRONMENT,
            )
        except FileNotFoundError as error:
            self._errors.close()
            raise CommandError(
                Problem("SAN-CMD-001", f"{self._argv[0]}: no such program", "install its package")
            ) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        # Of this end alone: a write takes what fits, and does not wait for a reader that hangs.
        os.set_blocking(self._in.fileno(), False)
        #: What came while something was written, and was not asked for yet.
        self._came = bytearray()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._in.close()
        self._wait()
        self._out.close()
        self._errors.close()

    def _wait(self) -> None:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_END_S)

    def write(self, data: bytes | memoryview, *, silence_s: float) -> None:
        """Write all of some data. What comes meanwhile is kept for `read`.

        Raises:
            BrokenPipeError: the program has ended, or reads no more.
            TimeoutError: for that many seconds it took nothing, and nothing came.
        """
        left = memoryview(data)
        outputs = [self._out]
        while left:
            came, takes, _ = select.select(outputs, [self._in], [], silence_s)
            if not came and not takes:
                raise TimeoutError
            if takes:
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._in.fileno(), left) :]
            if came:
                part = os.read(self._out.fileno(), _MOST_BYTES)
                self._came += part
                # Its end is for `read` to find.
                outputs = outputs if part else []

    def read(self, length: int, *, silence_s: float) -> bytes | None:
        """Return so much of its output; None if the output ends before.

        Raises:
            TimeoutError: nothing came for that many seconds.
        """
        parts = [bytes(self._came[:length])]
        del self._came[:length]
        left = length - len(parts[0])
        while left:
            if not select.select([self._out], [], [], silence_s)[0]:
                raise TimeoutError
            part = os.read(self._out.fileno(), min(left, _MOST_BYTES))
            if not part:
                return None
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def end(self) -> tuple[int, str]:
        """Wait until it has ended, and return its exit status and the end of what it said.

        One that does not end is killed.
        """
        with contextlib.suppress(OSError):
            self._in.close()
        self._wait()
        status = self._process.poll()
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").strip()
        return -1 if status is None else status, text[-_SHOWN_CHARACTERS:]
