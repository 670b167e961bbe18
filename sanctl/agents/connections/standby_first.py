# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a replica that crashed as Primary connect once its standby has been promoted, or cannot be.

The reason and the rule are in sanctl/plan/failover/standby_first.py. Until then the replica is
attached alone, and has no promotion score. Of two replicas.

A standby that loses its Primary and its quorum is stopped, and starts at the same time as the
replica that crashed. So its stop leaves a node attribute, which goes with the node: only one that
has run all the time has it.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

from sanctl.agents.connections import crashed_flag, reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import (
    corosync,
    drbd_kernel,
    drbd_superblock,
    drbdsetup,
    node_attributes,
    outdated_marks,
)
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.standby_first import Peer, Wait, is_late, wait_of
from sanctl.system import state_files
from sanctl.system.runner import Runner

_KIND = "standby-first"
#: Of the node: it outlives the stop that writes it.
_KEPT_KIND = "kept"
#: DRBD notices that its peer is dead within ping-int and ping-timeout (render/drbd.py).
_NOTICED_S, _POLL_S = 4.0, 0.5
_log = DeviceLog("connections")


def begin(runner: Runner, device: Device, metadata: str) -> bool:
    """Have a replica that starts wait for its standby's promotion, if it has to.

    Args:
        runner: starts corosync-quorumtool and cibadmin, of a crashed Primary alone.
        device: the device.
        metadata: the path of the replica's DRBD metadata, which is not attached yet.

    Returns:
        Whether the start is to make no connection; where something is not known, it is to.
    """
    if len(device.nodes) != 2:
        return False
    try:
        held = drbd_superblock.read(metadata)
        if held is None or not held.was_primary:
            return False
        crashed_flag.note(device.name)
        if held.is_ahead:
            return False
        peer = _peer(device)
        if wait_of(_look(runner, device.name, peer), waited_s=0.0) is not Wait.GOES_ON:
            return False
        if not _note(device.name).exists():  # A start that is tried again has begun the wait.
            _note(device.name).write(f"{peer} {time.monotonic():.0f}")
    except (SanctlError, OSError):
        return False
    _log(
        device.name,
        "not connecting yet: this node crashed as Primary, and its disk may lack what hosts had not"
        f" flushed: the standby on {peer} is to be promoted first",
        step="standby-first",
    )
    return True


def still_waits(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Whether the monitor is to leave the replica unconnected; it ends a wait that is over.

    Raises:
        SanctlError: the cluster did not answer; the next monitor asks again.
        OSError: a note cannot be read, written or removed.
    """
    peer, waited_s = _begun(device.name)
    if not peer:
        return False
    if not (state.is_connected or state.is_primary) and peer in device.nodes:
        wait = Wait.LATE
        if not is_late(waited_s):
            wait = wait_of(_look(runner, device.name, peer), waited_s=waited_s)
        if wait is Wait.GOES_ON:
            return True
        # First what connects it.
        reconnect_dropped.write_later(device.name, peer)
        _log(device.name, f"connecting to {peer}: {wait.value}", step="standby-first")
    _note(device.name).remove()
    return False


def is_noted(device: str) -> bool:
    """Whether the replica waits, and so has no promotion score; no where that cannot be read."""
    return bool(_waits_for(device))


def published_field(device: str) -> str:
    """Return the field that is published of a replica that waits, after a blank; else nothing."""
    peer = _waits_for(device)
    return f" standby-first={peer}" if peer else ""


def is_whole(runner: Runner, device: Device) -> bool:
    """Whether a standby that is about to be stopped has lost its Primary, and nothing else.

    As without quorum. DRBD may notice that a node is dead after Corosync has, so there it is looked
    at for some seconds. No where that is not known.
    """
    if len(device.nodes) != 2:
        return False
    try:
        if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
            return False
        seen = _seen(runner, device)
        # Asked once: without quorum all devices of the node are stopped at the same time.
        if seen.serves_elsewhere and not corosync.membership(runner).is_quorate:
            end_s = time.monotonic() + _NOTICED_S
            while seen.serves_elsewhere and time.monotonic() < end_s:
                time.sleep(_POLL_S)
                seen = _seen(runner, device)
    except (SanctlError, OSError):
        return False
    return seen.is_alone and seen.disk == "UpToDate"


class _Seen(NamedTuple):
    """A replica that is about to be stopped: its disk, and whether a peer is there, and Primary."""

    disk: str = ""
    is_alone: bool = False
    serves_elsewhere: bool = False


def _seen(runner: Runner, device: Device) -> _Seen:
    now = drbd_kernel.proc_state(device.minor)
    if now is not None:
        is_alone = now.role == "Secondary" and now.peer_disk == "DUnknown"
        return _Seen(now.disk, is_alone, serves_elsewhere=now.peer_role == "Primary")
    state = drbdsetup.observe(runner, device.name)
    if state is None:
        return _Seen()
    return _Seen(
        state.disk,
        is_alone=not state.is_primary and all(peer.disk == "DUnknown" for peer in state.peers),
        serves_elsewhere=any(peer.role == "Primary" for peer in state.peers),
    )


def keep(runner: Runner, device: str) -> None:
    """Tell the cluster that the replica, which was just stopped, is whole.

    Untold, a crashed Primary that comes back connects at once.
    """
    with contextlib.suppress(SanctlError, OSError):
        # First: what is told is taken back by the note alone.
        _kept(device).write()
        node_attributes.publish(runner, node_attributes.kept(device), "1")


def is_kept(device: str) -> bool:
    """Whether the cluster was told that: a crashed Primary may wait for its promotion.

    Raises:
        OSError: it is not known.
    """
    return _kept(device).exists()


def forget_kept(runner: Runner, device: str, state: ResourceState | None) -> None:
    """Take that back of a replica that is connected again, or serves.

    Raises:
        SanctlError, OSError: it is not taken back; the next publication tries again.
    """
    if state is None or not (state.is_connected or state.is_primary):
        return
    note = _kept(device)
    if note.exists():
        node_attributes.delete(runner, node_attributes.kept(device))
        note.remove()


def forget_deleted(device: str) -> None:
    """Remove the note that this was told of a device which is deleted; what was told is gone."""
    _kept(device).remove()


def _peer(device: Device) -> str:
    return next(node for node in device.nodes if node != os.uname().nodename)


def _look(runner: Runner, device: str, peer: str) -> Peer:
    present = corosync.membership(runner)
    score, kept = f"master-{device}", node_attributes.kept(device)
    seen = outdated_marks.read(runner, [device], peer, [score, kept])
    if device not in seen.devices:
        raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no device {device}"))
    marked = seen.devices[device].nodes()
    return Peer(
        score=seen.attributes.get(score, ""),
        was_kept=bool(seen.attributes.get(kept)),
        is_marked=peer in marked,
        is_member=present.is_quorate and peer in present.members,
        marks_here=os.uname().nodename in marked,
    )


def _begun(device: str) -> tuple[str, float]:
    """Return the node of the standby that is waited for, empty if none is, and for how long."""
    peer, _, since_s = _note(device).read().partition(" ")
    return peer, time.monotonic() - float(since_s or 0)


def _waits_for(device: str) -> str:
    with contextlib.suppress(OSError):
        peer, waited_s = _begun(device)
        return "" if is_late(waited_s) else peer
    return ""


def _note(device: str) -> state_files.StateFile:
    return state_files.of_device(device, _KIND)


def _kept(device: str) -> state_files.StateFile:
    return state_files.of_node(f"{_KEPT_KIND}.{device}")
