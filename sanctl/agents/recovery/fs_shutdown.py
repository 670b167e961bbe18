# SPDX-License-Identifier: GPL-2.0-or-later
"""Replicas on a pool whose filesystem shut itself down: note, detach, release, no promotion.

A disk that fails for a moment costs the filesystem its journal: the filesystem takes no writes
until it is remounted. Transactions that it had not committed are gone, and with them writes that
DRBD had acknowledged to its peer: to places of a sparse file that nothing had been written to, and,
in write-back, all writes that were in RAM. DRBD detaches the disk later, at the first write that
fails, and its bitmap begins there (docs/adr/0044). So each replica in the pool counts as suspect:

1. The agent that first sees the shutdown writes a note outside the pool.
2. Each replica that has a peer with good data is detached from its disk. The cluster moves a device
   away from a Primary without a disk, to a node that has the data.
3. When the disk answers again each standby releases its files. DRBD stays up without a disk.
4. When nothing uses the filesystem any more the pool's agent remounts it (pool_remount.py).
5. The replicas are marked, the note is removed, and each replica is stopped and started, which has
   all of it sent by its peer.

This module has steps 1 to 3, and the restart of step 5. Each step is decided from the state that is
found, so after a kill the next agent goes on.
"""

from __future__ import annotations

import contextlib
import os
from enum import StrEnum
from typing import TYPE_CHECKING

from sanctl.agents import cluster_toml, ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import device_files, lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, node_attributes, pool_mount, pool_notes
from sanctl.drivers.pool_files import check_marker, files_of
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    from sanctl.model.topology import Pool

RESTART_REASON = "its pool was remounted after a disk error; the replica is restarted"
# A Primary waits until the peer's agents have checked their pool: both may share what failed.
_PEER_CHECKS_WITHIN_S = 15.0
_log = DeviceLog("fs-shutdown", priority=journal.WARNING)


class FilesystemState(StrEnum):
    """The state of the filesystem below a replica, by what the monitor has to do."""

    HEALTHY = "healthy"
    """The monitor goes on as usual; so it does where DRBD must keep a disk that is shut down."""
    SHUT_DOWN = "shut down"
    """The replica has no disk; the monitor does nothing else for it."""
    REMOUNTED = "remounted"
    """The replica has to be stopped and started."""


def release_files(runner: Runner, device: Device, state: ResourceState) -> FilesystemState:
    """Detach and release a replica's files, as far as is safe, if their filesystem is shut down.

    Raises:
        SanctlError, OSError: a step failed; the next monitor tries again.
    """
    data = lost_writes.data_file(device.name)
    is_detached = state.disk == "Diskless" and not state.is_primary
    if data is None:
        if not is_detached:
            return FilesystemState.HEALTHY
        if _is_usable(device):
            return FilesystemState.REMOUNTED
        if device_files.attached(device):
            # An agent was killed after it had released some of the files.
            resource_file.clear_disk(device.name)
            device_files.detach(device)
        return FilesystemState.SHUT_DOWN
    if not _is_shut_down(device, data, is_tried=state.disk == "Diskless"):
        return FilesystemState.HEALTHY
    record_shutdown(device.pool)
    if state.disk != "Diskless":
        if not _may_detach(runner, device, state):
            return FilesystemState.HEALTHY
        drbdsetup.force_detach(runner, device.minor)
        _log(device.name, "its disk is detached", step="detached")
        return FilesystemState.SHUT_DOWN
    found = pool_mount.mount_of(data)
    if is_detached and found is not None and source_answers(_pool_of(device), found.source):
        # First: the loop device that the resource file names may be another file's a moment later.
        resource_file.clear_disk(device.name)
        ocf.crash_point("fs-shutdown-disk-cleared")
        device_files.detach(device)
        _log(device.name, "its files are released", step="released")
    return FilesystemState.SHUT_DOWN


def _is_shut_down(device: Device, data: str, *, is_tried: bool) -> bool:
    """Whether a replica's filesystem is shut down, or was when the pool's agent checked.

    Only the pool's agent tries a write, and a device's agent for a disk that DRBD has detached.
    """
    folder = os.path.dirname(data)
    # The note last: the node's own disk, which holds it, may be the one that does not answer.
    if pool_mount.reports_shut_down(folder) or pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return True
    return is_tried and pool_mount.is_shut_down(folder)


