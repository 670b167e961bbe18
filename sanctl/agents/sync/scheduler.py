# SPDX-License-Identifier: GPL-2.0-or-later
"""Accompanies the resyncs and verifies of this node while there are any.

DRBD's handlers and the monitors start it (sanctl-resync.service); it looks once a second, and ends
when nothing runs any more. It keeps nothing that it could not lose: whoever starts it next reads
everything from the kernel and from the notes beside the data. It

* lets resyncs run one after the other (sanctl/plan/drbd/resync_order.py has the order),
* has all of a replica sent where the device's policy says so,
* tells how far each is, by an attribute that never enters the CIB,
* writes down what each moved, and tells the cluster at once when it has ended,
* finishes verifies, and repairs what one found where that was asked for.

A resync that it holds back and dies over is not lost: monitors start it again.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.publish import replica_state
from sanctl.agents.replica import parts, resource_file, sync_policy
from sanctl.agents.replica.parts import Device
from sanctl.agents.sync import verify
from sanctl.drivers import drbdadm, drbdsetup, node_attributes
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
from sanctl.system.files import exists, read_text_or, write_atomically
from sanctl.system.runner import LocalRunner, Runner

_UNIT = "sanctl-resync.service"
_LOOK_EVERY_S = 1.0
_TELL_EVERY_S = 2.0
_LINGER_S = 4.0
_STUCK_AFTER_S = 15.0
_RATE_OVER_S = 10.0
_PARTING_S = 5.0
# Longer than anybody holds the lock who only asks.
_ASKED_S = 0.5


def start_unit(runner: Runner) -> None:
    """Have somebody accompany what runs here, if nobody does."""
    if _is_accompanied():
        return
    with contextlib.suppress(SanctlError):
        runner.run(["systemctl", "start", "--no-block", _UNIT], timeout_s=10.0)


def needs_tracking(device: Device, state: ResourceState) -> bool:
    """Whether something of a device runs, or was left half done, that somebody should accompany."""
    if any(
        peer.is_sync_source or peer.is_verifying or "user" in peer.resync_suspended
        for peer in state.peers
    ):
        return True
    latest = latest_resync(device)
    if latest is not None and (
        latest.stage == INVALIDATING or (latest.stage == RUNNING and state.is_in_sync)
    ):
        return True
    return verify.needs_tracking(device, state)


def latest_resync(device: Device) -> ResyncRecord | None:
    """Return what is remembered of this replica's latest resync."""
    path = parts.note_path(device, "sync")
    return None if path is None else ResyncRecord.parse(read_text_or(path, ""))


def _is_accompanied() -> bool:
    # Shared, and main() tries for a while: asking is not to keep anybody from beginning.
    with state_files.locked(_lock(), wait_s=0.0, shared=True) as is_free:
        return not is_free


def main() -> int:
    """Accompany what runs here until nothing does."""
    with state_files.locked(_lock(), wait_s=_ASKED_S) as is_mine:
        if is_mine:
            _run(ResyncScheduler(LocalRunner()))
    return 0


def _run(scheduler: ResyncScheduler) -> None:
    idle_since = time.monotonic()
    while True:
        if scheduler.look():
            idle_since = time.monotonic()
        elif time.monotonic() - idle_since > _LINGER_S:
            scheduler.leave()
            return
        time.sleep(_LOOK_EVERY_S)


def _lock() -> str:
    return state_files.node_lock("resync")


class _Track:
    """What was seen of one device's resync or verify since this process began."""

    def __init__(self, left_kib: int, now: float) -> None:
        self.marks = [(now, left_kib)]
        self.moved_at = now
        self.has_leave = False
        self.began_s = int(time.time())

    def see(self, left_kib: int, now: float) -> None:
        if left_kib < self.marks[-1][1]:
            self.moved_at = now
        self.marks.append((now, left_kib))
        while self.marks[0][0] < now - _RATE_OVER_S:
            self.marks.pop(0)

    def rate_kib_s(self) -> int:
        (begin, most), (end, least) = self.marks[0], self.marks[-1]
        return 0 if end <= begin else max(0, int((most - least) / (end - begin)))

    def is_stuck(self, now: float) -> bool:
        return self.has_leave and now - self.moved_at > _STUCK_AFTER_S


def _busy_peer(state: ResourceState) -> PeerState | None:
    return next((p for p in state.peers if p.is_sync_source or p.is_verifying), None)


def _received_kib(state: ResourceState) -> int:
    """Return what came over all connections: DRBD 9 may fill a replica from one after another."""
    return sum(peer.received_kib or 0 for peer in state.peers)


