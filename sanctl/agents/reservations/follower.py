# SPDX-License-Identifier: GPL-2.0-or-later
"""Keeps the reservations that the node that serves sends, and tells what this replica keeps."""

from __future__ import annotations

import contextlib
from typing import Any

from sanctl.agents import ocf
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.reservations import replica_note
from sanctl.agents.reservations.replica_note import Replica
from sanctl.drivers import drbdsetup, node_channel, reservation_file
from sanctl.drivers.node_channel import Channel
from sanctl.drivers.reservation_file import Kept
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.reservation import Version
from sanctl.plan.failover import reservation_rules
from sanctl.system import state_files
from sanctl.system.runner import LocalRunner

_LOCK_S = 5.0
#: The name of the one peer, where DRBD 8.4 names none.
_ANY_PEER = "peer"
_RUNNER = LocalRunner()
_log = DeviceLog("reservations")


def serve(channel: Channel, wanted: dict[str, Any]) -> None:
    """Do what another node asks for. Errors are logged, and told to that node."""
    name = str(wanted.get("device", ""))
    try:
        replica = _replica(name, str(wanted.get("uuid", "")))
        if wanted["kind"] == node_channel.STORE_RESERVATIONS:
            newest = _store(replica, str(wanted["sender"]), wanted["state"])
            channel.send(node_channel.STORED, newest=newest)
        else:
            kept = reservation_file.load(replica.path)
            state = None if kept is None else reservation_file.encode(kept.stored)
            channel.send(node_channel.STORED, state=state)
    except (SanctlError, OSError, ValueError, LookupError, TypeError) as error:
        _log(name, f"reservations: {error}")
        problem = error.problems[0] if isinstance(error, SanctlError) else None
        with contextlib.suppress(SanctlError):
            channel.send(
                "refused",
                code=problem.code if problem else "SAN-RES-003",
                text=problem.text if problem else str(error),
            )


def _replica(name: str, uuid: str) -> Replica:
    replica = replica_note.read(name)
    if replica is None or replica.uuid != uuid:
        raise CommandError(
            Problem("SAN-RES-003", f"{name} is not up here, or not with reservations")
        )
    return replica


def _store(replica: Replica, sender: str, fields: dict[str, Any]) -> Version | None:
    """Store a state under the lock that a promotion takes before it reads the file (R5).

    Returns:
        None: it is stored, or was already. Else what a state has to be newer than.
    """
    offered = reservation_file.decode(fields)
    with state_files.locked(replica_note.lock_path(replica.device), wait_s=_LOCK_S) as is_mine:
        if not is_mine:
            raise CommandError(Problem("SAN-RES-003", f"{replica.device} is busy here"))
        ocf.crash_point("reservations-received")
        if not _is_from_primary(replica.device, sender):
            raise CommandError(
                Problem(
                    "SAN-RES-003",
                    f"{sender} offers reservations of {replica.device}, and is not Primary as "
                    "DRBD says here, or this node is",
                )
            )
        # One that cannot be read is replaced: of no file nothing is known to be newer. What this
        # node has promised with it must not be used again, however. One of a newer release stays.
        kept = reservation_file.load_to_replace(replica.path)
        own, promised = (None, reservation_file.epoch_above_lost()) if kept is None else kept
        if not reservation_rules.accepts(
            None if own is None else own.version,
            promised,
            offered.version,
            is_same=own == offered,
            is_from_primary=True,
        ):
            assert own is not None
            return reservation_rules.newest_known(own.version, promised)
        if own != offered:
            reservation_file.store(replica.path, Kept(offered, promised))
            if kept is None:
                replica_note.forget_missed(replica.device)
        ocf.crash_point("reservations-stored")
    return None


def _is_from_primary(device: str, sender: str) -> bool:
    """Whether the sender is Primary as DRBD says here, and this node is not."""
    state = drbdsetup.observe(_RUNNER, device)
    return (
        state is not None
        and not state.is_primary
        and any(peer.role == "Primary" and peer.name in {sender, _ANY_PEER} for peer in state.peers)
    )
