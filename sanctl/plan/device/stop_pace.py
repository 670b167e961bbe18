# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: how many replicas a node that is shut down takes down at a time.

Most of the time of one goes by in waits: for I/O in flight, for DRBD, for a disk. Several at a time
wait at the same time. All at once would need the memory and the processor time of as many processes
at the moment at which everything else of the node ends, too.
"""

from __future__ import annotations

from collections.abc import Collection

AT_A_TIME = 8
#: One that has taken longer waits for something that may never come, and needs no processor: it
#: keeps no other from its turn. So fifty of which none ends have all begun after half a minute.
SLOW_S = 5.0
#: For all of them. Less than TimeoutStopSec of sanctl-replicas.service (120 s), of which systemctl
#: may take twenty before the first begins: what has not ended is named before the unit is ended.
ALL_WITHIN_S = 95.0


def may_begin(running_s: Collection[float]) -> bool:
    """Whether one more may be taken down.

    `running_s` is how long each that is being taken down has taken until now, in seconds.
    """
    return sum(taken_s < SLOW_S for taken_s in running_s) < AT_A_TIME
