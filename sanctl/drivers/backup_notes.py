# SPDX-License-Identifier: GPL-2.0-or-later
"""A node's durable notes of restore points that its backups have ordered for themselves.

Written before the order, removed after the restore point: what a backup leaves that is killed, or
whose node dies, the pool agent removes (sanctl/agents/points/upkeep.py). A backup that runs holds
the device's lock. A second note, DEVICE.into, is there from its begin until the cluster knows what
came of it; a third, DEVICE.REPOSITORY.done, from its success until the cluster knows of that.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.model.backup_failure import SUCCESS_PREFIX, BackupSuccess
from sanctl.system import state_files
from sanctl.system.files import fsync_folder, is_folder, is_locked, read_text_or, write_atomically

_FOLDER = "/var/lib/sanctl/backups"
_INTO, _TURN, _DONE = ".into", ".turn", ".done"
_POLL_S = 1.0


def write(device: str, token: str) -> None:
    """Note the token of an order; it is on the disk when this returns."""
    _make_folder()
    write_atomically(_path(device), token)


def read(device: str) -> str:
    """Return the token that was noted for a device; empty without a note."""
    return read_text_or(_path(device), "").strip()


def remove(device: str) -> None:
    """Remove the note of a device's order; one that is gone is fine."""
    _unlink(_path(device))


def begin(device: str, repository: str, node: str, begun_s: int) -> None:
    """Note that a backup of a device begins, into which repository, on this node, and when."""
    _make_folder()
    write_atomically(_path(device) + _INTO, f"{repository} {node} {begun_s}")


def begun(device: str) -> tuple[str, str, int | None] | None:
    """Return repository, node and time of a backup that has told no end; None: there is none.

    The time is in seconds since 1970; None: an earlier release has noted none.
    """
    words = read_text_or(_path(device) + _INTO, "").split()
    if len(words) not in {2, 3}:
        return None
    return words[0], words[1], int(words[2]) if words[2:] and words[2].isdecimal() else None


def end(device: str) -> None:
    """Note that the cluster knows what came of a device's backup."""
    _unlink(_path(device) + _INTO)


def begun_into(repository: str) -> tuple[str, ...]:
    """Return the devices of which a backup into a repository has begun here and told no end."""
    suffix = _INTO
    devices = (name.removesuffix(suffix) for name in _names() if name.endswith(suffix))
    return tuple(sorted(each for each in devices if (begun(each) or ("",))[0] == repository))


def succeed(success: BackupSuccess) -> None:
    """Note that a backup succeeded."""
    _make_folder()
    write_atomically(f"{_path(success.device)}.{success.repository}{_DONE}", success.value)


def successes(device: str) -> tuple[BackupSuccess, ...]:
    """Return the backups of a device that succeeded, of which the cluster may not know yet."""
    found = []
    for name in _names():
        noted_device, _, rest = name.partition(".")
        if noted_device == device and rest.endswith(_DONE):
            identifier = f"{SUCCESS_PREFIX}{name.removesuffix(_DONE)}"
            text = read_text_or(f"{_FOLDER}/{name}", "").strip()
            success = BackupSuccess.parse(identifier, text)
            found += [] if success is None else [success]
    return tuple(sorted(found))


def success_told(success: BackupSuccess) -> None:
    """Note that the cluster knows of a success."""
    _unlink(f"{_path(success.device)}.{success.repository}{_DONE}")


def forget_turns(device: str) -> None:
    """Remove the notes when a device had its turns: it has no replica here any more.

    The other notes go once the cluster has been told.
    """
    for name in _names():
        if name.startswith(f"{device}.") and name.endswith(_TURN):
            _unlink(f"{_FOLDER}/{name}")


def noted() -> tuple[str, ...]:
    """Return the devices that have a note of any kind."""
    devices = set()
    for name in _names():
        # What `write_atomically` has not renamed yet ends otherwise, and no device's name has a
        # dot.
        device, _, rest = name.partition(".")
        if rest in {"", _INTO[1:]} or rest.endswith(_DONE):
            devices.add(device)
    return tuple(sorted(devices))


def running(device: str, *, wait_s: float = 0.0) -> contextlib.AbstractContextManager[bool]:
    """Hold the lock of a device's backup; gives False where another process here holds it."""
    return state_files.locked(state_files.node_lock(f"backup-{device}"), wait_s=wait_s)


@contextlib.contextmanager
def turn(repository: str, *, wait_s: float, device: str = "") -> Iterator[bool]:
    """Hold the lock of this node's backups into a repository; gives False after that wait.

    One at a time uses a repository. With a lock for the whole of a backup, and not only borg's for
    each of its commands, one that has made its restore point need not wait for others.

    Of devices that wait the one comes next whose last turn here was first: the one that got none
    last night, where the night is too short for all of them. What is for no device does not queue.
    """
    lock = state_files.node_lock(f"backups-into-{repository}")
    if not device:
        with state_files.locked(lock, wait_s=wait_s) as is_next:
            yield is_next
        return
    until_s = time.monotonic() + wait_s
    queue = f"backup-queue-{repository}."
    place = state_files.node_lock(f"{queue}{_last_turn(repository, device)}.{device}")
    with contextlib.ExitStack() as queued:
        # Without room for it on /run a device is overtaken, and waits for its turn nevertheless.
        with contextlib.suppress(OSError):
            queued.enter_context(state_files.locked(place, wait_s=0.0))
        try:
            while True:
                # At its end it tries once, whoever is before it: else it would fail for certain.
                is_over = time.monotonic() >= until_s
                if is_over or not _is_behind(place, queue):
                    with state_files.locked(lock, wait_s=0.0) as is_next:
                        if is_next:
                            _note_turn(repository, device)
                        if is_next or is_over:
                            yield is_next
                            return
                time.sleep(_POLL_S)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(place)


def _is_behind(place: str, queue: str) -> bool:
    """Whether another process waits at a place before this one; one that died has none."""
    folder, mine = os.path.split(place)
    return any(
        name.startswith(queue) and name < mine and is_locked(f"{folder}/{name}")
        for name in os.listdir(folder)
    )


def _last_turn(repository: str, device: str) -> str:
    """Return when a device had its last turn here, so that texts sort as times do."""
    noted = read_text_or(f"{_path(device)}.{repository}{_TURN}", "").strip()
    last_s = int(noted) if noted.isdecimal() else 0
    # A clock was ahead: it would come after all others until that time.
    return f"{last_s if last_s <= time.time() else 0:012d}"


def _note_turn(repository: str, device: str) -> None:
    # Without the note it is before others the next time: no reason to make no backup.
    with contextlib.suppress(OSError):
        _make_folder()
        write_atomically(f"{_path(device)}.{repository}{_TURN}", str(int(time.time())))


def _names() -> list[str]:
    try:
        return os.listdir(_FOLDER)
    except FileNotFoundError:
        return []


def _make_folder() -> None:
    if not is_folder(_FOLDER):
        os.makedirs(_FOLDER, mode=0o700)
        fsync_folder(os.path.dirname(_FOLDER))


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
        fsync_folder(_FOLDER)


def _path(device: str) -> str:
    return f"{_FOLDER}/{device}"
