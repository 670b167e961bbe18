# SPDX-License-Identifier: GPL-2.0-or-later
"""borg: the archives of one repository. Each has a device's image, and a file of its digest.

An archive gets its name as a backup last (`keep`), when borg has stored all of it, and the process
that has read the device has seen that. An archive of another name is no backup: borg also keeps
one of a stream that broke off at the end of a file.

borg gets the passphrase from a file by a command of its own, so it is in no command line, no
variable and no log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from sanctl.config.backups import SECRETS
from sanctl.drivers import block_stream
from sanctl.errors import CommandError, Problem
from sanctl.model.backup import WRITING, Backup, BackupName, Repository
from sanctl.parse.borg import (
    BROKEN_CACHE,
    LOCK_FOLDER,
    LOCK_TIMEOUT,
    Failure,
    Writer,
    backups_of,
    comment_of,
    parse_archives,
    parse_failure,
    parse_lock_holder,
    parse_stored_bytes,
)
from sanctl.system import pipe_wait
from sanctl.system.files import exists
from sanctl.system.runner import CommandResult, PipedProgram, Runner

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
#: borg's caches and what it knows of its repositories.
BASE = "/var/lib/sanctl/borg"
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
_MEMBER_BYTES = 4096
_BLOCK = tarfile.BLOCKSIZE

LOCKED, MOVED, NO_CACHE = "SAN-BKP-012", "SAN-BKP-030", "SAN-BKP-032"
_CODES = {
    "Repository.DoesNotExist": "SAN-BKP-010",
    "Repository.InvalidRepository": "SAN-BKP-010",
    "PathNotAllowed": "SAN-BKP-010",
    "PassphraseWrong": "SAN-BKP-011",
    "NoPassphraseFailure": "SAN-BKP-011",
    "PasscommandFailure": "SAN-BKP-011",
    LOCK_TIMEOUT: "SAN-BKP-012",
    "LockFailed": "SAN-BKP-012",
    "NoSpace": "SAN-BKP-013",
    "Repository.InsufficientFreeSpaceError": "SAN-BKP-013",
    "Repository.StorageQuotaExceeded": "SAN-BKP-013",
    "ConnectionClosed": "SAN-BKP-014",
    "ConnectionClosedWithHint": "SAN-BKP-014",
    "Archive.DoesNotExist": "SAN-BKP-016",
    "Archive.AlreadyExists": "SAN-BKP-017",
    "Repository.AlreadyExists": "SAN-BKP-018",
    # It is asked where an encrypted repository was at another place before; and is told no here.
    "Cache.RepositoryAccessAborted": MOVED,
    BROKEN_CACHE: NO_CACHE,
}
_HINTS = {
    "SAN-BKP-010": "is it mounted? A new one is made by 'sanctl backup init'",
    "SAN-BKP-011": f"the right one belongs in {SECRETS}/NAME.passphrase on this node",
    LOCKED: "another backup or check uses it: try again later, or with --wait SECONDS, where the "
    "command has it. Where none does, because a server was lost",
    MOVED: "borg on this node knows the repository at another place. If it was moved, or its "
    "server has another name, once on each node that says so",
    NO_CACHE: f"it was removed once, and is made anew from the repository: has {BASE} room, and "
    "does its disk read and write?",
    "SAN-BKP-013": "nothing that is there was lost. 'sanctl backup prune' makes room, and needs "
    "some itself: where it fails so, make some beside the repository, or 'borg config REPOSITORY "
    f"additional_free_space 0' where some is kept free. borg's cache here needs room, too: {BASE}",
    "SAN-BKP-014": "is the server up, is borg installed there, does it know this node's key, and "
    "has it the host key that this node expects (known_hosts)?",
    "SAN-BKP-016": "'sanctl backup list' shows those that there are",
    "SAN-BKP-017": "'sanctl backup list' shows it",
    "SAN-BKP-018": "it stays as it is; use it, or name another place",
}


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
        secret = f"{SECRETS}/{self.repository.name}"
        check_secret(f"{secret}.passphrase")
        common = ("--log-json", "--lock-wait", str(lock_s))
        env = {
            **_environment(self.repository),
            # Each would be asked on a terminal; nobody is there.
            "BORG_RELOCATED_REPO_ACCESS_IS_OK": "no",
            "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "no",
        }
        os.makedirs(BASE, mode=0o700, exist_ok=True)
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


def problem_of(failure: Failure, repository: Repository) -> Problem:
    """Return the problem that borg's failure is, with a code of ours."""
    code = _CODES.get(failure.kind, "SAN-BKP-015")
    said = f"{failure.text} ({failure.remote})" if failure.remote else failure.text
    hint = _HINTS.get(code, "")
    if code == LOCKED:
        hint += f": {shell_line(repository, 'break-lock')}"
    elif code == MOVED:
        hint += f": {shell_line(repository, 'list', BORG_RELOCATED_REPO_ACCESS_IS_OK='yes')}"
    return Problem(code, f"repository {repository.name}: {said}", hint)


def shell_line(repository: Repository, command: str, **variables: str) -> str:
    """Return the line by which an operator has borg do a command, as sanctl would on this node."""
    words = {**_environment(repository), **variables}
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in words.items())
    return f"{given} borg {command} {shlex.quote(repository.location)}"


def _environment(repository: Repository) -> dict[str, str]:
    """Return where borg has what it knows, and by what it gets into a repository."""
    secret = f"{SECRETS}/{repository.name}"
    env = {"BORG_BASE_DIR": BASE, "BORG_PASSCOMMAND": f"cat {secret}.passphrase"}
    if repository.is_remote:
        env["BORG_RSH"] = " ".join(_ssh(secret))
    return env


def check_secret(path: str) -> None:
    """Check that a file with a secret is there, and that only its owner can read it.

    Raises:
        CommandError: it is not.
    """
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise CommandError(
            Problem(
                "SAN-BKP-011",
                f"{path}: {error.strerror}",
                "the playbook puts it there from sanctl_backup_repositories",
            )
        ) from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CommandError(
            Problem(
                "SAN-BKP-011",
                f"{path} can be read by others than its owner",
                f"chmod 0600 {path}; and think of the passphrase as known",
            )
        )


def _ssh(secret: str) -> tuple[str, ...]:
    # A server that is gone is noticed within half a minute, and nothing is asked on a terminal.
    options = ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=10"]
    options += ["ServerAliveCountMax=3", "StrictHostKeyChecking=yes"]
    if exists(f"{secret}.known_hosts"):
        options.append(f"UserKnownHostsFile={secret}.known_hosts")
    key = ("-i", f"{secret}.key") if exists(f"{secret}.key") else ()
    return ("ssh", *key, *(word for option in options for word in ("-o", option)))


def _timestamp(taken_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(taken_s))


def _header(name: str, size_bytes: int, taken_s: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size_bytes, taken_s, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)
