# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads what borg prints: its log in JSON lines (`--log-json`), its archives, its statistics."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from sanctl.model.backup import Backup, BackupName

_SIZE = re.compile(r"\bsize=([0-9]{1,19})\b")
_DEVICE = re.compile(r"\bdevice=([0-9a-f]{32})\b")
_WRITER = re.compile(r"\bnode=([^ ]+) begun=([0-9]{1,12})\b")
_NUMBER = re.compile(r"\bnumber=([0-9]{1,12})\b")
_ENDED = "borg ended without a word"
#: What `Failure.kind` is where borg cannot read its cache on this node; borg has no id for that.
BROKEN_CACHE = "BrokenCache"
#: What it is where another borg had the repository for longer than it was to wait.
LOCK_TIMEOUT = "LockTimeout"
#: The folder of a repository that is there while one process has it for itself, with a file of its
#: name.
LOCK_FOLDER = "lock.exclusive"
_HOLDER = re.compile(r"([^@]+)@[0-9]+\.([0-9]+)-[0-9a-f]+")
_CACHE_FILE = "/borg/cache.py"
#: borg stores a chunk by its cache, which calls these: an error there is the repository's.
_REPOSITORY_FILES = ("/borg/repository.py", "/borg/remote.py")
#: Of a disk or of this node's memory: a new cache mends neither.
_NOT_CONTENT = ("MemoryError", "OSError", "[Errno ")


class Failure(NamedTuple):
    """Why borg failed: its message's id, the message, and what the other server's programs said."""

    kind: str
    text: str
    remote: str = ""


def parse_failure(stderr: str) -> Failure:
    """Return the reason in borg's log; the first error counts."""
    kind, text, warning, remote, traceback, is_full = "", "", "", "", "", False
    for line in stderr.splitlines():
        try:
            entry: Any = json.loads(line)
        except ValueError:
            # A program beside borg, such as nice; or borg before it has set its log up.
            warning = warning or line.strip()
            continue
        if not isinstance(entry, dict) or entry.get("type") != "log_message":
            continue
        message = str(entry.get("message", ""))
        is_full = is_full or "No space left on device" in message
        if message.startswith("Remote:"):
            remote = message.removeprefix("Remote:").strip()
        elif entry.get("levelname") in {"ERROR", "CRITICAL"} and not kind:
            kind, text = str(entry.get("msgid", "")), message
        elif message.startswith("Traceback"):
            traceback = traceback or message
        elif entry.get("levelname") == "WARNING":
            warning = warning or message
    # Behind "Local Exception", or in what the other server's borg says: a traceback.
    if is_full:
        return Failure("NoSpace", "no space left on device", remote)
    if kind == "Exception" and traceback:
        if _is_of_cache(traceback):
            kind = BROKEN_CACHE
        text = f"{text.strip()}: {_raised(traceback)}"
    said = (text or warning or _ENDED).strip()
    return Failure(kind, said.splitlines()[0], remote)


def parse_lock_holder(name: str) -> str:
    """Return the process that a file in `LOCK_FOLDER` is of, HOST@ID.PID-THREAD, in words."""
    match = _HOLDER.fullmatch(name)
    return f"process {match[2]} on {match[1]}" if match else ""


def _is_of_cache(traceback: str) -> bool:
    """Return whether borg could not make sense of what is in its cache on this node."""
    _, found, inner = traceback.partition("\n\n")[0].rpartition(_CACHE_FILE)
    raised = _raised(traceback)
    return (
        bool(found)
        and not any(each in inner for each in _REPOSITORY_FILES)
        and not any(each in raised for each in _NOT_CONTENT)
    )


def _raised(traceback: str) -> str:
    """Return the exception that a traceback ends with; facts of the machine follow it."""
    lines = traceback.partition("\n\n")[0].splitlines()
    return lines[-1].strip()


class Writer(NamedTuple):
    """The writer of an archive: the node, the begin in seconds since 1970, the archive's number.

    `number` is higher than that of all archives that were there; 0: an archive of an earlier
    release.
    """

    node: str
    begun_s: int
    number: int = 0


def comment_of(size_bytes: int, uuid: str, writer: Writer) -> str:
    """Return the comment of an archive of the device with that UUID, which `backups_of` reads."""
    number = f" number={writer.number}" if writer.number else ""
    return (
        f"sanctl size={size_bytes} device={uuid} node={writer.node} begun={writer.begun_s}{number}"
    )


def writer_of(comment: str) -> Writer | None:
    """Return the writer of an archive with that comment; None: an archive of an earlier release."""
    match = _WRITER.search(comment)
    return Writer(match[1], int(match[2]), number_of(comment)) if match else None


def uuid_of(comment: str) -> str:
    """Return the UUID of an archive's device from its comment; empty: the comment has none."""
    match = _DEVICE.search(comment)
    return match[1] if match else ""


def number_of(comment: str) -> int:
    """Return the number of an archive with that comment; 0: the comment has none."""
    match = _NUMBER.search(comment)
    return int(match[1]) if match else 0


def parse_archives(stdout: str) -> dict[str, str]:
    """Return the archives that `borg list --json --format {comment}` prints, with their comments.

    Raises:
        ValueError: the output is no list of archives in JSON.
    """
    document = json.loads(stdout)
    try:
        return {str(each["name"]): str(each.get("comment", "")) for each in document["archives"]}
    except (KeyError, TypeError) as error:
        raise ValueError("borg's list has no archives") from error


def backups_of(archives: dict[str, str], repository: str) -> tuple[Backup, ...]:
    """Return the backups among archives by the names that backups have, the oldest first."""
    found = []
    for archive, comment in archives.items():
        name = BackupName.read(archive)
        if name is not None:
            match = _SIZE.search(comment)
            size = int(match[1]) if match else None
            found.append(
                Backup(
                    name=name,
                    repository=repository,
                    size_bytes=size,
                    uuid=uuid_of(comment),
                    number=number_of(comment),
                )
            )
    return tuple(sorted(found, key=lambda each: (each.name.device, each.name.taken_s, each.name)))


def parse_stored_bytes(stdout: str) -> int | None:
    """Return how much `borg import-tar --json` has added to the repository, compressed."""
    try:
        return int(json.loads(stdout)["archive"]["stats"]["deduplicated_size"])
    except (ValueError, KeyError, TypeError):
        return None
