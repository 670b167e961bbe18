# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-resync.service: orders this node's resyncs, measures their rate, publishes progress.

DRBD's handlers and the monitors start the service (sanctl/agents/sync/unit.py); it polls DRBD once
a second, and exits when nothing runs any more. The process holds no state that it must not lose:
the next one reads the kernel and the records beside the data. It

* pauses and resumes resyncs (their order is in sanctl/plan/drbd/resync_order.py),
* begins a full resync where the device's policy asks for one,
* publishes how far each is, in an attribute that never enters the CIB,
* records what each moved, and publishes the replica's state at once when one has ended,
* has what each has written on stable storage before its note is cleared (settling.py),
* has a verify concluded and repaired (sanctl/agents/sync/verify.py).

A resync that was paused when the process died is not lost: monitors start the service again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.publish import replica_state
from sanctl.agents.replica import resource_file, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import progress, settling, tracking, unit, verify
from sanctl.agents.sync.progress import ReceivedCounter, SyncProgressTracker
from sanctl.drivers import drbd_kernel, drbdadm, drbdsetup, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.drbd import PeerState, ResourceState
from sanctl.model.resync_record import (
    DONE,
    FAST,
    FULL,
    INVALIDATING,
    RUNNING,
    RUNNING_ATTRIBUTE,
    ResyncRecord,
    RunningSync,
    format_running,
)
from sanctl.parse.drbd import SyncProgress
from sanctl.plan.drbd import resync_order as plan
from sanctl.system import journal, state_files
from sanctl.system.files import exists
from sanctl.system.runner import LocalRunner, Runner

_POLL_EVERY_S = 1.0
_PUBLISH_EVERY_S = 2.0
#: Of amounts alone: each node's pacemaker-attrd logs each value, to the journal and to a file.
_PUBLISH_AMOUNTS_EVERY_S = 15.0
_EXIT_AFTER_IDLE_S = 4.0
_DISCONNECT_TIMEOUT_S = 5.0
# Longer than `unit.start` holds the lock to see whether the service runs.
_LOCK_WAIT_S = 0.5
_log = DeviceLog("resync", priority=journal.INFO)


def main() -> int:
    """Run until no resync or verify does on this node."""
    with state_files.locked(unit.lock_path(), wait_s=_LOCK_WAIT_S) as is_mine:
        if is_mine:
            _run(ResyncScheduler(LocalRunner()))
    return 0


def _run(scheduler: ResyncScheduler) -> None:
    idle_since = time.monotonic()
    while True:
        if scheduler.run_once():
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > _EXIT_AFTER_IDLE_S:
            scheduler.withdraw()
            return
        time.sleep(_POLL_EVERY_S)


@contextlib.contextmanager
def _logs_error(name: str, failed: set[str]) -> Iterator[None]:
    """Log a device's error and add its name: the resyncs of the others go on."""
    try:
        yield
    except (SanctlError, OSError) as error:
        failed.add(name)
        _log(name, f"an error; the next poll tries again: {error}", priority=journal.WARNING)


def _syncing_peer(state: ResourceState) -> PeerState | None:
    """Return the peer of a resync or verify, one that runs before one that is paused."""
    found = [peer for peer in state.peers if peer.is_sync_source or peer.is_verifying]
    return min(found, key=lambda peer: peer.replication == "PausedSyncT", default=None)


