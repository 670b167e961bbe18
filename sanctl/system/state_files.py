# SPDX-License-Identifier: GPL-2.0-or-later
"""State files and locks below /run/sanctl, gone with the boot: one folder per device and per pool.

    devices/NAME/KIND    of one device; a stop removes the folder in one call, `remove_device`
    pools/POOL/KIND      of one pool
    node/KIND            of the node, and what of a device has to outlive a stop: `KIND.NAME`

A kind may have a suffix, `KIND.SUFFIX`: one file for each peer, say. The module that owns a file
has its kind as a constant. Nothing else of sanctl knows a path below /run/sanctl.

Lock files stay where they have always been, beside these folders: a process of the release before
may hold one for as long as it runs, and two paths for one lock would be no lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time

from sanctl.system import journal
from sanctl.system.files import file_lock, folder_lock, read_text, replace_on_tmpfs

RUNTIME = "/run/sanctl"
_DEVICES, _POOLS, _NODE = "devices", "pools", "node"
# A folder on its way out. No device is called so: a name begins with a letter (model/names.py).
_REMOVED = ".removed."

#: Where releases before 0.1.0 kept a file. A release is exchanged under running replicas: what the
#: release before has written is read, and removed, at this path, too. Goes after 0.1.0.
_OLD_PATHS = {
    _DEVICES: {
        "attrd-cache": "told-{name}",
        "change-of-nodes": "following-{name}",
        "connected": "met-{name}",
        "dirty-limit": "cache-limit-{name}",
        "discard-begun": "discarding-{name}",
        "io-progress": "answered-{name}",
        "operator-trust": "trusted-{name}",
        "outdated-since": "overlooked-{name}",
        "outdated-unmarked": "unmarked-{name}.{suffix}",
        "promoting": "promoting-{name}",
        "reattach-tried": "attached-{name}",
        "resync-received": "resync-{name}",
        "sync-policy": "policy-{name}",
        "unmap-offer": "unmap-{name}",
        "verify-position": "verify-{name}",
        "was-active": "lived-{name}.{suffix}",
        "writes-stable": "stable-{name}",
    },
    _POOLS: {
        "flash-attached": "pool-{name}.attached",
        "flash-lost": "pool-{name}.flash-lost",
        "flash-rate": "pool-{name}.flash-rate",
        "mount": "pool-{name}.mount",
    },
    _NODE: {
        "attrd-cache": "told-{suffix}",
        "attrd-pid": "attrd",
        "dirty-before": "dirty-before",
        "failed-monitor": "failed-monitor-{suffix}",
        "failed-start": "failed-start-{suffix}",
        "flush-failed": "flush-failed-{suffix}",
        "flush-rate": "flush-rate",
        "pools-running": "pools-running",
        "power-protected": "power-protected",
    },
}
#: Still written where the release before looks for it. An operator may go back to it, and it
#: would take a replica for whole that has lost acknowledged writes: the kernel reports a failed
#: flush only once. Goes after 0.1.0.
_WRITTEN_AT_OLD_PATH = frozenset({"flush-failed"})
_DEVICE_LOCKS = ("cache", "fence", "held", "mark", "promote", "reload", "reservation", "restore")


class StateFile:
    """One file of state. All calls but `write` take its absence for an answer.

    Raises:
        OSError: of any call: it is not known whether there is one, or it cannot be changed.
    """

    __slots__ = ("_folder", "_old", "path")

    def __init__(self, group: str, name: str, kind: str) -> None:
        self._folder = f"{group}/{name}" if name else group
        self.path = f"{RUNTIME}/{self._folder}/{_checked(kind)}"
        self._old = _old_path(group, name, kind)
        if kind.partition(".")[0] in _WRITTEN_AT_OLD_PATH:
            assert self._old
            self.path = self._old

    def read(self, default: str = "") -> str:
        """Return what the file says, `default` without one."""
        while (path := self._current()) is not None:
            # Another process may have moved it from the old path to the new one, or removed it.
            with contextlib.suppress(FileNotFoundError):
                return read_text(path)
        return default

    def write(self, text: str = "") -> None:
        """Write the file so that a reader sees the old text or the new one."""
        for attempt in range(3):
            try:
                replace_on_tmpfs(self.path, text)
                break
            except FileNotFoundError:
                # Also the second time: another process may stop the device just then.
                if attempt == 2:
                    raise
                self._make_folders()
        if self._old != self.path:
            _unlink(self._old)

    def touch(self) -> None:
        """Make the file as young as one that is written now, if there is one."""
        path = self._current()
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def make_old(self) -> None:
        """Make the file as old as one can be, if there is one."""
        path = self._current()
        if path is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path, (0, 0))

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self._current() is not None

    def written_ns(self) -> int | None:
        """Return when the file was written, in nanoseconds since 1970; None without one."""
        # The old path first: a process that moves the file writes the new one before it removes it.
        times = [_written_ns(self._old), _written_ns(self.path)]
        return max((each for each in times if each is not None), default=None)

    def age_s(self) -> float | None:
        """Return how old the file is, None without one; negative where the clock was put back."""
        written_ns = self.written_ns()
        return None if written_ns is None else time.time() - written_ns / 1e9

    def remove(self) -> None:
        """Remove the file, if there is one."""
        _unlink(self._old)
        _unlink(self.path)

    def _current(self) -> str | None:
        """Return the path that counts; of two the younger one.

        Both are there where a process of the release before, which does not know of the new path,
        has written since.
        """
        old_ns, new_ns = _written_ns(self._old), _written_ns(self.path)
        if old_ns is not None and (new_ns is None or old_ns > new_ns):
            return self._old
        return None if new_ns is None else self.path

    def _make_folders(self) -> None:
        path = RUNTIME
        for part in ("", *self._folder.split("/")):
            path = f"{path}/{part}" if part else path
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)


def of_device(name: str, kind: str) -> StateFile:
    """Return a file of a device; it goes when the device is stopped here."""
    return StateFile(_DEVICES, _checked(name), kind)


def of_pool(name: str, kind: str) -> StateFile:
    """Return a file of a pool."""
    return StateFile(_POOLS, _checked(name), kind)


def of_node(kind: str) -> StateFile:
    """Return a file of the node, or of one of its devices that outlives the device's stop."""
    return StateFile(_NODE, "", kind)


