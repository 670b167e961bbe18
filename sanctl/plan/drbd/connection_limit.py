# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: to which peers a stale replica of four may connect: the Primary alone, or all.

The hole this closes (DRBD 9.3.3, docs/adr/0039): two replicas are behind by the same generation,
and a third, good replica has resynced one of them in part already. When the other stale replica
connects to that third one, which looks for the bitmap of the generation and takes the first it
finds, that is the bitmap of the replica resynced before, with holes in it by now. The blocks that
are missing there are never sent, and DRBD calls the replica UpToDate.

So a replica that is behind connects to the Primary and to no other peer until it is UpToDate. The
hole takes four replicas: two that are behind, one that resyncs them, and one that is connected too
early.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from sanctl.model.drbd import ResourceState

#: As many replicas as the hole takes.
_REPLICAS = 4


class ConnectionLimit(NamedTuple):
    """Which peers to connect to.

    Attributes:
        only: the one node to connect to; empty: all peers.
        must_reinitialize: what the replica holds is given up first. It has a part of what another
            node sent, and DRBD might ask the new one for what differs from *that* node.
    """

    only: str = ""
    must_reinitialize: bool = False


ALL_PEERS = ConnectionLimit()


def is_limit_needed(nodes: Collection[str]) -> bool:
    """Whether a device has as many replicas as the hole takes."""
    return len(nodes) >= _REPLICAS


def is_isolated(state: ResourceState) -> bool:
    """Whether a standby has no connection at all: it may be behind when one comes back.

    A StandAlone connection was refused by this replica or by the peer; other rules are for that.
    """
    return not state.is_primary and all(
        peer.connection not in {"Connected", "StandAlone"} for peer in state.peers
    )


def is_limit_applied(
    limit: ConnectionLimit, nodes: Collection[str], here: str, state: ResourceState
) -> bool:
    """Whether DRBD has just the connections that a limit allows."""
    wanted = {limit.only} if limit.only else set(nodes) - {here}
    return {peer.name for peer in state.peers} == wanted


def initial_limit(nodes: Collection[str], here: str, serving: str) -> ConnectionLimit:
    """Return which peers a replica connects to when it is started.

    `serving` serves the device from a good replica; empty: no node does.
    """
    if not is_limit_needed(nodes) or serving not in set(nodes) - {here}:
        return ALL_PEERS
    return ConnectionLimit(serving)


def next_limit(
    nodes: Collection[str], here: str, serving: str, state: ResourceState, now: ConnectionLimit
) -> ConnectionLimit:
    """Return which peers a running replica is to be connected to.

    Without a node that serves, all replicas are needed for the majority that a promotion takes.

    `serving` serves the device from a good replica; empty: no node does. `now` is the limit in
    force.
    """
    first = initial_limit(nodes, here, serving)
    if not is_limit_needed(nodes) or state.is_primary:
        return ALL_PEERS
    if not first.only:
        # As in a move: the peer has just ceased to serve, and still resyncs this replica.
        beside = state.with_only_peer(now.only)
        return now if beside.is_connected and not beside.is_in_sync else ALL_PEERS
    if not now.only:
        return first if is_isolated(state) else ALL_PEERS
    if now.only == serving and is_limit_applied(now, nodes, here, state):
        return ALL_PEERS if state.with_only_peer(serving).is_in_sync else now
    # A part of the data may be of another node; also where a change to this one was interrupted.
    return first._replace(must_reinitialize=state.disk == "Inconsistent")
