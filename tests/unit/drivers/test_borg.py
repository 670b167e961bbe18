# SPDX-License-Identifier: GPL-2.0-or-later
"""What borg is given and what its failures become; a program in its place keeps files in a folder.

Once with borg itself, where this machine has it: what is stored comes back.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sanctl.drivers import block_stream, borg, borg_access
from sanctl.drivers.borg import Borg
from sanctl.drivers.borg_access import check_secret
from sanctl.drivers.borg_problems import problem_of
from sanctl.errors import CommandError
from sanctl.model.backup import BackupName, Repository
from sanctl.parse.borg import Failure, Writer, parse_lock_holder
from sanctl.system import pipe_wait
from sanctl.system.runner import CommandResult, LocalRunner, PipedProgram, is_installed

NAME = BackupName(device="web", taken_s=1_795_580_901, point="good")
NAS = Repository(name="nas", location="ssh://sanctl@nas.example.net/./vms")
WRITER = Writer("n1", 1767312000)
SIZE = 3 * block_stream.CHUNK_BYTES + 4096
_STAND_IN = r"""
import json, os, pathlib, sys, tarfile
words = [w for w in sys.argv[1:] if w not in ("--log-json", "--lock-wait", "60", "43200")]
with open(os.environ["BORG_BASE_DIR"] + "/calls", "a") as calls:
    calls.write(json.dumps([words, {k: v for k, v in os.environ.items() if "BORG" in k}]) + "\n")
def fail(message, msgid):
    print(json.dumps({"type": "log_message", "levelname": "ERROR", "message": message,
                      "msgid": msgid}), file=sys.stderr)
    sys.exit(2)
at = [w for w in words if w.startswith("/")]
place, _, archive = at[0].partition("::") if at else ("", "", "")
folder = pathlib.Path(place)
if not folder.is_dir():
    fail("Repository does not exist.", "Repository.DoesNotExist")
broken = folder / "broken-cache"
if words[:2] == ["delete", "--cache-only"]:
    broken.unlink()
    sys.exit(0)
if words[0] in ("import-tar", "rename") and broken.exists():
    print(json.dumps({"type": "log_message", "levelname": "ERROR", "message": "Local Exception",
                      "msgid": "Exception"}), file=sys.stderr)
    fail("Traceback (most recent call last):\n  File \"/usr/lib/python3/borg/cache.py\"\n"
         "ValueError: Buffer has wrong magic\n\nPlatform: Linux", None)
if words[0] == "import-tar":
    if (folder / "full").exists():
        sys.stdin.buffer.read(100000)
        fail("No space left on device", "Exception")
    (folder / archive).mkdir()
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as tar:
        for entry in tar:
            (folder / archive / entry.name).write_bytes(tar.extractfile(entry).read())
    print(json.dumps({"archive": {"stats": {"deduplicated_size": 77}}}))
elif words[0] == "rename":
    (folder / archive).rename(folder / words[-1])
elif words[0] == "delete":
    for file in (folder / archive).iterdir():
        file.unlink()
    (folder / archive).rmdir()
elif words[0] == "list":
    names = sorted(each.name for each in folder.iterdir() if each.is_dir())
    print(json.dumps({"archives": [{"name": n, "comment": "sanctl size=1"} for n in names]}))
elif words[0] == "extract":
    if not (folder / archive).is_dir():
        fail("Archive does not exist", "Archive.DoesNotExist")
    sys.stdout.buffer.write((folder / archive / words[-1]).read_bytes())
    if (folder / "torn").exists():
        fail("Data integrity error", "IntegrityError")
