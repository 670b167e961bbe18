# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether replicas hold the same data while the gate of their device holds all I/O back.

What DRBD says counts if it was read in the hold: by then no write is in flight, and each that was
acknowledged is on every replica that is UpToDate and connected (protocol C).

`states` are of this node's connections, by the names of the peers; with DRBD 8.4 of `ONLY_PEER`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sanctl.parse.drbd import ProcState

#: The longest that hosts' I/O is held while replicas are copied, in seconds, and that a copy takes.
HOLD_S = 0.5
#: Every write goes to both replicas; a verify only reads. DRBD 9 calls it Established.
_CONNECTED = frozenset({"Connected", "Established", "VerifyS", "VerifyT"})
#: The peer of DRBD 8.4, which has one, and does not say its name.
ONLY_PEER = ""


def active_problem(states: Mapping[str, ProcState], *, standbys: Collection[str]) -> str:
    """Return why the replica of the active node may not be copied; empty if it may.

    Args:
        states: what DRBD on that node says.
        standbys: the nodes that are copied as well, so all of them have to be the same.
    """
    if not states:
        return "DRBD says nothing of it"
    # The same in all of them.
    own = next(iter(states.values()))
    if own.role != "Primary":
        return f"it is {own.role} there"
    if own.disk != "UpToDate":
        return f"its disk there is {own.disk}"
    if own.is_suspended:
        return "DRBD holds its I/O back"
    for node in standbys:
        state = _state_of(states, node)
        if state is None:
            return f"it knows no replica on {node}"
        if not _is_in_sync(state):
            seen = f"{state.connection}, {state.peer_disk}"
            return f"the replica on {node} is not in sync ({seen})"
    return ""


def standbys_in_sync(states: Mapping[str, ProcState], others: Collection[str]) -> tuple[str, ...]:
    """Return the nodes that have every write that the node whose states these are acknowledged.

    Args:
        states: what DRBD on the active node says.
        others: the other nodes with a replica; one at most with DRBD 8.4.
    """
    known = ((node, _state_of(states, node)) for node in others)
    return tuple(node for node, state in known if state is not None and _is_in_sync(state))


def _state_of(states: Mapping[str, ProcState], node: str) -> ProcState | None:
    return states.get(node, states.get(ONLY_PEER))


def _is_in_sync(state: ProcState) -> bool:
    return (
        state.connection in _CONNECTED
        and state.peer_role == "Secondary"
        and state.peer_disk == "UpToDate"
        and not state.out_of_sync_kib
    )


def standby_problem(states: Mapping[str, ProcState]) -> str:
    """Return why the replica of a standby may not be copied; empty if it may."""
    if not states:
        return "DRBD says nothing of it"
    active = [state for state in states.values() if state.peer_role == "Primary"]
    if len(active) > 1:
        return f"{len(active)} other nodes are Primary"
    state = active[0] if active else next(iter(states.values()))
    roles = (state.role, state.peer_role)
    if state.connection not in _CONNECTED or roles != ("Secondary", "Primary"):
        return f"it is {state.connection}, {state.role}/{state.peer_role}"
    if (state.disk, state.peer_disk) != ("UpToDate", "UpToDate") or state.out_of_sync_kib:
        return f"it is not in sync ({state.disk}/{state.peer_disk})"
    return ""
