# SPDX-License-Identifier: GPL-2.0-or-later
"""Answers the nodes that serve a device, in the service: a process of its own starts too slowly.

Hosts' commands wait for the answer, and so does each promotion of a device with reservations.
"""

from __future__ import annotations

import os
import socket
import threading
import time

from sanctl.agents import cluster_toml
from sanctl.agents.reservations import follower, in_force
from sanctl.drivers import node_channel
from sanctl.drivers.node_channel import Channel
from sanctl.errors import SanctlError

_REQUESTS = (node_channel.STORE_RESERVATIONS, node_channel.READ_RESERVATIONS)
_GREETING_S, _RETRY_S = 10.0, 1.0
#: A connection waits so long for its next request.
_IDLE_S = 600.0
_CONNECTIONS_MAX = 64
#: IP_FREEBIND of linux/in.h, for which the module socket has no name before Python 3.14.
_FREEBIND = 15


def listen() -> None:
    """Listen on this node's address of the sync network, for ever."""
    while True:
        try:
            with _socket() as listening:
                _accept(listening)
        except Exception as error:
            in_force.log_failure("", f"other nodes' reservations are not stored here: {error}")
            time.sleep(_RETRY_S)


def _socket() -> socket.socket:
    own = cluster_toml.load_topology().node(os.uname().nodename)
    if own is None:
        raise LookupError("this node is not in cluster.toml")
    address = str(own.sync)
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Before the address is there, too.
        made.setsockopt(socket.IPPROTO_IP, _FREEBIND, 1)
        made.bind((address, node_channel.RESERVATIONS_PORT))
        made.listen(_CONNECTIONS_MAX)
    except OSError:
        made.close()
        raise
    return made


def _accept(listening: socket.socket) -> None:
    may_begin = threading.BoundedSemaphore(_CONNECTIONS_MAX)
    while True:
        may_begin.acquire()
        connection, _ = listening.accept()

        def run(connection: socket.socket = connection) -> None:
            try:
                with connection:
                    serve(connection)
            finally:
                may_begin.release()

        try:
            threading.Thread(target=run, daemon=True).start()
        except RuntimeError:  # no room for another process
            connection.close()
            may_begin.release()
            raise


def serve(connection: socket.socket) -> None:
    """Answer the requests of one connection until it ends."""
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Of a node that has lost its power nothing comes, not even an end.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        channel = Channel(connection, "the other node", is_leader=False)
        channel.greet(within_s=_GREETING_S)
        # Who connects has something to ask. That it is a node of this cluster is known of a request
        # only, and until then it takes the place of one.
        within_s = _GREETING_S
        while True:
            follower.serve(channel, channel.expect(_REQUESTS, within_s=within_s))
            within_s = _IDLE_S
    except (SanctlError, OSError, ValueError):
        return  # The end, or not one of this cluster's nodes.