"""


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "O_DIRECT", 0)
    path = tmp_path / "image"
    path.write_bytes(os.urandom(SIZE))
    return path


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Borg:
    program = tmp_path / "borg.py"
    program.write_text(_STAND_IN)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "nas.passphrase").write_text("secret\n")
    (secrets / "nas.passphrase").chmod(0o600)
    (tmp_path / "base").mkdir()
    (tmp_path / "nas").mkdir()
    monkeypatch.setattr(borg, "PROGRAM", (sys.executable, str(program)))
    monkeypatch.setattr(borg_access, "SECRETS", str(secrets))
    monkeypatch.setattr(borg_access, "BASE", str(tmp_path / "base"))
    return Borg(LocalRunner(), Repository(name="nas", location=str(tmp_path / "nas")))


def digest_of(path: Path) -> str:
    return block_stream.read_through(str(path), SIZE, lambda _part: None)


def test_what_is_stored_comes_back(repository: Borg, image: Path) -> None:
    seen: list[int] = []
    digest, stored = repository.store(
        NAME, str(image), SIZE, seen.append, uuid="a" * 32, writer=WRITER
    )
    assert (digest, stored) == (digest_of(image), 77) and seen[-1] == SIZE
    assert repository.backups() == ()  # not before it has its name
    repository.keep(NAME)
    (found,) = repository.backups()
    assert found.name == NAME and found.repository == "nas"
    assert repository.recorded_digest(NAME) == digest
    with repository.reading(NAME, NAME.image) as pipe:
        assert block_stream.digest_of_pipe(pipe, seen.append, silence_s=5.0) == (digest, SIZE)
    repository.delete((str(NAME),))
    assert repository.backups() == ()


def test_the_passphrase_is_in_no_call(repository: Borg, image: Path, tmp_path: Path) -> None:
    repository.store(NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER)
    text = (tmp_path / "base" / "calls").read_text()
    words, variables = json.loads(text)
    assert "secret\n" not in text and variables["BORG_PASSCOMMAND"].startswith("cat /")
    assert f"fixed,{borg.CHUNK_BYTES}" in words and f"{tmp_path}/nas::{NAME}.writing" in words
    assert words[words.index("--timestamp") + 1] == "2026-11-25T04:28:21"
    assert "BORG_RSH" not in variables


def test_each_command_waits_for_the_repository_beside_its_own_time(
    repository: Borg, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.lock_s = 900
    limits: list[float] = []
    run = LocalRunner.run

    def limited(self: LocalRunner, argv: Sequence[str], **options: Any) -> CommandResult:
        limits.append(options["timeout_s"])
        return run(self, argv, **options)

    monkeypatch.setattr(LocalRunner, "run", limited)
    silences: list[float] = []
    write = pipe_wait.write_all

    def write_all(pipe: int, data: bytes | memoryview, *, silence_s: float) -> None:
        silences.append(silence_s)
        write(pipe, data, silence_s=silence_s)

    monkeypatch.setattr(pipe_wait, "write_all", write_all)
    repository.archives()
    repository.store(NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER)
    repository.keep(NAME)
    calls = [json.loads(line)[0] for line in (tmp_path / "base" / "calls").read_text().splitlines()]
    assert [words.count("900") for words in calls] == [1, 1, 0], "the last waits longer anyway"
    assert limits == [300.0 + 900, 24 * 3600.0 + 12 * 3600]
    assert set(silences) == {3600.0 + 900}


def test_another_server_is_reached_without_a_question(repository: Borg, tmp_path: Path) -> None:
    for kind in ("key", "known_hosts"):
        (tmp_path / "secrets" / f"nas.{kind}").write_text("x")
    remote = Borg(LocalRunner(), Repository(name="nas", location="ssh://b@nas/./x"))
    remote.archives()
    variables = json.loads((tmp_path / "base" / "calls").read_text())[1]
    for part in ("BatchMode=yes", "StrictHostKeyChecking=yes", f"-i {tmp_path}/secrets/nas.key",
                 f"UserKnownHostsFile={tmp_path}/secrets/nas.known_hosts"):  # fmt: skip
        assert part in variables["BORG_RSH"]


def test_a_repository_without_room(repository: Borg, image: Path, tmp_path: Path) -> None:
    (tmp_path / "nas" / "full").write_text("")
    with pytest.raises(CommandError, match="SAN-BKP-013"):
        repository.store(NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER)
    assert repository.archives() == {}


def test_a_cache_that_a_loss_of_power_has_emptied_is_made_anew(
    repository: Borg, image: Path, tmp_path: Path
) -> None:
    """Each backup of that node failed with it from then on."""
    broken = tmp_path / "nas" / "broken-cache"
    broken.touch()
    digest, _ = repository.store(NAME, str(image), SIZE, print, uuid="a" * 32, writer=WRITER)
    broken.touch()
    repository.keep(NAME)
    assert repository.recorded_digest(NAME) == digest and not broken.exists()


def test_for_a_backup_that_was_read_the_cache_is_awaited_as_long_as_the_repository(
    repository: Borg, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what was read for hours is given up a minute after another one has the repository."""
    waits: list[str] = []
    run = LocalRunner.run

    def noting(self: LocalRunner, argv: Sequence[str], **options: Any) -> CommandResult:
        waits.extend([argv[argv.index("--lock-wait") + 1]] if "--cache-only" in argv else [])
        return run(self, argv, **options)

    monkeypatch.setattr(LocalRunner, "run", noting)
    broken = tmp_path / "nas" / "broken-cache"
    broken.touch()
    repository.store(NAME, str(image), SIZE, print, uuid="a" * 32, writer=WRITER)
    broken.touch()
    repository.keep(NAME)
    assert waits == ["60", "43200"]