class _Count:
    """What came over the connections of one resync, as DRBD counts it: anew with each of them.

    Kept on tmpfs, for a process that goes on where another one was killed.
    """

    def __init__(self, name: str) -> None:
        self._file = state_files.of_device(name, "resync-received")
        words = self._file.read().split()
        # What came before this connection, less what it had brought before the resync; and the
        # counter as it was last seen.
        self._before_kib, self._seen_kib = map(int, words) if len(words) == 2 else (0, 0)

    def begin(self, base_kib: int, seen_kib: int) -> None:
        self._before_kib, self._seen_kib = -base_kib, seen_kib
        self._keep()

    def see(self, counter_kib: int) -> None:
        if counter_kib < self._seen_kib:
            self._before_kib += self._seen_kib
        if counter_kib != self._seen_kib:
            self._seen_kib = counter_kib
            self._keep()

    @property
    def total_kib(self) -> int:
        return max(0, self._before_kib + self._seen_kib)

    def _keep(self) -> None:
        self._file.write(f"{self._before_kib} {self._seen_kib}\n")

    def forget(self) -> None:
        self._file.remove()


class ResyncScheduler:
    """One look after another at what runs on this node."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._tracks: dict[str, _Track] = {}
        self._counts: dict[str, _Count] = {}
        self._told = ("", 0.0)

    def look(self) -> bool:
        """Look, and do what is to be done; return whether anything runs."""
        try:
            states = drbdsetup.observe_all(self._runner)
        except SanctlError as error:
            _say("", f"DRBD did not answer: {error}", priority=journal.WARNING)
            return True
        devices = {
            name: device
            for name in states
            if (device := sync_policy.recorded_device(name)) is not None
        }
        advances = drbdsetup.sync_progress()
        now = time.monotonic()
        targets = [
            plan.ResyncCandidate(
                name, sync_policy.policy_of(device), left, self._tracks[name].is_stuck(now)
            )
            for name, device in devices.items()
            if (left := self._follow(states[name], advances, now)) is not None
            and any(peer.is_sync_source for peer in states[name].peers)
        ]
        waiting = plan.wait_reasons(targets, time.localtime().tm_hour)
        # First of all: what is written down and told takes longer, and meanwhile all of them run.
        for name, device in devices.items():
            self._give_leave(device, states[name], waiting.get(name, ""), now)
        is_busy = False
        for name, device in devices.items():
            try:
                is_busy |= self._keep(device, states[name], advances)
            except (SanctlError, OSError) as error:
                _say(name, f"the next look tries again: {error}", priority=journal.WARNING)
                is_busy = True
        running = tuple(
            entry._replace(waits=waiting.get(entry.device, ""))
            for name, device in devices.items()
            if (entry := self._progress(device, states[name], advances)) is not None
        )
        self._tell(running, now)
        return is_busy or bool(running)

    def leave(self) -> None:
        """Take back what was told."""
        with contextlib.suppress(SanctlError):
            node_attributes.delete(self._runner, RUNNING_ATTRIBUTE)

    def _follow(
        self, state: ResourceState, advances: dict[int, SyncProgress], now: float
    ) -> int | None:
        """Return what is left of what runs of a device, in KiB; None when nothing does."""
        peer = _busy_peer(state)
        if peer is None:
            self._tracks.pop(state.name, None)
            return None
        seen = advances.get(state.minor or 0)
        left = seen.left_kib if seen else peer.out_of_sync_kib or 0
        self._tracks.setdefault(state.name, _Track(left, now)).see(left, now)
        return left

    def _progress(
        self, device: Device, state: ResourceState, advances: dict[int, SyncProgress]
    ) -> RunningSync | None:
        """Return what runs of a device, None when nothing does."""
        peer, track = _busy_peer(state), self._tracks.get(device.name)
        if peer is None or track is None:
            return None
        seen, left = advances.get(device.minor), track.marks[-1][1]
        latest = latest_resync(device) if peer.is_sync_source else None
        return RunningSync(
            device=device.name,
            kind="verify" if latest is None else latest.kind,
            waits="",
            left_kib=left,
            total_kib=seen.total_kib if seen else max(left, track.marks[0][1]),
            rate_kib_s=track.rate_kib_s(),
            began_s=track.began_s if latest is None else latest.began_s,
        )

    def _give_leave(self, device: Device, state: ResourceState, waits: str, now: float) -> None:
        """Hold a resync back, or let it run, where it is not so already."""
        is_held = any("user" in peer.resync_suspended for peer in state.peers)
        track = self._tracks.get(device.name)
        if track is not None:
            if not track.has_leave and not waits:
                track.moved_at = now
            track.has_leave = not waits
        if is_held == bool(waits) or drbdsetup.generation() >= 9:
            return
        drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=bool(waits))
        _say(device.name, f"its resync waits {waits}" if waits else "its resync may run")

    def _keep(
        self, device: Device, state: ResourceState, advances: dict[int, SyncProgress]
    ) -> bool:
        """Write down what a resync does; return whether something is left to be done."""
        latest = latest_resync(device)
        if latest is not None and latest.stage == INVALIDATING:
            self._widen(device, latest)
            return True
        target = next((peer for peer in state.peers if peer.is_sync_source), None)
        if target is not None and target.connection == "Connected":
            if latest is None or latest.stage == DONE:
                self._begin(device, state, advances)
            else:
                self._count(device.name).see(_received_kib(state))
            return True
        if latest is not None and latest.stage == RUNNING and state.is_in_sync:
            self._end(device, state, latest)
        is_verifying = verify.track(self._runner, device, state)
        if replica_state.has_changed(device, state):
            # The monitor is up to eleven seconds away, and somebody waits for it.
            replica_state.publish(self._runner, device, state)
            if not exists(resource_file.path_of(device.name)):
                replica_state.withdraw(self._runner, device)  # It was stopped meanwhile.
        return is_verifying

    def _count(self, name: str) -> _Count:
        if name not in self._counts:
            self._counts[name] = _Count(name)
        return self._counts[name]

    def _begin(
        self, device: Device, state: ResourceState, advances: dict[int, SyncProgress]
    ) -> None:
        left = max(peer.out_of_sync_kib or 0 for peer in state.peers if peer.is_sync_source)
        seen = advances.get(device.minor)
        changed = max(left, seen.total_kib) if seen else left
        size_kib = state.size_kib or device.size_bytes // 1024
        kind, why = plan.choose_resync_kind(sync_policy.policy_of(device), changed, size_kib)
        is_wider = kind == FULL and changed < size_kib and drbdsetup.generation() < 9
        # What came before the first look is part of it.
        received = _received_kib(state)
        self._count(device.name).begin(max(0, received - (changed - left)), received)
        latest = ResyncRecord(
            kind=kind,
            why=why,
            stage=INVALIDATING if is_wider else RUNNING,
            began_s=int(time.time()),
            changed_kib=changed,
        )
        _save(device, latest)
        _say(device.name, f"{kind} resync begins: {why}, {changed} KiB differ", step="begin")
        if is_wider:
            self._widen(device, latest)
        replica_state.publish(self._runner, device, state)

    def _widen(self, device: Device, latest: ResyncRecord) -> None:
        """Have all of a replica sent that is no copy of any moment already.

        DRBD takes the order only without a connection. It is taken away on this side; the peer,
        which knows this replica as Inconsistent, goes on serving without a pause. Wherever this
        ends, the replica is connected again, and gets at least what differs.
        """
        kind = FAST
        try:
            # A resync that is held cannot end between the look and the act.
            drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=True)
            state = drbdsetup.observe(self._runner, device.name)
            if state is not None and plan.may_mark_all_out_of_sync(state):
                self._count(device.name).see(_received_kib(state))
                drbdadm.disconnect(self._runner, device.name)
                state = self._await_parting(device.name)
            if state is not None and plan.may_mark_all_while_disconnected(state):
                drbdsetup.invalidate(self._runner, device.minor)
                kind = FULL
        finally:
            _save(device, latest._replace(kind=kind, stage=RUNNING))
            drbdadm.adjust(self._runner, device.name)
            drbdsetup.set_resync_paused(self._runner, device.minor, is_paused=False)
        if kind == FAST:
            _say(device.name, "it was no resync target any more: only what differs is sent")

    def _await_parting(self, name: str) -> ResourceState | None:
        deadline = time.monotonic() + _PARTING_S
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
        count = self._count(device.name)
        count.see(_received_kib(state))
        count.forget()
        del self._counts[device.name]
        done = latest._replace(
            stage=DONE,
            ended_s=int(time.time()),
            received_kib=count.total_kib,
        )
        _save(device, done)
        _say(
            device.name,
            f"{done.kind} resync ended after {done.ended_s - done.began_s} s ({done.why}):"
            f" {done.changed_kib} KiB were marked, {done.received_kib} KiB came",
            step="end",
            duration_ms=1000 * (done.ended_s - done.began_s),
        )
        replica_state.publish(self._runner, device, state)

    def _tell(self, running: tuple[RunningSync, ...], now: float) -> None:
        """Tell the cluster how far everything is, if that is news."""
        text = format_running(running)
        told, at = self._told
        if text == told or (now - at < _TELL_EVERY_S and text and told):
            return
        with contextlib.suppress(SanctlError):
            node_attributes.publish_private(self._runner, RUNNING_ATTRIBUTE, text)
            self._told = (text, now)


def _save(device: Device, latest: ResyncRecord) -> None:
    path = parts.note_path(device, "sync")
    if path is not None:
        write_atomically(path, f"{latest}\n")


def _say(
    device: str,
    text: str,
    *,
    priority: int = journal.INFO,
    step: str = "",
    duration_ms: int | None = None,
) -> None:
    journal.write(
        f"{device}: {text}" if device else text,
        priority=priority,
        device=device,
        action="resync",
        step=step,
        duration_ms=duration_ms,
    )
