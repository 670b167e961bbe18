# SPDX-License-Identifier: GPL-2.0-or-later
"""The note NAME.UUID.filling: whether what a resync has written here may be lost with the power.

DRBD writes a resync's blocks past the page cache and, some seconds later, notes them as in sync, on
both sides. Neither flushes the target's disk: an extent that was written for the first time is in
the pool's journal for up to 5 s (ext4) or 30 s (XFS), and a disk's own cache may hold the rest. A
target that loses its power then has blocks of old data or zeros which neither replica calls out of
sync (docs/adr/0082).

So the note is on stable storage before a resync begins: DRBD waits for its handler
before-resync-target, which writes it (resource-agents/handlers/resync-target), and it is cleared
once no resync runs and the data file has been flushed (`settle`). After another boot it makes the
replica suspect, as a marker of write-back does (lost_writes.py).

The file is there from the first start on and is written in place: a full pool has room for that.
"""

from __future__ import annotations

import fcntl
import os
from io import FileIO

from sanctl.drivers import drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.system import state_files
from sanctl.system.files import exists, read_text, read_text_or, write_atomically
from sanctl.system.runner import Runner

#: The kind of the note beside the data, and of the state file that has its path for the handler.
KIND = "filling"
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_BOOT_LENGTH = 36
# As long as what the handler writes: the boot id, and what tells one resync from the next.
_NONE = f"{'-' * _BOOT_LENGTH} {'-' * 24}\n"
_SUFFIX = ".data"
# A source of a resync writes nothing to its own disk.
_QUIET = frozenset(
    {
        *("Established", "Off", "VerifyS", "VerifyT"),
        *("SyncSource", "PausedSyncS", "WFBitMapS", "StartingSyncS"),
    }
)
# Not BrokenPipe and the like: DRBD still waits for the blocks that it has received.
_SETTLED = frozenset({"Connected", "Connecting", "StandAlone"})


class FlushError(OSError):
    """A flush failed: what was to be flushed may be lost, and no later flush says so."""


def path_of(data: str) -> str:
    """Return where the note of a data file lies."""
    return f"{data.removesuffix(_SUFFIX)}.{KIND}"


def prepare(name: str, data: str) -> None:
    """Make the note's file, and tell the handler where it is; for a replica that is being started.

    The handler is told first: where the file cannot be made, no resync begins.

    Raises:
        OSError: the pool or /run takes no writes; a later call tries again.
    """
    path = path_of(data)
    pointer = state_files.of_device(name, KIND)
    if pointer.read() != f"{path}\n":
        pointer.write(f"{path}\n")
    if not exists(path):
        write_atomically(path, _NONE, mode=0o600)


def is_of_another_boot(data: str) -> bool:
    """Whether a resync of another boot was not known to be stable when that boot ended.

    Raises:
        OSError: it is not known.
    """
    text = read_text_or(path_of(data), _NONE)
    return text != _NONE and text[:_BOOT_LENGTH] != read_text(_BOOT_ID).strip()


def is_set(data: str) -> bool:
    """Whether what a resync has written may not be stable yet.

    Raises:
        OSError: it is not known.
    """
    return read_text_or(path_of(data), _NONE) != _NONE


def published_field(data: str | None) -> str:
    """Return what a replica publishes while what a resync has written may not be stable.

    Read after DRBD's state: it is UpToDate only after the resync, whose note was there before. What
    is not known counts as set.
    """
    try:
        return " unflushed=1" if data is not None and is_set(data) else ""
    except OSError:
        return " unflushed=1"


def is_open(data: str) -> bool:
    """Whether what a resync of this boot has written may not be stable yet.

    Raises:
        OSError: it is not known.
    """
    return is_set(data) and not is_of_another_boot(data)


def forget(data: str) -> None:
    """Clear a note of another boot: the data counts for nothing, or an operator accepts it.

    Raises:
        OSError: the pool takes no writes.
    """
    if is_of_another_boot(data):
        _clear(data)


def settle(runner: Runner, name: str, data: str) -> bool:
    """Flush the data file and clear the note, if no resync runs; return whether it is cleared.

    Raises:
        SanctlError: DRBD did not answer.
        OSError: the flush failed, or the note cannot be written: it stays.
    """
    seen = read_text_or(path_of(data), _NONE)
    if seen == _NONE:
        return True
    if not _is_quiet(drbdsetup.observe(runner, name)):
        return False
    flush(data)
    return clear_if_quiet(runner, name, data, seen)


def flush(data: str) -> None:
    """Have on stable storage what was written to the data file before.

    Raises:
        FlushError: it is not.
        OSError: the file cannot be opened.
    """
    # The file is open for a moment only: it would keep its filesystem from being unmounted.
    handle = os.open(data, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fdatasync(handle)
    except OSError as error:
        raise FlushError(error.errno, error.strerror, data) from error
    finally:
        os.close(handle)


def clear_if_quiet(runner: Runner, name: str, data: str, seen: str) -> bool:
    """Clear the note, unless a resync has begun since it was read; return whether it is cleared.

    The handler has the lock while it writes, and DRBD shows the resync before the handler is
    called.

    Raises:
        SanctlError: DRBD did not answer.
        OSError: the note cannot be written.
    """
    with open(path_of(data), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.read() != seen.encode() or not _is_quiet(drbdsetup.observe(runner, name)):
            return False
        _overwrite(file)
    return True


def clear_when_down(data: str) -> None:
    """Flush the data file and clear the note of a replica that DRBD does not have any more.

    Raises:
        OSError: the flush failed, or the note cannot be written: it stays.
    """
    if is_open(data):
        flush(data)
        _clear(data)


def _clear(data: str) -> None:
    with open(path_of(data), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        _overwrite(file)


def _overwrite(file: FileIO) -> None:
    # In place, and never longer than what was there: a full pool has room for that.
    file.seek(0)
    file.write(_NONE.encode())
    file.truncate(len(_NONE))
    os.fdatasync(file.fileno())


def _is_quiet(state: ResourceState | None) -> bool:
    """Whether no resync runs, begins, or waits, and what a lost connection has left is written."""
    return state is not None and all(
        peer.replication in _QUIET and peer.connection in _SETTLED for peer in state.peers
    )
