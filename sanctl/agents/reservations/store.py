# SPDX-License-Identifier: GPL-2.0-or-later
"""Stores reservations on every replica before a host is told, or served: R1, R4 and R7.

The rules, and why they hold, are in sanctl/plan/failover/reservation_rules.py and ADR 83: another
replica has stored the state, or is marked as outdated, so that it is not promoted.

All of it is done under the lock of `replica_note.lock_path`.
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.reservations import peer_marks, peers, replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import drbdsetup, reservation_file
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.model.reservation import Reservations, StoredReservations, Version
from sanctl.plan.failover import reservation_rules
from sanctl.plan.failover.reservation_rules import PeerState
from sanctl.system import journal
from sanctl.system.runner import Runner

_RETRY_S, _ANSWER_MIN_S = 0.2, 0.5
_log = DeviceLog("reservations")


class NotPrimaryError(CommandError):
    """What waits to be stored is not stored: this node serves the device no more, or not now."""


class Settled(NamedTuple):
    """What a process has stored.

    Attributes:
        state: what is in the own file now.
        stored_by: the replicas that have answered that they have stored it; others are marked.
    """

    state: StoredReservations
    stored_by: frozenset[str]


class Store:
    """One process's way to store states: its first one is that of the file, in a new epoch (R4).

    Args:
        runner: starts programs.
        may_mark: whether a peer that does not answer is marked. Not by who holds the fencing lock.
        yields: whether a change is given up while sessions are ended for another process, which
            waits for the host's command that waits for this.
    """

    def __init__(self, runner: Runner, *, may_mark: bool = True, yields: bool = False) -> None:
        self._runner, self._may_mark, self._yields = runner, may_mark, yields
        #: By device, what this process has stored last, and nobody since.
        self._latest: dict[str, Version] = {}

    def settle(self, replica: Replica, *, until: float | None = None) -> Settled:
        """Store the state of the own file in an epoch of this process, on all replicas.

        Before a node serves (R7), and before the first change of each process. Waits for as long as
        that takes: for a peer that neither answers nor can be marked.

        Args:
            replica: of the node that is Primary.
            until: on the monotonic clock; None: for ever.

        Raises:
            NotPrimaryError: this node is no Primary of the device, or is to be none; or its
                sessions are being ended, see `yields`.
            CommandError: the own file cannot be read, or the time is over.
            OSError: it cannot be written.
        """
        return self._settle(replica, until)

    def change(
        self,
        replica: Replica,
        wanted: Reservations,
        *,
        cleared: str | None = None,
        until: float | None = None,
    ) -> StoredReservations:
        """Store a change; returns once no replica without it can be promoted.

        Args:
            replica: of the node that is Primary, and serves.
            wanted: the reservations.
            cleared: the order to clear them that this carries out; None: as it was.
            until: on the monotonic clock; None: for ever.

        Returns:
            What is stored now.

        Raises:
            NotPrimaryError: this node is no Primary of the device, or is to be none.
            CommandError: the own file cannot be read, or the time is over.
            OSError: it cannot be written.
        """
        kept = _load(replica)
        state = kept.stored
        token = state.cleared if cleared is None else cleared
        if (state.reservations, state.cleared) == (wanted, token):
            # The own file is written last (R1): what it has, all have, or are marked.
            return state
        while True:
            # Of a change that is given up another replica may have the number: it is not used
            # again, as after the end of a process.
            if self._latest.pop(replica.device, None) != kept.stored.version:
                self._settle(replica, until)
                kept = _load(replica)
                del self._latest[replica.device]
            version = reservation_rules.next_version(kept.stored.version)
            offered = StoredReservations(version, wanted, token)
            refused_by, _ = self._offer(replica, offered, until)
            if not refused_by:
                self._write(replica, kept._replace(stored=offered))
                self._latest[replica.device] = version
                return offered

    def _settle(self, replica: Replica, until: float | None) -> Settled:
        refused_by: tuple[Version, ...] = ()
        kept = _load(replica)
        while True:
            promised = reservation_rules.next_promise(
                kept.stored.version, kept.promised, refused_by=refused_by
            )
            kept = kept._replace(promised=promised)
            # Before anything is sent: what a process that dies has sent is of no later one.
            reservation_file.store(replica.path, kept)
            ocf.crash_point("reservations-promised")
            version = reservation_rules.first_version(promised)
            offered = kept.stored._replace(version=version)
            refused_by, stored_by = self._offer(replica, offered, until)
            if not refused_by:
                self._write(replica, kept._replace(stored=offered))
                self._latest[replica.device] = version
                return Settled(offered, stored_by)

    def _offer(
        self, replica: Replica, offered: StoredReservations, until: float | None
    ) -> tuple[tuple[Version, ...], frozenset[str]]:
        """Have all other replicas store a state, or marked.

        Returns:
            What replicas have that refuse it as theirs is as new or newer; and who has stored it,
            once the own file may be written.
        """
        others = set(replica.nodes) - {os.uname().nodename}
        stored: set[str] = set()
        marked: set[str] = set()
        said = ""
        while True:
            if self._yields and replica_note.is_reloading(replica.device):
                raise NotPrimaryError(
                    Problem("SAN-RES-004", f"sessions of {replica.device} are being ended")
                )
            state = _check_primary(self._runner, replica)
            reasons: list[str] = []
            # A peer that DRBD sees is asked first; of one that is gone the mark is looked at, as
            # hosts wait for as long as its address does not answer.
            in_contact = _connected(state, others - stored)
            refused = self._push(replica, offered, in_contact, stored, reasons, until=until)
            if not refused and others - stored:
                marked |= self._marked(replica, others - stored - marked, reasons)
                left = others - stored - marked - in_contact
                refused = self._push(replica, offered, left, stored, reasons, until=until)
            if refused:
                return refused, frozenset(stored)
            # Of those that are marked it is known that no removal is under way.
            known = {
                node: reservation_rules.peer_state(
                    has_stored=node in stored, is_marked=node in marked, is_clearing=False
                )
                for node in others
            }
            if reservation_rules.may_answer(known):
                if reasons:
                    _log(
                        replica.device,
                        f"reservations {offered.version.epoch}.{offered.version.generation} are "
                        f"not on {', '.join(sorted(others - stored))}, which is marked as "
                        f"outdated: {'; '.join(reasons)}",
                        step="marked",
                        priority=journal.INFO,
                    )
                return (), frozenset(stored)
            if until is not None and time.monotonic() > until:
                missing = [node for node, each in known.items() if each is PeerState.UNKNOWN]
                raise CommandError(
                    Problem(
                        "SAN-RES-003",
                        f"the reservations of {replica.device} are not stored on "
                        f"{', '.join(sorted(missing))} within the time: {'; '.join(reasons)}",
                    )
                )
            if (text := "; ".join(reasons)) != said:
                said = text
                _log(
                    replica.device,
                    f"reservations {offered.version.epoch}.{offered.version.generation} wait for a "
                    f"replica: {text}",
                    step="waiting",
                    priority=journal.WARNING,
                )
            time.sleep(_RETRY_S)

    def _push(
        self,
        replica: Replica,
        offered: StoredReservations,
        nodes: set[str],
        stored: set[str],
        reasons: list[str],
        *,
        until: float | None,
    ) -> tuple[Version, ...]:
        """Send a state to some replicas; note who has it, return what those have that refuse."""
        refused = []
        for node in sorted(nodes):
            try:
                newest = peers.send(replica, node, offered, within_s=_answer_s(until))
            except (SanctlError, OSError) as error:
                reasons.append(str(error))
                continue
            if newest is None:
                stored.add(node)
            else:
                refused.append(newest)
        return tuple(refused)

    def _marked(self, replica: Replica, nodes: set[str], reasons: list[str]) -> set[str]:
        """Return which of some replicas are marked so that it counts, marking those that may be."""
        found: set[str] = set()
        try:
            marked = peer_marks.read(self._runner, replica.device) if nodes else frozenset()
            for node in sorted(nodes):
                seen = reservation_rules.peer_state(
                    has_stored=False,
                    is_marked=node in marked,
                    is_clearing=peer_marks.is_clearing(replica.device, node),
                )
                if seen is PeerState.MARKED or (
                    self._may_mark and peer_marks.mark(self._runner, replica.device, node)
                ):
                    found.add(node)
        except (SanctlError, OSError, LookupError) as error:
            reasons.append(str(error))
        return found

    def _write(self, replica: Replica, kept: Kept) -> None:
        ocf.crash_point("reservations-others-stored")
        _check_primary(self._runner, replica)
        reservation_file.store(replica.path, kept)
        ocf.crash_point("reservations-own-stored")


def _load(replica: Replica) -> Kept:
    kept = reservation_file.load(replica.path)
    if kept is None:
        raise CommandError(
            Problem(
                "SAN-RES-002",
                f"{replica.path} is missing",
                "docs/howto/night-page.md, SAN-RES-002",
            )
        )
    return kept


def _answer_s(until: float | None) -> float:
    """Return how long an answer is waited for, where all has to be over at a time."""
    if until is None:
        return peers.ANSWER_S
    return min(peers.ANSWER_S, max(_ANSWER_MIN_S, until - time.monotonic()))


def _connected(state: ResourceState | None, nodes: set[str]) -> set[str]:
    if state is None:
        return set()
    return {node for node in nodes if state.with_only_peer(node).is_connected}


def _check_primary(runner: Runner, replica: Replica) -> ResourceState | None:
    """Return DRBD's state here, None where DRBD does not answer.

    Raises:
        NotPrimaryError: this node is not Primary, or a demotion waits for the lock.
    """
    if replica_note.is_closing(replica.device):
        raise NotPrimaryError(
            Problem("SAN-RES-004", f"{replica.device} is being demoted on this node")
        )
    try:
        state = drbdsetup.observe(runner, replica.device)
    except CommandError:
        return None  # Not known: what waits goes on to wait, and asks again.
    if state is None or not state.is_primary:
        raise NotPrimaryError(
            Problem("SAN-RES-004", f"{replica.device} is not Primary on this node any more")
        )
    return state
