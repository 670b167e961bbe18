"""Has DRBD 9 compare a replica with the node that serves once more, where nothing differs.

A new copy meets all its peers at once. It may judge one of them before that one has told of its
disk, wait for a bitmap that nobody sends, and be called Outdated when the resync from the node that
serves is over; that wait ends with the connection, and Outdated stays (9.3.3, seen: every peer
Established and UpToDate, nothing out of sync, for eight minutes). Such a copy is never promoted. A
connection to the Primary that is made anew makes it UpToDate, or shows what it lacks.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import drbd
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.system import journal
from sanctl.system.runner import Runner

#: Longer than what a resync that has just ended takes to be told of; two monitors see it.
_PATIENCE_S = 15.0


def serving_peer(state: ResourceState) -> PeerState | None:
    """Return the Primary that an Outdated replica differs in nothing from, while all is at rest."""
    if state.role != "Secondary" or state.disk != "Outdated":
        return None
    if any(peer.replication not in {"Established", "Off"} for peer in state.peers):
        return None
    return next(
        (
            peer
            for peer in state.peers
            if (peer.role, peer.replication, peer.disk) == ("Primary", "Established", "UpToDate")
            and peer.out_of_sync_kib == 0
            and peer.node_id is not None
        ),
        None,
    )


def repeat(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Connect to the node that serves anew, if this replica has been overlooked for a while.

    The Primary loses nobody it counts on: an Outdated copy adds nothing to DRBD's quorum
    (drbd_state.c, calc_quorum). It is marked as outdated since before its resync, and stays so
    until it is UpToDate.

    Returns:
        The state after that.

    Raises:
        CommandError: DRBD refused or did not answer; the next monitor tries again.
    """
    peer = serving_peer(state)
    if peer is None or peer.node_id is None or drbd.generation() < 9:
        forget(device)
        return state
    if not _has_lasted(device):
        return state
    journal.write(
        f"{device.name}: Outdated, though nothing differs from {peer.name}: connecting to it anew",
        priority=journal.NOTICE,
        device=device.name,
        action="handshake",
    )
    forget(device)
    drbd.disconnect_peer(runner, device.name, peer.node_id)
    drbd.up(runner, device.name)
    return drbd.observe(runner, device.name) or state


def forget(device: Device) -> None:
    """Drop what is kept of a device that is stopped here, or is as it should be."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_note(device))


def _has_lasted(device: Device) -> bool:
    """Note when it was seen first; tell whether that is long enough ago."""
    try:
        since_s = os.stat(_note(device)).st_mtime
    except FileNotFoundError:
        with open(_note(device), "w", encoding="utf-8"):
            return False
    # Not from before the clock was put right either.
    return not 0 <= time.time() - since_s < _PATIENCE_S


def _note(device: Device) -> str:
    return f"{RUNTIME}/overlooked-{device.name}"
