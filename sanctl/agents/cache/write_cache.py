# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts a replica into write-back or out of it, as plan.cache.allowed_mode says, and flushes.

Every replica decides by itself, from its own kernel's state; nothing here asks another node. The
order of the steps keeps data safe (docs/adr/0026):

* enter write-back: with three and more replicas require two of them (minimum_redundancy.py); marker
  on disk, dirty limit, buffered, no longer synchronous; then check again that two are in sync.
* leave write-back: synchronous, flush, direct; clear the requirement; clear the marker. Once
  `_leave` has returned, nothing acknowledged is in RAM alone.

Both under one lock, which DRBD's fence-peer handler takes too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from sanctl.agents import ocf
from sanctl.agents.cache import dirty_limit, disk_flushes, minimum_redundancy
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, page_cache, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cache_policy import CacheMode, CachePolicy, parse_cache_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import (
    MODE_REASON_TEXTS,
    ModeReason,
    allowed_mode,
    are_two_replicas_in_sync,
    has_flush_failed,
    is_drbd_quorum_used,
    is_ordered_by_flush,
    must_cut_connection,
    must_require_two_replicas,
)
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

log = DeviceLog("cache", about="cache")


def prepare_start(
    runner: Runner, device: Device, files: pool_files.DeviceFiles, *, is_protected: bool
) -> None:
    """Put a replica that is being started into a mode that needs no peer.

    A replica without metadata gets a full resync and has no data that could be lost.
    """
    _set_note(_power_protected(), is_set=is_protected)
    if not exists(files.metadata):
        lost_writes.clear_marker(device.name, files.data)
    apply_policy(runner, device, None)


