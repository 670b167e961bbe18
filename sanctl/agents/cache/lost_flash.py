# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a pool's flash that failed count as failed before a replica's disk is attached again."""

from __future__ import annotations

from sanctl.agents.cluster_toml import load_topology
from sanctl.agents.replica.parts import Device


def note(device: Device) -> None:
    """Clear the pool's note of valid flash, if it is the flash that failed, before an attach.

    Whatever attaches the disk: `drbdadm adjust` does, also where it is called for something else. A
    replica that is resynced on the slow disk, beside flash that a boot would still take for
    valid, would be UpToDate and show old blocks after that boot (docs/adr/0031).
    """
    pool = load_topology().pool(device.pool)
    if pool is not None and pool.cache is not None:
        from sanctl.drivers import flash_cache  # noqa: PLC0415 - no monitor pays for it

        flash_cache.clear_note_of_missing_flash(pool)