def device_folder(name: str) -> str:
    """Return the folder of a device's files; resource-agents/client has the same path."""
    return f"{RUNTIME}/{_DEVICES}/{_checked(name)}"


def device_notes(name: str) -> frozenset[str]:
    """Return the names of a device's files."""
    return frozenset(_entries(device_folder(name)))


def device_suffixes(name: str, kind: str) -> list[str]:
    """Return the suffixes of a device's files of one kind."""
    found = _suffixes(f"{RUNTIME}/{_DEVICES}/{_checked(name)}", f"{kind}.")
    return sorted(found | _old_suffixes(_DEVICES, name, kind))


def node_suffixes(kind: str) -> list[str]:
    """Return the suffixes of the node's files of one kind."""
    found = _suffixes(f"{RUNTIME}/{_NODE}", f"{kind}.")
    return sorted(found | _old_suffixes(_NODE, "", kind))


def count_devices() -> int:
    """Return how many devices have a replica here, as far as one look tells; 0: not known."""
    try:
        return sum(not each.startswith(".") for each in _entries(f"{RUNTIME}/{_DEVICES}"))
    except OSError:
        return 0


def devices_with(kind: str) -> list[str]:
    """Return the devices that have a file of this kind."""
    names = {each for each in _entries(f"{RUNTIME}/{_DEVICES}") if not each.startswith(".")}
    old = _OLD_PATHS[_DEVICES].get(kind)
    if old is not None:
        names |= _suffixes(RUNTIME, old.format(name=""))
    return sorted(name for name in names if of_device(name, kind).exists())


def remove_device(name: str) -> None:
    """Remove all files of a device that is stopped here, and its lock files.

    The folder is renamed away first, so that a kill in the middle leaves all of it or nothing; what
    is left over of such a rename the next call removes, of whatever device. So it does with what
    cannot be removed, folders that a newer release has made among it: it means nothing any more,
    and no stop fails by it.
    """
    devices = f"{RUNTIME}/{_DEVICES}"
    _remove_leftovers(devices)
    with contextlib.suppress(FileNotFoundError):
        _rename_away(devices, _checked(name))
    for error in _remove_leftovers(devices):
        journal.write(
            f"{name}: what is left of a stopped device cannot be removed: {error}",
            priority=journal.WARNING,
            device=name,
            action="stop",
        )
    for kind, template in _OLD_PATHS[_DEVICES].items():
        if "{suffix}" in template:
            for suffix in _old_suffixes(_DEVICES, name, kind):
                _unlink(f"{RUNTIME}/{template.format(name=name, suffix=suffix)}")
        else:
            _unlink(f"{RUNTIME}/{template.format(name=name)}")
    for kind in _DEVICE_LOCKS:
        _unlink(device_lock(name, kind))


def device_lock(name: str, kind: str) -> str:
    """Return the path of a device's lock: `cache`, `fence`, `mark`, `promote`, ..."""
    assert kind in _DEVICE_LOCKS
    return f"{RUNTIME}/{kind}-{_checked(name)}.lock"


def pool_lock(name: str, kind: str) -> str:
    """Return the path of a pool's lock."""
    return f"{RUNTIME}/pool-{_checked(name)}.{kind}"


def node_lock(kind: str) -> str:
    """Return the path of a lock of the node."""
    return f"{RUNTIME}/{_checked(kind)}.lock"


