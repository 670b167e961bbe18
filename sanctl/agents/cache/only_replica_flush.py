# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-flush.service: flushes the data files of replicas that are the only good ones.

The fence-peer handler and the monitors start the service (sanctl/agents/cache/flush_unit.py); it
exits when no replica of the node needs it any more. When to flush is in
sanctl/plan/cache/only_replica_flush.py. The process holds no state: killed at any point, the next
one begins with a flush of each file.

One thread asks DRBD which replicas are the only good ones. Each pool has a thread of its own, which
alone touches the pool's filesystem: a disk that hangs holds up the flushes of its own pool alone,
and a DRBD that does not answer holds up none.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Mapping
from typing import NoReturn

from sanctl.agents.cache import flush_unit
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.drivers.page_cache import WriteState
from sanctl.errors import SanctlError
from sanctl.plan.cache.only_replica_flush import (
    LOOK_EVERY_S,
    FileProgress,
    must_flush,
    waits_for_journal,
)
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner, Runner

# How often DRBD is asked which replicas are the only good ones, and for how long.
_ASK_EVERY_S = 5.0
_ASK_TIMEOUT_S = 4.0
_EXIT_AFTER_IDLE_S = 20.0
# Longer than `flush_unit.start` holds the lock to see whether the service runs.
_LOCK_WAIT_S = 0.5
_log = DeviceLog("flush", priority=journal.INFO)


def main() -> int:
    """Run until no replica on this node needs to be flushed."""
    with state_files.locked(flush_unit.lock_path(), wait_s=_LOCK_WAIT_S) as is_mine:
        if is_mine:
            _run(OnlyReplicaFlusher(LocalRunner()))
    return 0


def _run(flusher: OnlyReplicaFlusher) -> None:
    needed_s = time.monotonic()
    while True:
        # Before the next answer: by now each pool that does not hang has seen the latest.
        now_s = time.monotonic()
        if flusher.is_needed():
            needed_s = now_s
        elif now_s - needed_s > _EXIT_AFTER_IDLE_S:
            return
        if not flusher.find_files():
            needed_s = now_s
        time.sleep(max(0.0, now_s + _ASK_EVERY_S - time.monotonic()))


class OnlyReplicaFlusher:
    """The device files on this node of replicas that are the only good ones, by pool."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._pools: dict[str, PoolFlusher] = {}

    def find_files(self) -> bool:
        """Tell the flushers of the pools which files may have to be flushed.

        Asks DRBD and sysfs only. Where they do not answer, the files of before are kept, and the
        answer is False: a flush too many does no harm.
        """
        try:
            found: dict[str, dict[str, str]] = {}
            for name, state in drbdsetup.observe_all(
                self._runner, timeout_s=_ASK_TIMEOUT_S
            ).items():
                path = lost_writes.data_file(name)
                buffered = None if path is None else page_cache.is_buffered(path)
                if (
                    path is not None
                    and buffered is not None
                    and must_flush(state, WriteState(buffered, is_synchronous=False).mode)
                ):
                    # By the path: to ask for the filesystem's number is to ask the filesystem.
                    found.setdefault(os.path.dirname(path), {})[path] = name
        except (SanctlError, OSError) as error:
            _log("", f"which replicas are the only good ones is not known: {error}")
            return False
        for folder in found.keys() | self._pools.keys():
            if folder not in self._pools:
                self._pools[folder] = PoolFlusher()
                self._pools[folder].start()
            self._pools[folder].wanted = found.get(folder, {})
        return True

    def is_needed(self) -> bool:
        """Whether any pool has files to flush, or has not come to the latest answer yet."""
        return any(pool.is_needed() for pool in self._pools.values())


class PoolFlusher:
    """Flushes the device files of one pool, in a thread of its own.

    Attributes:
        wanted: names by path: the latest answer of DRBD. Another thread exchanges it.
    """

    def __init__(self) -> None:
        self.wanted: Mapping[str, str] = {}
        self._seen: Mapping[str, str] = self.wanted
        self._devices: Mapping[str, str] = {}
        self._progress: dict[str, FileProgress] = {}
        self._failed: set[str] = set()

    def start(self) -> None:
        """Look at the files from now on, until the process ends."""
        threading.Thread(target=self._run, daemon=True).start()

    def is_needed(self) -> bool:
        """Whether there are files to flush, or it has not looked at the latest answer yet."""
        return self._seen is not self.wanted or bool(self._devices)

    def flush_due(self) -> None:
        """Flush each file that was written."""
        if self._seen is not self.wanted:
            self._begin_and_end()
        for path, name in self._devices.items():
            # The flush of the file before this one may have taken long.
            if path not in self.wanted:
                continue
            try:
                self._flush_if_due(path)
                self._failed.discard(path)
            except OSError as error:
                if path not in self._failed:
                    self._failed.add(path)
                    _log(name, f"{path}: not flushed: {error.strerror}", priority=journal.WARNING)

    def _run(self) -> NoReturn:
        while True:
            try:
                self.flush_due()
            except BaseException:
                # All threads end: the next monitor starts the service again.
                traceback.print_exc()
                os._exit(1)
            time.sleep(LOOK_EVERY_S)

    def _begin_and_end(self) -> None:
        """Take over the latest answer; log which files are flushed from now on, and which not."""
        wanted = self.wanted
        found = {path: name for path, name in wanted.items() if _may_wait_for_journal(path)}
        for path in found.keys() - self._devices.keys():
            _log(
                found[path],
                "the only good replica: it is flushed soon after each write",
                step="begin",
            )
        for path in self._devices.keys() - found.keys():
            self._progress.pop(path, None)
            _log(self._devices[path], "it is flushed when hosts ask for it", step="end")
        self._devices, self._seen = found, wanted

    def _flush_if_due(self, path: str) -> None:
        # Opened for a moment only: an open file would keep its filesystem from being unmounted.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            now_s, written_ns = time.monotonic(), os.fstat(handle).st_mtime_ns
            before = self._progress.get(path)
            progress = (
                FileProgress(written_ns, now_s)
                if before is None
                else before.looked_at(written_ns, now_s)
            )
            if progress.is_due(now_s):
                os.fdatasync(handle)
                took_s = time.monotonic() - now_s
                progress = progress._replace(flushed_s=now_s, took_s=took_s)
            self._progress[path] = progress
        finally:
            os.close(handle)


def _may_wait_for_journal(path: str) -> bool:
    """Whether writes of a file past the page cache wait for the journal, or that is not known."""
    try:
        return waits_for_journal(WriteState(False, page_cache.is_synchronous(path)).mode)
    except OSError:
        return True
