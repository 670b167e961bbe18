# SPDX-License-Identifier: GPL-2.0-or-later
"""Files and sysfs paths that fail with EIO or ENOMEM when they are read."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import pytest

#: What a disk that fails answers, and a kernel that has no memory for the answer.
NUMBERS = (errno.EIO, errno.ENOMEM)


class Faults:
    """Paths whose reads fail with an error number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.numbers: dict[str, int] = {}
        for name in ("stat", "lstat", "open"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def at(self, path: object, number: int = errno.EIO) -> None:
        """Have every look at a path fail."""
        self.numbers[str(path)] = number

    def _failing(self, real: Callable[..., object]) -> Callable[..., object]:
        def call(path: object, *args: object, **options: object) -> object:
            asked = os.fspath(path) if isinstance(path, str | os.PathLike) else path
            number = self.numbers.get(asked) if isinstance(asked, str) else None
            if number is not None:
                raise OSError(number, os.strerror(number), asked)
            return real(path, *args, **options)

        return call