def mount_lock(mount: str) -> str:
    """Return the path of the lock for trying out what is mounted at a path."""
    return f"{RUNTIME}/try{mount.replace('/', '-')}"


def disk_lock(device: str) -> str:
    """Return the path of the lock for finding out whether a block device answers."""
    return f"{RUNTIME}/read{device.replace('/', '-')}"


def locked(
    path: str, *, wait_s: float | None = None, shared: bool = False
) -> contextlib.AbstractContextManager[bool]:
    """Hold one of the locks above (`files.file_lock`), also where there is no /run/sanctl yet."""
    make_folder()
    return file_lock(path, wait_s=wait_s, shared=shared)


def locked_without_file(*, wait_s: float) -> contextlib.AbstractContextManager[bool]:
    """Hold a lock that needs no room on /run: of who publishes the replicas' states."""
    make_folder()
    return folder_lock(RUNTIME, wait_s=wait_s)


def make_folder() -> None:
    """Make /run/sanctl, where it is not."""
    os.makedirs(RUNTIME, mode=0o700, exist_ok=True)


def size_file(name: str) -> str:
    """Return the path of an empty file that has a device's size for a moment.

    Under its old path, as locks are: a loop device of the release before may stand over it.
    """
    return f"{RUNTIME}/shape-{_checked(name)}"


def crash_point(step: str) -> str:
    """Return the path of a file by which a test has the process die after a step."""
    return f"{RUNTIME}/die-after/{step}"


def actions_socket() -> str:
    """Return where sanctl-actions.service listens; resource-agents/client has the same path."""
    return f"{RUNTIME}/actions.socket"


def drbd_folder() -> str:
    """Return the folder of DRBD's resource files, which an operator's drbdadm reads, too."""
    return f"{RUNTIME}/drbd.d"


def ram_folder() -> str:
    """Return where the ramfs of the read caches is mounted."""
    return f"{RUNTIME}/ram"


def _checked(name: str) -> str:
    """Refuse a name that would leave its folder, or be taken for a folder on its way out."""
    if not name or "/" in name or "\0" in name or name.startswith("."):
        raise ValueError(f"{name!r} is no name of state below {RUNTIME}")
    return name


def _old_path(group: str, name: str, kind: str) -> str | None:
    base, _, suffix = kind.partition(".")
    template = _OLD_PATHS[group].get(base)
    return None if template is None else f"{RUNTIME}/{template.format(name=name, suffix=suffix)}"


def _old_suffixes(group: str, name: str, kind: str) -> set[str]:
    template = _OLD_PATHS[group].get(kind, "")
    if not template.endswith("{suffix}"):
        return set()
    return _suffixes(RUNTIME, template.format(name=name, suffix=""))


def _suffixes(folder: str, prefix: str) -> set[str]:
    found = {
        entry.removeprefix(prefix)
        for entry in _entries(folder)
        if entry.startswith(prefix) and entry != prefix
    }
    return {each for each in found if not _is_being_replaced(each)}


def _is_being_replaced(suffix: str) -> bool:
    """Whether it ends as what `files.replace_on_tmpfs` has not renamed yet, or was killed over."""
    _, ending, pid = suffix.rpartition(".new.")
    return bool(ending) and pid.isdecimal()


def _entries(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []


def _written_ns(path: str | None) -> int | None:
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            return os.stat(path).st_mtime_ns
    return None


def _unlink(path: str | None) -> None:
    if path is not None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _rename_away(devices: str, name: str) -> None:
    removed = f"{devices}/{_REMOVED}{name}.{os.getpid()}"
    try:
        os.rename(f"{devices}/{name}", removed)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
            raise
        # A process with this number has left one that cannot be removed.
        os.rename(f"{devices}/{name}", f"{removed}.{time.time_ns()}")


def _remove_leftovers(devices: str) -> list[OSError]:
    """Remove what is on its way out; return why some of it stays."""
    errors: list[OSError] = []
    for entry in _entries(devices):
        if entry.startswith(_REMOVED):
            _remove_tree(f"{devices}/{entry}", errors)
    return errors


def _remove_tree(path: str, errors: list[OSError]) -> None:
    """Remove a folder and all in it, following no symbolic link; errors are added to the list."""
    try:
        with os.scandir(path) as entries:
            found = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries]
        before = len(errors)
        for each, is_folder in found:
            if is_folder:
                _remove_tree(each, errors)
            else:
                _unlink_or_note(each, errors)
        if len(errors) == before:
            os.rmdir(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        # A process that had looked the folder up before the rename has just made its file in it:
        # the next call removes it.
        if error.errno != errno.ENOTEMPTY:
            errors.append(error)


def _unlink_or_note(path: str, errors: list[OSError]) -> None:
    try:
        _unlink(path)
    except OSError as error:
        errors.append(error)
