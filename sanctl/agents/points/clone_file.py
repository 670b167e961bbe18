# SPDX-License-Identifier: GPL-2.0-or-later
"""Makes the data file of a device that is made from a restore point: a copy that shares blocks.

Only while the CIB says that the device has never been active, and where there is no data file: a
file that is missing later is never made from the restore point again, since hosts have written to
the device. It is then empty, without metadata, and filled from the peer, as that of any device.

The file gets its name when it is whole and on the disk. A start that dies before begins again; what
it left is removed. So a data file that is there on one of the clone's nodes, while the device is
new, is the restore point.
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents import ocf
from sanctl.agents.points import room
from sanctl.agents.promotion import first_activation
from sanctl.agents.replica.parts import Device
from sanctl.drivers import loop, point_files, pool_files, reflink
from sanctl.errors import CommandError, Problem
from sanctl.model.clone_origin import CloneOrigin
from sanctl.plan.device.point_room import DataFile
from sanctl.system import journal
from sanctl.system.files import exists, write_atomically
from sanctl.system.runner import Runner


def make(runner: Runner, device: Device, pool_path: str) -> None:
    """Make the data file from the restore point, where this node has it and the device is new.

    Raises:
        CommandError: the restore point cannot be copied here, or it is not known whether the device
            is new. Then the replica does not start: an empty file would pass for a copy.
        OSError: it is not known whether there is a data file.
    """
    origin = CloneOrigin.parse(device.origin)
    if origin is None:
        raise CommandError(
            Problem(
                "SAN-CLONE-007",
                f"{device.name} is made from {device.origin!r}, which is no restore point",
                "a newer release may have made it: update sanctl on this node",
            )
        )
    files = pool_files.files_of(pool_path, device.name, device.uuid)
    if os.uname().nodename not in origin.nodes or exists(files.data):
        return
    if not first_activation.is_new(runner, device):
        return
    try:
        _copy(device, origin, pool_path, files)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(_unfinished(files))
        raise CommandError(
            Problem(
                "SAN-CLONE-006",
                f"restore point {origin.name} cannot be copied to {files.data}: {error.strerror}",
                f"'sanctl device delete {device.name}' takes back what has been made of it",
            )
        ) from error
    journal.write(
        f"{device.name}: its data file is a copy of restore point {origin.name}",
        priority=journal.NOTICE,
        device=device.name,
        action="clone",
    )


def _copy(
    device: Device, origin: CloneOrigin, pool_path: str, files: pool_files.DeviceFiles
) -> None:
    final = point_files.final_path(pool_path, origin.device, origin.uuid, origin.token)
    unfinished = _unfinished(files)
    os.makedirs(os.path.dirname(files.data), mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(unfinished)
    with contextlib.ExitStack() as opened:
        point = point_files.open_whole(final, origin.size_bytes)
        opened.callback(os.close, point)
        size = max(device.size_bytes, origin.size_bytes)
        # Until the copy has its name: others see by its blocks from then on what it shares.
        claim = room.claim(
            device.pool, pool_path, files.data, DataFile(size, 0, 0), token=device.uuid
        )
        opened.callback(claim.end)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        copy = os.open(unfinished, flags, 0o600)
        opened.callback(os.close, copy)
        reflink.clone(point, copy)
        # On every node the same, also where the origin was growing at that moment: behind this
        # all replicas have zeros, now and when they grow. The file is not shorter.
        os.ftruncate(copy, origin.size_bytes)
        ocf.crash_point("clone-copied")
        os.fsync(copy)
        # Before the name: metadata of a file that is gone would call the new one UpToDate.
        loop.detach(files.metadata)
        pool_files.delete_metadata(files)
        note = f"{files.data.removesuffix('.data')}.{pool_files.CLONE_NOTE}"
        write_atomically(note, device.origin, mode=0o600)
        ocf.crash_point("clone-stable")
        pool_files.rename(unfinished, files.data)
    ocf.crash_point("clone-named")


def _unfinished(files: pool_files.DeviceFiles) -> str:
    return f"{files.data}{pool_files.CLONING}"
