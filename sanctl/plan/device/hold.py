# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether replicas hold the same data while the gate of their device holds all I/O back.

What DRBD says counts if it was read in the hold: by then no write is in flight, and each that was
acknowledged is on every replica that is UpToDate and connected (protocol C).
"""

from __future__ import annotations

from sanctl.parse.drbd import ProcState

#: The longest that hosts' I/O is held while replicas are copied, in seconds, and that a copy takes.
HOLD_S = 0.5
#: Every write goes to both replicas; a verify only reads.
_CONNECTED = frozenset({"Connected", "VerifyS", "VerifyT"})


def active_problem(state: ProcState | None, *, has_standby: bool) -> str:
    """Return why the replica of the active node may not be copied; empty if it may.

    Args:
        state: what DRBD on that node says.
        has_standby: a standby is copied as well, so the two have to be the same.
    """
    if state is None:
        return "DRBD says nothing of it"
    if state.role != "Primary":
        return f"it is {state.role} there"
    if state.disk != "UpToDate":
        return f"its disk there is {state.disk}"
    if state.is_suspended:
        return "DRBD holds its I/O back"
    if has_standby and not is_standby_in_sync(state):
        return f"the other replica is not in sync ({state.connection}, {state.peer_disk})"
    return ""


def is_standby_in_sync(state: ProcState) -> bool:
    """Whether the peer has every write that the node whose state this is has acknowledged."""
    return (
        state.connection in _CONNECTED
        and state.peer_role == "Secondary"
        and state.peer_disk == "UpToDate"
        and not state.out_of_sync_kib
    )


def standby_problem(state: ProcState | None) -> str:
    """Return why the replica of a standby may not be copied; empty if it may."""
    if state is None:
        return "DRBD says nothing of it"
    roles = (state.role, state.peer_role)
    if state.connection not in _CONNECTED or roles != ("Secondary", "Primary"):
        return f"it is {state.connection}, {state.role}/{state.peer_role}"
    if (state.disk, state.peer_disk) != ("UpToDate", "UpToDate") or state.out_of_sync_kib:
        return f"it is not in sync ({state.disk}/{state.peer_disk})"
    return ""
