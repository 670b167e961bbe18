# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: which verify that is due by schedule begins on a node, and which waits for its turn.

A verify reads all of a device on all of its nodes. Many at once, whose schedules name one hour,
take as long together as one after the other, and hosts share the disks with all of them. So few run
on a node at a time, those for which it is the peer among them. The device that was last compared
longest ago is first: where not all get their turn, it is others the next time. The node that serves
a device decides by what it sees itself; a peer that looks in the same moment may begin one, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

#: One that waits for its peer's disk leaves this node's to another.
AT_A_TIME = 2
#: A verify counts for so long: nobody waits for ever for one that makes no progress.
COUNTS_S = 12 * 3600.0
#: Monitors look for a verify within so long of its hour (plan/device/short_monitor.py): before that
#: not all that are due have said so, and whoever was looked at first would always be first.
GATHERS_S = 55.0
#: Whoever has not said for so long that it waits does so no longer: it was stopped, or has moved.
SILENT_S = 180.0


class Waiting(NamedTuple):
    """A device of this node whose verify is due.

    Attributes:
        device: its name.
        compared_s: when the verify before began, in seconds since 1970; 0: there was none.
        waits_s: for how long it waits, in seconds.
        silent_s: how long ago it has last said so, in seconds.
    """

    device: str
    compared_s: int
    waits_s: float
    silent_s: float


def may_begin(device: str, waiting: Collection[Waiting], running_s: Collection[float]) -> bool:
    """Whether a device's verify that is due begins now.

    Args:
        device: its name.
        waiting: all that wait on this node, the device among them.
        running_s: for how long each verify runs in which this node takes part, in seconds.
    """
    others = [each for each in waiting if 0 <= each.silent_s < SILENT_S]
    in_order = sorted(others, key=lambda each: (each.compared_s, each.device))
    free = AT_A_TIME - sum(0 <= taken_s < COUNTS_S for taken_s in running_s)
    return any(
        each.device == device and each.waits_s >= GATHERS_S for each in in_order[: max(0, free)]
    )
