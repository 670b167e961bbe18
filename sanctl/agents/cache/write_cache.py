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
import os
import time
from collections.abc import Callable

from sanctl.agents import ocf
from sanctl.agents.cache import dirty_limit, disk_flushes, minimum_redundancy
from sanctl.agents.replica import lost_writes
from sanctl.agents.replica.parts import RUNTIME, Device
from sanctl.drivers import drbd, page_cache, pool_files
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.model.cache_policy import Mode, Policy, parse_policy
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.allowed_mode import (
    SENTENCES,
    Reason,
    allowed,
    flushes,
    has_lost_writes,
    has_two_good,
    is_counted,
    must_cut,
    must_hold,
)
from sanctl.system import journal
from sanctl.system.files import exists, flocked
from sanctl.system.runner import Runner

_PROTECTED = "power-protected"


def begin(
    runner: Runner, device: Device, files: pool_files.DeviceFiles, *, is_protected: bool
) -> None:
    """Put a replica that is being started into a mode that needs no peer.

    A replica that is to get new metadata holds nothing that could be lost.
    """
    _note(_PROTECTED, is_set=is_protected)
    if not exists(files.metadata):
        lost_writes.clear(device.name, files.data)
    settle(runner, device, None)


def settle(runner: Runner, device: Device, state: ResourceState | None) -> None:
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
    stays_stable = policy.mode is Mode.WRITE_THROUGH and not is_protected()
    # Before the lock is taken, for which the fence-peer handler may wait: DRBD may take its time.
    # Also where writes are not stable any more, if DRBD is up: an adjust that was under way may
    # have taken what the file had said before.
    is_stale = state is not None and held.mode is Mode.NONE
    if not stays_stable and (held.is_synchronous or is_stale):
        state = disk_flushes.begin(runner, device, state)
        if held.is_synchronous and not flushes(state):
            tell(device.name, "DRBD does not flush its disk: each write stays stable", "flushing")
            return
    with _locked(device.name, wait=False) as is_mine:
        if not is_mine:
            return  # The fence-peer handler, or another monitor; the next one looks again.
        # Before: what follows may fail, where the disk has.
        if not must_hold(state, may_be_write_back=lost_writes.is_marked(path)):
            if (
                state is not None
                and state.is_primary
                and is_counted(state)
                and not state.has_quorum
            ):
                minimum_redundancy.release_anyway(runner, device.name)
            else:
                minimum_redundancy.release(runner, device.name)
        _settle(runner, device, state, policy, path)
    if stays_stable:
        _spare(runner, device, path, state)


def _settle(
    runner: Runner, device: Device, state: ResourceState | None, policy: Policy, path: str
) -> None:
    held = page_cache.observe(path)
    is_marked = lost_writes.is_marked(path)
    if held is None or (held.mode is policy.mode is Mode.NONE and not is_marked):
        return
    if held.mode is Mode.WRITE_BACK and has_lost_writes(state):
        _check(runner, device.name, path)
    target = _allowed(policy, device.name, path, state)
    if target is Mode.WRITE_BACK and (
        held.mode is not Mode.WRITE_BACK or minimum_redundancy.lacks_hold(state)
    ):
        # Seen under the lock: whoever loses the peer after this waits for it, and leaves.
        state = minimum_redundancy.observe_held(runner, device.name)
        target = _allowed(policy, device.name, path, state)
    if target is Mode.WRITE_BACK:
        dirty_limit.limit(device.name, policy.dirty_bytes)
        if held.mode is not Mode.WRITE_BACK:
            _enter(runner, device.name, path)
            if not _in_sync(drbd.observe(runner, device.name)):
                _leave(runner, device.name, path, why=Reason.ONE_COPY)
        return
    if held.is_buffered or (is_marked and not lost_writes.is_suspect(device.name, path)):
        _leave(runner, device.name, path, why=judge(policy, device.name, path, state)[1])
    elif not is_marked:
        minimum_redundancy.release(runner, device.name)
    _set_stable(device.name, path, target)


def secure(runner: Runner, name: str) -> None:
    """Leave write-back, whatever is wanted: this copy may be the only one from now on.

    For whatever ends the contact to a peer on purpose.

    Raises:
        CommandError: writes that were acknowledged could not be flushed; nobody may go on with
            this copy.
    """
    _secure(runner, name, lambda: False)


def secure_unless_two(runner: Runner, name: str) -> None:
    """As `secure`, unless another good copy is there: for DRBD's fence-peer handler.

    A Primary has to have the hold on already, as its I/O may not be frozen now. Of two copies the
    handler is called for the only peer.

    Raises:
        CommandError: see `secure`.
    """

    def has_two() -> bool:
        state = drbd.observe(runner, name)
        return (
            state is not None
            and is_counted(state)
            and (not state.is_primary or minimum_redundancy.is_held(name))
            and has_two_good(state)
        )

    _secure(runner, name, has_two)


