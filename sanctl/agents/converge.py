# SPDX-License-Identifier: GPL-2.0-or-later
"""Applies changed parameters (size, nodes, access list, policies) to a replica that runs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from sanctl.agents import ocf
from sanctl.agents.cache import flush_unit, read_cache, write_cache
from sanctl.agents.connections import peers
from sanctl.agents.points import unit as point_unit
from sanctl.agents.replica import (
    access_list,
    listed_portals,
    lost_writes,
    parts,
    resource_file,
    resync_note,
    sync_policy,
)
from sanctl.agents.replica.parts import Device
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure as restore_closure
from sanctl.agents.restore import unit as restore_unit
from sanctl.agents.sync import tracking, unit, verify
from sanctl.drivers import backing_device, drbdadm, drbdsetup
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal
from sanctl.system.runner import Runner

_SLOW_FAILURE_S = 5.0


def converge(
    runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
) -> ResourceState:
    """Apply the wanted replica nodes, access list, policies and size as far as possible now.

    A failure of the cache policy or of the access list is logged here, unless it took long, and
    does not keep the other changes from being applied.

    Returns:
        The state after that.

    Raises:
        SanctlError: another change could not be applied; the next monitor tries again.
    """
    device = restore_closure.as_known(runner, device)
    with _log_failure(steps, device, "device below DRBD"):
        backing_device.resume(device.name)
    with _log_failure(steps, device, "DRBD handlers"):
        resource_file.register_for_handlers(device)
    with _log_failure(steps, device, "note of a resync"):
        data = lost_writes.data_file(device.name)
        if data is not None:
            resync_note.prepare(device.name, data)
    # While I/O is frozen an access list entry could not be removed: its commands never end. And
    # the fence-peer handler is at work for a lost peer: the replica nodes must not change now.
    is_frozen = state.suspended != "no"
    # Before the other changes: this ends write-back where that is no longer allowed.
    with _log_failure(steps, device, "cache policy"):
        write_cache.apply_policy(runner, device, state)
    flush_unit.start_if_needed(runner, device.name, state)
    with _log_failure(steps, device, "access list"):
        # A restore closes it in any case.
        leaves_list = is_frozen or (device.leaves_list and not device.restore)
        if not leaves_list and access_list.update(device, hooks.letting_in(device)):
            steps.done(
                "initiators", f"access list: {', '.join(device.all_initiators) or 'no initiator'}"
            )
    with _log_failure(steps, device, "list of other nodes' portals"):
        if listed_portals.update(device):
            steps.done("listing", "portals of the other replica nodes listed")
    # DRBD 9 calls a standby suspended that sees no majority of the replicas. It has no I/O, and
    # beside its Primary no handler at work: it has to follow where replicas that it misses were
    # dropped, or none could serve after the Primary's loss.
    is_standby = state.role == "Secondary" and state.has_primary_peer
    if (not is_frozen or is_standby) and peers.apply_replica_nodes(runner, device):
        steps.done("nodes", f"replicas on {', '.join(device.nodes)}")
        state = drbdsetup.observe(runner, device.name) or state
    if not sync_policy.is_in_force(device) and _apply_sync_policy(runner, device, state):
        steps.done("policy", f"sync policy in force: {device.sync or 'the defaults'}")
    if sync_policy.is_in_force(device):
        sync_policy.record(device)
    read_cache.update_unmap_offer(device)
    if restore_closure.is_closed_as_wanted(device):
        point_unit.start_if_ordered(runner, device, state)
    # Also where hosts are in still: it writes nothing before they are out, and gives the order up
    # where they do not get out.
    restore_unit.start_if_ordered(runner, device, state)
    has_begun = verify.begin(runner, device, state)
    if has_begun or tracking.needs_tracking(device, state):
        unit.start(runner)
    if has_begun:
        state = drbdsetup.observe(runner, device.name) or state
    if (state.size_kib or 0) * 1024 < device.size_bytes:
        if parts.grow_files(device):
            steps.done("files", "device files grown")
        if state.is_primary:
            # Refused until the peers' files have grown too.
            with contextlib.suppress(SanctlError):
                drbdsetup.resize(runner, device.minor, has_peers=len(device.nodes) > 1)
        state = drbdsetup.observe(runner, device.name) or state
    if parts.finish_growth(device, state):
        steps.done("grown", "grown to the size that DRBD has")
    if (state.size_kib or 0) * 1024 >= device.size_bytes:
        read_cache.apply_policy(runner, device, state)
    return state


def _apply_sync_policy(runner: Runner, device: Device, state: ResourceState) -> bool:
    """Apply a changed sync policy; return whether that was done.

    The policy is part of the DRBD resource file. The file is rewritten, and `drbdadm adjust` gives
    DRBD what differs. DRBD 8.4 takes all of it while it is connected, Primary, and resyncing, and
    hosts notice nothing.

    Not for a replica that has refused its peer (StandAlone): `drbdadm adjust` would connect it, and
    whether that is right is not decided here. The replica gets the policy when it is connected
    again.

    Raises:
        SanctlError: DRBD did not take it; the next monitor tries again.
    """
    if any(peer.connection == "StandAlone" for peer in state.peers):
        return False
    if not state.peers and len(device.nodes) > 1:
        return False  # DRBD 8.4 does not list a connection that it has given up.
    if not resource_file.rewrite(runner, device):
        return False
    drbdadm.adjust(runner, device.name)
    sync_policy.record(device)
    return True


@contextlib.contextmanager
def _log_failure(steps: ocf.Steps, device: Device, subject: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    except (SanctlError, OSError) as error:
        steps.is_idle = False
        if time.monotonic() - begun > _SLOW_FAILURE_S:
            raise  # The rest would hang, too, and a monitor that times out is a failed one.
        journal.write(
            f"{device.name}: {subject} could not be applied: {error}",
            priority=journal.ERROR,
            device=device.name,
            action="converge",
        )
