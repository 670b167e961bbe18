# SPDX-License-Identifier: GPL-2.0-or-later
"""A node that comes back from standby while all of its turns are held by something else."""

from __future__ import annotations

import contextlib
import shlex
import time
from collections.abc import Iterator
from typing import NamedTuple

from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario

_UNIT = "hold-turns"


class Turns(NamedTuple):
    """What holds turns: a shell's command, and how many processes sleep once all are held."""

    command: str
    sleepers: int


#: More than any node has: the turns of starts (sanctl/agents/node/start_turn.py).
STARTS = Turns(
    "for n in $(seq 0 63); do flock /run/sanctl/start-$n.lock sleep 600 & done; wait", 64
)
#: The turn to connect (sanctl/agents/connections/connect_turn.py).
CONNECT = Turns("flock /run/sanctl/connect.lock sleep 300", 1)


class NodeJournal(NamedTuple):
    """What sanctl has written into a node's journal since a time."""

    bed: LabSession
    node: str
    since_s: float

    def has(self, text: str) -> bool:
        """Whether there is such a text."""
        return (
            text
            in self.bed.sh(
                self.node,
                f"journalctl -q -o cat --since=@{self.since_s:.0f} SYSLOG_IDENTIFIER=sanctl",
            ).stdout
        )


@contextlib.contextmanager
def away(scenario: Scenario, node: str, turns: Turns) -> Iterator[NodeJournal]:
    """Put a node into standby, and hold its turns until the end; the standby is not ended."""
    bed = scenario.bed
    scenario.sanctl("node", "standby", node, timeout_s=180)
    journal = NodeJournal(bed, node, time.time() - 1)
    bed.sh(node, f"systemd-run --quiet --unit={_UNIT} sh -c {shlex.quote(turns.command)}")
    try:
        wait_for(
            "all turns taken",
            lambda: int(bed.sh(node, "pgrep -c -x sleep", ok=(0, 1)).stdout) >= turns.sleepers,
            within_s=60,
        )
        yield journal
    finally:
        bed.sh(node, f"systemctl stop {_UNIT}")


def end_standby(bed: LabSession, node: str) -> None:
    """End a node's standby, and wait for nothing."""
    bed.sh(node, f"crm_attribute --node {node} --name standby --delete")