class ResyncScheduler:
    """Schedules, tracks and records the resyncs of this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._trackers: dict[str, SyncProgressTracker] = {}
        self._counters: dict[str, ReceivedCounter] = {}
        self._published: tuple[tuple[RunningSync, ...], float] = ((), 0.0)
        self._settling = settling.Settling(runner)

    def run_once(self) -> bool:
        """Read DRBD's state and act on it once; return whether anything runs."""
        try:
            states = drbdsetup.observe_all(self._runner)
        except SanctlError as error:
            _log("", f"DRBD did not answer: {error}", priority=journal.WARNING)
            return True
        devices = {
            name: device
            for name in states
            if (device := sync_policy.recorded_device(name)) is not None
        }
        progress_by_minor = drbd_kernel.sync_progress()
        now = time.monotonic()
        targets = [
            plan.ResyncCandidate(
                name, sync_policy.policy_of(device), left, self._trackers[name].is_stuck(now)
            )
            for name, device in devices.items()
            if (left := self._track(states[name], progress_by_minor, now)) is not None
            and any(peer.is_sync_source for peer in states[name].peers)
        ]
        waiting = plan.wait_reasons(targets, time.localtime().tm_hour)
        failed: set[str] = set()
        # First of all: recording and publishing take longer, and meanwhile all resyncs would run.
        for name, device in devices.items():
            with _logs_error(name, failed):
                self._pause_or_resume(device, states[name], waiting.get(name, ""), now)
        is_busy = False
        for name, device in devices.items():
            with _logs_error(name, failed):
                is_busy |= self._record(device, states[name], progress_by_minor)
        running: list[RunningSync] = []
        for name, device in devices.items():
            with _logs_error(name, failed):
                entry = self._progress(device, states[name], progress_by_minor)
                if entry is not None:
                    running.append(entry._replace(waits=waiting.get(name, "")))
        self._publish_progress(tuple(running), now)
        return is_busy or bool(failed or running)

    def withdraw(self) -> None:
        """Delete the attribute with the progress."""
        with contextlib.suppress(SanctlError):
            node_attributes.delete(self._runner, RUNNING_ATTRIBUTE)

    def _track(
        self, state: ResourceState, progress_by_minor: dict[int, SyncProgress], now: float
    ) -> int | None:
        """Track a device's resync or verify; return the KiB left, None when none runs."""
        peer = _syncing_peer(state)
        if peer is None:
            self._trackers.pop(state.name, None)
            return None
        seen = progress_by_minor.get(state.minor or 0)
        left = seen.left_kib if seen else peer.out_of_sync_kib or 0
        self._trackers.setdefault(state.name, SyncProgressTracker(left, now)).add(left, now)
        return left

    def _progress(
        self, device: Device, state: ResourceState, progress_by_minor: dict[int, SyncProgress]
    ) -> RunningSync | None:
        """Return how far a device's resync or verify is, None when none runs."""
        peer, tracker = _syncing_peer(state), self._trackers.get(device.name)
        if peer is None or tracker is None:
            return None
        seen, left = progress_by_minor.get(device.minor), tracker.samples[-1][1]
        latest = tracking.latest_resync(device) if peer.is_sync_source else None
        return RunningSync(
            device=device.name,
            kind="verify" if latest is None else latest.kind,
            waits="",
            left_kib=left,
            total_kib=progress.total_kib(seen, tracker, latest),
            rate_kib_s=tracker.rate_kib_s(),
            began_s=tracker.began_s if latest is None else latest.began_s,
        )

    def _pause_or_resume(
        self, device: Device, state: ResourceState, waits: str, now: float
    ) -> None:
        """Pause or resume a resync, where it is not so already."""
        tracker = self._trackers.get(device.name)
        if tracker is not None:
            if not tracker.may_run and not waits:
                tracker.advanced_at = now
            tracker.may_run = not waits
        is_paused = any("user" in peer.resync_suspended for peer in state.peers)
        if drbd_kernel.generation() >= 9:
            for peer in plan.peers_to_pause_or_resume(state, is_to_wait=bool(waits)):
                drbdsetup.set_resync_with_paused(
                    self._runner, device.name, peer, is_paused=bool(waits)
                )
        elif is_paused != bool(waits):
            drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=bool(waits))
        if is_paused == bool(waits):
            return
        _log(device.name, f"the resync waits {waits}" if waits else "the resync may run")

    def _record(
        self, device: Device, state: ResourceState, progress_by_minor: dict[int, SyncProgress]
    ) -> bool:
        """Record a resync's beginning and end; return whether something is left to be done."""
        latest = tracking.latest_resync(device)
        if latest is not None and latest.stage == INVALIDATING:
            self._mark_all_out_of_sync(device, latest)
            return True
        target = next((peer for peer in state.peers if peer.is_sync_source), None)
        if target is not None and target.connection == "Connected":
            if latest is None or latest.stage == DONE:
                self._begin(device, state, progress_by_minor)
            else:
                self._counter(device.name).update(progress.received_kib(state))
            return True
        # First: a full pool takes no record of the end.
        is_settling = self._settling.settle(device.name)
        if latest is not None and latest.stage == RUNNING and state.is_in_sync:
            self._end(device, state, latest)
        is_verifying = verify.track(self._runner, device, state)
        if replica_state.has_changed(device, state):
            # The next monitor may be eleven seconds away, and a command may wait for this.
            replica_state.publish(self._runner, device, state)
            if not exists(resource_file.path_of(device.name)):
                replica_state.withdraw(self._runner, device)  # The replica was stopped meanwhile.
        return is_verifying or is_settling

    def _counter(self, name: str) -> ReceivedCounter:
        if name not in self._counters:
            self._counters[name] = ReceivedCounter(name)
        return self._counters[name]

    def _begin(
        self, device: Device, state: ResourceState, progress_by_minor: dict[int, SyncProgress]
    ) -> None:
        source = _syncing_peer(state)
        left = 0 if source is None else source.out_of_sync_kib or 0
        seen = progress_by_minor.get(device.minor)
        changed = max(left, seen.total_kib) if seen else left
        size_kib = state.size_kib or device.size_bytes // 1024
        kind, why = plan.choose_resync_kind(
            sync_policy.policy_of(device),
            changed,
            size_kib,
            can_widen=drbd_kernel.generation() < 9,
        )
        must_widen = kind == FULL and changed < size_kib
        # What was received before the first poll is part of the resync.
        received = progress.received_kib(state)
        self._counter(device.name).begin(max(0, received - (changed - left)), received)
        latest = ResyncRecord(
            kind=kind,
            why=why,
            stage=INVALIDATING if must_widen else RUNNING,
            began_s=int(time.time()),
            changed_kib=changed,
        )
        tracking.save_resync(device, latest)
        _log(device.name, f"{kind} resync begins: {why}, {changed} KiB differ", step="begin")
        if must_widen:
            self._mark_all_out_of_sync(device, latest)
        replica_state.publish(self._runner, device, state)

    def _mark_all_out_of_sync(self, device: Device, latest: ResyncRecord) -> None:
        """Mark all of an Inconsistent replica as out of sync: a full resync.

        DRBD takes `invalidate` only without a connection. The connection is ended on this side;
        the peer, which knows this replica as Inconsistent, goes on serving without a pause. However
        this ends, the replica is connected again, and gets at least what differs.
        """
        kind = FAST
        try:
            # A paused resync cannot end between the check and `invalidate`.
            drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=True)
            state = drbdsetup.observe(self._runner, device.name)
            if state is not None and plan.may_mark_all_out_of_sync(state):
                self._counter(device.name).update(progress.received_kib(state))
                drbdadm.disconnect(self._runner, device.name)
                state = self._await_disconnected(device.name)
            if state is not None and plan.may_mark_all_while_disconnected(state):
                drbdsetup.invalidate(self._runner, device.minor)
                kind = FULL
        finally:
            tracking.save_resync(device, latest._replace(kind=kind, stage=RUNNING))
            drbdadm.adjust(self._runner, device.name)
            drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=False)
        if kind == FAST:
            _log(
                device.name, "the replica was no resync target any more: only what differs is sent"
            )

    def _await_disconnected(self, name: str) -> ResourceState | None:
        deadline = time.monotonic() + _DISCONNECT_TIMEOUT_S
        while True:
            state = drbdsetup.observe(self._runner, name)
            if (
                state is None
                or plan.may_mark_all_while_disconnected(state)
                or time.monotonic() > deadline
            ):
                return state
            time.sleep(0.1)

    def _end(self, device: Device, state: ResourceState, latest: ResyncRecord) -> None:
        counter = self._counter(device.name)
        counter.update(progress.received_kib(state))
        counter.remove()
        del self._counters[device.name]
        done = latest._replace(
            stage=DONE,
            ended_s=int(time.time()),
            received_kib=counter.total_kib,
        )
        tracking.save_resync(device, done)
        _log(
            device.name,
            f"{done.kind} resync ended after {done.ended_s - done.began_s} s ({done.why}):"
            f" {done.changed_kib} KiB were out of sync, {done.received_kib} KiB were received",
            step="end",
            duration_s=done.ended_s - done.began_s,
        )
        replica_state.publish(self._runner, device, state)

    def _publish_progress(self, running: tuple[RunningSync, ...], now: float) -> None:
        """Publish how far everything is, if that has changed.

        What runs, or waits for what, and the first rate of each, within two seconds; amounts
        seldom.
        """
        published, at = self._published
        is_more_than_amounts = list(map(_without_amounts, running)) != list(
            map(_without_amounts, published)
        ) or any(not each.rate_kib_s and not each.waits for each in published)
        every_s = _PUBLISH_EVERY_S if is_more_than_amounts else _PUBLISH_AMOUNTS_EVERY_S
        if running == published or (now - at < every_s and running and published):
            return
        with contextlib.suppress(SanctlError):
            node_attributes.publish_private(
                self._runner, RUNNING_ATTRIBUTE, format_running(running)
            )
            self._published = (running, now)


def _without_amounts(entry: RunningSync) -> tuple[str, str, str, bool]:
    """Return what is published soon; of one that waits also that it is known what is left.

    Not how much: while it waits that grows with each write of the hosts.
    """
    return entry.device, entry.kind, entry.waits, not entry.waits or bool(entry.left_kib)
