# SPDX-License-Identifier: GPL-2.0-or-later
"""A replica's write cache in RAM: entered when two copies are in sync, left before one is alone.

Every replica decides by itself, from what its own kernel says; nothing here asks another node.
The orders that keep data safe (docs/adr/0026):

* enter: with three and more copies the hold (sanctl/agents/cache/minimum_redundancy.py); marker on
  disk, limit,
  buffered, no longer synchronous; then look again whether the copies are still in sync.
* leave: synchronous, flush, direct; hold off; marker off. Once `leave` has returned, nothing
  acknowledged is in RAM alone.

Both under one lock, which DRBD's fence-peer handler takes too.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from sanctl.agents import ocf
from sanctl.agents.cache import dirty_limit, disk_flushes, minimum_redundancy
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
from sanctl.system import journal, state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner


def prepare_start(
    runner: Runner, device: Device, files: pool_files.DeviceFiles, *, is_protected: bool
) -> None:
    """Put a replica that is being started into a mode that needs no peer.

    A replica that is to get new metadata holds nothing that could be lost.
    """
    _set(_power_protected(), is_set=is_protected)
    if not exists(files.metadata):
        lost_writes.clear_marker(device.name, files.data)
    apply_policy(runner, device, None)


def apply_policy(runner: Runner, device: Device, state: ResourceState | None) -> None:
    """Bring a replica into the mode that its policy and DRBD's state allow.

    Raises:
        SanctlError: it could not be done, or a flush failed.
    """
    policy = wanted_policy(device)
    path = lost_writes.data_file(device.name)
    if path is None:
        return
    held = page_cache.observe(path)
    if held is None:
        return
    stays_stable = policy.mode is CacheMode.WRITE_THROUGH and not is_power_protected()
    # Before the lock is taken, for which the fence-peer handler may wait: DRBD may take its time.
    # Also where writes are not stable any more, if DRBD is up: an adjust that was under way may
    # have taken what the file had said before.
    is_stale = state is not None and held.mode is CacheMode.NONE
    if not stays_stable and (held.is_synchronous or is_stale):
        state = disk_flushes.enable(runner, device, state)
        if held.is_synchronous and not is_ordered_by_flush(state):
            log(device.name, "DRBD does not flush its disk: each write stays stable", "flushing")
            return
    with _locked(device.name, wait=False) as is_mine:
        if not is_mine:
            return  # The fence-peer handler, or another monitor; the next one looks again.
        # Before: what follows may fail, where the disk has.
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
        _settle(runner, device, state, policy, path)
    if stays_stable:
        _spare(runner, device, path, state)


def _settle(
    runner: Runner, device: Device, state: ResourceState | None, policy: CachePolicy, path: str
) -> None:
    held = page_cache.observe(path)
    is_marked = lost_writes.has_marker(path)
    if held is None or (held.mode is policy.mode is CacheMode.NONE and not is_marked):
        return
    if held.mode is CacheMode.WRITE_BACK and has_flush_failed(state):
        _check(runner, device.name, path)
    target = _allowed(policy, device.name, path, state)
    if target is CacheMode.WRITE_BACK and (
        held.mode is not CacheMode.WRITE_BACK or minimum_redundancy.is_missing(state)
    ):
        # Seen under the lock: whoever loses the peer after this waits for it, and leaves.
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
    """Leave write-back, whatever is wanted: this copy may be the only one from now on.

    For whatever ends the contact to a peer on purpose.

    Raises:
        CommandError: writes that were acknowledged could not be flushed; nobody may go on with
            this copy.
    """
    _secure(runner, name, lambda: False)


def leave_write_back_unless_two(runner: Runner, name: str) -> None:
    """As `secure`, unless another good copy is there: for DRBD's fence-peer handler.

    A Primary has to have the hold on already, as its I/O may not be frozen now. Of two copies the
    handler is called for the only peer.

    Raises:
        CommandError: see `secure`.
    """

    def has_two() -> bool:
        state = drbdsetup.observe(runner, name)
        return (
            state is not None
            and is_drbd_quorum_used(state)
            and (not state.is_primary or minimum_redundancy.is_required(name))
            and are_two_replicas_in_sync(state)
        )

    _secure(runner, name, has_two)


def leave_write_back_unless_in_sync(runner: Runner, name: str) -> None:
    """As `secure`, if there is no peer in sync: before a node that was promoted serves.

    Raises:
        CommandError: see `secure`.
    """
    path = lost_writes.data_file(name)
    if path is None or not lost_writes.has_marker(path):
        return
    try:
        has_two = _in_sync(minimum_redundancy.require_two_and_observe(runner, name))
        if not has_two:
            # The gate is shut: nothing has to be held while this flushes.
            minimum_redundancy.clear(runner, name)
    except SanctlError as error:
        has_two = False
        log(name, f"it serves in write-through, as it could not be held: {error}", "held")
    if has_two:
        refuse_suspect(name, path)
        _check(runner, name, path)
    else:
        leave_write_back(runner, name)


def resume_io_before_demotion(runner: Runner, name: str) -> None:
    """Let I/O go on that is held for want of two good copies: a gate does not close over it.

    The handler has done so where it was called and is alive. If this fails, closing the gate will.
    """
    if not minimum_redundancy.is_required(name):
        return
    try:
        leave_write_back_unless_two(runner, name)
    except SanctlError as error:
        log(name, f"I/O stays held: {error}", "held")


def clear_minimum_redundancy(runner: Runner, name: str) -> None:
    """Take off what holds a Primary's I/O: this node is none, and must not need two to be one.

    If that fails the next monitor does it.
    """
    try:
        minimum_redundancy.clear(runner, name)
    except (SanctlError, OSError) as error:
        log(name, f"it would still need two good copies to serve: {error}", "held")


def _secure(runner: Runner, name: str, may_stay: Callable[[], bool]) -> None:
    try:
        path = lost_writes.data_file(name)
        # Marked, not "in write-back": a process may have died on the way there, or back.
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
        CommandError: it has.
    """
    if lost_writes.is_suspect(name, path or lost_writes.data_file(name)):
        raise CommandError(
            Problem(
                "SAN-CACHE-003",
                f"{name}: this replica lost writes that it had acknowledged; it must not serve",
                f"its peer serves and fills it; if no copy may: 'sanctl device heal {name}'",
            )
        )


