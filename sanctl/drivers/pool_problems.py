# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors that the pool drivers raise, as Problems: flash missing, unreadable, half prepared."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sanctl.errors import Problem

if TYPE_CHECKING:
    from sanctl.model.topology import Pool


def cache_unit(pool: Pool) -> str:
    """Return the name of the systemd unit that assembles a pool's disk and flash."""
    return f"sanctl-pool-cache@{pool.name}.service"


def flash_missing_problem(pool: Pool) -> Problem:
    """Say that data of a pool is on flash that is missing on this node."""
    return Problem(
        "SAN-POOL-016",
        f"pool {pool.name}: data of it is on flash that is not here; the disk alone is not used",
        f"bring {pool.cache.flash if pool.cache else 'the flash'} back and start "
        f"{cache_unit(pool)}; or refill the pool from its peers: "
        f"'sanctl pool prepare {pool.name} --anew'",
    )


def disk_stopped_problem(pool: Pool, why: str = "the next monitor looks") -> Problem:
    """Say that bcache has stopped the disk under a pool, and why it is not remounted yet."""
    disk = pool.cache.origin if pool.cache else "its disk"
    return Problem(
        "SAN-POOL-023",
        f"pool {pool.name}: bcache has stopped {disk} after errors of it, or of the flash, and the "
        f"pool is not remounted yet: {why}",
        "see docs/howto/night-page.md, SAN-POOL-023",
    )


def unreadable_problem(pool: Pool, device: str, error: OSError) -> Problem:
    """Say that a device of a pool is missing, or cannot be read: its content is not known."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return Problem(
            "SAN-POOL-022", f"{device} is not there", "is it plugged in, and its name right?"
        )
    name = errno.errorcode.get(error.errno or 0, "")
    return Problem(
        "SAN-POOL-027",
        f"pool {pool.name}: {device} cannot be read: {error.strerror or error} ({name})",
        "nothing was written; 'journalctl -k' says what the disk has, docs/howto/pool-cache.md "
        "how it is replaced",
    )


def notes_missing_problem(pool: Pool) -> Problem:
    """Say that the node's notes of its pools are not there: what they say is not known."""
    return Problem(
        "SAN-POOL-035",
        f"pool {pool.name}: the folder of this node's notes of its pools, /var/lib/sanctl/pools, "
        "is not there: whether data is on flash alone is not known, and neither is used",
        f"is /var mounted? Then start {cache_unit(pool)}. Where the folder is lost: "
        "docs/howto/pool-cache.md",
    )


def unfinished_preparation_problem(pool: Pool) -> Problem:
    """Say that the preparation of a pool was interrupted on this node."""
    return Problem(
        "SAN-POOL-028",
        f"pool {pool.name} was being prepared on this node, and that was interrupted",
        f"'sanctl pool prepare {pool.name} --anew' again",
    )


def other_disk_problem(pool: Pool, origin: str) -> Problem:
    """Say that what is mounted as a pool is, or may be, on a disk of bcache's that is not known."""
    return Problem(
        "SAN-POOL-017",
        f"pool {pool.name}: {origin} is not the disk under what is mounted at {pool.path}, whose "
        "data may be on flash alone",
        "leave the flash in; give `cache.origin` in the inventory the name of the pool's disk and "
        "run the playbook",
    )
