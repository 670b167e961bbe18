# SPDX-License-Identifier: GPL-2.0-or-later
"""Gives a replica its disk back that DRBD has dropped, once that answers again.

DRBD detaches from a disk at its first error, and stays so. A cable, a controller that has been
reset, a full pool that has been emptied: what failed for a moment is a good disk afterwards, and
nobody else attaches it before the node's next start. What was written meanwhile its peer knows.

A disk that goes on failing is tried ever more rarely: each time costs a resync.
"""

from __future__ import annotations

import time

from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device, load_topology
from sanctl.drivers import drbdadm, drbdsetup, flash_cache, pool_notes
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_FIRST_WAIT_S = 20.0
_LONGEST_WAIT_S = 3600.0


def wait_s(tries: int) -> float:
    """Return how long to leave a disk alone after so many tries."""
    return float(min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2 ** min(tries, 16)))


def reattach(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Attach the disk of a replica that has none, if its peer has good data and it is time.

    Without such a peer it is left alone: whatever it holds would be all there is to go by.

    Returns:
        The state after that.
    """
    if state.disk != "Diskless":
        return state
    if not any(peer.is_connected and peer.disk == "UpToDate" for peer in state.peers):
        return state
    data = lost_writes.data_file(device.name)
    if data is None or pool_notes.exists(device.pool, pool_notes.SHUT_DOWN):
        return state  # It lets go of its files (aground.py), and is started anew.
    if lost_writes.is_suspect(device.name, data):
        return state  # it would be compared by what it has lost (docs/adr/0027)
    tries, tried_s = _tried(device)
    # A try in the future was made before the clock was put right: nobody knows when.
    if 0 <= time.time() - tried_s < wait_s(tries):
        return state
    _note(device).write(str(tries + 1))
    try:
        _note_lost_flash(device)
        drbdadm.adjust(runner, device.name)
        found = drbdsetup.observe(runner, device.name) or state
    except (SanctlError, OSError) as error:
        _tell(device, f"its disk cannot be attached: {error}", priority=journal.WARNING)
        return state
    _tell(device, f"its disk answers and is attached again: {found.disk}", priority=journal.NOTICE)
    return found


def _note_lost_flash(device: Device) -> None:
    """Have it noted first where the pool's flash is what failed.

    A copy that is filled on the slow disk, beside flash that a boot would still take for right,
    would be up to date and show old blocks after that boot (docs/adr/0031).
    """
    pool = load_topology().pool(device.pool)
    if pool is not None and pool.cache is not None:
        flash_cache.clear_note_of_missing_flash(pool)


def _tried(device: Device) -> tuple[int, float]:
    """Return how often it was tried, and when the last time, in seconds since the epoch.

    Tries are forgotten when the longest wait has passed twice without one.
    """
    text, written_ns = _note(device).read("0").strip(), _note(device).written_ns()
    tried_s = (written_ns or 0) / 1e9
    if time.time() - tried_s > 2 * _LONGEST_WAIT_S:
        return 0, 0.0
    return (int(text) if text.isdecimal() else 0), tried_s


def _note(device: Device) -> state_files.StateFile:
    """How often it was tried; as old as the last try."""
    return state_files.of_device(device.name, "reattach-tried")


def _tell(device: Device, text: str, *, priority: int) -> None:
    journal.write(
        f"{device.name}: {text}", priority=priority, device=device.name, action="reattach"
    )
