# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica begun anew: what it held is no copy any more, and DRBD fills it from one that is."""

from __future__ import annotations

from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, loop, pool_files
from sanctl.system.runner import Runner


def reset(runner: Runner, device: Device) -> None:
    """Make this a replica that holds nothing; DRBD then sends it everything.

    Each step leaves what a start completes: metadata that are gone are made anew.
    """
    where = parts.load_topology().pool(device.pool)
    if where is None:
        return
    files = pool_files.files_of(str(where.path), device.name, device.uuid)
    drbdsetup.down(runner, device.name)
    # Before: another replica here may be given that loop device, and drbdadm takes no two files
    # that name the same one.
    resource_file.clear_disk(device.name)
    loop.detach(files.metadata)
    pool_files.delete_metadata(files)
    lost_writes.clear_marker(device.name, files.data)
    parts.prepare_files(runner, device, str(where.path))
    resource_file.write(runner, device, files)
    resource_file.bring_up(runner, device, files)