def before_stop(runner: Runner, device: Device) -> None:
    """Before a replica is stopped: make its peer flush before it goes on alone.

    DRBD calls no handler on a Primary that its peer takes leave of. One whose connection is cut
    freezes, and calls fence-peer, which leaves write-back before I/O goes on.
    """
    may_be = _may_be_marked(device.name) or wanted_policy(device).mode is CacheMode.WRITE_BACK
    if not may_be:
        return
    state = drbdsetup.observe(runner, device.name)
    try:
        leave_write_back(runner, device.name)
    except SanctlError as error:
        # The marker stays, and tells the next start what this replica is worth.
        log(device.name, f"stopped with writes lost: {error}", "lost")
    if not must_cut_connection(state, may_be_write_back=may_be):
        return
    try:
        drbdadm.force_disconnect(runner, device.name)
    except SanctlError as error:
        # It is stopped all the same: its peer's monitor ends write-back, some seconds later.
        log(device.name, f"the peer may stay in write-back for a moment: {error}", "cut")


def disconnect_standby(runner: Runner, device: Device, state: ResourceState) -> None:
    """End the contact of a standby that is to come back: so that its Primary flushes before.

    Raises:
        CommandError: the contact did not end.
    """
    may_be = _may_be_marked(device.name) or wanted_policy(device).mode is CacheMode.WRITE_BACK
    if must_cut_connection(state, may_be_write_back=may_be):
        drbdadm.force_disconnect(runner, device.name)
    else:
        drbdadm.disconnect(runner, device.name)


def after_stop(name: str) -> None:
    """Take a device that is stopped here out of the node's limit for dirty memory."""
    dirty_limit.set_limit(name, None)


