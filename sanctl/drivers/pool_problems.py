# SPDX-License-Identifier: GPL-2.0-or-later
"""What is said where a pool's disk or flash cannot be used."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from sanctl.errors import Problem

if TYPE_CHECKING:
    from sanctl.model.topology import Pool


def service_of(pool: Pool) -> str:
    """Name the unit that puts a pool's disk and flash together."""
    return f"sanctl-pool-cache@{pool.name}.service"


def lost_problem(pool: Pool) -> Problem:
    """Say that data of a pool is on flash that is not here."""
    return Problem(
        "SAN-POOL-016",
        f"pool {pool.name}: data of it is on flash that is not here; the disk alone is not used",
        f"bring {pool.cache.flash if pool.cache else 'the flash'} back and start "
        f"{service_of(pool)}; or fill the pool anew from its peers: "
        f"'sanctl pool prepare {pool.name} --anew'",
    )


def unread_problem(pool: Pool, device: str, error: OSError) -> Problem:
    """Say that a device of a pool is not there, or cannot be read: nothing is known of it."""
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


def unfinished_problem(pool: Pool) -> Problem:
    """Say that a pool was to be made anew here, and that this was interrupted."""
    return Problem(
        "SAN-POOL-028",
        f"pool {pool.name} was being made anew on this node, and that was interrupted",
        f"'sanctl pool prepare {pool.name} --anew' again",
    )
