# SPDX-License-Identifier: GPL-2.0-or-later
"""Flushes the data files of replicas whose resync has ended, each in a thread of its own.

A disk that hangs holds up its own replica, and no other one's resync. What the note is for is in
sanctl/agents/replica/resync_note.py.
"""

from __future__ import annotations

import threading

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes, resync_note
from sanctl.agents.replica.resync_note import FlushError
from sanctl.errors import SanctlError
from sanctl.system import journal
from sanctl.system.runner import Runner

_log = DeviceLog("resync", priority=journal.INFO)


class Settling:
    """The replicas that are being flushed."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._threads: dict[str, threading.Thread] = {}
        self._failed: dict[str, str] = {}

    def settle(self, name: str) -> bool:
        """Begin to flush a replica whose note is set; return whether its note is still set.

        Raises:
            OSError: it is not known.
        """
        running = self._threads.get(name)
        if running is not None and running.is_alive():
            return True
        data = lost_writes.data_file(name)
        if data is None or not resync_note.is_open(data):
            return False
        self._threads[name] = threading.Thread(target=self._settle, args=(name, data), daemon=True)
        self._threads[name].start()
        return True

    def wait(self, name: str) -> None:
        """Return when the latest flush of a replica has ended."""
        self._threads[name].join()

    def _settle(self, name: str, data: str) -> None:
        try:
            if resync_note.settle(self._runner, name, data):
                _log(name, "all that the resync wrote is on stable storage", step="settled")
            self._failed.pop(name, None)
        except FlushError as error:
            # No later flush reports it again: the replica is suspect from now on.
            lost_writes.record_failed_flush(name)
            _log(name, f"not flushed after its resync: {error}", priority=journal.ERROR)
        except (SanctlError, OSError) as error:
            # Each poll tries again; each reason is said once.
            if self._failed.get(name) != str(error):
                self._failed[name] = str(error)
                _log(name, f"not flushed after its resync: {error}", priority=journal.WARNING)
