# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which devices of a node have something due by what its CIB says, unseen by their monitors.

Scores and marks are what the scheduler decides by: a replica without a score, or with a mark that
nobody clears, takes nothing over. Monitors of replicas in sync look at neither for minutes
(docs/adr/0053).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sanctl.model.outdated_mark import PREFIX

#: pacemaker-attrd has written a value to the CIB by then, also on a node that starts fifty devices.
WRITTEN_AFTER_S = 30.0
_NEVER = "-INFINITY"
#: A Primary and its only peer, as the agents publish them.
_IN_SYNC = {
    "role": "Primary",
    "connection": "Connected",
    "replication": "Established",
    "peer-disk": "UpToDate",
}


def lost_scores(published: Mapping[str, str], in_cib: Mapping[str, str]) -> list[str]:
    """Return the devices whose promotion score is not in the CIB as it was published.

    Args:
        published: by device, what pacemaker-attrd was given so long ago that the CIB must have it;
            `None`: never to be promoted.
        in_cib: this node's transient attributes in the CIB, and others.
    """
    return sorted(
        name
        for name, score in published.items()
        if in_cib.get(f"master-{name}") != (_NEVER if score == "None" else score)
    )


def marked_devices(found: Collection[str]) -> frozenset[str]:
    """Return the devices that have a mark among these names and ids of the CIB, of either form."""
    return frozenset(
        name.removeprefix(PREFIX).partition(".")[0] for name in found if name.startswith(PREFIX)
    )


def may_clear_mark(published: str) -> bool:
    """Whether a device of two replicas is served here and in sync, by its published state.

    That it is so now, and that its mark may go, is decided by its own monitor. Of three or four
    replicas one may be away for long, marked, beside another that is in sync: their monitors are
    all whole, and look once a minute.
    """
    pairs = dict(word.partition("=")[::2] for word in published.split())
    return "peers" not in pairs and _IN_SYNC.items() <= pairs.items()