def _may_detach(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Whether DRBD may give up an attached disk: a peer has good data on a healthy filesystem.

    A Primary keeps its disk where DRBD 9's quorum decides: without one it may no longer be part of
    a majority.
    """
    good = [peer for peer in state.peers if peer.is_connected and peer.disk == "UpToDate"]
    if not good or (state.is_primary and uses_quorum(len(device.nodes))):
        return False
    if (
        state.is_primary
        and pool_notes.age_s(device.pool, pool_notes.SHUT_DOWN) < _PEER_CHECKS_WITHIN_S
    ):
        return False
    here = os.uname().nodename
    attribute = f"sanctl-pool-{device.pool}"
    others = [node for node in device.nodes if node != here]
    # Of two replicas that is the only peer; of more, one other shut-down pool is one too many.
    return not any("error=" in node_attributes.query(runner, attribute, node) for node in others)


def refuse_promotion(device: Device) -> None:
    """Refuse to make a replica Primary whose filesystem has shut itself down.

    Raises:
        CommandError: the filesystem is shut down; a good replica is promoted instead, if any.
    """
    data = lost_writes.data_file(device.name)
    if data is not None and _is_shut_down(device, data, is_tried=False):
        raise CommandError(shut_down_problem(device.pool, f"{device.name} may lack writes here"))


def before_stop(device: Device) -> None:
    """Write the note of a shut-down filesystem that no monitor has written yet.

    Monitors end with the stop, and did not run in maintenance mode.
    """
    data = lost_writes.data_file(device.name)
    if data is None:
        return
    with contextlib.suppress(SanctlError, OSError):  # the stop goes on after any error
        if pool_mount.is_shut_down(os.path.dirname(data)):
            pools = cluster_toml.load_topology().pools
            over = (str(one.name) for one in pools if data.startswith(f"{one.path}/"))
            if name := device.pool or next(over, ""):
                record_shutdown(name)


def record_shutdown(pool: str) -> None:
    """Write a durable note, outside the pool, that its replicas may lack acknowledged writes.

    Where the node's own disk takes no writes either, that is logged, and the callers go on: the
    note is in RAM then (drivers/pool_notes.py), and the next call tries the disk again.
    """
    try:
        with contextlib.suppress(OSError):  # not known: an own disk that does not answer
            if pool_notes.is_on_disk(pool, pool_notes.SHUT_DOWN):
                return
        from sanctl.agents.recovery import unbroken_use  # noqa: PLC0415 - rarely needed

        text = ""
        with contextlib.suppress(OSError):  # A note that proves nothing stays for longer.
            text = unbroken_use.describe()
        pool_notes.write(pool, pool_notes.SHUT_DOWN, text)
    except OSError as error:
        _log(
            "",
            f"pool {pool}: the note of its shut-down filesystem cannot be written: {error}",
            step="unnoted",
        )
        return
    _log("", f"pool {pool}: its filesystem has shut itself down", step="noted")


def _is_usable(device: Device) -> bool:
    where = cluster_toml.load_topology().pool(device.pool)
    if where is None or mount_note(device.pool).exists():
        return False
    # While it is there the start would be refused, or the next monitor detach the disk again.
    if pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return False
    try:
        check_marker(str(where.path), where.uuid)
    except SanctlError:
        return False
    return not pool_mount.is_shut_down(str(where.path))


def trust_only_replica(pool: Pool, device: Device) -> None:
    """Clear the marker of a device's only replica: no peer could send it what it may lack.

    Raises:
        OSError: the pool takes no writes.
    """
    if len(device.nodes) == 1:
        lost_writes.clear_shutdown_marker(files_of(str(pool.path), device.name, device.uuid).data)


def source_answers(pool: Pool | None, source: str) -> bool:
    """Whether the device that a pool is mounted from answers; its slow disk if bcache stopped it.

    Nobody can open a disk that bcache has stopped.
    """
    if pool is not None and pool.cache is not None:
        from sanctl.drivers import flash_cache  # noqa: PLC0415 - pools without flash need it not

        if flash_cache.is_stopped(pool):
            source = str(pool.cache.origin)
    return pool_mount.is_readable(source)


def _pool_of(device: Device) -> Pool | None:
    return cluster_toml.load_topology().pool(device.pool)


def shut_down_problem(pool: str, why: str) -> Problem:
    """Return SAN-POOL-023 with the reason why the pool is not remounted yet."""
    return Problem(
        "SAN-POOL-023",
        f"pool {pool}: its filesystem has shut itself down and is not remounted yet: {why}",
        "see docs/howto/night-page.md, SAN-POOL-023",
    )


def mount_note(pool: str) -> state_files.StateFile:
    """Return the note of a pool's mount, from before the unmount until it is mounted again."""
    return state_files.of_pool(pool, "mount")
