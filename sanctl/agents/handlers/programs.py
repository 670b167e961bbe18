# SPDX-License-Identifier: GPL-2.0-or-later
"""The table from program name in /usr/lib/sanctl (fence-peer, resync, ...) to the module it runs.

resource-agents/direct/program calls `main` here, and so does sanctl-actions.service for those names
whose file is resource-agents/client: modules can move from one release to the next while those
files stay. A module is imported only
by its own program: fence-peer runs while I/O is frozen. The other two programs there, resync-target
and unfence-peer, are shell, because DRBD and every write of a host wait for them.
"""

from __future__ import annotations

import contextlib
import importlib
import os

MODULES = {
    "actions": "sanctl.agents.service.server",
    "before-resync-source": "sanctl.agents.handlers.before_resync_source",
    # Started by the shell program unfence-peer.
    "copy-to-site": "sanctl.agents.sites.program",
    "clear-marks": "sanctl.agents.handlers.unfence_peer",
    "flush-only-replicas": "sanctl.agents.cache.only_replica_flush",
    "fence-peer": "sanctl.agents.handlers.fence_peer",
    "own-host": "sanctl.agents.own_host.program",
    "point-hook": "sanctl.agents.points.hook_program",
    "point-peer": "sanctl.agents.handlers.point_peer",
    "look-at-sites": "sanctl.agents.sites.look",
    "pool-cache": "sanctl.agents.handlers.pool_cache",
    "reservations": "sanctl.agents.reservations.service",
    "restore-device": "sanctl.agents.restore.program",
    "resync": "sanctl.agents.sync.scheduler",
    "take-point": "sanctl.agents.points.leader",
    "stop-remaining": "sanctl.agents.handlers.stop_remaining",
    # The name of stop-remaining in releases before 0.1.0: until systemd has read the unit again.
    "put-down": "sanctl.agents.handlers.stop_remaining",
}
#: DRBD waits for these, and calls them once; they need little memory, and not for long.
_NEEDED = frozenset({"before-resync-source", "fence-peer"})
_OOM_SCORE = "/proc/self/oom_score_adj"


def main(argv: list[str]) -> int:
    """Run the module of the program's name, argv[0], and return its exit status."""
    program = os.path.basename(argv[0])
    if program in _NEEDED:
        # The kernel's out-of-memory killer takes neither this process nor what it starts.
        with contextlib.suppress(OSError), open(_OOM_SCORE, "w", encoding="ascii") as file:
            file.write("-1000")
    try:
        return int(importlib.import_module(MODULES[program]).main())
    except Exception as error:
        # The kernel throws a handler's standard error away.
        _log_crash(program, error)
        raise


def _log_crash(program: str, error: Exception) -> None:
    import traceback  # noqa: PLC0415 - only after a crash

    from sanctl.agents.handlers import drbd_environment  # noqa: PLC0415
    from sanctl.system import journal  # noqa: PLC0415

    device = drbd_environment.resource()
    lines = "".join(traceback.format_exception(error))
    journal.write(
        f"{device or program}: {program} ended by an error of its own, please report it:\n{lines}",
        priority=journal.ERROR,
        device=device,
        action=program,
        step="crashed",
    )
