"""What machines said on their consoles: a kernel that dies tells nobody else."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class _Mark(NamedTuple):
    """How far a console has been read: which file, and how much of it."""

    inode: int
    read_bytes: int


class Consoles:
    """Consoles of a laboratory, read on from where they were read last.

    Args:
        logs: where each machine's console goes, by its name. A machine that is switched on begins
            a new one, and keeps the one before as `console.previous.log`.
    """

    def __init__(self, logs: dict[str, Path]) -> None:
        self._logs = logs
        self._marks = {name: _end(log) for name, log in logs.items()}

    def news(self, name: str) -> list[str]:
        """Return the lines that a machine's console has had since the last time."""
        log, mark = self._logs[name], self._marks[name]
        lines: list[str] = []
        for path in (log.with_suffix(".previous.log"), log):
            try:
                with path.open("rb") as file:
                    inode = path.stat().st_ino
                    if path == log:
                        begin = mark.read_bytes if inode == mark.inode else 0
                        file.seek(begin)
                        text = file.read()
                        self._marks[name] = _Mark(inode, begin + len(text))
                    elif inode == mark.inode:
                        file.seek(mark.read_bytes)
                        text = file.read()
                    else:
                        continue
            except FileNotFoundError:
                continue
            lines += text.decode(errors="replace").splitlines()
        return lines


def as_journal(lines: Iterable[str]) -> list[str]:
    """Return a console's lines as the journal has those of the kernel, which it mostly shows."""
    return [f"kernel: {line}" for line in lines]


def _end(log: Path) -> _Mark:
    try:
        found = log.stat()
    except FileNotFoundError:
        return _Mark(0, 0)
    return _Mark(found.st_ino, found.st_size)
