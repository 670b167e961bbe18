# SPDX-License-Identifier: GPL-2.0-or-later
"""The steps into write-back and out of it, in the order that keeps data safe (docs/adr/0026).

When each is due is in sanctl/agents/cache/write_cache.py, which calls them under the device's lock.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents import ocf
from sanctl.agents.cache import dirty_limit, minimum_redundancy
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.errors import CommandError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.plan.cache.allowed_mode import MODE_REASON_TEXTS, ModeReason, has_flush_failed
from sanctl.system import state_files
from sanctl.system.runner import Runner

log = DeviceLog("cache", about="cache")


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


def note_power_protection(*, is_protected: bool) -> None:
    """Note whether a battery keeps what is in this node's disks' own caches."""
    note = _power_protected()
    if is_protected:
        note.write()
    else:
        note.remove()


def is_power_protected() -> bool:
    """Whether a battery keeps what is in this node's disks' own caches."""
    return _power_protected().exists()


def may_be_in_ram(path: str) -> bool:
    """Whether acknowledged writes of a replica may be in RAM alone.

    The marker says so, not the mode: a process may have been killed while entering or leaving. The
    mode counts where there is no marker: where somebody took it away from a replica in write-back.

    Raises:
        OSError: it is not known.
    """
    return lost_writes.has_marker(path) or page_cache.is_written_back(path)


def refuse_failed_flush(runner: Runner, name: str, path: str) -> None:
    """Refuse a replica if DRBD has met a failed flush; the replica is suspect from then on.

    DRBD is asked now: no other place reports a flush that failed since DRBD was last observed.
    """
    # Only once: a replica that is known to be suspect has to leave write-back and be resynced.
    if not lost_writes.is_suspect(name, path) and has_flush_failed(drbdsetup.observe(runner, name)):
        lost_writes.record_failed_flush(name)
        refuse_suspect(name)


def enter(name: str, path: str) -> None:
    """Enter write-back, for a caller who has seen two replicas in sync and looks again after it."""
    begun = time.monotonic()
    lost_writes.set_marker(path)
    page_cache.set_buffered(path, on=True)
    writes_stable(name).remove()
    page_cache.set_synchronous(path, on=False)
    ocf.crash_point("cache-entered")
    log(
        name,
        "write-back: two replicas are in sync",
        step=CacheMode.WRITE_BACK.value,
        duration_s=time.monotonic() - begun,
    )


def leave(
    runner: Runner, name: str, path: str, *, why: ModeReason, within_s: float | None = None
) -> None:
    """Leave write-back: afterwards nothing acknowledged is in RAM alone.

    Args:
        runner: starts programs.
        name: the device.
        path: its data file.
        why: the reason, for the log.
        within_s: how long the flush may take; None: as long as it takes.

    Raises:
        FlushUnfinished: it would take longer. The marker stays, each write is stable, and what is
            left becomes less with each call.
        CommandError: a flush failed; the replica is suspect from then on.
    """
    begun = time.monotonic()
    used = page_cache.usage(path)
    page_cache.set_synchronous(path, on=True)
    ocf.crash_point("cache-synchronous")
    try:
        page_cache.flush(path, within_s=within_s)
    except page_cache.FlushUnfinished:
        left = page_cache.usage(path)
        amount = "" if left is None else f": {left.dirty_bytes} bytes"
        log(name, f"not all that was in RAM is on the disk yet{amount}", step="flushing-on")
        raise
    except CommandError:
        lost_writes.record_failed_flush(name)
        raise
    dirty_limit.record_flush_rate(used, time.monotonic() - begun)
    # The kernel reports a failed flush once, to the first caller: if that was DRBD, the flush above
    # has succeeded.
    refuse_failed_flush(runner, name, path)
    ocf.crash_point("cache-flushed")
    with contextlib.suppress(OSError):
        # Without room for it the next monitor flushes again: that I/O goes on must not wait.
        writes_stable(name).write()
    page_cache.set_buffered(path, on=False)
    dirty_limit.set_limit(name, None)
    # A flush that succeeds after one that failed proves nothing: I/O stays frozen.
    if not lost_writes.is_suspect(name, path):
        # Before the marker: after a kill here the next monitor leaves write-back again.
        try:
            minimum_redundancy.clear(runner, name)
        except OSError as error:
            # No room for the resource file on /run; DRBD has it already, and that I/O goes on must
            # not wait. Each monitor clears the file's requirement while write-back is over.
            log(name, f"the resource file still requires two replicas: {error}", step="held")
        lost_writes.clear_marker(name, path)
    amount = "" if used is None else f" ({used.dirty_bytes} bytes)"
    reason = f": {MODE_REASON_TEXTS[why]}" if why in MODE_REASON_TEXTS else ""
    log(
        name,
        f"write-through: all that was in RAM is on the disk{amount}{reason}",
        step=CacheMode.WRITE_THROUGH.value,
        duration_s=time.monotonic() - begun,
    )


def is_buffered_for_its_blocks(
    name: str, path: str, held: page_cache.WriteState, *, is_marked: bool
) -> bool:
    """Whether a replica that is out of write-back stays buffered, each write synchronous.

    So it is where the filesystem asks for larger blocks than hosts have: of a file that has shared
    blocks, or on a disk with blocks of 4096 bytes (docs/adr/0058). Nothing is left to flush then.
    """
    return (
        held.is_buffered
        and held.is_synchronous
        and not is_marked
        and writes_stable(name).exists()
        and page_cache.set_buffered(path, on=False)
    )


def set_stable(name: str, path: str, target: CacheMode) -> None:
    """Make writes synchronous, or no longer, where the replica is not in write-back."""
    wanted = target is CacheMode.WRITE_THROUGH and not is_power_protected()
    held, note = page_cache.observe(path), writes_stable(name)
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


def _power_protected() -> state_files.StateFile:
    return state_files.of_node("power-protected")


def writes_stable(name: str) -> state_files.StateFile:
    """Exists while all acknowledged writes are on the disk and each further write is stable."""
    return state_files.of_device(name, "writes-stable")
