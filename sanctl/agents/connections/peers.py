# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings DRBD's connections in line with the nodes that hold replicas, under a device that serves.

The cluster changes the parameter `nodes` while a device runs
(sanctl/plan/replicas/replica_count.py says when that
is safe). Here the resource file of the nodes before is still in place, and tells who has to be let
go. The order:

1. A mark on tmpfs. It stays until the last step, so what is interrupted is done again.
2. Disconnect from nodes that hold no replica any more, by the old resource file, which knows them.
   An up-to-date peer is told that it is outdated by that (drbd_nl.c, conn_try_disconnect), so DRBD
   does not freeze I/O to ask about it.
3. The new resource file, and `drbdadm adjust`: it connects to new nodes, and sets whether a lost
   peer has to be fenced. The only replica of a device has none.
4. DRBD 9 keeps a bitmap for each peer it has met, and has room for three: those of nodes that hold
   no replica are given up.
"""

from __future__ import annotations

import os

from sanctl.agents.cache import write_cache
from sanctl.agents.replica import lost_writes, parts, resource_file
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, pool_files
from sanctl.errors import CommandError, Problem
from sanctl.system import state_files
from sanctl.system.runner import Runner


def apply_replica_nodes(runner: Runner, device: Device) -> bool:
    """Let DRBD have the connections that the cluster wants; return whether it had others.

    Raises:
        CommandError: DRBD refused, or did not answer; the next call goes on.
    """
    if _here() not in device.nodes:
        return False  # about to be stopped here
    known = set(resource_file.nodes(device.name))
    if known == set(device.nodes) and not _mark(device).exists():
        return False
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        return False  # DRBD would connect it, and compare it by what it has lost
    _mark(device).write()
    # How many copies there are decides what write-back needs.
    write_cache.leave_write_back(runner, device.name)
    disconnect_removed(runner, device)
    where = parts.load_topology().pool(device.pool)
    if where is None:
        raise CommandError(
            Problem(
                "SAN-AGENT-004",
                f"/etc/sanctl/cluster.toml does not know the pool {device.pool}",
                "run the playbook again on every node",
            )
        )
    resource_file.write(
        runner, device, pool_files.files_of(str(where.path), device.name, device.uuid)
    )
    resource_file.apply(runner, device)
    forget_removed(runner, device)
    _mark(device).remove()
    return True


def disconnect_removed(runner: Runner, device: Device) -> None:
    """End the connection to a node that holds no replica any more; before the file forgets it.

    DRBD 9 has a connection to each peer, and `drbdadm adjust` ends those that the file has no more.

    Raises:
        CommandError: it did not end.
    """
    gone = sorted(set(resource_file.nodes(device.name)) - set(device.nodes))
    if not gone:
        return
    # No handler is called for a peer that is let go of: what is in RAM alone is flushed before.
    write_cache.leave_write_back(runner, device.name)
    if drbdsetup.generation() >= 9:
        return
    drbdadm.disconnect(runner, device.name)
    state = drbdsetup.observe(runner, device.name)
    if state is not None and any(peer.connection != "StandAlone" for peer in state.peers):
        raise CommandError(
            Problem(
                "SAN-AGENT-010",
                f"{device.name} is still connected to {', '.join(gone)}, which keeps no replica",
                "the monitor tries again",
            )
        )


def forget_removed(runner: Runner, device: Device) -> None:
    """Give up what DRBD 9 keeps of nodes that hold no replica, whenever they ceased to.

    Also at a start: the node may have been away when the copy was dropped.

    Raises:
        CommandError: one is still connected, or DRBD did not answer.
    """
    if drbdsetup.generation() < 9:
        return
    from sanctl.render.drbd import drbd_node_id  # noqa: PLC0415 - monitors do not pay for it

    for node in parts.load_topology().storage_nodes:
        if str(node.name) not in device.nodes:
            drbdsetup.forget_peer(runner, device.name, drbd_node_id(node.id))


def _here() -> str:
    return os.uname().nodename


def _mark(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, "change-of-nodes")
