# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a marked replica has the reservations that are in force, before its mark goes: R2, R3.

What removes marks (agents/fencing) is given these functions: DRBD replicates the data, and knows
nothing of the file beside it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.reservations import peer_marks, peers, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.agents.reservations.store import Store
from sanctl.drivers import reservation_file
from sanctl.errors import SanctlError
from sanctl.model.reservation import StoredReservations, Version
from sanctl.plan.failover import reservation_rules
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

#: A monitor that clears a mark has 30 s for all that it does.
_SETTLE_S = 6.0
_log = DeviceLog("reservations")


@contextlib.contextmanager
def has_current(runner: Runner, device: str, peer: str) -> Iterator[bool]:
    """Have a peer store what this Primary has in force; yields whether its mark may be removed.

    The mark is removed within: no change comes in between, and a removal that does not end is noted
    (R2). Called under the device's fencing lock, so nothing is marked here.
    """
    try:
        replica = replica_note.read(device)
    except (OSError, ValueError, LookupError, TypeError) as error:
        _log_kept(device, peer, error)
        yield False
        return
    if replica is None:
        yield True
        return
    # Not waited for: a change takes the fencing lock while it has this one.
    with state_files.locked(replica_note.lock_path(device), wait_s=0.0) as is_mine:
        if not (is_mine and _has_stored(runner, replica, peer)):
            yield False
            return
        with peer_marks.removing(device, peer):
            yield True


def _has_stored(runner: Runner, replica: Replica, peer: str) -> bool:
    try:
        until = time.monotonic() + _SETTLE_S
        state, stored_by = Store(runner, may_mark=False).settle(replica, until=until)
        # The others may have done without this one, as it is marked.
        refused_by = None if peer in stored_by else peers.send(replica, peer, state)
    except (SanctlError, OSError) as error:
        _log_kept(replica.device, peer, error)
        return False
    return reservation_rules.may_clear(state.version, state.version if not refused_by else None)


def is_not_older(device: str, peer: str) -> bool:
    """Whether a Secondary may remove a peer's mark, where all replicas are marked and idle (R3)."""
    try:
        replica = replica_note.read(device)
        if replica is None:
            return True
        kept = reservation_file.load(replica.path)
        own = None if kept is None else kept.stored
        here = os.uname().nodename
        known = {
            node: own if node == here else peers.stored_by(replica, node) for node in replica.nodes
        }
    except (SanctlError, OSError, ValueError, LookupError, TypeError) as error:
        _log_kept(device, peer, error)
        return False
    others = [_version(state) for node, state in known.items() if node != peer]
    contents = {
        None if each is None else (each.reservations, each.cleared) for each in known.values()
    }
    may = reservation_rules.may_unmark(
        _version(known.get(peer)), others, are_same=len(contents) == 1
    )
    if not may:
        versions = ", ".join(f"{node} {_named(state)}" for node, state in sorted(known.items()))
        _log(
            device,
            f"{peer} stays marked as outdated, as its reservations may be older: {versions}",
            step="marked",
        )
    return may


def _version(state: StoredReservations | None) -> Version | None:
    return None if state is None else state.version


def _named(state: StoredReservations | None) -> str:
    return "none" if state is None else f"{state.version.epoch}.{state.version.generation}"


def _log_kept(device: str, peer: str, error: Exception) -> None:
    _log(
        device,
        f"{peer} stays marked as outdated: whether it has the reservations is not known: {error}",
        step="marked",
        priority=journal.WARNING,
    )
