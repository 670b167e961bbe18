# SPDX-License-Identifier: GPL-2.0-or-later
"""DRBD's unfence-peer handler: clears the mark of a peer whose resync from this node has ended."""

from __future__ import annotations

from sanctl.agents.fencing import outdate
from sanctl.agents.handlers import drbd_environment
from sanctl.agents.sync import unit
from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import LocalRunner

_RUNNER = LocalRunner()


def main() -> int:
    """Let the peers' replicas be promoted again, if they have become the same as this one."""
    device = drbd_environment.resource()
    peers = drbd_environment.peer().split()
    # Also to tell the cluster, which would else hear of it from the next monitor.
    unit.start(_RUNNER)
    try:
        outdate.clear_marks(_RUNNER, device, peers)
    except SanctlError as error:
        journal.write(
            f"{device}: a peer is still marked as outdated: {error}; the monitor tries again",
            priority=journal.WARNING,
            device=device,
            action="unfence-peer",
        )
        return 1
    return 0
