# SPDX-License-Identifier: GPL-2.0-or-later
"""Follows a changed list of replica nodes: disconnects removed peers, connects new ones.

The cluster changes the parameter `nodes` while a device runs and serves
(sanctl/plan/replicas/replica_count.py says when that is safe). The resource file on this node still
has the previous nodes, and so names those to disconnect. The order:

1. A note on tmpfs. It stays until the last step, so an interrupted change is done again.
2. Disconnect from nodes that hold no replica any more, by the old resource file, which has their
   addresses. The disconnect outdates an up-to-date peer (drbd_nl.c, conn_try_disconnect), so DRBD
   does not freeze I/O to ask about that peer.
3. DRBD 9 keeps a bitmap for each peer that it has been connected to, and has room for three. Where
   it is to connect to a new peer, removed ones are ended before, and their bitmaps given up
   (forget-peer): a drop and an addition may be seen together.
4. Where two replicas are left, DRBD 9 is told before all that to freeze I/O at the loss of the peer
   that stays: with more the majority did that, and it counts no longer before `drbdadm adjust`
   comes to the options of connections. Where that peer is lost already, its mark is waited for.
5. The new resource file, and `drbdadm adjust`: it connects to new nodes, and sets whether a lost
   peer has to be fenced. The only replica of a device has no peer.
6. What DRBD 9 still keeps of nodes that hold no replica is given up, too.

A start attaches the disk while DRBD knows all peers, and is refused where there is no room for one
(`make_room`).
"""

from __future__ import annotations

import contextlib
import os

from sanctl.agents import cluster_toml
from sanctl.agents.cache import write_cache
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.drbd import ResourceState, uses_quorum
from sanctl.plan.failover.promotion import NO_DISK
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: The kind of the note that a change of replica nodes is under way; its text is the lost node that
#: it waits for, if it does.
CHANGE_NOTE = "change-of-nodes"

_log = DeviceLog("peers")


def apply_replica_nodes(runner: Runner, device: Device) -> bool:
    """Give DRBD the connections that the CIB asks for; return whether it had others.

    Raises:
        CommandError: DRBD refused, or did not answer; the next call repeats the change.
    """
    if _here() not in device.nodes:
        return False  # The cluster is about to stop this replica.
    known = set(resource_file.replica_nodes(device.name))
    if known == set(device.nodes) and not _change_note(device).exists():
        return False
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return False  # DRBD would connect it, and its bitmap misses the lost writes.
    _change_note(device).write()
    # The number of replicas decides what write-back requires.
    write_cache.leave_write_back(runner, device.name)
    disconnect_removed(runner, device)
    state = drbdsetup.observe(runner, device.name)
    _fence_without_quorum(runner, device, state)
    _make_room_for_new(runner, device, state)
    if state is not None and state.disk in NO_DISK:
        # The change cannot wait for the disk: the replica may serve from a peer's. So it is
        # attached with the change.
        from sanctl.agents.cache import lost_flash  # noqa: PLC0415 - rarely needed

        lost_flash.note(device)
    # It keeps the size of the activity log: DRBD takes no other one while hosts write.
    if not resource_file.rewrite(runner, device):
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know the pool {device.pool}",
                "run the playbook again on every node",
            )
        )
    resource_file.apply(runner, device)
    forget_removed(runner, device)
    _change_note(device).remove()
    return True


def disconnect_removed(runner: Runner, device: Device) -> None:
    """End the connection to nodes that hold no replica any more, by the old resource file.

    DRBD 9 has a connection to each peer, and `drbdadm adjust` ends those that the file no longer
    names.

    Raises:
        CommandError: a connection did not end.
    """
    removed = sorted(set(resource_file.replica_nodes(device.name)) - set(device.nodes))
    if not removed:
        return
    # DRBD calls no handler for a peer that is disconnected: writes in RAM alone are flushed before.
    write_cache.leave_write_back(runner, device.name)
    if drbd_kernel.generation() >= 9:
        return
    drbdadm.disconnect(runner, device.name)
    state = drbdsetup.observe(runner, device.name)
    if state is not None and any(peer.connection != "StandAlone" for peer in state.peers):
        raise CommandError(
            Problem(
                "SAN-AGENT-010",
                f"{device.name} is still connected to {', '.join(removed)}, which keeps no replica",
                "the monitor tries again",
            )
        )


