# SPDX-License-Identifier: GPL-2.0-or-later
"""Chooses whether a starting replica connects to its peers, or leaves that to its monitor."""

from __future__ import annotations

from enum import Enum

from sanctl.agents import ocf
from sanctl.agents.connections import connect_turn, reconnect_dropped, standby_first
from sanctl.agents.replica.parts import Device
from sanctl.system.runner import Runner

#: As long as before-resync-source may take.
_TURN_S = 15.0


class Connects(Enum):
    """Whether a start connects its replica; the value is what its journal adds to `attached`."""

    NOW = " and connecting"
    NEVER = ", not connected: this replica lost writes"
    LATER = ", not connected yet: many others are, and the monitor will do it in its turn"
    AFTER_STANDBY = ", not connected yet: its standby is to be promoted first"


def choose(
    runner: Runner,
    device: Device,
    only_peer: str | None,
    metadata: str,
    *,
    is_suspect: bool,
    is_new: bool,
) -> Connects:
    """Wait for a turn to connect, and return what the start does with it or without.

    Args:
        runner: starts programs.
        device: the device.
        only_peer: what `isolation.first_peer` returned. With None the replica gets no connection
            whatever is returned here, so it needs no turn.
        metadata: the path of the replica's DRBD metadata, which is not attached yet.
        is_suspect: the replica lost writes that it had acknowledged.
        is_new: its files were made by this start: its peers start theirs now, and wait for it.
    """
    if is_suspect:
        return Connects.NEVER
    if only_peer is None or len(device.nodes) == 1:
        return Connects.NOW
    if not is_new and standby_first.begin(runner, device, metadata):
        return Connects.AFTER_STANDBY
    within_s = min(_TURN_S, ocf.remaining_s(60.0) / 4)
    if is_new:
        connect_turn.await_turn(device.minor, within_s=within_s, is_new=True)
        return Connects.NOW
    if connect_turn.await_turn(device.minor, within_s=within_s, is_new=False):
        if reconnect_dropped.is_served_by_none(runner, device):
            # All nodes start, and each may wait for a replica of which the other has no turn yet;
            # or the peer is away. No host waits for a handler, but all do for the start.
            connect_turn.release(device.minor)
        return Connects.NOW
    return Connects.LATER if reconnect_dropped.leave_to_monitor(runner, device) else Connects.NOW