def wanted_policy(device: Device) -> CachePolicy:
    """Return what is wanted of a device's cache.

    Raises:
        CommandError: it does not read.
    """
    try:
        return parse_cache_policy(device.cache)
    except ValueError as error:
        raise CommandError(Problem("SAN-CACHE-004", f"{device.name}: {error}")) from error


def decide_mode(
    policy: CachePolicy, name: str, path: str, state: ResourceState | None
) -> tuple[CacheMode, ModeReason]:
    """Return the mode that a replica may be in now, and why it is not the wanted one."""
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


def _check(runner: Runner, name: str, path: str) -> None:
    """Find out whether DRBD has met a flush that failed; such a replica counts as lost.

    Asked of DRBD now: one that failed since somebody looked would be told by nobody else.
    """
    # Said once: what is known to be lost is to get out of write-back and be replaced.
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
    log(name, "write-back: two copies are in sync", CacheMode.WRITE_BACK.value, begun)


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
    # The kernel tells a failed flush once, to who asks first: if that was DRBD, this one succeeds.
    _check(runner, name, path)
    ocf.crash_point("cache-flushed")
    _writes_stable(name).write()
    page_cache.set_buffered(runner, path, on=False)
    dirty_limit.set_limit(name, None)
    # A flush that succeeds after one that failed proves nothing: I/O stays held.
    if not lost_writes.is_suspect(name, path):
        # Before the marker: whoever dies here is followed by one that leaves again.
        minimum_redundancy.clear(runner, name)
        lost_writes.clear_marker(name, path)
    amount = "" if used is None else f" ({used.dirty_bytes} bytes)"
    reason = f": {MODE_REASON_TEXTS[why]}" if why in MODE_REASON_TEXTS else ""
    log(
        name,
        f"write-through: all that was in RAM is on the disk{amount}{reason}",
        CacheMode.WRITE_THROUGH.value,
        begun,
    )


def _set_stable(name: str, path: str, target: CacheMode) -> None:
    """Make writes synchronous, or no longer, where nothing is held back in RAM."""
    wanted = target is CacheMode.WRITE_THROUGH and not is_power_protected()
    held, note = page_cache.observe(path), _writes_stable(name)
    if held is None or (held.is_synchronous == wanted and (not wanted or note.exists())):
        return
    if not wanted and held.is_buffered:
        return  # The kernel refuses direct I/O here: synchronous is all that keeps it safe.
    note.remove()
    page_cache.set_synchronous(path, on=wanted)
    if wanted:
        # What was written before is to be as stable as what follows, also what is under way.
        page_cache.drain(path)
        page_cache.flush(path)
        # Noted, because whoever dies before this has to be followed by one that flushes.
        note.write()
    log(name, f"{target.value}", target.value)


def _spare(runner: Runner, device: Device, path: str, state: ResourceState | None) -> None:
    held = page_cache.observe(path)
    if held is None or not held.is_synchronous or not _writes_stable(device.name).exists():
        return
    try:
        if disk_flushes.disable(runner, device, state):
            log(device.name, "each write is stable, so DRBD flushes no more", "not-flushing")
    except SanctlError as error:
        log(device.name, f"DRBD goes on flushing: {error}", "flushing")


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
    """There while all that was acknowledged is on the disk, and each write is stable by itself."""
    return state_files.of_device(name, "writes-stable")


def _set(note: state_files.StateFile, *, is_set: bool) -> None:
    if is_set:
        note.write()
    else:
        note.remove()


def _locked(name: str, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's cache lock; without `wait` only if nobody else does."""
    path = state_files.device_lock(name, "cache")
    return state_files.locked(path, wait_s=None if wait else 0.0)


def log(name: str, text: str, step: str, begun: float | None = None) -> None:
    """Write to the journal what happened to a device's cache."""
    journal.write(
        f"{name}: cache: {text}",
        priority=journal.NOTICE,
        device=name,
        action="cache",
        step=step,
        duration_ms=None if begun is None else round((time.monotonic() - begun) * 1000),
    )