def test_a_cache_that_stays_broken_is_said(
    repository: Borg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "nas" / "broken-cache"
    broken.touch()
    ask = repository._ask

    def again(*words: str, **more: Any) -> CommandResult:
        if words[:2] == ("delete", "--cache-only"):
            return CommandResult(argv=words, status=0, stdout="", stderr="", duration_s=0.0)
        return ask(*words, **more)

    monkeypatch.setattr(repository, "_ask", again)
    with pytest.raises(CommandError, match=r"Local Exception: ValueError: Buffer") as caught:
        repository.keep(NAME)
    assert caught.value.problems[0].code == "SAN-BKP-032"


def test_a_file_that_is_shorter_is_no_backup(repository: Borg, image: Path) -> None:
    with pytest.raises(OSError, match="ends at byte"):
        repository.store(
            NAME, str(image), SIZE + 4096, lambda _done: None, uuid="a" * 32, writer=WRITER
        )
    assert repository.backups() == ()


def test_what_borg_says_at_the_end_counts(repository: Borg, image: Path, tmp_path: Path) -> None:
    repository.store(NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER)
    repository.keep(NAME)
    (tmp_path / "nas" / "torn").write_text("")
    with (
        pytest.raises(CommandError, match=r"SAN-BKP-015.*integrity"),
        repository.reading(NAME, NAME.image) as pipe,
    ):
        assert block_stream.digest_of_pipe(pipe, lambda _got: None, silence_s=5.0)[1] == SIZE
    with (
        pytest.raises(CommandError, match="SAN-BKP-015"),
        repository.reading(NAME, NAME.image) as pipe,
    ):
        raise OSError("the data ends")


def test_what_is_not_there(repository: Borg, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="SAN-BKP-016"):
        repository.recorded_digest(NAME)
    (tmp_path / "nas").rmdir()
    with pytest.raises(CommandError, match="SAN-BKP-010"):
        repository.archives()


def test_borg_that_is_not_installed(repository: Borg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(borg, "PROGRAM", ("nice", "-n", "0", "no-such-borg"))
    with pytest.raises(CommandError, match="SAN-BKP-019"):
        repository.archives()


def test_a_secret_that_others_can_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    with pytest.raises(CommandError, match="SAN-BKP-011"):
        check_secret(str(secret))
    secret.write_text("x")
    for mode in (0o644, 0o640, 0o606):
        secret.chmod(mode)
        with pytest.raises(CommandError, match="can be read by others"):
            check_secret(str(secret))
    secret.chmod(stat.S_IRUSR)
    check_secret(str(secret))


def test_what_another_server_says_is_told() -> None:
    failure = Failure("ConnectionClosedWithHint", "Connection closed", "Host key verification")
    problem = problem_of(failure, NAS)
    assert problem.code == "SAN-BKP-014" and "(Host key verification)" in problem.text


def test_a_repository_that_another_node_uses_can_be_waited_for() -> None:
    problem = problem_of(Failure("LockTimeout", "Failed to create/acquire the lock", ""), NAS)
    assert problem.code == "SAN-BKP-012"
    assert "--wait SECONDS" in problem.hint and "break-lock" in problem.hint


@pytest.mark.parametrize("command", ["import-tar", "extract"])
def test_one_that_hangs_is_ended(
    repository: Borg, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """As on a filesystem of a server that does not answer; nobody else has to end it."""
    repository.init()
    repository.store(NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER)
    repository.keep(NAME)
    hung = tmp_path / "hung"
    hung.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 60\n")
    hung.chmod(0o700)
    monkeypatch.setattr(borg, "PROGRAM", (str(hung),))
    monkeypatch.setattr(borg, "SILENCE_S", 0.3)
    repository.lock_s = 0
    with pytest.raises(CommandError, match="SAN-BKP-021"):
        if command == "extract":
            repository.recorded_digest(NAME)
        else:
            repository.store(
                NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER
            )
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_look_is_ended_in_order_before_others_give_the_repository_up(
    repository: Borg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What broke: killed, borg leaves its lock, which other nodes cannot take off."""
    repository.look()
    slow = tmp_path / "slow"
    slow.write_text(
        f"#!/bin/bash\ntrap 'touch {tmp_path}/ended; exit 143' TERM\n"
        "for ((;;)); do read -t 0.1 <> <(:); done\n"
    )
    slow.chmod(0o700)
    monkeypatch.setattr(borg, "PROGRAM", (str(slow),))
    monkeypatch.setattr(borg, "_LOOK_S", 1.0)
    with pytest.raises(CommandError, match=r"SAN-BKP-021.*no archive for 1 s"):
        repository.look()
    assert (tmp_path / "ended").exists()
    assert borg.LOCK_S > 45.0
    monkeypatch.setattr(borg, "PROGRAM", ("nice", "-n", "0", "no-such-borg"))
    with pytest.raises(CommandError, match="SAN-BKP-019"):
        repository.look()


def test_a_program_is_ended_where_its_pipe_is_left() -> None:
    program = PipedProgram(["sleep", "60"], feeds=False)
    with pytest.raises(ValueError, match="enough"), program:
        raise ValueError("enough")
    with program, pytest.raises(CommandError, match="no end within"):
        program.finish(timeout_s=0.05)
    with pytest.raises(CommandError, match="SAN-CMD-001"), PipedProgram(["no-such"], feeds=True):
        pass


@pytest.mark.skipif(not is_installed("borg"), reason="no borg here")
def test_with_borg_itself(
    repository: Borg, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(borg, "PROGRAM", ("borg",))
    (tmp_path / "nas").rmdir()
    repository.init()
    digest, _ = repository.store(
        NAME, str(image), SIZE, lambda _done: None, uuid="a" * 32, writer=WRITER
    )
    repository.keep(NAME)
    assert repository.recorded_digest(NAME) == digest
    assert repository.backups()[0].size_bytes == SIZE


@pytest.mark.parametrize(
    ("kind", "code", "end"),
    [
        ("LockTimeout", "SAN-BKP-012", "borg break-lock"),
        (
            "Cache.RepositoryAccessAborted",
            "SAN-BKP-030",
            "BORG_RELOCATED_REPO_ACCESS_IS_OK=yes borg list",
        ),
    ],
)
def test_the_line_for_the_operator_has_what_borg_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: str, end: str
) -> None:
    """Without the key and the host's key the server lets nobody in."""
    monkeypatch.setattr(borg_access, "SECRETS", str(tmp_path))
    for kept in ("key", "known_hosts"):
        (tmp_path / f"nas.{kept}").touch()
    problem = problem_of(Failure(kind, "why", ""), NAS)
    assert problem.code == code and problem.hint.endswith(f"{end} {NAS.location}")
    line = problem.hint.partition(": ")[2].partition(": ")[2] or problem.hint
    words = dict(each.split("=", 1) for each in shlex.split(line) if each.startswith("BORG_"))
    assert words["BORG_BASE_DIR"] == borg_access.BASE
    assert words["BORG_PASSCOMMAND"] == f"cat {tmp_path}/nas.passphrase"
    assert f"-i {tmp_path}/nas.key" in words["BORG_RSH"]
    assert f"UserKnownHostsFile={tmp_path}/nas.known_hosts" in words["BORG_RSH"]
    local = problem_of(Failure(kind, "why", ""), Repository(name="nas", location="/nas"))
    assert "BORG_RSH" not in local.hint and local.hint.endswith(f"{end} /nas")


class TakenRepository:
    """In the place of borg: so many commands find that another one has the repository."""

    def __init__(self, taken: int, kind: str = "LockTimeout") -> None:
        self.taken, self.kind = taken, kind
        self.waits: list[str] = []

    def run(self, argv: Sequence[str], **_: Any) -> CommandResult:
        self.waits.append(argv[argv.index("--lock-wait") + 1])
        is_taken = len(self.waits) <= self.taken
        said = {
            "type": "log_message",
            "levelname": "ERROR",
            "message": "Failed to create/acquire the lock /nas/lock (timeout).",
            "msgid": self.kind,
        }
        return CommandResult(
            argv=tuple(argv),
            status=2 if is_taken else 0,
            stdout='{"archives": []}',
            stderr=json.dumps(said) if is_taken else "",
            duration_s=0.0,
        )


@pytest.mark.parametrize(
    ("taken", "kind", "lock_s", "waits", "said"),
    [
        (0, "LockTimeout", 60, ["5"], []),
        (1, "LockTimeout", 60, ["5", "55"], [55]),
        (2, "LockTimeout", 60, ["5", "55"], [55]),
        # No other one has it: it cannot be locked at all.
        (1, "LockFailed", 60, ["5"], []),
        (1, "LockTimeout", 5, ["5"], []),
    ],
)
def test_a_command_says_that_it_waits_for_the_repository(
    repository: Borg, *, taken: int, kind: str, lock_s: int, waits: list[str], said: list[int]
) -> None:
    runner, told = TakenRepository(taken, kind), list[int]()
    repository._runner = runner
    repository.lock_s, repository.on_wait = lock_s, told.append
    if taken < len(waits):
        assert repository.archives() == {}
    else:
        with pytest.raises(CommandError, match="SAN-BKP-012"):
            repository.archives()
    assert (runner.waits, told) == (waits, said)


def test_which_process_has_a_repository_here(repository: Borg, tmp_path: Path) -> None:
    assert repository.lock_holder() == ""
    folder = tmp_path / "nas" / "lock.exclusive"
    folder.mkdir()
    assert repository.lock_holder() == ""
    (folder / "n2.example@187650056420.4711-0").touch()
    assert repository.lock_holder() == "process 4711 on n2.example"
    assert Borg(LocalRunner(), NAS).lock_holder() == ""
    assert parse_lock_holder("of another release") == ""
