# SPDX-License-Identifier: GPL-2.0-or-later
"""Has an Outdated replica filled that DRBD 9 leaves beside a better one of the same generation.

Where two replicas had lost their disks, and both are attached again, nothing else ends that state:
no replica is served, both being behind or marked, and any loss of the connection would hide what
they differ in (sanctl/plan/failover/behind_standby.py). Either side begins, whose monitor is first:
the one that attaches its disk as the second does it at once. `drbdsetup invalidate[-remote]` with
the bitmaps as they are is one agreed change of state of both nodes: it has happened on both, or on
none, and if it was for nothing it costs a resync of what the bitmaps name. Not from a replica that
is suspect, or does not say that it is not: its bitmap misses its lost writes (docs/adr/0027).

The source's before-resync-source marks the target as before any resync. With both replicas in sync
and marked, the marks go (sanctl/agents/fencing/all_marked.py).
"""

from __future__ import annotations

from sanctl.agents.connections import published_state, reconnect_dropped
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.fencing import outdate
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import behind_standby as plan
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: Between two reconnects of a replica that stays Consistent: once is enough, where it was tried.
_RECONNECT_S = 60.0
_log = DeviceLog("fill-outdated")


def fill(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    """Begin the resync of an Outdated replica beside the good one, or decide a filled one's state.

    Asks nothing where there is none. DRBD and the cluster are asked under the lock of the handlers
    that mark. Only beside a member: the handler of the source refuses any other, when the target is
    Inconsistent already, and could not be revived by an operator any more.

    Returns:
        DRBD's state afterwards.

    Raises:
        SanctlError: DRBD or the cluster did not answer, or refused; the next monitor tries again.
    """
    peers = len(device.nodes) - 1
    if not _is_due(state, peers=peers):
        return state
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return state
    with outdate.locked(device.name, wait_s=0.0) as is_mine:
        now = drbdsetup.observe(runner, device.name) if is_mine else None
        if now is None or not _is_due(now, peers=peers):
            return now or state
        if outdate.peer_membership(runner, device.name, now.peers[0].name) != "member":
            return now
        _begin(runner, device, now, peers=peers)
    return drbdsetup.observe(runner, device.name) or now


def _is_due(state: ResourceState, *, peers: int) -> bool:
    return bool(
        plan.peer_to_fill(state, peers=peers)
        or plan.peer_to_be_filled_by(state, peers=peers)
        or plan.is_filled_but_unsure(state, peers=peers)
    )


def _begin(runner: Runner, device: Device, state: ResourceState, *, peers: int) -> None:
    target, source = (
        plan.peer_to_fill(state, peers=peers),
        plan.peer_to_be_filled_by(state, peers=peers),
    )
    if target is not None and target.node_id is not None:
        drbdsetup.resync_differences(runner, device.name, target.node_id)
        _log(
            device.name,
            f"the replica on {target.name} is Outdated, of the same generation as the one here, and"
            " nothing resyncs it: it is filled with what the bitmaps name",
            step="fill",
        )
    elif source is not None and source.node_id is not None and state.minor is not None:
        if not _is_trusted(runner, device.name, source.name):
            return
        drbdsetup.resync_from(runner, state.minor, source.node_id)
        _log(
            device.name,
            f"the replica here is Outdated, of the same generation as the one on {source.name}, and"
            " nothing resyncs it: it is filled with what the bitmaps name",
            step="fill",
        )
    elif target is source is None:
        _reconnect_filled(runner, device, state)


def _is_trusted(runner: Runner, device: str, source: str) -> bool:
    published = published_state.of_peer(runner, device, source)
    return published is not None and published.disk is not None and not published.is_suspect


def _reconnect_filled(runner: Runner, device: Device, state: ResourceState) -> None:
    """Have DRBD call both replicas UpToDate, if the peer has been filled from here.

    The note of the source's handler says that it has. Another one makes the next monitor connect
    if this process dies half way.
    """
    peer = state.peers[0]
    if not reconnect_dropped.is_filled(device.name, peer.name) or peer.node_id is None:
        return
    tried = state_files.of_device(device.name, "reconnect-tried")
    age_s = tried.age_s()
    if age_s is not None and 0 <= age_s < _RECONNECT_S:
        return
    tried.write()
    reconnect_dropped.write_note(device.name, peer.name)
    drbdsetup.disconnect_peer(runner, device.name, peer.node_id)
    drbdadm.adjust(runner, device.name)
    _log(
        device.name,
        f"the replica on {peer.name} is filled, and both are Consistent: connected anew",
        step="reconnect",
    )
