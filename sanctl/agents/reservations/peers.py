# SPDX-License-Identifier: GPL-2.0-or-later
"""Has other replicas of a device keep its reservations, and asks for what they keep.

By a connection to that node's sanctl-reservations.service (listener.py).
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from sanctl.agents import cluster_toml
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import node_channel, reservation_file
from sanctl.drivers.node_channel import Channel, ConnectionEnded
from sanctl.errors import CommandError, Problem
from sanctl.model.reservation import StoredReservations, Version

_CONNECT_S = 2.0
#: For a disk that is busy: fsync of a small file and of its folder.
ANSWER_S = 4.0
#: Connections by node that wait for the next request of this process.
_idle: dict[str, list[Channel]] = {}
_IDLE_MAX = 2


def send(
    replica: Replica, node: str, state: StoredReservations, *, within_s: float = ANSWER_S
) -> Version | None:
    """Have a node's replica keep a state; returns once that is on its disk.

    Returns:
        None: it is stored. Else what that replica has, which is as new or newer: it refuses.

    Raises:
        CommandError: the node cannot be reached, refuses, or does not answer: it may have stored
            it or not.
        SanctlError: cluster.toml is wrong.
    """
    fields = reservation_file.encode(state)
    answer = _ask(replica, node, node_channel.STORE_RESERVATIONS, within_s, state=fields)
    try:
        newest = answer["newest"]
        return None if newest is None else Version(*map(int, newest))
    except (ValueError, TypeError, LookupError) as error:
        raise _unreadable(replica, node, error) from error


def stored_by(replica: Replica, node: str) -> StoredReservations | None:
    """Return what a node's replica keeps, None where that is nothing.

    Raises:
        CommandError: the node cannot be reached, or does not know.
        SanctlError: cluster.toml is wrong.
    """
    answer = _ask(replica, node, node_channel.READ_RESERVATIONS, ANSWER_S)
    try:
        state = answer["state"]
        return None if state is None else reservation_file.decode(state)
    except (ValueError, TypeError, LookupError) as error:
        raise _unreadable(replica, node, error) from error


def _unreadable(replica: Replica, node: str, error: Exception) -> CommandError:
    text = f"{node} said of the reservations of {replica.device} what cannot be read: {error!r}"
    return CommandError(Problem("SAN-RES-003", text))


def _ask(replica: Replica, node: str, kind: str, within_s: float, **fields: Any) -> dict[str, Any]:
    idle, channel = _idle.setdefault(node, []), None
    with contextlib.suppress(IndexError):
        while channel is None:
            channel = idle.pop()
            if channel.has_ended():
                channel.close()
                channel = None
    if channel is not None:
        # Of a node that lost its power and is back only the answer tells that it knows nothing of
        # this connection. A host waits meanwhile; what is asked twice is answered alike.
        with contextlib.suppress(ConnectionEnded):
            return _ask_by(channel, replica, node, kind, within_s, **fields)
    return _ask_by(_connect(node, within_s), replica, node, kind, within_s, **fields)


def _ask_by(
    channel: Channel, replica: Replica, node: str, kind: str, within_s: float, **fields: Any
) -> dict[str, Any]:
    idle, is_whole = _idle[node], False
    try:
        sender = os.uname().nodename
        channel.send(kind, device=replica.device, uuid=replica.uuid, sender=sender, **fields)
        answer = channel.receive(node_channel.STORED, within_s=within_s)
        is_whole = len(idle) < _IDLE_MAX
        if is_whole:
            idle.append(channel)
        return answer
    finally:
        # An answer that comes late must not be taken for that of another request.
        if not is_whole:
            channel.close()


def _connect(node: str, within_s: float) -> Channel:
    topology = cluster_toml.load_topology()
    there, own = topology.node(node), topology.node(os.uname().nodename)
    if there is None or own is None:
        raise CommandError(Problem("SAN-AGENT-001", f"{node} is not in cluster.toml"))
    channel = node_channel.connect(
        str(there.sync),
        node,
        str(own.sync),
        within_s=min(_CONNECT_S, within_s),
        port=node_channel.RESERVATIONS_PORT,
    )
    try:
        channel.give_up_after(_CONNECT_S)
        channel.greet(within_s=within_s)
    except BaseException:
        channel.close()
        raise
    return channel