def secure_unless_in_sync(runner: Runner, name: str) -> None:
    """As `secure`, if there is no peer in sync: before a node that was promoted serves.

    Raises:
        CommandError: see `secure`.
    """
    path = lost_writes.data_file(name)
    if path is None or not lost_writes.is_marked(path):
        return
    try:
        has_two = _in_sync(minimum_redundancy.observe_held(runner, name))
        if not has_two:
            # The gate is shut: nothing has to be held while this flushes.
            minimum_redundancy.release(runner, name)
    except SanctlError as error:
        has_two = False
        tell(name, f"it serves in write-through, as it could not be held: {error}", "held")
    if has_two:
        refuse_suspect(name, path)
        _check(runner, name, path)
    else:
        secure(runner, name)


def before_demotion(runner: Runner, name: str) -> None:
    """Let I/O go on that is held for want of two good copies: a gate does not close over it.

    The handler has done so where it was called and is alive. If this fails, closing the gate will.
    """
    if not minimum_redundancy.is_held(name):
        return
    try:
        secure_unless_two(runner, name)
    except SanctlError as error:
        tell(name, f"I/O stays held: {error}", "held")


def release_standby(runner: Runner, name: str) -> None:
    """Take off what holds a Primary's I/O: this node is none, and must not need two to be one.

    If that fails the next monitor does it.
    """
    try:
        minimum_redundancy.release(runner, name)
    except (SanctlError, OSError) as error:
        tell(name, f"it would still need two good copies to serve: {error}", "held")


def _secure(runner: Runner, name: str, may_stay: Callable[[], bool]) -> None:
    try:
        path = lost_writes.data_file(name)
        # Marked, not "in write-back": a process may have died on the way there, or back.
        if path is None:
            return
        with _locked(name):
            if lost_writes.is_marked(path) and not may_stay():
                refuse_suspect(name, path)
                _leave(runner, name, path, why=Reason.ONE_COPY)
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


def part(runner: Runner, device: Device) -> None:
    """Before a replica is stopped: make its peer flush before it goes on alone.

    DRBD calls no handler on a Primary that its peer takes leave of. One whose connection is cut
    freezes, and calls fence-peer, which leaves write-back before I/O goes on.
    """
    may_be = _is_marked(device.name) or wanted_policy(device).mode is Mode.WRITE_BACK
    if not may_be:
        return
    state = drbd.observe(runner, device.name)
    try:
        secure(runner, device.name)
    except SanctlError as error:
        # The marker stays, and tells the next start what this replica is worth.
        tell(device.name, f"stopped with writes lost: {error}", "lost")
    if not must_cut(state, may_be_write_back=may_be):
        return
    try:
        drbd.cut(runner, device.name)
    except SanctlError as error:
        # It is stopped all the same: its peer's monitor ends write-back, some seconds later.
        tell(device.name, f"the peer may stay in write-back for a moment: {error}", "cut")


def take_leave(runner: Runner, device: Device, state: ResourceState) -> None:
    """End the contact of a standby that is to come back: so that its Primary flushes before.

    Raises:
        CommandError: the contact did not end.
    """
    may_be = _is_marked(device.name) or wanted_policy(device).mode is Mode.WRITE_BACK
    if must_cut(state, may_be_write_back=may_be):
        drbd.cut(runner, device.name)
    else:
        drbd.disconnect(runner, device.name)


def end(name: str) -> None:
    """Drop what is kept on tmpfs of a device that is stopped here."""
    dirty_limit.limit(name, None)
    _note(f"stable-{name}", is_set=False)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{RUNTIME}/cache-{name}.lock")


def wanted_policy(device: Device) -> Policy:
    """Return what is wanted of a device's cache.

    Raises:
        CommandError: it does not read.
    """
    try:
        return parse_policy(device.cache)
    except ValueError as error:
        raise CommandError(Problem("SAN-CACHE-004", f"{device.name}: {error}")) from error


def judge(policy: Policy, name: str, path: str, state: ResourceState | None) -> tuple[Mode, Reason]:
    """Return the mode that a replica may be in now, and why it is not the wanted one."""
    return allowed(
        policy.mode,
        state,
        is_suspect=lost_writes.is_suspect(name, path),
    )


def is_protected() -> bool:
    """Whether a battery keeps what is in this node's disks' own caches."""
    return _is_noted(_PROTECTED)


def _allowed(policy: Policy, name: str, path: str, state: ResourceState | None) -> Mode:
    return judge(policy, name, path, state)[0]


