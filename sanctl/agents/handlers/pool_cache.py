# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-pool-cache@POOL.service: starts a pool's flash cache before the mount."""

from __future__ import annotations

import sys

from sanctl.agents import cluster_toml
from sanctl.drivers import flash_assembly, flash_cache
from sanctl.errors import ConfigError, Problem, SanctlError
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner

_BOOT_WAIT_S = 30.0


def main() -> int:
    """Carry out `start POOL` or `stop POOL`; return the exit status."""
    state_files.make_folder()
    _, action, name = sys.argv
    try:
        pool = cluster_toml.load_topology().pool(name)
        if pool is None:
            raise ConfigError(Problem("SAN-POOL-011", f"there is no pool {name} in cluster.toml"))
        if action == "stop":
            flash_cache.stop(pool)
        else:
            flash_assembly.start(LocalRunner(), pool, patience_s=_BOOT_WAIT_S)
    except (SanctlError, OSError) as error:
        journal.write(f"pool {name}: {error}", priority=journal.ERROR, action="pool-cache")
        return 1
    return 0
