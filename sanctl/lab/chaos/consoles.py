# SPDX-License-Identifier: GPL-2.0-or-later
"""What machines said on their consoles: a kernel that dies tells nobody else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TAIL_BYTES = 4096


class _Mark(NamedTuple):
    """How far a console has been read, and what it said last: a file's inode is used again."""

    read_bytes: int = 0
    tail: bytes = b""

    def is_in(self, text: bytes) -> bool:
        """Whether that is a console of which this much was read."""
        return text[: self.read_bytes].endswith(self.tail) and len(text) >= self.read_bytes


class Consoles:
    """Consoles of a laboratory, read on from where they were read last.

    Args:
        logs: where each machine's console goes, by its name. A machine that is switched on begins
            a new one, and keeps the one before as `console.previous.log`.
    """

    def __init__(self, logs: dict[str, Path]) -> None:
        self._logs = logs
        self._marks = {name: _end(_read(log)) for name, log in logs.items()}

    def news(self, name: str) -> list[str]:
        """Return the lines that a machine's console has had since the last time."""
        log, mark = self._logs[name], self._marks[name]
        now = _read(log)
        self._marks[name] = _end(now)
        if mark.is_in(now):
            texts = [now[mark.read_bytes :]]
        else:
            # Switched on since, once or more often: what is kept is the one before the last.
            before = _read(log.with_suffix(".previous.log"))
            texts = [before[mark.read_bytes if mark.is_in(before) else 0 :], now]
        return [line for text in texts for line in text.decode(errors="replace").splitlines()]


def as_journal(lines: Iterable[str]) -> list[str]:
    """Return a console's lines as the journal has those of the kernel, which it mostly shows."""
    return [f"kernel: {line}" for line in lines]


def _read(log: Path) -> bytes:
    try:
        return log.read_bytes()
    except FileNotFoundError:
        return b""


def _end(text: bytes) -> _Mark:
    return _Mark(len(text), text[-_TAIL_BYTES:])
