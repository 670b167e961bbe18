# SPDX-License-Identifier: GPL-2.0-or-later
"""Puts a replica into write-back or out of it, as plan.cache.allowed_mode says, and flushes.

Every replica decides by itself, from its own kernel's state; nothing here asks another node. The
order of the steps keeps data safe (docs/adr/0026):

* enter write-back: with three and more replicas require two of them (minimum_redundancy.py); marker
  on disk, dirty limit, buffered, no longer synchronous; then check again that two are in sync.
* leave write-back: synchronous, flush, direct; clear the requirement; clear the marker. Once
  `leave` has returned, nothing acknowledged is in RAM alone.

The steps are in write_cache_steps.py. Both ways under one lock, which DRBD's fence-peer handler
takes too.

An action ends the flush in time, and another one goes on from there (flush_time.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from sanctl.agents.cache import (
    dirty_limit,
    disk_flushes,
    flush_time,
    minimum_redundancy,
    write_cache_steps,
)
from sanctl.agents.cache.write_cache_steps import log
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import Device
from sanctl.drivers import drbdadm, drbdsetup, page_cache, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cache_policy import CacheMode, CachePolicy, parse_cache_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import (
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


def prepare_start(
    runner: Runner, device: Device, files: pool_files.DeviceFiles, *, is_protected: bool
) -> None:
    """Put a replica that is being started into a mode that needs no peer.

    A replica without metadata gets a full resync and has no data that could be lost. A flush that
    takes longer than there is time, as after a stop that could not end it either, fails no start:
    writes are synchronous, the marker stays, and monitors, or a promotion, go on with it.
    """
    write_cache_steps.note_power_protection(is_protected=is_protected)
    if not exists(files.metadata):
        lost_writes.clear_marker(device.name, files.data)
    with contextlib.suppress(page_cache.FlushUnfinished):
        apply_policy(runner, device, None)


def apply_policy(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Bring a replica into the mode that its policy and DRBD's state allow.

    Raises:
        FlushUnfinished: the flush that ends write-back takes longer; the next call goes on.
        SanctlError: the mode could not be changed, or a flush failed.
    """
    policy = wanted_policy(device)
    path = lost_writes.data_file(device.name)
    if path is None:
        return
    held = page_cache.observe(path)
    if held is None:
        return
    _log_unreadable(device)
    stays_stable = (
        policy.mode is CacheMode.WRITE_THROUGH and not write_cache_steps.is_power_protected()
    )
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
    with _locked(device.name, wait_s=0.0) as is_mine:
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
        write_cache_steps.refuse_failed_flush(runner, device.name, path)
    target = _allowed(policy, device.name, path, state)
    # In write-back without its marker, it would not be suspect after a loss of power.
    must_enter = held.mode is not CacheMode.WRITE_BACK or not is_marked
    if target is CacheMode.WRITE_BACK and (must_enter or minimum_redundancy.is_missing(state)):
        # Observed under the lock: if the peer is lost after this, the fence-peer handler waits for
        # the lock, and leaves write-back.
        state = minimum_redundancy.require_two_and_observe(runner, device.name)
        target = _allowed(policy, device.name, path, state)
    if target is CacheMode.WRITE_BACK:
        dirty_limit.set_limit(device.name, policy.dirty_bytes)
        if must_enter:
            write_cache_steps.enter(device.name, path)
            if not _in_sync(drbdsetup.observe(runner, device.name)):
                write_cache_steps.leave(
                    runner,
                    device.name,
                    path,
                    why=ModeReason.ONE_COPY,
                    within_s=flush_time.of_monitor(),
                )
        return
    if write_cache_steps.is_buffered_for_its_blocks(device.name, path, held, is_marked=is_marked):
        return
    if held.is_buffered or (is_marked and not lost_writes.is_suspect(device.name, path)):
        write_cache_steps.leave(
            runner,
            device.name,
            path,
            why=decide_mode(policy, device.name, path, state)[1],
            within_s=flush_time.of_monitor(),
        )
    elif not is_marked:
        minimum_redundancy.clear(runner, device.name)
    write_cache_steps.set_stable(device.name, path, target)


def leave_write_back(runner: Runner, name: str) -> None:
    """Leave write-back, whatever the policy: this replica may be the only one from now on.

    For every action that ends the connection to a peer on purpose.

    Raises:
        FlushUnfinished: the flush takes longer than there is time now; the caller tries again.
        CommandError: acknowledged writes could not be flushed; this replica must not serve.
    """
    _leave_if_marked(runner, name, lambda: False, flush_time.of_monitor())


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

    _leave_if_marked(runner, name, has_two, flush_time.of_action())


def leave_write_back_unless_in_sync(runner: Runner, name: str) -> None:
    """As `leave_write_back`, if no peer is in sync: before a node that was promoted serves.

    Raises:
        CommandError: see `leave_write_back`.
    """
    path = lost_writes.data_file(name)
    if path is None or not write_cache_steps.may_be_in_ram(path):
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
        write_cache_steps.refuse_suspect(name, path)
        write_cache_steps.refuse_failed_flush(runner, name, path)
    else:
        _leave_if_marked(runner, name, lambda: False, flush_time.of_promotion())


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


