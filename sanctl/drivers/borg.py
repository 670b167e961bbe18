# SPDX-License-Identifier: GPL-2.0-or-later
"""borg: the archives of one repository. Each has a device's image, and a file of its digest.

An archive gets its name as a backup last (`keep`), when borg has stored all of it, and the process
that has read the device has seen that. An archive of another name is no backup: borg also keeps
one of a stream that broke off at the end of a file.
"""

from __future__ import annotations

import contextlib
import os
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sanctl.drivers import block_stream, borg_access
from sanctl.drivers.borg_problems import NO_CACHE, problem_of
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import WRITING, Backup, BackupName, Repository
from sanctl.parse.borg import (
    LOCK_FOLDER,
    LOCK_TIMEOUT,
    Writer,
    backups_of,
    comment_of,
    parse_archives,
    parse_failure,
    parse_lock_holder,
    parse_stored_bytes,
)
from sanctl.system import pipe_wait
from sanctl.system.runner import CommandResult, PipedProgram, Runner

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
#: A device's changes are stored in units of that. A smaller one costs memory, here and on the other
#: server, and in each archive: about 300 MiB for a million chunks.
CHUNK_BYTES = 1 << 20
_COMPRESSION = "zstd,3"
#: How long borg waits for another one that has the repository.
LOCK_S = 60
#: After so many seconds of that it is said what is waited for.
SAY_AFTER_S = 5
_KEEP_LOCK_S = 12 * 3600
_ASK_S, _LONG_S = 300.0, 24 * 3600.0
#: How long borg may neither take nor give anything: it may build its cache anew. A server that
#: hangs must not keep a backup, with its lock and its restore point, for ever.
SILENCE_S = 3600.0
#: Devices that hosts use come first.
PROGRAM = ("nice", "-n", "19", "ionice", "-c", "3", "borg")
_ANY = range(256)
#: Of a look: less than another command waits for the repository.
_LOOK_S = 45.0
_TIMED_OUT = 124  # timeout(1)
_MEMBER_BYTES = 4096
_BLOCK = tarfile.BLOCKSIZE


def _cache_made_anew(
    *, lock_s: int = 0
) -> Callable[
    [Callable[Concatenate[Borg, _Given], _Result]], Callable[Concatenate[Borg, _Given], _Result]
]:
    """Have a method that needs borg's cache begin again without it, where it cannot be read.

    borg renames the copies that it would go back to before they are on the disk. After a loss of
    power they, and so the cache, can be empty, and each later backup of this node failed. The cache
    is deleted once: the next error is another.

    Args:
        lock_s: how long the method waits for the repository, where it waits longer than others.
    """

    def patient(
        work: Callable[Concatenate[Borg, _Given], _Result],
    ) -> Callable[Concatenate[Borg, _Given], _Result]:
        @wraps(work)
        def again(borg: Borg, /, *args: _Given.args, **given: _Given.kwargs) -> _Result:
            try:
                return work(borg, *args, **given)
            except CommandError as error:
                if error.problems[0].code != NO_CACHE:
                    raise
            borg.forget_cache(lock_s=lock_s)
            return work(borg, *args, **given)

        return again

    return patient


