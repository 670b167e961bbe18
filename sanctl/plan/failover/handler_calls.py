# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: when DRBD has to call the fence-peer handler again, because the one that it called died.

DRBD calls fence-peer once when a Primary loses its peer, and I/O stays frozen until the handler has
answered. A handler that is killed (`kill -9`, out of memory), or that could not be started, is for
DRBD one that answered "not certain": I/O stays frozen, and DRBD calls no other (drbd_nl.c,
conn_try_outdate_peer, "helper broken"). Only a connection ends that, or a new call.

DRBD calls the handler again by itself when a Primary that does not know its peer to be outdated is
disconnected (drbd_receiver.c, conn_disconnect), also where there was no connection. So a monitor
disconnects and connects again: the new handler asks what every handler asks, and DRBD takes its
answer, or ignores it where the peer is back by then, as it does with every answer. `drbdsetup
resume-io` would let I/O go on whatever has happened since the mark was set, and would leave the
peer's disk unknown.

A call too many does no harm: handlers mark under one lock, and the answer of each is worth the
same. It does no good either, so none is made while one may be under way: while the kernel waits for
`drbdadm fence-peer` of this resource, or a thread for a call has not started its program yet.
"""

from __future__ import annotations

from sanctl.model.drbd import HandlerCalls, ResourceState

#: Nothing is being taken down or negotiated: in the other states DRBD is about to call the handler,
#: or to end the freeze. 8.4 shows no connection where it has given the peer up.
_SETTLED = frozenset({"StandAlone", "Unconnected", "Connecting", "WFConnection"})


def is_frozen_for_fencing(state: ResourceState | None) -> bool:
    """Whether a Primary's I/O waits for the answer of its fence-peer handler."""
    return state is not None and state.is_primary and "fencing" in state.suspended.split(",")


def must_call_again(state: ResourceState | None, calls: HandlerCalls) -> bool:
    """Whether a Primary is frozen for fencing, and no handler that could end that is under way.

    The calls that the kernel waits for have to be read after `state`.
    """
    return (
        state is not None
        and is_frozen_for_fencing(state)
        and all(peer.connection in _SETTLED for peer in state.peers)
        and state.name not in calls.resources
        and calls.threads <= len(calls.resources)
    )