def _in_sync(state: ResourceState | None) -> bool:
    return state is not None and has_two_good(state)


def _check(runner: Runner, name: str, path: str) -> None:
    """Find out whether DRBD has met a flush that failed; such a replica counts as lost.

    Asked of DRBD now: one that failed since somebody looked would be told by nobody else.
    """
    # Said once: what is known to be lost is to get out of write-back and be replaced.
    if not lost_writes.is_suspect(name, path) and has_lost_writes(drbd.observe(runner, name)):
        lost_writes.note_failure(name)
        refuse_suspect(name)


def _enter(runner: Runner, name: str, path: str) -> None:
    begun = time.monotonic()
    lost_writes.mark(path)
    page_cache.set_buffered(runner, path, on=True)
    _note(f"stable-{name}", is_set=False)
    page_cache.set_synchronous(path, on=False)
    ocf.stop_here_if_asked("cache-entered")
    tell(name, "write-back: two copies are in sync", Mode.WRITE_BACK.value, begun)


def _leave(runner: Runner, name: str, path: str, *, why: Reason) -> None:
    begun = time.monotonic()
    used = page_cache.usage(path)
    page_cache.set_synchronous(path, on=True)
    ocf.stop_here_if_asked("cache-synchronous")
    try:
        page_cache.flush(path)
    except CommandError:
        lost_writes.note_failure(name)
        raise
    dirty_limit.note_rate(used, time.monotonic() - begun)
    # The kernel tells a failed flush once, to who asks first: if that was DRBD, this one succeeds.
    _check(runner, name, path)
    ocf.stop_here_if_asked("cache-flushed")
    _note(f"stable-{name}", is_set=True)
    page_cache.set_buffered(runner, path, on=False)
    dirty_limit.limit(name, None)
    # A flush that succeeds after one that failed proves nothing: I/O stays held.
    if not lost_writes.is_suspect(name, path):
        # Before the marker: whoever dies here is followed by one that leaves again.
        minimum_redundancy.release(runner, name)
        lost_writes.clear(name, path)
    amount = "" if used is None else f" ({used.dirty} bytes)"
    reason = f": {SENTENCES[why]}" if why in SENTENCES else ""
    tell(
        name,
        f"write-through: all that was in RAM is on the disk{amount}{reason}",
        Mode.WRITE_THROUGH.value,
        begun,
    )


def _set_stable(name: str, path: str, target: Mode) -> None:
    """Make writes synchronous, or no longer, where nothing is held back in RAM."""
    wanted = target is Mode.WRITE_THROUGH and not is_protected()
    held, note = page_cache.observe(path), f"stable-{name}"
    if held is None or (held.is_synchronous == wanted and (not wanted or _is_noted(note))):
        return
    if not wanted and held.is_buffered:
        return  # The kernel refuses direct I/O here: synchronous is all that keeps it safe.
    _note(note, is_set=False)
    page_cache.set_synchronous(path, on=wanted)
    if wanted:
        # What was written before is to be as stable as what follows, also what is under way.
        page_cache.drain(path)
        page_cache.flush(path)
        # Noted, because whoever dies before this has to be followed by one that flushes.
        _note(note, is_set=True)
    tell(name, f"{target.value}", target.value)


def _spare(runner: Runner, device: Device, path: str, state: ResourceState | None) -> None:
    held = page_cache.observe(path)
    if held is None or not held.is_synchronous or not _is_noted(f"stable-{device.name}"):
        return
    try:
        if disk_flushes.cease(runner, device, state):
            tell(device.name, "each write is stable, so DRBD flushes no more", "not-flushing")
    except SanctlError as error:
        tell(device.name, f"DRBD goes on flushing: {error}", "flushing")


def _is_marked(name: str) -> bool:
    path = lost_writes.data_file(name)
    return path is not None and lost_writes.is_marked(path)


def _is_noted(name: str) -> bool:
    return exists(f"{RUNTIME}/{name}")


def _note(name: str, *, is_set: bool) -> None:
    path = f"{RUNTIME}/{name}"
    if is_set:
        with open(path, "w", encoding="utf-8"):
            pass
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _locked(name: str, *, wait: bool = True) -> contextlib.AbstractContextManager[bool]:
    """Hold the device's cache lock; without `wait` only if nobody else does."""
    return flocked(f"{RUNTIME}/cache-{name}.lock", wait=wait)


def tell(name: str, text: str, step: str, begun: float | None = None) -> None:
    """Write to the journal what happened to a device's cache."""
    journal.write(
        f"{name}: cache: {text}",
        priority=journal.NOTICE,
        device=name,
        action="cache",
        step=step,
        duration_ms=None if begun is None else round((time.monotonic() - begun) * 1000),
    )
