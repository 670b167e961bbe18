# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor of ocf:sanctl:device: its true role; changes that are due; what is published.

What the kernel says of the role is what Pacemaker hears. All else that a monitor does is done on
the way: an error of it is logged, and makes no device that serves a failed one.
"""

from __future__ import annotations

from sanctl.agents import fingerprint, ocf, unasked_monitor
from sanctl.agents.connections import (
    frozen_primary,
    isolation,
    reconnect_dropped,
    reconnect_outdated,
)
from sanctl.agents.converge import converge
from sanctl.agents.fencing import all_marked, hung_io_reboot, quorum_overlap
from sanctl.agents.node import failure_cleanup
from sanctl.agents.promotion import admission, compared_data, first_activation
from sanctl.agents.publish import replica_state
from sanctl.agents.recovery import fs_shutdown, heal, reattach_disk, refill_suspect
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover.promotion import are_all_blank
from sanctl.system import journal
from sanctl.system.runner import Runner


def monitor(runner: Runner, device: Device) -> int:
    """Report the true role to Pacemaker, apply changed parameters, publish the replica's state.

    Where the replica is whole, and nothing was to be done, the monitors that follow may be short.
    """
    before = fingerprint.read(device)
    steps = ocf.Steps(device.name, "monitor")
    status = _monitor(runner, device, steps)
    if steps.is_idle:
        fingerprint.leave(device, before, status)
    return status


def _monitor(runner: Runner, device: Device, steps: ocf.Steps) -> int:
    try:
        found = first_activation.observe_after_first_promotion(
            runner, device, within_s=ocf.remaining_s(30.0) / 2
        )
    except CommandError as error:
        return unasked_monitor.report(runner, device, error)
    if found.is_absent:
        return ocf.NOT_RUNNING
    if (
        found.drbd is not None
        and ocf.is_probe()
        and quorum_overlap.predates_cluster_start(runner, found.drbd)
    ):
        failure_cleanup.write_note(device, failure_cleanup.MONITOR)
        ocf.exit_reason(
            "the replica was up while the cluster software was not, and is not connected to its"
            " peer: its data may be old, so the replica is restarted"
        )
        return ocf.ERR_GENERIC
    if found.drbd is not None and not ocf.is_probe():
        state: ResourceState | None = found.drbd
        no_contact_fields = ""
        try:
            # Before anything here attaches the disk: what is noted is of the disk that was there.
            compared_data.record(found.drbd)
            state = frozen_primary.call_handler_again(runner, device, found.drbd)
            verdict = fs_shutdown.release_files(runner, device, found.drbd)
            if verdict is fs_shutdown.FilesystemState.REMOUNTED:
                failure_cleanup.write_note(device, failure_cleanup.MONITOR)
                ocf.exit_reason(fs_shutdown.RESTART_REASON)
                return ocf.ERR_GENERIC
            if not are_all_blank(found.drbd, replicas=len(device.nodes)):
                # Asked now, so that a failover does not have to wait for the CIB.
                first_activation.is_new(runner, device)
            if verdict is fs_shutdown.FilesystemState.SHUT_DOWN:
                state = drbdsetup.observe(runner, device.name) or state
            elif found.is_active or found.is_standby:
                # Not every change reaches every instance by reload-agent: Pacemaker compares
                # parameters only with those of the last start or promotion. So the monitor, too,
                # applies changes.
                state = converge(runner, device, steps, state)
                state = heal.carry_out_order(runner, device, state)
                state = isolation.apply_rules(runner, device, state)
                state = reconnect_dropped.reconnect(runner, device.name, state)
                state = refill_suspect.refill_if_suspect(runner, device, state)
                state = reattach_disk.reattach(runner, device, state)
                state = reconnect_outdated.reconnect(runner, device, state)
                if any(peer.replication.startswith("WFBitMap") for peer in state.peers):
                    # Imported here: rarely needed, and monitors must start fast.
                    from sanctl.agents.connections import reconnect_stalled  # noqa: PLC0415

                    state = reconnect_stalled.reconnect(runner, device, state)
                no_contact_fields = heal.no_contact_fields(runner, device, state)
                all_marked.unmark_peer(runner, device, state)
        except Exception as error:
            steps.is_idle = False
            _log_monitor_error(device, "a change could not be applied", error)
        try:
            replica_state.publish(runner, device, state, no_contact_fields=no_contact_fields)
            hung_io_reboot.check(runner, device, found.drbd)
            admission.ask_if_held(runner, device)
        except Exception as error:
            steps.is_idle = False
            _log_monitor_error(device, "it could not look for hung I/O", error)
    if found.is_active:
        return ocf.RUNNING_PROMOTED
    if found.is_standby:
        return ocf.SUCCESS
    ocf.exit_reason(
        f"parts disagree: gate={found.gate} alua={found.alua} exported={found.is_exported} "
        f"drbd={found.drbd.role if found.drbd else 'down'} suspended={found.is_suspended}"
    )
    return ocf.FAILED_PROMOTED if found.serves else ocf.ERR_GENERIC


def _log_monitor_error(device: Device, what: str, error: Exception) -> None:
    """Log an error that makes no device that serves a failed one, not even one of sanctl's own."""
    text = str(error) if isinstance(error, (SanctlError, OSError)) else repr(error)
    journal.write(
        f"{device.name}: monitor: {what}: {text}",
        priority=journal.ERROR,
        device=device.name,
        action="monitor",
    )
