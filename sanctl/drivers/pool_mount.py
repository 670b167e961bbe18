# SPDX-License-Identifier: GPL-2.0-or-later
"""The filesystem that a pool lies on: whether it has shut itself down, and mounting it anew.

A filesystem whose journal could not be written takes no more writes, for as long as it is mounted,
whatever its disk does afterwards. XFS answers everything with EIO then, btrfs calls itself
read-only. ext4 did so until Linux 6.11, too; since then (and in 5.15 and 6.1 as maintained) it says
nothing of it, and from 6.15 on `emergency_ro`. So it is tried out: a file without a name starts a
transaction, which an aborted journal refuses (fs/ext4/ext4_jbd2.c, ext4_journal_check_start).
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from typing import NamedTuple

from sanctl.errors import SanctlError
from sanctl.system import isolated_call
from sanctl.system.files import is_mount_point, read_text, read_text_or
from sanctl.system.runner import Runner

_MOUNTS = "/proc/self/mountinfo"
_RUNTIME = "/run/sanctl"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SHUT = frozenset({"ro", "emergency_ro", "shutdown"})
_TIMEOUT_S = 8.0
_TRY_S = 3.0
#: What a damaged filesystem is called, and not one whose disk has failed (fs/ext4/super.c).
_DAMAGED = frozenset({errno.EUCLEAN, errno.EBADMSG})
_READ_BYTES = 4096


class Mount(NamedTuple):
    """One line of proc_pid_mountinfo(5).

    Attributes:
        path: where it is mounted.
        number: of the device, `major:minor`.
        root: the folder of the filesystem that is mounted there; `/` is all of it.
        source: what is.
        kind: the filesystem's type.
        options: of this mount.
        own: of the filesystem, which all its mounts share.
    """

    path: str
    number: str
    root: str
    source: str
    kind: str
    options: frozenset[str]
    own: frozenset[str]

    @property
    def is_shut_down(self) -> bool:
        """It takes no writes although it was mounted to take them."""
        return "ro" not in self.options and bool(self.own & _SHUT)


def parse(text: str) -> list[Mount]:
    """Read proc_pid_mountinfo(5); lines that do not read are left out."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if len(head) >= 6 and len(tail) >= 3:
            found.append(
                Mount(
                    path=_unescape(head[4]),
                    number=head[2],
                    root=_unescape(head[3]),
                    source=_unescape(tail[1]),
                    kind=tail[0],
                    options=frozenset(head[5].split(",")),
                    own=frozenset(tail[2].split(",")),
                )
            )
    return found


def _unescape(word: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def over(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path lies on; of several on one place the last, which hides them."""
    holding = [
        one for one in mounts if path == one.path or path.startswith(one.path.rstrip("/") + "/")
    ]
    longest = max((len(one.path) for one in holding), default=0)
    return next((one for one in reversed(holding) if len(one.path) == longest), None)


def of(path: str) -> Mount | None:
    """Return the mount that a path lies on."""
    return over(os.path.realpath(path), parse(read_text(_MOUNTS)))


def says_it_is_shut_down(path: str) -> bool:
    """Whether the filesystem at a path says that it takes no more writes; it may say nothing."""
    try:
        os.stat(path)
    except OSError as error:
        # A path that is not there is something else: not mounted.
        return error.errno in {errno.EIO, errno.ESHUTDOWN}
    mounts = parse(read_text(_MOUNTS))
    found = over(os.path.realpath(path), mounts)
    if found is None or not found.is_shut_down:
        return False
    # Mounted elsewhere, too, and made read-only there by hand: that is of the filesystem, as well.
    return all("ro" not in one.options for one in mounts if one.number == found.number)


def is_shut_down(path: str) -> bool:
    """Whether the filesystem at a path takes no more writes until it is mounted anew.

    It is tried out, which costs two small transactions. One that gives no answer is not known to
    be; neither is one that is mounted read-only.
    """
    if says_it_is_shut_down(path):
        return True
    found = of(path)
    if found is None or "ro" in found.options or "ro" in found.own:
        return False
    refused = _try(path)
    return refused in {errno.EROFS, errno.ESHUTDOWN} or (
        refused == errno.EIO and answers(found.source)
    )


def _try(path: str) -> int | None:
    """Make a file without a name; return the error, 0 without one, None where nothing comes back.

    In a process of its own: a disk that hangs must not hold who asks. While one of these hangs no
    other is started.
    """
    os.makedirs(_RUNTIME, mode=0o700, exist_ok=True)
    lock = os.open(
        f"{_RUNTIME}/try{path.replace('/', '-')}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    # The child has it, too: the lock is of the open file, and goes with its last holder.
    try:
        return isolated_call.error_of(lambda: _make(path), within_s=_TRY_S, keep=(lock,))
    finally:
        os.close(lock)


def _make(path: str) -> None:
    os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def is_damaged(found: Mount) -> bool:
    """Whether a filesystem has shut itself down for being damaged: a mount is no cure for that."""
    device = os.path.basename(os.path.realpath(found.source))
    told = read_text_or(f"/sys/fs/ext4/{device}/last_error_errcode", "0").strip()
    return told.isdecimal() and int(told) in _DAMAGED


def answers(device: str) -> bool:
    """Whether a block device can be read, past the page cache."""
    import mmap  # noqa: PLC0415 - aligned memory, which direct reads want

    try:
        handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        with mmap.mmap(-1, _READ_BYTES) as buffer:
            return os.preadv(handle, [buffer], 0) == _READ_BYTES
    except OSError:
        return False
    finally:
        os.close(handle)


def unmount(runner: Runner, path: str) -> None:
    """Unmount what nothing uses, without a word to systemd: what depends on it is not stopped.

    Raises:
        CommandError: it is in use.
    """
    runner.run(["umount", path], timeout_s=_TIMEOUT_S)


def mount(runner: Runner, known: Mount) -> None:
    """Mount what was mounted: as its unit or fstab says, or by hand as it was.

    Raises:
        CommandError: it cannot be mounted.
    """
    escaped = runner.run(
        ["systemd-escape", "--path", "--suffix=mount", known.path], timeout_s=_TIMEOUT_S
    ).stdout.strip()
    try:
        runner.run(["systemctl", "start", escaped], timeout_s=_TIMEOUT_S)
    except SanctlError:
        if is_mount_point(known.path):
            return
        options = ",".join(sorted(known.options))
        runner.run(
            ["mount", "-t", known.kind, "-o", options, known.source, known.path],
            timeout_s=_TIMEOUT_S,
        )
