# SPDX-License-Identifier: GPL-2.0-or-later
"""The cluster that runs against the inventory: what the rollout must not change under it."""

from __future__ import annotations

from collections.abc import Iterable


def watchdog_rule(timeouts: Iterable[str], wait_s: int) -> str:
    """Return the rule for stonith-watchdog-timeout: `raise` until it may become shorter, then ``.

    Pacemaker ends on a node where twice the watchdog timeout that it was started with is longer
    than the property; and a wait below what a node's SBD needs is no proof that the node is gone.

    Args:
        timeouts: of every node, the longest that its SBD and Pacemaker run with, in seconds, as
            text; empty where it is not known.
        wait_s: the property that the inventory asks for.
    """
    is_known = all(text.strip().isdigit() and 2 * int(text) <= wait_s for text in timeouts)
    return "" if is_known else "raise"
