# SPDX-License-Identifier: GPL-2.0-or-later
"""Running a program to its end: timeout, accepted exit statuses, errors; and one with a pipe.

With `piped_process` the only module outside the laboratory that starts programs (checked by
ruff). `subprocess` is imported when a program is first started: the agents' monitor path often
starts none, and the import is a good part of the cost of such a short process.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import time
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from sanctl.errors import CommandError, Problem

_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_SHOWN_CHARACTERS = 400
_KILLED_S = 0.2
# No process or memory for a fork, no file handle for a pipe: a node that is that short for a moment
# must not lose a promotion, or a stop, by it.
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ENFILE, errno.EMFILE})
_START_AGAIN_S, _POLL_S = 2.0, 0.1
_STDERR_BYTES = 1 << 20


class CommandResult(NamedTuple):
    """A finished program: its exit status, output and duration."""

    argv: tuple[str, ...]
    status: int
    stdout: str
    stderr: str
    duration_s: float


class Runner(Protocol):
    """Runs a program to its end."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a program and return its result.

        Args:
            argv: the program and its arguments; never a shell line, never a secret.
            timeout_s: seconds after which the program is killed.
            stdin: text for its standard input; without it the input is empty.
            ok: exit statuses that count as success.
            env: variables added to a small fixed environment.

        Raises:
            CommandError: the program is missing, ran out of time, or its status is not in `ok`.
        """
        ...


def is_installed(program: str) -> bool:
    """Whether a program can be found where LocalRunner looks for it."""
    return any(
        os.access(f"{folder}/{program}", os.X_OK) for folder in _ENVIRONMENT["PATH"].split(":")
    )


def _without_secrets(text: str) -> str:
    """Mask the secret in drbdadm's output, which gets into logs and the CIB."""
    import re  # noqa: PLC0415 - only after a failure

    return re.sub(r"(shared-secret[= ]\s*\"?)[^\s\";]+", r"\1***", text)


