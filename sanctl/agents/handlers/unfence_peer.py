# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's unfence-peer handler: has agents.fencing.outdate clear a peer's mark after a resync."""

from __future__ import annotations

from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.agents.publish import replica_state
from sanctl.agents.reservations import hooks
from sanctl.agents.sync import unit
from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import LocalRunner

_RUNNER = LocalRunner()


def main() -> int:
    """Clear the marks of the peers that are in sync with this replica; return the exit status."""
    device = drbd_environment.resource()
    peers = drbd_environment.peer().split()
    try:
        # It also publishes the new state, which the next monitor would publish only later.
        unit.start(_RUNNER)
        replica_state.publish_primary_score(_RUNNER, device)
        outdate.clear_marks(_RUNNER, device, peers, hooks.has_current)
    except (SanctlError, OSError) as error:
        journal.write(
            f"{device}: a peer is still marked as outdated: {error}; the monitor tries again",
            priority=journal.WARNING,
            device=device,
            action="unfence-peer",
        )
        return 1
    return 0
