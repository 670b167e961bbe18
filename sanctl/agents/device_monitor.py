# SPDX-License-Identifier: GPL-2.0-or-later
"""The monitor of ocf:sanctl:device: its true role; changes that are due; what is published.

What the kernel says of the role is what Pacemaker hears. All else that a monitor does is done on
the way: an error of it is logged, and makes no device that serves a failed one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from sanctl.agents import fingerprint, ocf, unasked_monitor
from sanctl.agents.cache import flush_unit
from sanctl.agents.connections import (
    crashed_flag,
    frozen_primary,
    isolation,
    reconnect_dropped,
    reconnect_outdated,
    standby_first,
)
from sanctl.agents.converge import SLOW_FAILURE_S, Changes
from sanctl.agents.fencing import all_marked, hung_io_reboot, outdate, quorum_overlap
from sanctl.agents.node import failure_cleanup, monitor_turn
from sanctl.agents.promotion import admission, compared_data, first_activation
from sanctl.agents.publish import attrd_cache, replica_state
from sanctl.agents.recovery import (
    fs_shutdown,
    heal,
    no_contact,
    reattach_disk,
    refill_suspect,
)
from sanctl.agents.replica.parts import Device, Health
from sanctl.agents.reservations import hooks
from sanctl.drivers import drbdsetup
from sanctl.errors import CommandError, SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.failover import fence_rules
from sanctl.plan.failover.promotion import are_all_blank
from sanctl.system import journal
from sanctl.system.runner import DeadlineRunner, Runner

#: What a monitor has where Pacemaker says no time.
_MONITOR_S = 30.0
#: What is kept of it for the report, once a duty has failed.
_REPORT_S = 10.0


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
            runner, device, within_s=ocf.remaining_s(_MONITOR_S) / 2
        )
    except CommandError as error:
        return unasked_monitor.report(runner, device, error)
    _guard(
        device,
        steps,
        "the note of DRBD's silence could not be removed",
        lambda: hung_io_reboot.forget_silence(device),
    )
    if found.is_absent:
        return ocf.NOT_RUNNING
    if (
        found.drbd is not None
        and ocf.is_probe()
        and quorum_overlap.predates_cluster_start(
            runner, found.drbd, set(device.nodes) - {os.uname().nodename}
        )
    ):
        failure_cleanup.write_note(device, failure_cleanup.MONITOR)
        ocf.exit_reason(
            "the replica was up while the cluster software was not, and is not connected to its"
            " peer: its data may be old, so the replica is restarted"
        )
        return ocf.ERR_GENERIC
    if found.drbd is not None and not ocf.is_probe():
        with monitor_turn.taken(device, found.drbd) as is_due:
            failed = _see_to(runner, device, steps, found, found.drbd, is_due=is_due)
        if failed is not None:
            return failed
    if found.is_active:
        return ocf.RUNNING_PROMOTED
    if found.is_standby:
        return ocf.SUCCESS
    ocf.exit_reason(
        f"parts disagree: gate={found.gate} alua={found.alua} exported={found.is_exported} "
        f"drbd={found.drbd.role if found.drbd else 'down'} suspended={found.is_suspended}"
    )
    return ocf.FAILED_PROMOTED if found.serves else ocf.ERR_GENERIC


def _see_to(
    runner: Runner,
    device: Device,
    steps: ocf.Steps,
    found: Health,
    drbd: ResourceState,
    *,
    is_due: bool,
) -> int | None:
    """Do what a replica needs; return the exit code of one that Pacemaker has to restart.

    Without `is_due` only what hosts wait for: the rest is left to a later monitor.
    """
    state: ResourceState | None = drbd
    no_contact_fields = ""
    if not is_due:
        steps.is_idle = False
    try:
        # Before anything here attaches the disk: what is noted is of the disk that was there.
        compared_data.record(device, drbd)
        state = frozen_primary.call_handler_again(runner, device, drbd)
        verdict = fs_shutdown.release_files(runner, device, drbd)
        if verdict is fs_shutdown.FilesystemState.REMOUNTED:
            failure_cleanup.write_note(device, failure_cleanup.MONITOR)
            ocf.exit_reason(fs_shutdown.RESTART_REASON)
            return ocf.ERR_GENERIC
        if verdict is fs_shutdown.FilesystemState.SHUT_DOWN:
            state = drbdsetup.observe(runner, device.name) or state
        elif is_due and (found.is_active or found.is_standby):
            state, no_contact_fields = _do_duties(runner, device, steps, state)
    except Exception as error:
        steps.is_idle = False
        _log_monitor_error(device, "a change could not be applied", error)
    if is_due:
        _report(runner, device, steps, drbd, state, no_contact_fields=no_contact_fields)
    else:
        _guard(
            device,
            steps,
            "it could not start the flushes of an only good replica",
            lambda: flush_unit.start_if_needed(runner, device.name, drbd),
        )
        _look_for_hung_io(runner, device, steps, drbd)
    return None


def _report(
    runner: Runner,
    device: Device,
    steps: ocf.Steps,
    found: ResourceState,
    state: ResourceState | None,
    *,
    no_contact_fields: str,
) -> None:
    """Publish the state, look for hung I/O and for an admission, each by itself."""

    def publish() -> None:
        if not replica_state.publish(runner, device, state, no_contact_fields=no_contact_fields):
            # A mark that could not be cleared, say: the next monitor has to try again.
            steps.is_idle = False

    _guard(device, steps, "the replica's state could not be published", publish)
    _look_for_hung_io(runner, device, steps, found)
    _guard(
        device,
        steps,
        "it could not ask whether hosts may be let in",
        lambda: admission.ask_if_held(runner, device),
    )


def _look_for_hung_io(
    runner: Runner, device: Device, steps: ocf.Steps, found: ResourceState
) -> None:
    _guard(
        device,
        steps,
        "it could not look for hung I/O",
        lambda: hung_io_reboot.check(runner, device, found),
    )


def _guard(device: Device, steps: ocf.Steps, what: str, duty: Callable[[], object]) -> None:
    try:
        duty()
    except Exception as error:
        steps.is_idle = False
        _log_monitor_error(device, what, error)


def _do_duties(
    runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
) -> tuple[ResourceState, str]:
    """Make the changes that are due, as far as possible.

    Returns:
        DRBD's state afterwards, and what is published of a replica without contact.
    """
    duties = _Duties(runner, device, steps, state)
    fields: list[str] = []

    # Not every change reaches every instance by reload-agent: Pacemaker compares parameters only
    # with those of the last start or promotion. So the monitor, too, applies changes.
    changes = Changes(device, steps)

    def settle(by: Runner, now: ResourceState) -> ResourceState:
        return _settle_connections(by, device, now, limits=not changes.has_open_nodes)

    def look_without_contact(by: Runner, now: ResourceState) -> None:
        fields.append(no_contact.published_fields(by, device, now))

    for what, change in (*changes.in_order(), ("orders and connections", settle)):
        # After a slow failure these are left to the next monitor: they have more waits of their own
        # than programs, and would not leave the time for the report.
        if not duties.was_slow:
            duties.run(what, change)
    # Before its disk is attached again, and once more before the state is published.
    duties.run(
        "the mark of a replica without a disk",
        lambda by, now: replica_state.mark_without_disk(by, device, now),
    )
    duties.run("the mark of a resync's target", lambda by, now: _mark_sync_targets(by, device, now))
    duties.run("a detached disk", lambda by, now: reattach_disk.reattach(by, device, now))
    duties.run("an outdated replica", lambda by, now: _fill_outdated(by, device, now))
    duties.run(
        "the connection to an outdated replica",
        lambda by, now: reconnect_outdated.reconnect(by, device, now),
    )
    duties.run("a stalled connection", lambda by, now: _reconnect_stalled(by, device, now))
    duties.run(
        "the flag of a crash", lambda by, now: crashed_flag.clear_if_in_sync(by, device, now)
    )
    duties.run("what is published without contact", look_without_contact)
    duties.run("the mark of the peer", lambda by, now: _unmark_peer(by, device, now))
    duties.run("whether the device is new", lambda by, now: _ask_whether_new(by, device, now))
    duties.run("reservations", lambda by, now: look_after_reservations(by, device, steps, now))
    return duties.state, "".join(fields)


class _Duties:
    """Carries out a monitor's duties one by one: what one cannot do keeps no other from its turn.

    Attributes:
        state: DRBD's state after those that were carried out.
        was_slow: one has failed that took long.
    """

    def __init__(
        self, runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
    ) -> None:
        self._runner, self._device, self._steps = runner, device, steps
        self._is_over = self._has_failed = False
        self.was_slow = False
        self.state = state

    def run(self, what: str, duty: Callable[[Runner, ResourceState], ResourceState | None]) -> None:
        """Carry out a duty, which returns DRBD's state if it may have changed that.

        After one that failed the next ones go by what DRBD says then, and their programs end before
        the time that the report needs: a monitor that times out is a failed one. They are left to
        the next monitor if DRBD does not answer, or if that one took so long that they would hang,
        too.

        Args:
            what: what the duty is about, for the log.
            duty: is given the runner and DRBD's state.
        """
        if self._is_over:
            return
        begun_s = time.monotonic()
        try:
            self.state = duty(self._runner, self.state) or self.state
        except Exception as error:
            self.was_slow |= time.monotonic() - begun_s > SLOW_FAILURE_S
            self._log(what, error)
            left_s = ocf.remaining_s(_MONITOR_S)
            if left_s < _MONITOR_S / 2:
                self._is_over = True
                return
            if not self._has_failed:
                self._has_failed = True
                end_s = time.monotonic() + left_s - _REPORT_S
                self._runner = DeadlineRunner(self._runner, end_s)
            try:
                now = drbdsetup.observe(self._runner, self._device.name)
            except Exception as silence:
                self._log("DRBD's state", silence)
                now = None
            self._is_over = now is None
            self.state = now or self.state

    def _log(self, what: str, error: Exception) -> None:
        self._steps.is_idle = False
        _log_monitor_error(self._device, f"a change could not be applied: {what}", error)


def _settle_connections(
    runner: Runner, device: Device, state: ResourceState, *, limits: bool
) -> ResourceState:
    """Carry out orders, and make connections, in this order: each relies on the one before.

    Without `limits` the limit of connections stays as it is: it takes a new resource file
    (converge.py says when there may be none).
    """
    state = heal.carry_out_order(runner, device, state)
    if limits:
        state = isolation.apply_rules(runner, device, state)
    if not standby_first.still_waits(runner, device, state):
        state = reconnect_dropped.reconnect(runner, device.name, state)
    return refill_suspect.refill_if_suspect(runner, device, state)


def _fill_outdated(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    disks = {state.disk, *(peer.disk for peer in state.peers)}
    if state.has_quorum is None or not disks & {"Outdated", "Consistent"}:
        return state
    # Imported here: rarely needed, and monitors must start fast.
    from sanctl.agents.recovery import fill_outdated  # noqa: PLC0415

    return fill_outdated.fill(runner, device, state)


def _reconnect_stalled(runner: Runner, device: Device, state: ResourceState) -> ResourceState:
    is_exchanging = any(peer.replication.startswith("WFBitMap") for peer in state.peers)
    is_dropped = any(peer.connection == "StandAlone" for peer in state.peers)
    disks = {state.disk, *(peer.disk for peer in state.peers)}
    unsettled = {"Negotiating", "Inconsistent", "Outdated", "Consistent"}
    if not (is_exchanging or is_dropped or disks & unsettled):
        return state
    # Imported here: rarely needed, and monitors must start fast.
    from sanctl.agents.connections import reconnect_stalled  # noqa: PLC0415

    def is_member(node: str) -> bool:
        return outdate.peer_membership(runner, device.name, node) == "member"

    return reconnect_stalled.reconnect(runner, device, state, is_member)


def _unmark_peer(runner: Runner, device: Device, state: ResourceState) -> None:
    all_marked.unmark_peer(runner, device, state, hooks.is_not_older)


def _mark_sync_targets(
    runner: Runner, device: Device, state: ResourceState
) -> ResourceState | None:
    """Mark the peers that are filled from here, where before-resync-source has not."""
    others = sorted(set(device.nodes) - {os.uname().nodename})
    targets = [node for node in others if fence_rules.is_sync_target(state, node)]
    if not targets or not outdate.mark_sync_targets(runner, device.name, targets):
        return None
    # DRBD has called its handler for the end of the resync, if that has come, before the mark. A
    # Secondary leaves it: the next Primary that is in sync takes it off, as any.
    now = drbdsetup.observe(runner, device.name)
    if now is not None and now.is_primary:
        in_sync = [node for node in targets if now.with_only_peer(node).is_in_sync]
        if in_sync:
            outdate.clear_marks(runner, device.name, in_sync, hooks.has_current)
    return now


def _ask_whether_new(runner: Runner, device: Device, state: ResourceState) -> None:
    """Have it noted that the device is not new, so that no failover waits for the CIB."""
    if not are_all_blank(state, replicas=len(device.nodes)):
        first_activation.is_new(runner, device)


def look_after_reservations(
    runner: Runner, device: Device, steps: ocf.Steps, state: ResourceState
) -> None:
    """Do what is due for the device's reservations (agents/reservations/upkeep.py)."""
    # Asked before: a daemon that ends in between makes the record a stale one.
    pid = attrd_cache.attrd_pid() if device.reservations else ""
    if hooks.look_after(runner, device, is_active=state.is_primary, attrd_pid=pid):
        steps.done("reservations", "reservations switched, mirrored or published")


def _log_monitor_error(device: Device, what: str, error: Exception) -> None:
    """Log an error that makes no device that serves a failed one, not even one of sanctl's own."""
    text = str(error) if isinstance(error, (SanctlError, OSError)) else repr(error)
    journal.write(
        f"{device.name}: monitor: {what}: {text}",
        priority=journal.ERROR,
        device=device.name,
        action="monitor",
    )
