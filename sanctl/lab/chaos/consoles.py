# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what the machines' consoles have printed since the last look: panics, boot messages."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TAIL_BYTES = 4096


class _Position(NamedTuple):
    """How far a console log was read, and its last bytes: the inode of a file is used again."""

    read_bytes: int = 0
    tail: bytes = b""

    def is_in(self, text: bytes) -> bool:
        """Whether a text is the console log that was read up to this position."""
        return text[: self.read_bytes].endswith(self.tail) and len(text) >= self.read_bytes


class ConsoleReader:
    """Reads the console logs of a laboratory, each from where it was read last.

    A kernel that dies writes its panic nowhere else.

    Args:
        logs: each machine's console log, by the machine's name. At power on a machine begins a new
            log and keeps the one before as `console.previous.log`.
    """

    def __init__(self, logs: dict[str, Path]) -> None:
        self._logs = logs
        self._positions = {name: _end(_read(log)) for name, log in logs.items()}

    def new_lines(self, name: str) -> list[str]:
        """Return the lines that a machine's console has printed since the last call."""
        log, position = self._logs[name], self._positions[name]
        now = _read(log)
        self._positions[name] = _end(now)
        if position.is_in(now):
            texts = [now[position.read_bytes :]]
        else:
            # Switched on since, once or more often: only the log before the newest is kept.
            before = _read(log.with_suffix(".previous.log"))
            texts = [before[position.read_bytes if position.is_in(before) else 0 :], now]
        return [line for text in texts for line in text.decode(errors="replace").splitlines()]


def as_kernel_log(lines: Iterable[str]) -> list[str]:
    """Return console lines in the journal's form of kernel lines, for the same patterns."""
    return [f"kernel: {line}" for line in lines]


def _read(log: Path) -> bytes:
    try:
        return log.read_bytes()
    except FileNotFoundError:
        return b""


def _end(text: bytes) -> _Position:
    return _Position(len(text), text[-_TAIL_BYTES:])
