# SPDX-License-Identifier: GPL-2.0-or-later
"""The program of sanctl-pool-cache@POOL.service: what comes before a cached pool's mount."""

from __future__ import annotations

from sanctl.agents.replica import parts
from sanctl.drivers import flash_cache
from sanctl.errors import ConfigError, Problem, SanctlError
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

_BOOT_PATIENCE_S = 30.0


def main(argv: list[str]) -> int:
    """Carry out `start POOL` or `stop POOL`; return the exit status."""
    state_files.make_folder()
    _, action, name = argv
    try:
        pool = parts.load_topology().pool(name)
        if pool is None:
            raise ConfigError(Problem("SAN-POOL-011", f"there is no pool {name} in cluster.toml"))
        if action == "stop":
            flash_cache.stop(pool)
        else:
            flash_cache.start(LocalRunner(), pool, patience_s=_BOOT_PATIENCE_S)
    except (SanctlError, OSError) as error:
        journal.write(f"pool {name}: {error}", priority=journal.ERROR, action="pool-cache")
        return 1
    return 0