def _fence_without_quorum(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Have the loss of the one peer that DRBD 9 keeps freeze I/O, before quorum ends.

    `drbdadm adjust` ends quorum first, and gives connections their options last (drbdadm.h,
    drbd_cfg_stage). A Primary that loses its peer in between would write without asking anybody.
    One that has lost it before keeps its majority until the peer is marked: its handler is at work,
    and DRBD freezes nothing for it any more.

    Raises:
        CommandError: DRBD refused, or did not answer; or the peer is lost, and may be served
            elsewhere. The next monitor tries again.
    """
    if state is None or drbd_kernel.generation() < 9 or len(device.nodes) != 2:
        return
    for peer in state.peers:
        if peer.name in device.nodes and peer.node_id is not None:
            drbdsetup.fence_before_going_on(runner, device.name, peer.node_id)
    now = drbdsetup.observe(runner, device.name)
    if now is None or not now.is_primary or not uses_quorum(1 + len(now.peers)):
        return
    for peer in now.with_only_peers(device.nodes).peers:
        # DRBD calls it Outdated once the handler has answered.
        if peer.connection == "Connected" or peer.disk != "DUnknown":
            continue
        if not _is_marked(runner, device, peer.name):
            with contextlib.suppress(OSError):
                _change_note(device).write(peer.name)  # It is published.
            raise CommandError(
                Problem(
                    "SAN-AGENT-021",
                    f"{device.name} has lost {peer.name}, which is to keep a replica, and it is "
                    "not certain yet that it is not served there",
                    "until it is, or is back, the replicas that were dropped count",
                )
            )


def _is_marked(runner: Runner, device: Device, peer: str) -> bool:
    from sanctl.drivers import corosync, outdated_marks  # noqa: PLC0415 - rarely needed

    seen = outdated_marks.read_device(runner, device.name).devices[device.name]
    # In this order: a mark that was read before quorum was lost is in the others' CIBs, too.
    return peer in seen.nodes() and corosync.membership(runner).is_quorate


def _make_room_for_new(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """End removed peers of DRBD 9, and give up their bitmaps, where a peer is to be connected.

    `drbdadm adjust` would end them, too, and then be refused a bitmap for the new one: a change
    that is repeated for ever, as what comes behind it is never done.

    Raises:
        CommandError: DRBD refused, or did not answer.
    """
    if state is None or drbd_kernel.generation() < 9:
        return
    there = {peer.name for peer in state.peers if peer.connection != "StandAlone"}
    if there | {_here()} >= set(device.nodes):
        return
    removed = [peer for peer in state.peers if peer.name not in device.nodes]
    if removed and not uses_quorum(len(device.nodes)):
        # In the order of `adjust`: a Primary would be frozen without them.
        drbdsetup.end_quorum(runner, device.name)
    for peer in removed:
        if peer.node_id is not None:
            drbdsetup.delete_peer(runner, device.name, peer.node_id)
    forget_removed(runner, device)


def make_room(runner: Runner, device: Device) -> bool:
    """Give up bitmaps of removed peers of a replica whose disk DRBD 9 has refused to attach.

    This node was away, or was killed, when a replica was dropped and another one added: the bitmaps
    of the dropped one leave no room. They can be given up by a kernel alone that has the disk
    (drbdmeta leaves their bits behind), so the disk is attached without any peer for that. The
    replica is down afterwards, for another attempt: all of its peers are to be known when its disk
    is attached (docs/adr/0039).

    Returns:
        Whether the disk may be attached now: it could be attached without peers.
    """
    if drbd_kernel.generation() < 9:
        return False
    try:
        state = drbdsetup.observe(runner, device.name)
        if state is not None and (state.disk != "Diskless" or state.is_primary):
            return False
        drbdsetup.down(runner, device.name)
        drbdadm.attach(runner, device.name, device.minor)
        forget_removed(runner, device)
        drbdsetup.down(runner, device.name)
    except (SanctlError, OSError) as error:
        _log(device.name, f"no bitmap of a removed peer could be given up: {error}")
        return False
    _log(device.name, "the disk was refused; bitmaps of removed peers are given up: again")
    return True


def forget_removed(runner: Runner, device: Device) -> None:
    """Give up the bitmaps that DRBD 9 keeps for nodes that hold no replica any more.

    Also at a start: this node may have been away when the replica was dropped.

    Raises:
        CommandError: such a node is still connected, or DRBD did not answer.
    """
    if drbd_kernel.generation() < 9:
        return
    for node_id in _removed_ids(device):
        drbdsetup.forget_peer(runner, device.name, node_id)


def _removed_ids(device: Device) -> list[int]:
    """Return DRBD's node ids of the nodes that hold no replica, as far as they are known.

    Those of cluster.toml, and those that have a bitmap: a node may be gone from cluster.toml. Not
    by the bitmaps where a replica's node is: its id is not known.
    """
    from sanctl.render.drbd import drbd_node_id  # noqa: PLC0415 - monitors do not pay for it

    topology = cluster_toml.load_topology()
    ids = {str(node.name): drbd_node_id(node.id) for node in topology.storage_nodes}
    kept = {ids[name] for name in device.nodes if name in ids}
    others = {node_id for name, node_id in ids.items() if name not in device.nodes}
    if len(kept) == len(device.nodes):
        others |= drbd_kernel.bitmap_owners(device.name)
    return sorted(others - kept)


def _here() -> str:
    return os.uname().nodename


def _change_note(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, CHANGE_NOTE)
