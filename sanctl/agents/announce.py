"""What a replica tells the cluster about itself: its state, and how good a candidate it is."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

from sanctl.agents import cache, newborn, suspicion
from sanctl.agents.fencing import clear_marks
from sanctl.agents.replica import RUNTIME, Device
from sanctl.drivers import attributes, lio
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.promotion import is_blank_pair, promotion_score
from sanctl.system import journal
from sanctl.system.files import read_text_or
from sanctl.system.runner import Runner

_REPUBLISH_S = 60.0


def published_value(state: ResourceState | None, *, nodes: int = 1) -> str:
    """Return what this replica tells the cluster about itself, as one node attribute.

    Args:
        state: the resource; None when it is not up.
        nodes: on how many nodes the device has replicas. DRBD 8.4 forgets a connection that it
            has given up, so one that should be there and is not stands alone.
    """
    if state is None:
        return "disk=Down connection=Unknown peer-disk=DUnknown out-of-sync=? role=Unknown size=?"
    connections = ",".join(peer.connection for peer in state.peers)
    connections = connections or ("StandAlone" if nodes > 1 else "None")
    replications = ",".join(peer.replication for peer in state.peers) or "Off"
    disks = ",".join(peer.disk for peer in state.peers) or "None"
    behind = "?" if state.out_of_sync_kib is None else str(state.out_of_sync_kib)
    size = "?" if state.size_kib is None else str(state.size_kib * 1024)
    return (
        f"disk={state.disk} connection={connections} replication={replications} "
        f"peer-disk={disks} out-of-sync={behind} role={state.role} size={size} "
        f"suspended={state.suspended}"
    )


def access_list_digest(initiators: Iterable[str]) -> str:
    """Return eight hex digits that tell one access list from another."""
    from hashlib import sha256  # noqa: PLC0415

    return sha256(" ".join(sorted(initiators)).encode()).hexdigest()[:8]


def publish(
    runner: Runner, device: Device, state: ResourceState | None, *, apart: str = ""
) -> None:
    """Tell the cluster this replica's state and promotion score, if they changed.

    `apart` is what a monitor adds of a replica without contact (sanctl/agents/healing.py).

    What was told is kept on tmpfs and told again after a minute, in case the cluster forgot.
    What the replica is does not depend on who can be told: a failure is logged, and the next
    monitor tries again.
    """
    try:
        _publish(runner, device, state, apart)
    except SanctlError as error:
        journal.write(
            f"{device.name}: the cluster could not be told this replica's state: {error}",
            priority=journal.WARNING,
            device=device.name,
            action="publish",
        )


def _publish(runner: Runner, device: Device, state: ResourceState | None, apart: str) -> None:
    score = promotion_score(
        state,
        is_new=state is not None and is_blank_pair(state) and newborn.is_new(runner, device),
        is_first=device.nodes[:1] == (os.uname().nodename,),
    )
    if suspicion.is_suspect(device.name, suspicion.data_file(device.name)):
        score = None
    access = access_list_digest(lio.initiators(device.name))
    value = f"{published_value(state, nodes=len(device.nodes))} acl={access}{apart}"
    value += cache.words(device, state)
    told = f"{score} {value}"
    path = f"{RUNTIME}/told-{device.name}"
    try:
        fresh = time.time() - os.stat(path).st_mtime < _REPUBLISH_S
    except FileNotFoundError:
        fresh = False
    if fresh and read_text_or(path, "") == told:
        return
    attributes.set_promotion_score(runner, device.name, score)
    attributes.publish(runner, f"sanctl-{device.name}", value)
    if state is not None and state.is_in_sync and state.is_primary:
        # After a change, and once a minute: a reconnection without a resync calls no handler.
        clear_marks(runner, device.name, set(device.nodes) - {os.uname().nodename})
    with open(path, "w", encoding="utf-8") as file:
        file.write(told)


def withdraw(runner: Runner, device: Device) -> None:
    """Withdraw this replica's attributes; the node is no candidate any more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{RUNTIME}/told-{device.name}")
    with contextlib.suppress(SanctlError):
        attributes.withdraw_promotion_score(runner, device.name)
        attributes.withdraw(runner, f"sanctl-{device.name}")
