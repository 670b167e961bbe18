# SPDX-License-Identifier: GPL-2.0-or-later
"""A pool's mounted filesystem: whether it has shut itself down after an I/O error; remounting.

A filesystem whose journal could not be written accepts no more writes, for as long as it is
mounted, whatever its disk does afterwards. XFS answers everything with EIO then, btrfs reports
read-only. ext4 did so until Linux 6.11, too; since then (and in 5.15 and 6.1 as maintained) ext4
reports nothing, and from 6.15 on `emergency_ro`. So this module tries a write: a file without a
name starts a transaction, which an aborted journal refuses (fs/ext4/ext4_jbd2.c,
ext4_journal_check_start).

EIO is the answer of a block that cannot be read, too, such as one of inodes, and that is no
shutdown: what is to be mounted again, or filled anew, would be whole. So EIO counts only where the
root of the mount gives it as well, whose inode is in memory for as long as it is mounted: its
attributes (fs/xfs/xfs_iops.c, xfs_vn_getattr) or its fsync (fs/ext4/fsync.c), which read nothing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.system import isolated_call, state_files
from sanctl.system.files import is_mount_point, read_text, read_text_or
from sanctl.system.runner import Runner

MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(r"\\([0-7]{3})")
_SHUT = frozenset({"ro", "emergency_ro", "shutdown"})
#: How long another process that reads the same disk is waited for.
_READ_TURN_S = 1.0
_TIMEOUT_S = 8.0
_TRY_S = 3.0
_POLL_S = 0.02
#: Errors of a damaged filesystem, unlike those of a failed disk (fs/ext4/super.c).
_DAMAGED = frozenset({errno.EUCLEAN, errno.EBADMSG})
_READ_BYTES = 4096


class Writes(StrEnum):
    """What is known of whether a filesystem takes writes."""

    TAKEN = "taken"
    """It has just taken one."""
    SHUT_DOWN = "shut down"
    """It takes none until it is mounted again."""
    NOT_KNOWN = "not known"
    """No answer, or one that says nothing of it: neither of the above follows."""


class Mount(NamedTuple):
    """One line of proc_pid_mountinfo(5).

    Attributes:
        path: the mount point.
        device_number: `major:minor`.
        root: the folder of the filesystem that is mounted there; `/` is the whole filesystem.
        source: the mounted device.
        fs_type: the filesystem's type.
        options: options of this mount.
        super_options: options of the filesystem, which all its mounts share.
    """

    path: str
    device_number: str
    root: str
    source: str
    fs_type: str
    options: frozenset[str]
    super_options: frozenset[str]

    @property
    def is_shut_down(self) -> bool:
        """Whether the filesystem reports no writes although it was mounted read-write."""
        return "ro" not in self.options and bool(self.super_options & _SHUT)


def parse_mountinfo(text: str) -> list[Mount]:
    """Read proc_pid_mountinfo(5); lines that do not read are left out."""
    return [mount for mount, _ in _parse_lines(text)]


def _parse_lines(text: str) -> list[tuple[Mount, str]]:
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        head, tail = before.split(" "), after.split(" ")
        if len(head) >= 6 and len(tail) >= 3:
            mount = Mount(
                path=_unescape(head[4]),
                device_number=head[2],
                root=_unescape(head[3]),
                source=_unescape(tail[1]),
                fs_type=tail[0],
                options=frozenset(head[5].split(",")),
                super_options=frozenset(tail[2].split(",")),
            )
            found.append((mount, line))
    return found


def _unescape(word: str) -> str:
    if "\\" not in word:
        return word
    return _ESCAPED.sub(lambda found: chr(int(found[1], 8)), word)


def covering_mount(path: str, mounts: list[Mount]) -> Mount | None:
    """Return the mount that a path lies on; of several on one place the last, which hides them."""
    holding = [
        one for one in mounts if path == one.path or path.startswith(one.path.rstrip("/") + "/")
    ]
    longest = max((len(one.path) for one in holding), default=0)
    return next((one for one in reversed(holding) if len(one.path) == longest), None)


def mount_of(path: str) -> Mount | None:
    """Return the mount that a path lies on."""
    return covering_mount(os.path.realpath(path), parse_mountinfo(read_text(MOUNTS)))


def mount_and_line_of(path: str) -> tuple[Mount, str] | None:
    """Return the mount that a path lies on, and its line in MOUNTS."""
    found = _parse_lines(read_text(MOUNTS))
    wanted = covering_mount(os.path.realpath(path), [mount for mount, _ in found])
    return next((each for each in found if each[0] == wanted), None)


def reports_shut_down(path: str) -> bool:
    """Whether the filesystem at a path reports a shutdown; one that has shut down may not."""
    mounts = parse_mountinfo(read_text(MOUNTS))
    found = covering_mount(os.path.realpath(path), mounts)
    if found is None:
        return False
    try:
        os.stat(found.path)
    except OSError as error:
        return error.errno in {errno.EIO, errno.ESHUTDOWN}
    if not found.is_shut_down:
        return False
    # Mounted elsewhere too, and remounted read-only there by hand: `ro` is then a super option too.
    return all(
        "ro" not in one.options for one in mounts if one.device_number == found.device_number
    )


def is_shut_down(path: str) -> bool:
    """Whether the filesystem at a path is known to accept no more writes until it is mounted again.

    That it does accept some does not follow where it is not: `try_writes`.
    """
    return try_writes(path) is Writes.SHUT_DOWN


def try_writes(path: str, *, turn_s: float = 0.0) -> Writes:
    """Find out whether the filesystem at a path takes writes, which costs two small transactions.

    `turn_s`: how long to wait, in seconds, for another process that is finding out, too.

    It is not known of one that gives no answer, that refuses for lack of room or of inodes, which
    may come before the journal is asked, or that is mounted read-only.
    """
    if reports_shut_down(path):
        return Writes.SHUT_DOWN
    found = mount_of(path)
    if found is None or "ro" in found.options or "ro" in found.super_options:
        return Writes.NOT_KNOWN
    refused = _try_write(path, found.path, turn_s)
    # Without files that have no name there is nothing to try: what the filesystem reports counts.
    if refused in {0, errno.EOPNOTSUPP}:
        return Writes.TAKEN
    if refused in {errno.EROFS, errno.ESHUTDOWN} or (
        refused == errno.EIO and is_readable(found.source)
    ):
        return Writes.SHUT_DOWN
    return Writes.NOT_KNOWN


def refuse_read_only(pool: str, path: str) -> None:
    """Refuse a pool that is mounted read-only: a replica in it takes no writes.

    mount(8) does so by itself, and ends well, where the disk was write-protected at that moment.

    Raises:
        CommandError: it is.
        OSError: the mounts cannot be read.
    """
    found = mount_of(path)
    if found is not None and ("ro" in found.options or "ro" in found.super_options):
        raise CommandError(
            Problem(
                "SAN-POOL-036",
                f"pool {pool}: {found.source} is mounted read-only at {found.path}",
                "'journalctl -k' says why, where nobody has done so; then "
                f"'mount -o remount,rw {found.path}'",
            )
        )


def _try_write(path: str, root: str, turn_s: float = 0.0) -> int | None:
    """Create a file without a name; return the errno, 0 without one, None without an answer.

    EIO only if the root of the mount gives it, too.
    """
    return _errno_alone(state_files.mount_lock(path), lambda: _make(path, root), turn_s)


def _errno_alone(lock_path: str, call: Callable[[], None], turn_s: float = 0.0) -> int | None:
    """Make a call in a child process; return its errno, 0 without one, None without an answer.

    A disk that hangs must not hang the caller, nor any lock that the caller holds. While one such
    child hangs no other is started.
    """
    state_files.make_folder()
    lock = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    # The child inherits the lock: it belongs to the open file, and ends with its last holder.
    try:
        if not _take(lock, turn_s):
            return None
        return isolated_call.errno_of(call, within_s=_TRY_S, keep=(lock,))
    finally:
        os.close(lock)


def _take(lock: int, turn_s: float) -> bool:
    ends_s = time.monotonic() + turn_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= ends_s:
                return False
        else:
            return True
        time.sleep(_POLL_S)


def _make(path: str, root: str) -> None:
    try:
        os.close(os.open(path, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def is_damaged(found: Mount) -> bool:
    """Whether a filesystem has shut itself down because it is damaged: a remount does not help."""
    device = os.path.basename(os.path.realpath(found.source))
    code = read_text_or(f"/sys/fs/ext4/{device}/last_error_errcode", "0").strip()
    return code.isdecimal() and int(code) in _DAMAGED


def is_readable(device: str) -> bool:
    """Whether a block device can be read, past the page cache, and answers in time."""
    import mmap  # noqa: PLC0415, F401 - for the child, which is to load nothing from a disk

    # Many replicas of a pool ask at once where it gives errors; each is answered within a moment.
    return _errno_alone(state_files.disk_lock(device), lambda: _read(device), _READ_TURN_S) == 0


def gives_answer(device: str) -> bool:
    """Whether a block device answers a read in time, be it by an error."""
    import mmap  # noqa: PLC0415, F401 - as above

    reads = state_files.disk_lock(device)
    return _errno_alone(reads, lambda: _read(device), _READ_TURN_S) is not None


def _read(device: str) -> None:
    import mmap  # noqa: PLC0415 - aligned memory, which direct reads want

    handle = os.open(device, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, _READ_BYTES) as buffer:
            if os.preadv(handle, [buffer], 0) != _READ_BYTES:
                raise OSError(errno.EIO, "the device is shorter than a block", device)
    finally:
        os.close(handle)


def unmount(runner: Runner, path: str) -> None:
    """Unmount a filesystem that nothing uses, past systemd: units that depend on it keep running.

    Raises:
        CommandError: the filesystem is in use.
    """
    runner.run(["umount", path], timeout_s=_TIMEOUT_S)


def mount(runner: Runner, known: Mount) -> None:
    """Mount a filesystem again: as its unit or fstab says, or with the same options as before.

    Raises:
        CommandError: the filesystem cannot be mounted.
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
            # -w: an error, where mount(8) would else mount it read-only.
            ["mount", "-w", "-t", known.fs_type, "-o", options, known.source, known.path],
            timeout_s=_TIMEOUT_S,
        )