def apply_policy(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Bring a replica into the mode that its policy and DRBD's state allow.

    Raises:
        SanctlError: the mode could not be changed, or a flush failed.
    """
    policy = wanted_policy(device)
    path = lost_writes.data_file(device.name)
    if path is None:
        return
    held = page_cache.observe(path)
    if held is None:
        return
    stays_stable = policy.mode is CacheMode.WRITE_THROUGH and not is_power_protected()
    # Before the lock is taken, for which the fence-peer handler may wait: DRBD may be slow.
    # Also where writes are not stable any more, if DRBD is up: a `drbdadm adjust` that was running
    # may have applied the file's old text.
    is_stale = state is not None and held.mode is CacheMode.NONE
    if not stays_stable and (held.is_synchronous or is_stale):
        state = disk_flushes.enable(runner, device, state)
        if held.is_synchronous and not is_ordered_by_flush(state):
            log(
                device.name,
                "DRBD does not flush its disk: each write stays stable",
                step="flushing",
            )
            return
    with _locked(device.name, wait=False) as is_mine:
        if not is_mine:
            return  # The fence-peer handler or another monitor has it; the next monitor retries.
        # First: the steps that follow may fail where the disk has failed.
        if not must_require_two_replicas(state, may_be_write_back=lost_writes.has_marker(path)):
            if (
                state is not None
                and state.is_primary
                and is_drbd_quorum_used(state)
                and not state.has_quorum
            ):
                minimum_redundancy.force_clear(runner, device.name)
            else:
                minimum_redundancy.clear(runner, device.name)
        _apply_mode(runner, device, state, policy, path)
    if stays_stable:
        _disable_flushes(runner, device, path, state)


def _apply_mode(
    runner: Runner, device: Device, state: ResourceState | None, policy: CachePolicy, path: str
) -> None:
    held = page_cache.observe(path)
    is_marked = lost_writes.has_marker(path)
    if held is None or (held.mode is policy.mode is CacheMode.NONE and not is_marked):
        return
    if held.mode is CacheMode.WRITE_BACK and has_flush_failed(state):
        _refuse_failed_flush(runner, device.name, path)
    target = _allowed(policy, device.name, path, state)
    if target is CacheMode.WRITE_BACK and (
        held.mode is not CacheMode.WRITE_BACK or minimum_redundancy.is_missing(state)
    ):
        # Observed under the lock: if the peer is lost after this, the fence-peer handler waits for
        # the lock, and leaves write-back.
        state = minimum_redundancy.require_two_and_observe(runner, device.name)
        target = _allowed(policy, device.name, path, state)
    if target is CacheMode.WRITE_BACK:
        dirty_limit.set_limit(device.name, policy.dirty_bytes)
        if held.mode is not CacheMode.WRITE_BACK:
            _enter(runner, device.name, path)
            if not _in_sync(drbdsetup.observe(runner, device.name)):
                _leave(runner, device.name, path, why=ModeReason.ONE_COPY)
        return
    if held.is_buffered or (is_marked and not lost_writes.is_suspect(device.name, path)):
        _leave(runner, device.name, path, why=decide_mode(policy, device.name, path, state)[1])
    elif not is_marked:
        minimum_redundancy.clear(runner, device.name)
    _set_stable(device.name, path, target)


def leave_write_back(runner: Runner, name: str) -> None:
    """Leave write-back, whatever the policy: this replica may be the only one from now on.

    For every action that ends the connection to a peer on purpose.

    Raises:
        CommandError: acknowledged writes could not be flushed; this replica must not serve.
    """
    _leave_if_marked(runner, name, lambda: False)


def leave_write_back_unless_two(runner: Runner, name: str) -> None:
    """As `leave_write_back`, unless another replica is in sync: for DRBD's fence-peer handler.

    A Primary has to have the requirement of two replicas already, as its I/O may not be frozen now.
    With two replicas the handler is called for the only peer.

    Raises:
        CommandError: see `leave_write_back`.
    """

    def has_two() -> bool:
        state = drbdsetup.observe(runner, name)
        return (
            state is not None
            and is_drbd_quorum_used(state)
            and (not state.is_primary or minimum_redundancy.is_required(name))
            and are_two_replicas_in_sync(state)
        )

    _leave_if_marked(runner, name, has_two)


def leave_write_back_unless_in_sync(runner: Runner, name: str) -> None:
    """As `leave_write_back`, if no peer is in sync: before a node that was promoted serves.

    Raises:
        CommandError: see `leave_write_back`.
    """
    path = lost_writes.data_file(name)
    if path is None or not lost_writes.has_marker(path):
        return
    try:
        has_two = _in_sync(minimum_redundancy.require_two_and_observe(runner, name))
        if not has_two:
            # The gate is closed: no I/O comes, so none has to be frozen during the flush.
            minimum_redundancy.clear(runner, name)
    except (SanctlError, OSError) as error:
        has_two = False
        log(name, f"write-through, as two replicas could not be required: {error}", step="held")
    if has_two:
        refuse_suspect(name, path)
        _refuse_failed_flush(runner, name, path)
    else:
        leave_write_back(runner, name)


def resume_io_before_demotion(runner: Runner, name: str) -> None:
    """Resume I/O that minimum redundancy has frozen: the gate cannot close while I/O is in flight.

    The fence-peer handler has done so, unless it was not called or was killed. An error is logged:
    closing the gate then fails.
    """
    if not minimum_redundancy.is_required(name):
        return
    try:
        leave_write_back_unless_two(runner, name)
    except (SanctlError, OSError) as error:
        log(name, f"I/O stays frozen: {error}", step="held")


def clear_minimum_redundancy(runner: Runner, name: str) -> None:
    """Clear the requirement on a node that is not Primary: it must not need two to become Primary.

    An error is logged, and the next monitor tries again.
    """
    try:
        minimum_redundancy.clear(runner, name)
    except (SanctlError, OSError) as error:
        log(name, f"it still requires two replicas to serve: {error}", step="held")


def _leave_if_marked(runner: Runner, name: str, may_stay: Callable[[], bool]) -> None:
    try:
        path = lost_writes.data_file(name)
        # The marker counts, not the mode: a process may have been killed while entering or leaving.
        if path is None:
            return
        with _locked(name):
            if lost_writes.has_marker(path) and not may_stay():
                refuse_suspect(name, path)
                _leave(runner, name, path, why=ModeReason.ONE_COPY)
    except OSError as error:
        raise CommandError(
            Problem("SAN-CACHE-001", f"{name}: {error.filename or ''}: {error.strerror}")
        ) from error


def refuse_suspect(name: str, path: str | None = None) -> None:
    """Refuse to go on with a replica that has lost acknowledged writes.

    Raises:
        CommandError: it has lost some.
    """
    if lost_writes.is_suspect(name, path or lost_writes.data_file(name)):
        raise CommandError(
            Problem(
                "SAN-CACHE-003",
                f"{name}: this replica lost writes that it had acknowledged; it must not serve",
                f"its peer serves and resyncs it; if none may serve: 'sanctl device heal {name}'",
            )
        )


def before_stop(runner: Runner, device: Device) -> None:
    """Leave write-back before a stop, and make the peer flush before the peer goes on alone.

    DRBD calls no handler on a Primary whose peer disconnects in an orderly way. A Primary whose
    connection is cut freezes, and calls fence-peer, which leaves write-back before I/O goes on.
    """
    may_be = _may_be_marked(device.name) or wanted_policy(device).mode is CacheMode.WRITE_BACK
    if not may_be:
        return
    state = drbdsetup.observe(runner, device.name)
    try:
        leave_write_back(runner, device.name)
    except (SanctlError, OSError) as error:
        # The marker stays, so that the next start takes this replica for suspect.
        log(device.name, f"stopped, and acknowledged writes are lost: {error}", step="lost")
    if not must_cut_connection(state, may_be_write_back=may_be):
        return
    try:
        drbdadm.force_disconnect(runner, device.name)
    except (SanctlError, OSError) as error:
        # The stop goes on: the peer's monitor leaves write-back some seconds later.
        log(device.name, f"the peer may stay in write-back for a moment: {error}", step="cut")


def disconnect_standby(runner: Runner, device: Device, state: ResourceState) -> None:
    """Disconnect a standby that will reconnect, so that its Primary flushes before it goes on.

    Raises:
        CommandError: the connection did not end.
    """
    may_be = _may_be_marked(device.name) or wanted_policy(device).mode is CacheMode.WRITE_BACK
    if must_cut_connection(state, may_be_write_back=may_be):
        drbdadm.force_disconnect(runner, device.name)
    else:
        drbdadm.disconnect(runner, device.name)


def after_stop(name: str) -> None:
    """Take a device that is stopped here out of the node's limit of dirty memory."""
    dirty_limit.set_limit(name, None)


def wanted_policy(device: Device) -> CachePolicy:
    """Return a device's cache policy.

    Raises:
        CommandError: the policy cannot be parsed.
    """
    try:
        return parse_cache_policy(device.cache)
    except ValueError as error:
        raise CommandError(Problem("SAN-CACHE-004", f"{device.name}: {error}")) from error


def decide_mode(
    policy: CachePolicy, name: str, path: str, state: ResourceState | None
) -> tuple[CacheMode, ModeReason]:
    """Return the mode that a replica may be in now, and why that is not the wanted one."""
    return allowed_mode(
        policy.mode,
        state,
        is_suspect=lost_writes.is_suspect(name, path),
    )


def is_power_protected() -> bool:
    """Whether a battery keeps what is in this node's disks' own caches."""
    return _power_protected().exists()


def _allowed(policy: CachePolicy, name: str, path: str, state: ResourceState | None) -> CacheMode:
    return decide_mode(policy, name, path, state)[0]


def _in_sync(state: ResourceState | None) -> bool:
    return state is not None and are_two_replicas_in_sync(state)


def _refuse_failed_flush(runner: Runner, name: str, path: str) -> None:
    """Refuse a replica if DRBD has met a failed flush; the replica is suspect from then on.

    DRBD is asked now: no other place reports a flush that failed since DRBD was last observed.
    """
    # Only once: a replica that is known to be suspect has to leave write-back and be resynced.
    if not lost_writes.is_suspect(name, path) and has_flush_failed(drbdsetup.observe(runner, name)):
        lost_writes.record_failed_flush(name)
        refuse_suspect(name)


def _enter(runner: Runner, name: str, path: str) -> None:
    begun = time.monotonic()
    lost_writes.set_marker(path)
    page_cache.set_buffered(runner, path, on=True)
    _writes_stable(name).remove()
    page_cache.set_synchronous(path, on=False)
    ocf.crash_point("cache-entered")
    log(
        name,
        "write-back: two replicas are in sync",
        step=CacheMode.WRITE_BACK.value,
        duration_s=time.monotonic() - begun,
    )


def _leave(runner: Runner, name: str, path: str, *, why: ModeReason) -> None:
    begun = time.monotonic()
    used = page_cache.usage(path)
    page_cache.set_synchronous(path, on=True)
    ocf.crash_point("cache-synchronous")
    try:
        page_cache.flush(path)
    except CommandError:
        lost_writes.record_failed_flush(name)
        raise
    dirty_limit.record_flush_rate(used, time.monotonic() - begun)
    # The kernel reports a failed flush once, to the first caller: if that was DRBD, the flush above
    # has succeeded.
    _refuse_failed_flush(runner, name, path)
    ocf.crash_point("cache-flushed")
    with contextlib.suppress(OSError):
        # Without room for it the next monitor flushes again: that I/O goes on must not wait.
        _writes_stable(name).write()
    page_cache.set_buffered(runner, path, on=False)
    dirty_limit.set_limit(name, None)
    # A flush that succeeds after one that failed proves nothing: I/O stays frozen.
    if not lost_writes.is_suspect(name, path):
        # Before the marker: after a kill here the next monitor leaves write-back again.
        minimum_redundancy.clear(runner, name)
        lost_writes.clear_marker(name, path)
    amount = "" if used is None else f" ({used.dirty_bytes} bytes)"
    reason = f": {MODE_REASON_TEXTS[why]}" if why in MODE_REASON_TEXTS else ""
    log(
        name,
        f"write-through: all that was in RAM is on the disk{amount}{reason}",
        step=CacheMode.WRITE_THROUGH.value,
        duration_s=time.monotonic() - begun,
    )


def _set_stable(name: str, path: str, target: CacheMode) -> None:
    """Make writes synchronous, or no longer, where the replica is not in write-back."""
    wanted = target is CacheMode.WRITE_THROUGH and not is_power_protected()
    held, note = page_cache.observe(path), _writes_stable(name)
    if held is None or (held.is_synchronous == wanted and (not wanted or note.exists())):
        return
    if not wanted and held.is_buffered:
        return  # The kernel refuses direct I/O here: synchronous is all that keeps it safe.
    note.remove()
    page_cache.set_synchronous(path, on=wanted)
    if wanted:
        # Earlier writes have to be as stable as later ones, also those in flight.
        page_cache.drain(path)
        page_cache.flush(path)
        # Last: after a kill before this the next monitor flushes.
        note.write()
    log(name, target.value, step=target.value)


def _disable_flushes(
    runner: Runner, device: Device, path: str, state: ResourceState | None
) -> None:
    held = page_cache.observe(path)
    if held is None or not held.is_synchronous or not _writes_stable(device.name).exists():
        return
    try:
        if disk_flushes.disable(runner, device, state):
            log(device.name, "each write is stable: DRBD's flushes are off", step="not-flushing")
    except (SanctlError, OSError) as error:
        log(device.name, f"DRBD goes on flushing: {error}", step="flushing")


def _may_be_marked(name: str) -> bool:
    """Whether a marker lies beside the data, or cannot be looked at.

    A stop takes the safe way then: one that failed would have the node fenced.
    """
    path = lost_writes.data_file(name)
    try:
        return path is not None and lost_writes.has_marker(path)
    except OSError:
        return True


def _power_protected() -> state_files.StateFile:
    return state_files.of_node("power-protected")


def _writes_stable(name: str) -> state_files.StateFile:
    """Exists while all acknowledged writes are on the disk and each further write is stable."""
    return state_files.of_device(name, "writes-stable")


def _set_note(note: state_files.StateFile, *, is_set: bool) -> None:
    if is_set:
        note.write()
    else:
        note.remove()


def _locked(name: str, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's cache lock; without `wait` only if it is free."""
    path = state_files.device_lock(name, "cache")
    return state_files.locked(path, wait_s=None if wait else 0.0)
