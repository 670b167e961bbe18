# SPDX-License-Identifier: GPL-2.0-or-later
"""Gives a replica new DRBD metadata: its data count for nothing, and a full resync follows."""

from __future__ import annotations

from sanctl.agents import cluster_toml
from sanctl.agents.replica import device_files, lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup, loop, page_cache, pool_files
from sanctl.system.runner import Runner


def reset(runner: Runner, device: Device) -> None:
    """Replace the metadata of this replica and connect; DRBD then resyncs all of it.

    A start completes what an interruption leaves after any step: it makes missing metadata.
    """
    pool = cluster_toml.load_topology().pool(device.pool)
    if pool is None:
        return
    files = pool_files.files_of(str(pool.path), device.name, device.uuid)
    # A replica whose flush has failed may still be in write-back, and is about to lose the marker
    # that belongs to that. The next monitor flushes the file, or marks it and goes on.
    if page_cache.is_written_back(files.data):
        page_cache.set_synchronous(files.data, on=True)
    drbdsetup.down(runner, device.name)
    # Before the detach: another replica here may get that loop device next, and drbdadm refuses
    # two resource files that name the same one.
    resource_file.clear_disk(device.name)
    loop.detach(files.metadata)
    pool_files.delete_metadata(files)
    lost_writes.clear_marker(device.name, files.data)
    device_files.prepare(runner, device, str(pool.path))
    resource_file.write(runner, device, files)
    resource_file.bring_up(runner, device, files)
