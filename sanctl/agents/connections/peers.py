# SPDX-License-Identifier: GPL-2.0-or-later
"""Follows a changed list of replica nodes: disconnects removed peers, connects new ones.

The cluster changes the parameter `nodes` while a device runs and serves
(sanctl/plan/replicas/replica_count.py says when that is safe). The resource file on this node still
has the previous nodes, and so names those to disconnect. The order:

1. A note on tmpfs. It stays until the last step, so an interrupted change is done again.
2. Disconnect from nodes that hold no replica any more, by the old resource file, which has their
   addresses. The disconnect outdates an up-to-date peer (drbd_nl.c, conn_try_disconnect), so DRBD
   does not freeze I/O to ask about that peer.
3. The new resource file, and `drbdadm adjust`: it connects to new nodes, and sets whether a lost
   peer has to be fenced. The only replica of a device has no peer.
4. DRBD 9 keeps a bitmap for each peer that it has been connected to, and has room for three: those
   of nodes that hold no replica are given up (forget-peer).
"""

from __future__ import annotations

import os

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.runner import Runner


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


def forget_removed(runner: Runner, device: Device) -> None:
    """Give up the bitmaps that DRBD 9 keeps for nodes that hold no replica any more.

    Also at a start: this node may have been away when the replica was dropped.

    Raises:
        CommandError: such a node is still connected, or DRBD did not answer.
    """
    if drbd_kernel.generation() < 9:
        return
    from sanctl.render.drbd import drbd_node_id  # noqa: PLC0415 - monitors do not pay for it

    for node in parts.load_topology().storage_nodes:
        if str(node.name) not in device.nodes:
            drbdsetup.forget_peer(runner, device.name, drbd_node_id(node.id))


def _here() -> str:
    return os.uname().nodename


def _change_note(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, "change-of-nodes")
