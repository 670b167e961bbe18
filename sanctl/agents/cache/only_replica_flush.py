# SPDX-License-Identifier: GPL-2.0-or-later
"""sanctl-flush.service: flushes the data files of replicas that are the only good ones.

The fence-peer handler and the monitors start the service (sanctl/agents/cache/flush_unit.py); it
exits when no replica of the node needs it any more. When to flush is in
sanctl/plan/cache/only_replica_flush.py. The process holds no state: killed at any point, the next
one begins with a flush of each file.
"""

from __future__ import annotations

import os
import time

from sanctl.agents.cache import flush_unit
from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes
from sanctl.drivers import drbdsetup, page_cache
from sanctl.errors import SanctlError
from sanctl.plan.cache.only_replica_flush import LOOK_EVERY_S, FileProgress, must_flush
from sanctl.system import journal, state_files
from sanctl.system.runner import LocalRunner, Runner

# How often DRBD is asked which replicas are the only good ones.
_ASK_EVERY_S = 5.0
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
    asked_s = needed_s = time.monotonic()
    is_needed = flusher.find_files()
    while True:
        now_s = time.monotonic()
        if now_s - asked_s >= _ASK_EVERY_S:
            is_needed, asked_s = flusher.find_files(), now_s
        if is_needed:
            needed_s = now_s
        elif now_s - needed_s > _EXIT_AFTER_IDLE_S:
            return
        flusher.flush_due()
        time.sleep(LOOK_EVERY_S)


class OnlyReplicaFlusher:
    """The device files on this node of replicas that are the only good ones."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._devices: dict[str, str] = {}
        self._progress: dict[str, FileProgress] = {}
        self._failed: set[str] = set()

    def find_files(self) -> bool:
        """Find the files to flush, by path; return whether there are any.

        Where DRBD or the kernel does not answer, the files of before are kept.
        """
        try:
            found = {
                path: name
                for name, state in drbdsetup.observe_all(self._runner).items()
                if (path := lost_writes.data_file(name)) is not None
                and (held := page_cache.observe(path)) is not None
                and must_flush(state, held.mode)
            }
        except (SanctlError, OSError) as error:
            _log("", f"which replicas are the only good ones is not known: {error}")
            return True
        for path in found.keys() - self._devices.keys():
            _log(
                found[path],
                "the only good replica: it is flushed soon after each write",
                step="begin",
            )
        for path in self._devices.keys() - found.keys():
            self._progress.pop(path, None)
            _log(self._devices[path], "it is flushed when hosts ask for it", step="end")
        self._devices = found
        return bool(found)

    def flush_due(self) -> None:
        """Flush each file that was written."""
        for path, name in self._devices.items():
            try:
                self._flush_if_due(path)
                self._failed.discard(path)
            except OSError as error:
                if path not in self._failed:
                    self._failed.add(path)
                    _log(name, f"{path}: not flushed: {error.strerror}", priority=journal.WARNING)

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
