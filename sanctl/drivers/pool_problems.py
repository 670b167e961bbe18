# SPDX-License-Identifier: GPL-2.0-or-later
"""Messages about a pool whose disk or flash is missing, cannot be read or is half prepared."""

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
        f"{cache_unit(pool)}; or fill the pool anew from its peers: "
        f"'sanctl pool prepare {pool.name} --anew'",
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


def unfinished_preparation_problem(pool: Pool) -> Problem:
    """Say that the preparation of a pool was interrupted on this node."""
    return Problem(
        "SAN-POOL-028",
        f"pool {pool.name} was being made anew on this node, and that was interrupted",
        f"'sanctl pool prepare {pool.name} --anew' again",
    )