def _leave_if_marked(
    runner: Runner, name: str, may_stay: Callable[[], bool], within_s: float | None
) -> None:
    begun_s = time.monotonic()
    try:
        path = lost_writes.data_file(name)
        if path is None:
            return
        with _locked(name, wait_s=within_s) as is_mine:
            if not is_mine:
                raise page_cache.unfinished(f"{path} is still being flushed by another process")
            if write_cache_steps.may_be_in_ram(path) and not may_stay():
                write_cache_steps.refuse_suspect(name, path)
                left_s = None if within_s is None else begun_s + within_s - time.monotonic()
                write_cache_steps.leave(
                    runner, name, path, why=ModeReason.ONE_COPY, within_s=left_s
                )
    except OSError as error:
        raise CommandError(
            Problem("SAN-CACHE-001", f"{name}: {error.filename or ''}: {error.strerror}")
        ) from error


def before_stop(runner: Runner, device: Device) -> None:
    """Leave write-back before a stop, and make the peer flush before the peer goes on alone.

    DRBD calls no handler on a Primary whose peer disconnects in an orderly way. A Primary whose
    connection is cut freezes, and calls fence-peer, which leaves write-back before I/O goes on.
    """
    may_be = _may_be_write_back(device)
    if not may_be:
        return
    state = drbdsetup.observe(runner, device.name)
    # A stop that is out of time has the node fenced, and what is in RAM lost with it.
    within_s = flush_time.of_stop()
    try:
        _leave_if_marked(runner, device.name, lambda: False, within_s)
    except page_cache.FlushUnfinished as error:
        # The marker stays. Before the node has lost its RAM it makes no replica suspect: the file
        # has what is left as before, and the next start goes on.
        log(device.name, f"stopped while the kernel still writes: {error}", step="unflushed")
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
    may_be = _may_be_write_back(device)
    if must_cut_connection(state, may_be_write_back=may_be):
        drbdadm.force_disconnect(runner, device.name)
    else:
        drbdadm.disconnect(runner, device.name)


def after_stop(name: str) -> None:
    """Take a device that is stopped here out of the node's limit of dirty memory.

    An error is logged: the node would be fenced for a stop that fails, and other devices can do
    with a lower limit.
    """
    try:
        dirty_limit.set_limit(name, None)
    except (SanctlError, OSError) as error:
        log(name, f"the node's limit of dirty memory stays as it is: {error}", step="limit")


def wanted_policy(device: Device) -> CachePolicy:
    """Return a device's cache policy; one that cannot be read counts as write-through.

    A word that only a newer sanctl knows must keep no replica from being started, nor stopped. In
    write-through nothing that is acknowledged is in RAM alone, whatever the word asks for.
    """
    return _readable_policy(device) or CachePolicy(CacheMode.WRITE_THROUGH)


def is_readable(device: Device) -> bool:
    """Whether this release knows all of the device's cache policy."""
    return _readable_policy(device) is not None


def decide_mode(
    policy: CachePolicy, name: str, path: str, state: ResourceState | None
) -> tuple[CacheMode, ModeReason]:
    """Return the mode that a replica may be in now, and why that is not the wanted one."""
    return allowed_mode(
        policy.mode,
        state,
        is_suspect=lost_writes.is_suspect(name, path),
    )


def _allowed(policy: CachePolicy, name: str, path: str, state: ResourceState | None) -> CacheMode:
    return decide_mode(policy, name, path, state)[0]


def _in_sync(state: ResourceState | None) -> bool:
    return state is not None and are_two_replicas_in_sync(state)


def _disable_flushes(
    runner: Runner, device: Device, path: str, state: ResourceState | None
) -> None:
    held = page_cache.observe(path)
    if (
        held is None
        or not held.is_synchronous
        or not write_cache_steps.writes_stable(device.name).exists()
    ):
        return
    try:
        if disk_flushes.disable(runner, device, state):
            log(device.name, "each write is stable: DRBD's flushes are off", step="not-flushing")
    except (SanctlError, OSError) as error:
        log(device.name, f"DRBD goes on flushing: {error}", step="flushing")


def _readable_policy(device: Device) -> CachePolicy | None:
    try:
        return parse_cache_policy(device.cache)
    except ValueError:
        return None


def _log_unreadable(device: Device) -> None:
    """Log once that the policy cannot be read, as long as the device is up here."""
    if is_readable(device):
        return
    logged = state_files.of_device(device.name, "cache-unreadable")
    with contextlib.suppress(OSError):
        if logged.read() == device.cache:
            return
        logged.write(device.cache)
    log(
        device.name,
        f"SAN-CACHE-004: the cache policy {device.cache!r} is not known to the release of sanctl "
        "on this node, and counts as write-through: update sanctl here, or "
        f"'sanctl device cache {device.name}' with another one",
        step="policy",
    )


def _may_be_write_back(device: Device) -> bool:
    """Whether this replica, or its peer, may have acknowledged writes in RAM alone.

    Also where the policy cannot be read: a stop flushes then, and does not fail, as the node would
    be fenced for it.
    """
    policy = _readable_policy(device)
    return policy is None or policy.mode is CacheMode.WRITE_BACK or _may_be_marked(device.name)


def _may_be_marked(name: str) -> bool:
    """Whether acknowledged writes may be in RAM alone, or that cannot be looked at.

    A stop takes the safe way then: one that failed would have the node fenced.
    """
    path = lost_writes.data_file(name)
    try:
        return path is not None and write_cache_steps.may_be_in_ram(path)
    except OSError:
        return True


def _locked(name: str, *, wait_s: float | None = None) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's cache lock, if it is free in time; None: as long as it takes."""
    path = state_files.device_lock(name, "cache")
    return state_files.locked(path, wait_s=wait_s)
