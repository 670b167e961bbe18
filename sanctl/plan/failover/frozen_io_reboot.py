# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: after how long without quorum a node with frozen I/O, or a failed stop, reboots.

A Primary that has lost its peer freezes until it is certain that the peer cannot serve. What ends
the freeze, in the order of preference:

1. The peer is fenced, or is still a member and marked: I/O goes on here.
2. The connection is back: DRBD goes on by itself.
3. The other nodes, which have quorum, fence this node.
4. None of these: this node has no quorum, and the nodes that have one cannot reach its power
   switch, or no partition has one. Then the frozen I/O holds the gate, the gate holds `demote` and
   `stop`, and even when all links are back the node cannot take part again. So it reboots.

Rule 4 cannot do new harm. Without quorum nothing may be served here: what a reboot interrupts is
I/O that is not acknowledged, and what it leaves behind is what a power cut leaves. It does not tell
the other nodes that they may go on; they go by fencing, or by this node joining again.

A node with quorum never reboots itself for a freeze, however long it waits. It waits for a standby
that cannot be fenced then, and the fault of a standby must not hurt the node that serves.
(Requests that hang while nothing is frozen: sanctl/plan/failover/hung_io_reboot.py.)
"""

from __future__ import annotations

#: How long a node may be without quorum, without a break, before its frozen I/O counts as
#: abandoned. Longer than one whole attempt of the other nodes to fence it (stonith-timeout, 30 s),
#: and than the restart of a switch's control plane or of corosync takes, after which I/O would go
#: on by itself. Shorter than the two minutes that `demote` and `stop` need to run out of time, so
#: that the node is back in service by then.
REBOOT_AFTER_S = 60.0


def quorum_lost_since(since: float | None, now: float, *, is_alone: bool) -> float | None:
    """Return since when this node has been without quorum, None while it has one.

    `since` is what this returned the last time; `is_alone`: there is no quorum here, or corosync
    does not say that there is.
    """
    if not is_alone:
        return None
    return now if since is None else since


def must_reboot(since: float | None, now: float) -> bool:
    """Whether a node with frozen I/O, without quorum since then, has to reboot itself."""
    return since is not None and now - since >= REBOOT_AFTER_S


def must_reboot_after_failed_stop(is_quorate: bool | None) -> bool:
    """Whether a node whose stop failed has to reboot itself.

    With quorum the cluster fences it. Where corosync does not answer (None) nothing is known, and
    fencing is left to the other nodes, which miss this node then.
    """
    return is_quorate is False
