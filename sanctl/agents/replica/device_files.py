# SPDX-License-Identifier: GPL-2.0-or-later
"""The files of a replica here and the loop devices over them: makes, grows, finds, detaches them.

The device agent's actions are made of these functions. Each can be run again after an interruption
at any point and goes on from what is there.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.replica import gate_size
from sanctl.agents.replica.parts import Device
from sanctl.drivers import backing_device, drbd_kernel, drbdadm, loop, pool_files, ram_cache
from sanctl.errors import CommandError, Problem
from sanctl.system.files import exists
from sanctl.system.runner import Runner

_PATHS_WITHOUT_SUFFIX: dict[str, str] = {}


def prepare(runner: Runner, device: Device, pool_path: str) -> pool_files.DeviceFiles:
    """Make the device's missing files, with loop devices over them.

    A metadata file gets its final name only once it holds metadata, and before DRBD attaches it: a
    start that died in between begins again with new metadata, which makes the replica Inconsistent
    and so harmless.

    Files that are there and cannot grow to the wanted size stay as they are: the replica is to
    serve what it has. Its monitors try again.

    Raises:
        SanctlError: a loop device could not be made or removed; the data file lost its end.
        OSError: it is not known whether a file is there, and so none is made or removed; or the
            pool takes no writes.
    """
    files = pool_files.files_of(pool_path, device.name, device.uuid)
    os.makedirs(os.path.dirname(files.data), mode=0o700, exist_ok=True)
    if not exists(files.data):
        # The metadata goes before the empty data file is made: the replica is then Inconsistent.
        loop.detach(files.metadata)
        pool_files.delete_metadata(files)
    _refuse_truncated(runner, device, files)
    grown = _grow_or_leave(device, files.data, device.size_bytes)
    data = loop.attach(files.data, block_bytes=loop.HOST_BLOCK_BYTES)
    if exists(files.metadata):
        _grow_or_leave(device, files.metadata, pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(files.metadata)
    else:
        loop.detach(f"{files.metadata}.new")
        # A new file: the loop device over a left-over one may be held open, and go only later. It
        # would be found for the new metadata, and its number may be another replica's by then.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{files.metadata}.new")
        pool_files.allocate(f"{files.metadata}.new", pool_files.metadata_bytes(device.size_bytes))
        metadata = loop.attach(f"{files.metadata}.new")
    if grown:
        loop.grow(data)
        loop.grow(metadata)
    if not drbd_kernel.has_device(device.minor):
        # A replica that is up keeps its backing device: one of an older release, its loop device.
        backing_device.create(runner, device.name, over=data)
        ram_cache.remove_parts(device.name)
    return files


def _grow_or_leave(device: Device, path: str, size_bytes: int) -> bool:
    """Make a file, or grow it as far as its filesystem lets it; return whether it has changed.

    Raises:
        OSError: there is no such file yet, or nothing in it, and it could not be made.
    """
    try:
        return pool_files.allocate(path, size_bytes)
    except pool_files.GrowthRefused as error:
        present = pool_files.size_bytes(path)
        # One without a byte is of a replica that was being made.
        if not present:
            raise
        gate_size.log_not_grown(device, f"{path} stays at {present} bytes: {error}")
        return False


def _refuse_truncated(runner: Runner, device: Device, files: pool_files.DeviceFiles) -> None:
    """Make sure that a data file which has to grow is not one that has lost its end.

    Grown back with zeros, such a file would pass for the up-to-date replica that its metadata
    describes. A file smaller than the wanted size is normal after a resize; a file smaller than the
    size in DRBD's metadata is not. Not asked of an attached replica: DRBD holds the metadata then,
    and would fail the disk itself.
    """
    present = pool_files.size_bytes(files.data)
    is_attached = loop.find(files.data) is not None
    if present is None or present >= device.size_bytes or is_attached:
        return
    if not exists(files.metadata):
        return
    recorded = drbdadm.recorded_size_bytes(
        runner, loop.attach(files.metadata), kernel_generation=drbd_kernel.generation()
    )
    if present < recorded:
        raise CommandError(
            Problem(
                "SAN-AGENT-009",
                f"{files.data} holds {present} bytes, the replica had {recorded}: its end is lost",
                "find out what cut it off; then remove the file, and the replica is filled from "
                "its peer",
            )
        )


def detach(device: Device) -> None:
    """Detach every loop device over this device's files, in whichever pool the files are."""
    backing_device.remove(device.name)
    ram_cache.remove_parts(device.name)
    for path in attached(device):
        loop.detach(path)
    gate_size.remove_size_loop_device(device.name)


def wait_until_detached(device: Device) -> None:
    """Wait until loop devices are gone: one that a probe holds open goes when the probe ends."""
    deadline = time.monotonic() + 5.0
    while attached(device) and time.monotonic() < deadline:
        time.sleep(0.1)


def attached(device: Device) -> list[str]:
    """Return the device's files that have a loop device; not those of its restore points."""
    prefix = f"/devices/{device.name}.{device.uuid}."
    return [path for path in loop.backing_files() if prefix in path]


def note_path(device: Device, kind: str) -> str | None:
    """Return the path of a note beside the device's data file, None when that is not attached.

    The path is found once in a process: the search reads every loop device of the node.
    """
    key = f"{device.name}.{device.uuid}"
    if key not in _PATHS_WITHOUT_SUFFIX or not _is_known_to_exist(
        f"{_PATHS_WITHOUT_SUFFIX[key]}.data"
    ):
        found = [path for path in attached(device) if path.endswith(".data")]
        if not found:
            return None
        _PATHS_WITHOUT_SUFFIX[key] = found[0].removesuffix(".data")
    return f"{_PATHS_WITHOUT_SUFFIX[key]}.{kind}"


def _is_known_to_exist(path: str) -> bool:
    try:
        return exists(path)
    except OSError:
        return False  # Not known: the caller reads the loop devices again, which needs no disk.


def grow(device: Device) -> bool:
    """Grow this replica's attached files to the wanted size; return whether any was smaller."""
    grown = False
    for path in attached(device):
        wanted = device.size_bytes
        if not path.endswith(".data"):
            wanted = pool_files.metadata_bytes(device.size_bytes)
        grown |= pool_files.allocate(path, wanted, create=False)
        over = loop.find(path)
        if over is not None:
            loop.grow(over)
            if path.endswith(".data"):
                if backing_device.is_too_small(device.name, over=over) and ram_cache.size_bytes(
                    device.name
                ):
                    ram_cache.remove(device.name, over=over)
                backing_device.grow(device.name, over=over)
    return grown
