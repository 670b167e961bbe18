# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a device is new; the first step of its first promotion, and a standby's wait for that.

New replicas are zeros, or copies of one restore point. If all are the same, the first promotion
makes them UpToDate without a resync; else the copy alone, and the others are filled from it. In the
CIB, the meta attribute `sanctl-new` of the device's primitive says that the device has never been
active: `sanctl device create` sets it, and the first promotion removes it. Pacemaker hands agents
no meta attributes but its own, so the CIB has to be asked. A device that was active once is never
new again, and that is noted on tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.agents import ocf
from sanctl.agents.replica import parts
from sanctl.agents.replica.parts import Device
from sanctl.drivers import crm_resource, drbd_kernel, drbdsetup, node_attributes
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.clone_origin import CloneOrigin
from sanctl.model.drbd import ResourceState
from sanctl.plan.drbd import state_line
from sanctl.plan.failover.promotion import FirstStep, are_all_blank, first_step
from sanctl.system import state_files
from sanctl.system.runner import Runner

#: A new device's first promotion takes about two seconds; the monitor that waits has thirty.
_MAX_WAIT_S = 10.0
_TIMEOUT_S = 8.0
#: The first replica's start publishes its score, or its first monitor, some seconds later.
_LEAVES_TO_FIRST_S = 15.0
#: A promotion, the first one of a device most of all: a failure costs a stop and a start.
PROMOTION_TIMEOUT_S = 25.0
_ATTRIBUTE = "sanctl-new"


def is_new(runner: Runner, device: Device, *, timeout_s: float = _TIMEOUT_S) -> bool:
    """Whether the CIB says that the device has never been active.

    Raises:
        CommandError: the cluster did not answer; the device must not be taken for a new one.
    """
    if _active_note(device).exists():
        return False
    value = crm_resource.meta_attribute(runner, device.name, _ATTRIBUTE, timeout_s=timeout_s)
    if value == "true":
        return True
    _write_active_note(device)
    return False


def step_here(device: Device, state: ResourceState) -> FirstStep:
    """Return what the first promotion would do with the replicas here, if the device is new."""
    copied_on: tuple[str, ...] | None = None
    if device.origin:
        origin = CloneOrigin.parse(device.origin)
        # What cannot be read names no node: then no replica is declared good.
        copied_on = () if origin is None else origin.nodes
    return first_step(state, here=os.uname().nodename, nodes=device.nodes, copied_on=copied_on)


def leaves_to_first(runner: Runner, device: Device) -> bool:
    """Whether a blank replica leaves the first promotion to the first of the device's nodes.

    Both replicas start at the same time. If the other one were a candidate before the first has
    published its score, Pacemaker would promote it, and a device begins on a node that was not
    asked for: `sanctl device create --prefer`. After a while it is a candidate all the same, and
    stays one: the first may be kept from its promotion by what only its own node knows.
    """
    note = state_files.of_device(device.name, f"left-to-first.{device.uuid}")
    left_s = note.age_s()
    if left_s is None:
        try:
            note.write()
        except OSError:
            return False  # There is no room: it would be left for good.
    elif not 0 <= left_s < _LEAVES_TO_FIRST_S:
        return False
    try:
        return not node_attributes.has_promotion_score(runner, device.name, device.nodes[0])
    except CommandError:
        return True


def activate(runner: Runner, device: Device, state: ResourceState, steps: ocf.Steps) -> None:
    """Activate a device for the first time: its replicas are files of zeros, or copies of a point.

    A replica whose file is no copy of the restore point that the device is made from is not
    declared good: this one is, alone, and DRBD resyncs all of the other.

    The order matters. The CIB ceases to call the device new before DRBD can become Primary: a
    device that ever took a write is never again taken for a new one, whichever process or node
    dies in between.

    `state` was observed after the cluster said that the device is new. DRBD itself refuses to call
    replicas the same that have held data, or are not connected.

    Raises:
        CommandError: DRBD or the cluster did not take it, or the replicas are not connected
            (SAN-AGENT-008); the device must not become Primary.
    """
    step = step_here(device, state)
    if step is FirstStep.DECLARE_EQUAL and len(device.nodes) > 1:
        drbdsetup.skip_initial_sync(runner, device.minor)
        what = "hold the same restore point" if device.origin else "are zeros"
        steps.done("skip-sync", f"new replicas declared good: all {what}")
    elif step is not FirstStep.NONE:
        drbdsetup.force_up_to_date(runner, device.name, device.minor)
        steps.done("first-data", "the new replica here declared good, it alone")
    elif state.disk != "UpToDate":
        # The replicas lost contact meanwhile: the device is still new, and the CIB still says so.
        raise CommandError(
            Problem("SAN-AGENT-008", f"{device.name} is new and its replicas are not connected")
        )
    _record_promotion(runner, device)
    steps.done("not-new", "the cluster knows that the device has been active")


def _record_promotion(runner: Runner, device: Device) -> None:
    crm_resource.delete_meta_attribute(
        runner, device.name, _ATTRIBUTE, timeout_s=PROMOTION_TIMEOUT_S
    )
    _write_active_note(device)


def observe_after_first_promotion(
    runner: Runner, device: Device, *, within_s: float
) -> parts.Health:
    """Observe the replica; of a new device, wait for its first promotion if that comes soon.

    The peer's promotion, which runs beside the standby's first monitor, makes both replicas
    UpToDate, and the peer Primary. The next monitor is eleven seconds away, and `sanctl device
    create` waits until both nodes have published that.
    """
    deadline = time.monotonic() + min(_MAX_WAIT_S, within_s)
    found = parts.observe(runner, device)
    if (
        ocf.is_probe()
        or not _is_before_first_promotion(device, found)
        # Of many that are created together the promotions wait for these monitors.
        or drbd_kernel.count_blank_replicas() > 1
    ):
        return found
    try:
        if not is_new(runner, device):
            return found
    except (SanctlError, OSError):
        return found
    while _is_waiting(device, found) and time.monotonic() < deadline:
        if state_line.is_without_primary(drbd_kernel.state_line(device.minor)):
            drbd_kernel.wait_while(device.minor, state_line.is_without_primary, deadline)
        else:
            drbd_kernel.wait_for_change(device.minor, "", deadline)
        found = parts.observe(runner, device)
    if found.drbd is not None and any(peer.role == "Primary" for peer in found.drbd.peers):
        # The CIB ceased to call the device new before its peer became Primary.
        _write_active_note(device)
    return found


def _is_waiting(device: Device, found: parts.Health) -> bool:
    """Whether the replica of a new device is still to be declared good, or to get a Primary."""
    return _is_before_first_promotion(device, found) or (
        found.is_standby
        and found.drbd is not None
        and found.drbd.is_in_sync
        and not any(peer.role == "Primary" for peer in found.drbd.peers)
    )


def _is_before_first_promotion(device: Device, found: parts.Health) -> bool:
    return (
        found.is_standby
        and found.drbd is not None
        and are_all_blank(found.drbd, replicas=len(device.nodes))
    )


def _write_active_note(device: Device) -> None:
    # It spares a question to the cluster: without it, as where /run is full, the CIB is asked.
    with contextlib.suppress(OSError):
        _active_note(device).write()


def _active_note(device: Device) -> state_files.StateFile:
    return state_files.of_device(device.name, f"was-active.{device.uuid}")