class LocalRunner:
    """Runs programs on this machine."""

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See Runner.run."""
        import subprocess  # noqa: PLC0415 - see the module's docstring

        begin = time.monotonic()
        shown = shlex.join(argv)
        while True:
            try:
                process = subprocess.Popen(
                    list(argv),
                    stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env={**_ENVIRONMENT, **(env or {})},
                )
                break
            except FileNotFoundError as error:
                raise CommandError(
                    Problem("SAN-CMD-001", f"{argv[0]}: no such program", "install its package")
                ) from error
            except OSError as error:
                passed_s = time.monotonic() - begin
                if error.errno in _PASSING and passed_s < min(timeout_s, _START_AGAIN_S):
                    time.sleep(_POLL_S)
                    continue
                raise CommandError(
                    Problem(
                        "SAN-CMD-004", f"{argv[0]} could not be started: {error.strerror or error}"
                    )
                ) from error
        try:
            stdout, stderr = process.communicate(stdin, timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            # A short wait only: a program that hangs in the kernel does not end even when killed,
            # and the caller has to reach its own defined end.
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_KILLED_S)
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            raise CommandError(
                Problem("SAN-CMD-002", f"no answer within {timeout_s:g} s: {shown}")
            ) from error
        result = CommandResult(
            tuple(argv), process.returncode, stdout, stderr, time.monotonic() - begin
        )
        if result.status not in ok:
            said = _without_secrets(stderr.strip() or stdout.strip() or "no message")
            said = said[-_SHOWN_CHARACTERS:]
            how = (
                f"exit status {result.status}"
                if result.status >= 0
                else f"killed by signal {-result.status}"
            )
            raise CommandError(Problem("SAN-CMD-003", f"{shown}: {how}: {said}"))
        return result


def run_in_own_group(
    argv: Sequence[str], *, timeout_s: float, env: Mapping[str, str]
) -> int | None:
    """Run a program whose output goes where this process's goes; return its exit status.

    It gets a session of its own. If it does not end in time it is killed, with what it has started
    in that session; else what it has left running stays.

    Args:
        argv: the program and its arguments, never a secret.
        timeout_s: seconds after which it is killed.
        env: variables added to a small fixed environment.

    Returns:
        Its exit status, negative for a signal; None: it was killed, as it did not end in time.

    Raises:
        CommandError: it could not be started.
    """
    import signal  # noqa: PLC0415 - see the module's docstring
    import subprocess  # noqa: PLC0415

    try:
        process = subprocess.Popen(
            list(argv),
            stdin=subprocess.DEVNULL,
            env={**_ENVIRONMENT, **env},
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(
            Problem("SAN-CMD-004", f"{argv[0]} could not be started: {error.strerror or error}")
        ) from error
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_S)
        return None


class PipedProgram:
    """A program whose input or output this process handles while it runs; a context manager.

    Left by an error, or before `finish`, the program is ended: by SIGTERM, and after a while by
    SIGKILL.
    """

    _END_S = 20.0

    def __init__(
        self, argv: Sequence[str], *, feeds: bool, env: Mapping[str, str] | None = None
    ) -> None:
        """Take the program and its arguments, never a secret.

        Args:
            argv: the program and its arguments.
            feeds: this process writes the program's standard input; else it reads its output.
            env: variables added to a small fixed environment.
        """
        self._argv, self._feeds, self._env = tuple(argv), feeds, env
        self._process: Any = None
        self._errors = -1

    def __enter__(self) -> Self:
        """Start the program.

        Raises:
            CommandError: it is missing, or could not be started.
        """
        import subprocess  # noqa: PLC0415 - see the module's docstring

        # Not a pipe: nobody reads it before the end, and a full one would stop the program.
        self._errors = os.memfd_create("stderr", os.MFD_CLOEXEC)
        try:
            self._process = subprocess.Popen(
                list(self._argv),
                stdin=subprocess.PIPE if self._feeds else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                env={**_ENVIRONMENT, **(self._env or {})},
            )
        except OSError as error:
            os.close(self._errors)
            code = "SAN-CMD-001" if isinstance(error, FileNotFoundError) else "SAN-CMD-004"
            raise CommandError(
                Problem(code, f"{self._argv[0]} could not be started: {error.strerror or error}")
            ) from error
        if self._feeds:
            # What is written waits by poll(2), with a limit (pipe_wait.py).
            os.set_blocking(self.pipe, False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import subprocess  # noqa: PLC0415

        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(self._END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_KILLED_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        os.close(self._errors)

    @property
    def pipe(self) -> int:
        """The file descriptor that this process writes to, or reads from."""
        stream = self._process.stdin if self._feeds else self._process.stdout
        return int(stream.fileno())

    def finish(self, *, timeout_s: float) -> CommandResult:
        """Close the pipe, and wait for the program's end; return its status, whatever that is.

        Raises:
            CommandError: it has not ended in time.
        """
        import subprocess  # noqa: PLC0415

        begin = time.monotonic()
        try:
            if self._feeds:
                # Closes the input; what it prints then is short.
                stdout, _ = self._process.communicate(timeout=timeout_s)
            else:
                stdout = b""
                self._process.stdout.close()
                self._process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            raise CommandError(
                Problem("SAN-CMD-002", f"no end within {timeout_s:g} s: {shlex.join(self._argv)}")
            ) from error
        stderr = os.pread(self._errors, _STDERR_BYTES, 0)
        return CommandResult(
            self._argv,
            self._process.returncode,
            stdout.decode(errors="replace"),
            stderr.decode(errors="replace"),
            time.monotonic() - begin,
        )


class DeadlineRunner:
    """Runs programs by another runner, all of them before one deadline.

    For several programs that together have to end by then, however long each of them may take.
    """

    def __init__(self, runner: Runner, deadline_s: float) -> None:
        """Run by `runner`, until a deadline on the monotonic clock."""
        self._runner = runner
        self._deadline_s = deadline_s

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: str | None = None,
        ok: Collection[int] = (0,),
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """See Runner.run; after the deadline it fails without starting the program."""
        left_s = self.limit_s(timeout_s, argv[0])
        return self._runner.run(argv, timeout_s=left_s, stdin=stdin, ok=ok, env=env)

    def limit_s(self, timeout_s: float, what: str) -> float:
        """Return how long something may take that may take `timeout_s` by itself.

        Raises:
            CommandError: no time is left.
        """
        left_s = min(timeout_s, self._deadline_s - time.monotonic())
        if left_s <= 0:
            raise CommandError(Problem("SAN-CMD-002", f"no time was left for {what}"))
        return left_s


def limit_s(runner: Runner, timeout_s: float, what: str) -> float:
    """Return how long something may take that is done beside a runner, by its deadline.

    Raises:
        CommandError: no time is left.
    """
    return runner.limit_s(timeout_s, what) if isinstance(runner, DeadlineRunner) else timeout_s
