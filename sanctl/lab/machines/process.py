# SPDX-License-Identifier: GPL-2.0-or-later
"""Long-lived processes of a laboratory: each starts a session, and is killed with all of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sanctl.errors import CommandError, Problem

_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
_KILL_DEADLINE_S = 15.0
_POLL_S = 0.02


class Process:
    """A process, known by its id and start time: a reused id is never mistaken for it."""

    __slots__ = ("pid", "started")

    def __init__(self, pid: int, started: str) -> None:
        self.pid = pid
        self.started = started

    @classmethod
    def of(cls, pid: int) -> Process:
        """Remember a process that is running now."""
        return cls(pid, _stat(pid)[1])

    @classmethod
    def load(cls, path: Path) -> Process | None:
        """Read what `save` wrote; None if the file is missing or damaged."""
        try:
            pid, started = path.read_text().split()
            return cls(int(pid), started)
        except (FileNotFoundError, ValueError):
            return None

    def save(self, path: Path) -> None:
        """Write the id and start time to a file for other commands."""
        path.write_text(f"{self.pid} {self.started}\n")

    def is_alive(self) -> bool:
        """Whether the process still runs; a zombie does not."""
        _collect(self.pid)
        state, started = _stat(self.pid)
        return started == self.started and state not in ("Z", "X", "")


def spawn(
    argv: Sequence[str],
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
) -> Process:
    """Start a process in a session of its own, its output appended to `log`.

    Raises:
        CommandError: there is no such program.
    """
    program = argv[0] if "/" in argv[0] else _find(argv[0])
    variables = {"PATH": _PATH, "LC_ALL": "C.UTF-8", **(env or {})}
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    pid = os.posix_spawn(
        program,
        list(argv),
        variables,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    return Process.of(pid)


def run_logged(
    argv: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    tick: Callable[[str], None],
) -> None:
    """Run a long program to its end with its output in `log`; `tick` gets its latest line.

    If this function is interrupted, the program and all its children are killed.

    Raises:
        CommandError: it failed, is missing or took too long.
    """
    process = spawn(argv, log=log)
    deadline = time.monotonic() + timeout_s
    try:
        while True:
            pid, status = os.waitpid(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                raise CommandError(
                    Problem("SAN-LAB-011", f"{argv[0]} took longer than {timeout_s:g} s", str(log))
                )
            tick(tail(log, 1))
            time.sleep(0.2)
    except BaseException:
        end_session(process)
        raise
    if os.waitstatus_to_exitcode(status) != 0:
        raise CommandError(
            Problem("SAN-LAB-012", f"{argv[0]} failed; the end of its log:\n{tail(log)}", str(log))
        )


def end_session(process: Process) -> None:
    """Kill a session leader and all processes of its session, and wait until they are gone.

    Raises:
        CommandError: a process is left after the deadline (uninterruptible in the kernel).
    """
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while True:
        left = session_members(process.pid)
        if not left and not process.is_alive():
            return
        _signal_group(process.pid)
        for pid in left:
            _signal(pid)
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-LAB-013", f"processes {left} survive SIGKILL", "see their /proc entry")
            )
        time.sleep(_POLL_S)


def end_namespace(netns: Path) -> None:
    """Kill all processes in a network namespace, and wait until they are gone.

    Raises:
        CommandError: a process is left after the deadline.
    """
    deadline = time.monotonic() + _KILL_DEADLINE_S
    while left := namespace_members(netns):
        for pid in left:
            _signal(pid)
        if time.monotonic() > deadline:
            raise CommandError(
                Problem("SAN-LAB-013", f"processes {left} survive SIGKILL", "see their /proc entry")
            )
        time.sleep(_POLL_S)


def namespace_members(netns: Path) -> list[int]:
    """The processes in a network namespace."""
    try:
        wanted = netns.stat()
    except FileNotFoundError:
        return []
    members = []
    for pid in _pids():
        try:
            seen = os.stat(f"/proc/{pid}/ns/net")
        except OSError:
            continue
        if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
            members.append(pid)
    return members


def session_members(leader: int) -> list[int]:
    """The living processes of a session."""
    members = []
    for pid in _pids():
        try:
            if os.getsid(pid) == leader:
                _collect(pid)
                if _stat(pid)[0] not in ("Z", "X", ""):
                    members.append(pid)
        except OSError:
            continue
    return members


def tail(log: Path, lines: int = 15) -> str:
    """The last lines of a log."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - 16384))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> tuple[str, str]:
    """Return a process's state letter and start time; empty when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return "", ""
    # The name in brackets may hold anything, brackets and spaces too.
    rest = text[text.rindex(")") + 2 :].split()
    return rest[0], rest[19]


def _collect(pid: int) -> None:
    """Reap a child that has ended, so that it does not stay a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


def _signal_group(pgid: int) -> None:
    try:
        os.killpg(pgid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _signal(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _find(program: str) -> str:
    for folder in _PATH.split(":"):
        candidate = f"{folder}/{program}"
        if os.access(candidate, os.X_OK):
            return candidate
    raise CommandError(Problem("SAN-LAB-010", f"{program}: no such program"))