class Borg:
    """The archives of one repository.

    Attributes:
        repository: where it is.
        lock_s: how long each command waits for another one that has the repository, in seconds.
        on_wait: is told once a command has waited some seconds, and for how many more it does;
            None: nobody is. What is read from a pipe, or written to one, tells nobody.
    """

    def __init__(self, runner: Runner, repository: Repository, *, lock_s: int = LOCK_S) -> None:
        self._runner = runner
        self.repository = repository
        self.lock_s = lock_s
        self.on_wait: Callable[[int], None] | None = None

    def init(self) -> None:
        """Make the repository.

        Raises:
            CommandError: there is one, or it cannot be made.
        """
        self._ask("init", "--encryption", "repokey-blake2", self._at())

    def look(self) -> None:
        """Return once borg has named the newest archive: it gets into the repository.

        It keeps a lock meanwhile, for which a backup waits a minute. So it is ended before that, by
        SIGTERM: killed it would leave the lock.

        Raises:
            CommandError: the repository cannot be read, or not in time.
        """
        command = ("list", "--last", "1", "--short", self._at())
        argv, env = self._command(command, self.lock_s)
        ended = ("timeout", "--kill-after=10", f"{_LOOK_S:.0f}", *argv)
        result = self._runner.run(ended, timeout_s=_LOOK_S + 20.0, ok=_ANY, env=env)
        if result.status == _TIMED_OUT:
            text = f"repository {self.repository.name}: borg has named no archive for {_LOOK_S:g} s"
            hint = "does its filesystem or its server hang, or is it very slow?"
            raise CommandError(Problem("SAN-BKP-021", text, hint))
        self._checked(result)

    def archives(self) -> dict[str, str]:
        """Return all archives with their comments, also those that are no backups.

        Raises:
            CommandError: the repository cannot be read.
        """
        command = ("list", "--consider-checkpoints", "--json", "--format", "{comment}")
        output = self._ask(*command, self._at()).stdout
        try:
            return parse_archives(output)
        except ValueError as error:
            raise CommandError(Problem("SAN-BKP-015", f"borg list: {error}")) from error

    def backups(self) -> tuple[Backup, ...]:
        """Return the whole backups, the oldest of each device first.

        Raises:
            CommandError: the repository cannot be read.
        """
        return backups_of(self.archives(), self.repository.name)

    @_cache_made_anew()
    def store(
        self,
        name: BackupName,
        path: str,
        size_bytes: int,
        progress: Callable[[int], None],
        *,
        uuid: str,
        writer: Writer,
    ) -> tuple[str, int | None]:
        """Store a device's image in an archive that is no backup yet (`keep`).

        Args:
            name: the name of the backup that it is to be.
            path: the file that is read.
            size_bytes: how much of it.
            progress: is called with the bytes that have been read so far.
            uuid: the device's UUID.
            writer: this node, and the time now.

        Returns:
            The SHA-256 of what was read; and the bytes that were added to the repository.

        Raises:
            CommandError: it was not stored.
            OSError: the file cannot be read.
        """
        argv = (
            "import-tar", "--json", "--comment", comment_of(size_bytes, uuid, writer),
            "--timestamp", _timestamp(name.taken_s),
            "--chunker-params", f"fixed,{CHUNK_BYTES}", "--compression", _COMPRESSION,
            "--checkpoint-interval", "300", self._at(f"{name}{WRITING}"), "-",
        )  # fmt: skip
        done = 0

        def write(data: bytes | memoryview) -> None:
            # It takes nothing before it has the repository.
            pipe_wait.write_all(program.pipe, data, silence_s=SILENCE_S + self.lock_s)

        def feed(part: memoryview) -> None:
            nonlocal done
            write(part)
            done += len(part)
            progress(done)

        with self._piped(*argv, feeds=True) as program:
            digest = ""
            try:
                write(_header(name.image, size_bytes, name.taken_s))
                digest = block_stream.read_through(path, size_bytes, feed)
                write(bytes(-size_bytes % _BLOCK))
                text = f"{digest}  {name.image}\n".encode()
                write(_header(name.digest_file, len(text), name.taken_s))
                write(text + bytes(-len(text) % _BLOCK) + bytes(2 * _BLOCK))
            except BrokenPipeError:
                digest = ""  # borg has ended, and says why.
            except TimeoutError as error:
                raise self._hung() from error
            result = self._checked(program.finish(timeout_s=_LONG_S))
        if not digest:
            raise CommandError(Problem("SAN-BKP-015", "borg ended before it had read all"))
        return digest, parse_stored_bytes(result.stdout)

    @_cache_made_anew(lock_s=_KEEP_LOCK_S)
    def keep(self, name: BackupName) -> None:
        """Make the archive that `store` has written a backup.

        Raises:
            CommandError: it is none yet, as far as is known.
        """
        # What was read for hours is not given up because another backup has the repository now.
        argv = ("rename", self._at(f"{name}{WRITING}"), str(name))
        self._ask(*argv, timeout_s=_LONG_S, lock_s=_KEEP_LOCK_S)

    def delete(self, archives: tuple[str, ...]) -> None:
        """Delete archives; their room is free after `compact`.

        Raises:
            CommandError: not all of them are deleted.
        """
        for archive in archives:
            self._delete(archive)

    def compact(self) -> None:
        """Give back the room of what was deleted.

        Raises:
            CommandError: it failed.
        """
        self._ask("compact", self._at(), timeout_s=_LONG_S)

    def recorded_digest(self, name: BackupName) -> str:
        """Return the SHA-256 that was noted when the device was read.

        Raises:
            CommandError: there is no such backup, or none is in it.
        """
        text = b""
        with self.reading(name, name.digest_file) as pipe:
            while len(text) < _MEMBER_BYTES:
                pipe_wait.await_data(pipe, silence_s=SILENCE_S + self.lock_s)
                part = os.read(pipe, _MEMBER_BYTES)
                if not part:
                    break
                text += part
        return text.decode(errors="replace").partition(" ")[0]

    @contextmanager
    def reading(self, name: BackupName, member: str) -> Iterator[int]:
        """Have the caller read a file of a backup, to its end, from the descriptor that it gets.

        Raises:
            CommandError: it could not be read, or only in part.
        """
        argv = ("extract", "--stdout", self._at(str(name)), member)
        with self._piped(*argv, feeds=False) as program:
            try:
                yield program.pipe
            except TimeoutError as error:
                raise self._hung() from error
            except OSError as error:
                # What borg says comes first: the caller has only seen that the data ended.
                result = program.finish(timeout_s=_ASK_S)
                if result.status:
                    raise self._error(result) from error
                raise
            self._checked(program.finish(timeout_s=_ASK_S))

    @_cache_made_anew()
    def _delete(self, archive: str) -> None:
        self._ask("delete", self._at(archive), timeout_s=_LONG_S)

    def forget_cache(self, *, lock_s: int = 0) -> None:
        """Delete what this node's borg knows of the repository: borg reads it there again.

        Args:
            lock_s: how long to wait for the repository, where that is longer than `self.lock_s`.

        Raises:
            CommandError: it is still there.
        """
        argv = ("delete", "--cache-only", self._at())
        self._ask(*argv, timeout_s=_LONG_S, lock_s=lock_s)

    def lock_holder(self) -> str:
        """Return which process has the repository for itself; empty: it is not known.

        Of a repository on another server nothing is known.
        """
        if not self.repository.is_remote:
            with contextlib.suppress(OSError):
                for name in os.listdir(f"{self.repository.location}/{LOCK_FOLDER}"):
                    return parse_lock_holder(name)
        return ""

    def _at(self, archive: str = "") -> str:
        return f"{self.repository.location}{'::' if archive else ''}{archive}"

    def _ask(self, *arguments: str, timeout_s: float = _ASK_S, lock_s: int = 0) -> CommandResult:
        lock_s = max(lock_s, self.lock_s)
        if self.on_wait is not None and lock_s > SAY_AFTER_S:
            # borg says nothing while it waits; without the lock it has done nothing.
            # Its whole time, all the same: it may have the lock at once, and have much to read.
            result = self._run(arguments, timeout_s + lock_s - SAY_AFTER_S, SAY_AFTER_S)
            if not result.status or parse_failure(result.stderr).kind != LOCK_TIMEOUT:
                return self._checked(result)
            lock_s -= SAY_AFTER_S
            self.on_wait(lock_s)
        return self._checked(self._run(arguments, timeout_s, lock_s))

    def _run(self, arguments: tuple[str, ...], timeout_s: float, lock_s: int) -> CommandResult:
        argv, env = self._command(arguments, lock_s)
        # What it waits for the repository is not time that it takes.
        return self._runner.run(argv, timeout_s=timeout_s + lock_s, ok=_ANY, env=env)

    def _piped(self, *arguments: str, feeds: bool) -> PipedProgram:
        argv, env = self._command(arguments, self.lock_s)
        return PipedProgram(argv, feeds=feeds, env=env)

    def _command(
        self, arguments: tuple[str, ...], lock_s: int
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        borg_access.check_secret(borg_access.passphrase_file(self.repository))
        common = ("--log-json", "--lock-wait", str(lock_s))
        env = {
            **borg_access.environment(self.repository),
            # Each would be asked on a terminal; nobody is there.
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "no",
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "no",
        }
        os.makedirs(borg_access.BASE, mode=0o700, exist_ok=True)
        return (*PROGRAM, arguments[0], *common, *arguments[1:]), env

    def _checked(self, result: CommandResult) -> CommandResult:
        if result.status:
            raise self._error(result)
        return result

    def _hung(self) -> CommandError:
        return CommandError(
            Problem(
                "SAN-BKP-021",
                f"repository {self.repository.name}: borg has done nothing for {SILENCE_S:g} s, "
                "and was ended",
                "does its filesystem or its server hang?",
            )
        )

    def _error(self, result: CommandResult) -> CommandError:
        name = self.repository.name
        if result.status in {126, 127}:
            hint = "install the package borgbackup on this node"
            return CommandError(Problem("SAN-BKP-019", "borg is not installed here", hint))
        if result.status < 0:
            return CommandError(
                Problem("SAN-BKP-015", f"repository {name}: borg was killed ({-result.status})")
            )
        return CommandError(problem_of(parse_failure(result.stderr), self.repository))


def _timestamp(taken_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(taken_s))


def _header(name: str, size_bytes: int, taken_s: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size_bytes, taken_s, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)
