# SPDX-License-Identifier: GPL-2.0-or-later
"""What a replica tells the cluster about itself: its state, and how good a candidate it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

from sanctl.agents.cache import read_cache, write_cache_status
from sanctl.agents.fencing import quorum_overlap
from sanctl.agents.fencing.outdate import clear_marks
from sanctl.agents.promotion import activation_record
from sanctl.agents.publish import attrd_cache
from sanctl.agents.replica import lost_writes, sync_policy
from sanctl.agents.replica.parts import Device, note_path
from sanctl.drivers import lio, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import ResyncRecord
from sanctl.plan.failover.promotion import are_all_blank, promotion_score
from sanctl.system import journal
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner


def published_value(state: ResourceState | None, *, nodes: int = 1) -> str:
    """Return what this replica tells the cluster about itself, as one node attribute.

    Args:
        state: the resource; None when it is not up.
        nodes: on how many nodes the device has replicas. DRBD 8.4 forgets a connection that it
            has given up, so one that should be there and is not stands alone.
    """
    if state is None:
        return "disk=Down connection=Unknown peer-disk=DUnknown out-of-sync=? role=Unknown size=?"
    if nodes == 1 and not any(peer.connection == "Connected" for peer in state.peers):
        # DRBD 8.4 shows the only replica a peer, and counts all blocks as different from it.
        state = state._replace(peers=())
    connections = ",".join(peer.connection for peer in state.peers)
    connections = connections or ("StandAlone" if nodes > 1 else "None")
    replications = ",".join(peer.replication for peer in state.peers) or "Off"
    disks = ",".join(peer.disk for peer in state.peers) or "None"
    behind = "?" if state.out_of_sync_kib is None else str(state.out_of_sync_kib)
    size = "?" if state.size_kib is None else str(state.size_kib * 1024)
    # Of several it has to be said which is which.
    names = ",".join(each.name for each in state.peers)
    peers = f" peers={names}" if names and nodes > 2 else ""
    return (
        f"disk={state.disk} connection={connections} replication={replications} "
        f"peer-disk={disks} out-of-sync={behind} role={state.role} size={size} "
        f"suspended={state.suspended}{peers}"
    )


def access_list_digest(initiators: Iterable[str]) -> str:
    """Return eight hex digits that tell one access list from another."""
    from hashlib import sha256  # noqa: PLC0415

    return sha256(" ".join(sorted(initiators)).encode()).hexdigest()[:8]


def publish(
    runner: Runner, device: Device, state: ResourceState | None, *, apart: str = ""
) -> None:
    """Tell the cluster this replica's state and promotion score, if they changed.

    `apart` is what a monitor adds of a replica without contact (sanctl/agents/recovery/heal.py).

    It is told again after a minute, and when the daemon that was told is gone.
    What the replica is does not depend on who can be told: a failure is logged, and the next
    monitor tries again.
    """
    try:
        _publish(runner, device, state, apart)
    except (SanctlError, OSError) as error:
        log_failure(device.name, error)


def log_failure(name: str, error: SanctlError | OSError) -> None:
    """Log that the cluster could not be told something."""
    journal.write(
        f"{name}: the cluster could not be told this replica's state: {error}",
        priority=journal.WARNING,
        device=name,
        action="publish",
    )


def has_changed(device: Device, state: ResourceState) -> bool:
    """Whether the cluster was told another state than this one, amounts apart.

    Not of a replica of which nothing was told: it is being started or stopped. Nor of one without
    contact, of which only its agent knows all there is to tell.
    """
    before = attrd_cache.published_fields(attrd_cache.of_device(device.name))
    words = published_value(state, nodes=len(device.nodes)).split()
    return (
        bool(before)
        and state.is_connected
        and not are_all_blank(state, replicas=len(device.nodes))
        and any(
            word not in before and not word.startswith(("out-of-sync=", "size=")) for word in words
        )
    )


def _publish(runner: Runner, device: Device, state: ResourceState | None, apart: str) -> None:
    if state is not None and state.is_connected:
        quorum_overlap.record_connection(device.name)
    score = promotion_score(
        state,
        is_new=state is not None
        and are_all_blank(state, replicas=len(device.nodes))
        and activation_record.is_new(runner, device),
        is_first=device.nodes[:1] == (os.uname().nodename,),
        replicas=len(device.nodes),
    )
    if lost_writes.is_suspect(device.name, lost_writes.data_file(device.name)):
        score = None
    others = sorted(set(device.nodes) - {os.uname().nodename})
    if (
        score is not None
        and state is not None
        and not quorum_overlap.may_try_promotion(runner, state, others)
    ):
        score = None
    access = access_list_digest(lio.initiators(device.name))
    held = str(sync_policy.in_force(device.name)).replace(" ", "+") or "default"
    value = f"{published_value(state, nodes=len(device.nodes))} acl={access} policy={held}{apart}"
    path = note_path(device, "sync")
    latest = ResyncRecord.parse(read_text_or(path, "")) if path is not None else None
    if latest is not None:
        value += f" resync={latest}"
    value += write_cache_status.published_fields(device, state) + read_cache.published_fields(
        runner, device, state
    )
    text, listener = f"{score} {value}", attrd_cache.attrd_pid()
    cached = attrd_cache.of_device(device.name)
    if attrd_cache.is_current(cached, listener, text):
        return
    node_attributes.set_promotion_score(runner, device.name, score)
    node_attributes.publish(runner, f"sanctl-{device.name}", value)
    if state is not None and state.is_primary:
        # After a change, and once a minute: a reconnection without a resync calls no handler.
        good = [node for node in others if state.with_only_peer(node).is_in_sync]
        if good:
            clear_marks(runner, device.name, good)
    attrd_cache.record(cached, listener, text)


def withdraw(runner: Runner, device: Device) -> None:
    """Withdraw this replica's attributes; the node is no candidate any more."""
    attrd_cache.of_device(device.name).remove()
    with contextlib.suppress(SanctlError):
        node_attributes.delete_promotion_score(runner, device.name)
        node_attributes.delete(runner, f"sanctl-{device.name}")
