"""Gets a pool off its filesystem that has shut itself down, and onto it again, mounted anew.

A disk that fails for a moment costs the filesystem its journal, and from then on it takes no
writes until it is mounted anew. What it had not committed is gone, and with it writes that DRBD
had acknowledged to its peer: to places of a sparse file that nothing had been written to, and, in
write-back, all that was in RAM. DRBD drops the disk later, at the first write that fails, and its
bitmap begins there (docs/adr/0044). So each copy in the pool counts as suspect:

1. It is noted outside the pool, by whichever agent sees it first.
2. DRBD drops the disk of each replica that has a peer with good data. A node that serves without
   a disk is left by the cluster, for one that has the data.
3. When the disk answers again each standby lets go of its files. DRBD stays up without a disk.
4. When nothing uses the filesystem any more the pool's agent mounts it anew.
5. The copies are marked, the note goes, and each replica is stopped and started: filled whole.

Each step is seen from what there is, so whoever dies is followed by one that goes on.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import TYPE_CHECKING

from sanctl.agents import ocf, replica, resource_file, suspicion
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import drbd, loop, mounts, poolnotes
from sanctl.drivers.pool import check, files_of
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal
from sanctl.system.files import flocked, read_text_or, write_whole
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

START_ANEW = "its pool was mounted anew after an error of its disk; it is started anew"
_WAIT_S = 45.0
_POLL_S = 0.5


def give_up(runner: Runner, device: Device, state: ResourceState) -> str:
    """Give a replica's files up, as far as it goes, if their filesystem has shut itself down.

    Returns:
        Why the replica is to be stopped and started; empty if it is not.

    Raises:
        SanctlError, OSError: it could not be done; the next monitor tries again.
    """
    data = suspicion.data_file(device.name)
    is_out = state.disk == "Diskless" and not state.is_primary
    if data is None:
        return START_ANEW if is_out and _is_usable(device) else ""
    if not mounts.is_shut_down(os.path.dirname(data)):
        return ""
    note(device.pool)
    if state.disk != "Diskless":
        if any(peer.is_in_contact and peer.disk == "UpToDate" for peer in state.peers):
            drbd.drop_disk(runner, device.minor)
            _tell(f"{device.name}: its disk is dropped", step="dropped", device=device.name)
        return ""
    found = mounts.of(data)
    if is_out and found is not None and mounts.answers(found.source):
        # Before: the loop device that it names may be another file's a moment later.
        resource_file.forget_disk(device.name)
        ocf.stop_here_if_asked("aground-forgotten")
        replica.detach_files(runner, device)
        _tell(f"{device.name}: it has let go of its files", step="let-go", device=device.name)
    return ""


def _is_usable(device: Device) -> bool:
    where = replica.load_topology().pool(device.pool)
    if where is None or mounts.is_shut_down(str(where.path)):
        return False
    return os.path.isdir(f"{where.path}/devices")


def note(pool: str) -> None:
    """Note durably, and not in the pool, that its copies may lack acknowledged writes."""
    if not poolnotes.exists(pool, poolnotes.SHUT_DOWN):
        poolnotes.write(pool, poolnotes.SHUT_DOWN)
        _tell(f"pool {pool}: its filesystem has shut itself down", step="noted")


def admit(runner: Runner, pool: Pool, device: Device, *, within_s: float) -> None:
    """Before a replica is started in a pool: get it off a filesystem that has shut itself down.

    Raises:
        SanctlError, OSError: it takes no writes, and cannot be mounted anew in time.
    """
    deadline = time.monotonic() + min(within_s, _WAIT_S)
    while True:
        try:
            refloat(runner, pool)
            break
        except (SanctlError, OSError):
            # Other replicas here are still letting go of it.
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_S)
    if len(device.nodes) == 1:
        suspicion.forgive(files_of(str(pool.path), device.name, device.uuid).data)


def refloat(runner: Runner, pool: Pool) -> None:
    """Mount a pool's filesystem anew if it has shut itself down and nothing uses it.

    Raises:
        SanctlError, OSError: it is still shut down; the next call goes on.
    """
    path, name = str(pool.path), str(pool.name)
    is_shut = mounts.is_shut_down(path)
    if not is_shut and not os.path.exists(_mount_note(name)):
        if poolnotes.exists(name, poolnotes.SHUT_DOWN):
            with _locked(name):
                _distrust(pool)
        return
    if is_shut:
        note(name)
    with _locked(name):
        if mounts.is_shut_down(path):
            _unmount(runner, name, path)
        known = _known(name)
        if known is not None and not os.path.ismount(known.path):
            mounts.mount(runner, known)
            _tell(f"pool {name}: its filesystem is mounted anew", step="mounted")
        _distrust(pool)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_mount_note(name))


def _unmount(runner: Runner, name: str, path: str) -> None:
    found = mounts.of(path)
    if found is None:
        return
    if users := sorted(f for f in loop.backing_files() if f.startswith(f"{found.path}/")):
        raise CommandError(shut_down_problem(name, f"{users[0]} is in use"))
    if not mounts.answers(found.source):
        raise CommandError(shut_down_problem(name, f"{found.source} does not answer"))
    text = json.dumps([found.path, found.source, found.kind, sorted(found.options)])
    write_whole(_mount_note(name), text)
    ocf.stop_here_if_asked("aground-noted")
    mounts.unmount(runner, found.path)
    ocf.stop_here_if_asked("aground-unmounted")


def _distrust(pool: Pool) -> None:
    """Mark the copies in a pool that has shut itself down, before any of them is started."""
    name, folder = str(pool.name), f"{pool.path}/devices"
    if not poolnotes.exists(name, poolnotes.SHUT_DOWN):
        return
    check(str(pool.path), pool.uuid)
    with contextlib.suppress(FileNotFoundError):  # a pool that no device was made in
        for entry in sorted(os.listdir(folder)):
            if entry.endswith(".data"):
                suspicion.distrust(f"{folder}/{entry}")
    ocf.stop_here_if_asked("aground-distrusted")
    poolnotes.clear(name, poolnotes.SHUT_DOWN)
    _tell(f"pool {name}: its copies may lack writes; they are filled anew", step="distrusted")


def _locked(pool: str) -> contextlib.AbstractContextManager[bool]:
    return flocked(f"{RUNTIME}/pool-{pool}.aground")


def shut_down_problem(pool: str, why: str) -> Problem:
    """Say that a pool's filesystem has shut itself down."""
    return Problem(
        "SAN-POOL-023",
        f"pool {pool}: its filesystem has shut itself down, and is not mounted anew yet: {why}",
        "it is mounted anew when its disk answers and the devices here have let go of it",
    )


def _known(pool: str) -> mounts.Mount | None:
    """Return what was mounted, of a pool that was unmounted here and is to be mounted again."""
    with contextlib.suppress(ValueError):
        path, source, kind, options = json.loads(read_text_or(_mount_note(pool), ""))
        return mounts.Mount(path, source, kind, frozenset(options), frozenset())
    return None


def _mount_note(pool: str) -> str:
    return f"{RUNTIME}/pool-{pool}.mount"


def _tell(text: str, *, step: str, device: str = "") -> None:
    journal.write(text, priority=journal.WARNING, device=device, action="aground", step=step)
