# SPDX-License-Identifier: GPL-2.0-or-later
"""A device becomes active or standby on this node: the order of steps of promote and of demote.

The orders that keep data safe:

* promote: DRBD Primary, then the gate onto DRBD, then ALUA. Hosts see Active/Optimized only when
  this node serves.
* demote: ALUA Standby, then the gate to `error` (which waits for the I/O in flight), then DRBD
  Secondary. This node acknowledges no write once the peer may serve.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from sanctl.agents import ocf
from sanctl.agents.cache import write_cache, write_cache_steps
from sanctl.agents.connections import isolation
from sanctl.agents.fencing import shared_marks
from sanctl.agents.promotion import (
    admission,
    compared_data,
    first_activation,
    needed_release,
    set_role,
)
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import fs_shutdown
from sanctl.agents.replica import gate_size, parts
from sanctl.agents.reservations import hooks
from sanctl.agents.restore import closure as restore_closure
from sanctl.agents.restore import unit as restore_unit
from sanctl.drivers import drbd_kernel, drbdsetup, gate, lio
from sanctl.errors import CommandError, Problem

if TYPE_CHECKING:
    import contextlib

    from sanctl.agents.replica.parts import Device
    from sanctl.model.drbd import ResourceState
    from sanctl.system.runner import Runner

#: How long a promotion waits for the peers that it connects to.
_SETTLE_S = 8.0
#: How long an action waits for DRBD or for I/O in flight. Less than its timeout, the rest of which
#: is for programs that are slow to start beside many others.
_WAIT_S = 57.0


def promote(runner: Runner, device: Device) -> None:
    """Make this node serve the device.

    Raises:
        SanctlError: it may not, or a step failed. What was done stays, for the demotion that
            follows or for the next try.
    """
    with shared_marks.promotion_begun(device.name) as begun:
        _promote(runner, device, begun)


def _promote(runner: Runner, device: Device, begun: contextlib.ExitStack) -> None:
    steps = ocf.Steps(device.name, "promote")
    # The handler that has marked the peers takes the note away. Without room there is none.
    is_noted = shared_marks.is_begun(device.name)
    deadline = time.monotonic() + min(_WAIT_S, ocf.remaining_s(50.0))
    size = gate.size_bytes(device.name)
    # Before DRBD is: what is read of it is then of the moment at which the cluster has answered.
    # Not of a device that is not started here, of which nothing may be noted.
    is_first = size is not None and first_activation.is_new(
        runner, device, timeout_s=first_activation.PROMOTION_TIMEOUT_S
    )
    state = drbdsetup.observe(runner, device.name)
    if state is None or size is None:
        raise CommandError(
            Problem("SAN-AGENT-005", f"{device.name} is not started here; it cannot be promoted")
        )
    # Before anything is changed, here or in the CIB. What serves goes on: a change of parameters
    # promotes it once more.
    if not state.is_primary:
        needed_release.refuse_promotion(device)
    write_cache_steps.refuse_suspect(device.name)
    fs_shutdown.refuse_promotion(device)
    # Before the cluster is told that the device is not new any more.
    hooks.check_before_promotion(device, is_first=is_first, was_primary=state.is_primary)
    if is_first:
        first_activation.activate(runner, device, state, steps)
    device = admission.at_promotion(runner, device)
    restore_closure.close_before_promotion(device)
    if not state.is_primary:
        compared_data.refuse_promotion(runner, device, state)
        isolation.connect_all_peers(runner, device, within_s=_SETTLE_S)
        # A killed process may have left it on, and the fence-peer handler of this promotion could
        # not take it off.
        write_cache.clear_minimum_redundancy(runner, device.name)
        set_role.promote(runner, device.name, device.minor, deadline)
        steps.done("primary", "DRBD Primary")
    has_marked = is_noted and not shared_marks.is_begun(device.name)
    begun.close()
    write_cache.leave_write_back_unless_in_sync(runner, device.name)
    if not gate.gate_table(device.name).startswith("drbd"):
        if replica_state.clear_marks_before_writes(runner, device):
            steps.done("marks", "peers that were filled from here are marked no more")
        size = gate_size.grow_closed_gate(device, size)
        gate.open_gate(device.name, below=device.drbd_device, size_bytes=size)
        steps.done("gate", "gate leads onto DRBD")
    gate.resume(device.name)
    with hooks.promoting(runner, device, steps, deadline, was_primary=state.is_primary):
        lio.set_alua_state(device.name, device.minor, lio.ACTIVE_OPTIMIZED)
    steps.done("alua", "ALUA Active/Optimized")
    found = parts.observe(runner, device)
    # Published before the action ends: until then the other node's score is the higher one, and
    # the cluster would move the device there. Where the peers are marked and out of contact no
    # other replica may be promoted, and the first monitor publishes: of twenty devices that fail
    # over together each publication would take the processor, and each score a change of the CIB,
    # before the last one is served. What clears a peer's mark publishes the score first.
    if not has_marked or _sees_a_peer(device, found.drbd):
        # A device that was new until now has no marks.
        replica_state.publish(runner, device, found.drbd, clears_marks=not is_first)
    if not found.is_active:
        raise CommandError(
            Problem("SAN-AGENT-007", f"{device.name} was promoted, but does not serve: {found}")
        )
    steps.ended("serving, and no host is let in yet" if device.held else "serving")


def _sees_a_peer(device: Device, state: ResourceState | None) -> bool:
    """Whether a peer is in contact, or there is none to wait for."""
    return len(device.nodes) < 2 or state is None or any(peer.is_connected for peer in state.peers)


def demote(runner: Runner, device: Device, steps: ocf.Steps) -> None:
    """Make this node a standby of the device, from whatever an interrupted action has left.

    Raises:
        SanctlError: a step failed; the next call goes on from there.
    """
    deadline = time.monotonic() + min(_WAIT_S, ocf.remaining_s(50.0))
    write_cache.resume_io_before_demotion(runner, device.name)
    if lio.alua_state(device.name, device.minor) not in {"absent", "Standby"}:
        lio.set_alua_state(device.name, device.minor, lio.STANDBY)
        steps.done("alua", "ALUA Standby")
    restore_unit.end(runner, device.name)
    size = gate.size_bytes(device.name)
    if gate.gate_table(device.name) not in {"absent", "error"} or gate.is_suspended(device.name):
        if size is None:
            # Only a gate, nothing above it: an interrupted start.
            gate.remove(device.name)
        else:
            left = max(1.0, deadline - time.monotonic())
            gate.close_gate(device.name, size_bytes=size, timeout_s=left)
            # After the gate is closed: requests that were held back fail here and reach no disk.
            gate.resume(device.name)
        steps.done("gate", "gate closed")
    if drbd_kernel.is_loaded():
        with hooks.demoting(device):
            set_role.demote(runner, device.name, device.minor, deadline)
        write_cache.clear_minimum_redundancy(runner, device.name)
        steps.done("secondary", "DRBD Secondary")
