# SPDX-License-Identifier: GPL-2.0-or-later
"""A program that is talked to over its standard input and output for as long as it runs."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from sanctl.errors import CommandError, Problem

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_END_S = 5.0
_SHOWN_CHARACTERS = 400


class PipedProcess:
    """The program; a context manager, at whose end it is gone."""

    def __init__(self, argv: Sequence[str]) -> None:
        """Name the program and its arguments; never a shell line, never a secret."""
        self._argv = list(argv)

    def __enter__(self) -> Self:
        # A file, not a pipe: nobody reads it meanwhile.
        self._errors = tempfile.TemporaryFile()
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

    def write(self, data: bytes | memoryview) -> None:
        """Write all of some data.

        Raises:
            BrokenPipeError: the program has ended, or reads no more.
        """
        left = memoryview(data)
        while left:
            left = left[os.write(self._in.fileno(), left) :]

    def read(self, length: int, *, silence_s: float) -> bytes | None:
        """Return so much of its output; None if the output ends before.

        Raises:
            TimeoutError: nothing came for that many seconds.
        """
        parts, left = [], length
        while left:
            deadline = time.monotonic() + silence_s
            if not select.select([self._out], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError
            part = os.read(self._out.fileno(), min(left, 1 << 20))
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
