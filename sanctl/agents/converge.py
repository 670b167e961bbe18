# SPDX-License-Identifier: GPL-2.0-or-later
"""Brings a running replica in line with what the CIB says of its device."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from sanctl.agents import ocf
from sanctl.agents.cache import read_cache, write_cache
from sanctl.agents.connections import peers
from sanctl.agents.replica import parts, resource_file, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import scheduler, verify
from sanctl.drivers import backing_device, drbdsetup, lio
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.system import journal
from sanctl.system.runner import Runner

_PATIENCE_S = 5.0


def converge(
    runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
) -> ResourceState:
    """Bring replica nodes, access list, policies and size as near to what is wanted as can be.

    Cache and access list stand by themselves: neither keeps the other from being followed, nor what
    comes after, and a failure of theirs is logged here, unless it took long.

    Raises:
        SanctlError: the rest could not be done; the next monitor tries again.
    """
    with _by_itself(device, "device below DRBD"):
        backing_device.resume(runner, device.name)
    with _by_itself(device, "DRBD handlers"):
        resource_file.register_for_handlers(device)
    # While I/O is frozen an access list entry could not be removed: its commands never end. And
    # DRBD's handler asks about the peer it has lost, which must not change under it.
    is_frozen = state.suspended != "no"
    # First: this ends write-back where it has to.
    with _by_itself(device, "cache policy"):
        write_cache.apply_policy(runner, device, state)
    with _by_itself(device, "access list"):
        if set(lio.initiators(device.name)) != set(device.initiators) and not is_frozen:
            lio.set_initiators(device.name, device.initiators)
            steps.done("initiators", f"admits {', '.join(device.initiators) or 'nobody'}")
    if not is_frozen and peers.apply_replica_nodes(runner, device):
        steps.done("nodes", f"replicas on {', '.join(device.nodes)}")
        state = drbdsetup.observe(runner, device.name) or state
    if not sync_policy.is_in_force(device) and sync_policy.apply(runner, device, state):
        steps.done("policy", f"sync policy in force: {device.sync or 'the defaults'}")
    if sync_policy.is_in_force(device):
        sync_policy.record(device)
    read_cache.update_unmap_offer(device)
    has_begun = verify.begin(runner, device, state)
    if has_begun or scheduler.needs_tracking(device, state):
        scheduler.start_unit(runner)
    if has_begun:
        state = drbdsetup.observe(runner, device.name) or state
    if (state.size_kib or 0) * 1024 < device.size_bytes:
        if parts.grow_files(runner, device):
            steps.done("files", "device files grown")
        if state.is_primary:
            # Refused until the peers' files have grown too.
            with contextlib.suppress(SanctlError):
                drbdsetup.resize(runner, device.minor, has_peers=len(device.nodes) > 1)
        state = drbdsetup.observe(runner, device.name) or state
    if parts.finish_growth(runner, device, state):
        steps.done("grown", "grown to the size that DRBD has")
    if (state.size_kib or 0) * 1024 >= device.size_bytes:
        read_cache.apply_policy(runner, device, state)
    return state


@contextlib.contextmanager
def _by_itself(device: Device, what: str) -> Iterator[None]:
    begun = time.monotonic()
    try:
        yield
    except (SanctlError, OSError) as error:
        if time.monotonic() - begun > _PATIENCE_S:
            raise  # What hangs hangs for the rest, too, and a monitor that is late is a failed one.
        journal.write(
            f"{device.name}: its {what} could not be applied: {error}",
            priority=journal.ERROR,
            device=device.name,
            action="converge",
        )
