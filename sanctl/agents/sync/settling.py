# SPDX-License-Identifier: GPL-2.0-or-later
"""Flushes data files after a resync, and clears the note that they were not flushed.

In sanctl-resync.service each in a thread of its own: a disk that hangs holds up its own replica,
and no other one's resync. What the note is for is in sanctl/agents/replica/resync_note.py.

The kernel reports a flush that failed once: a later one succeeds, and what was lost stays lost. So
after such a failure the note stays, and with it the replica suspect, over every boot.
"""

from __future__ import annotations

import threading

from sanctl.agents.device_log import DeviceLog
from sanctl.agents.replica import lost_writes, resync_note
from sanctl.agents.replica.resync_note import FlushError
from sanctl.errors import SanctlError
from sanctl.system import journal, timed_call
from sanctl.system.runner import Runner

#: A stop waits so long for a disk.
_STOP_S = 10.0
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
        if data is None or not resync_note.is_open(data) or lost_writes.has_flush_failed(name):
            return False
        self._threads[name] = threading.Thread(target=self._settle, args=(name, data), daemon=True)
        self._threads[name].start()
        return True

    def _settle(self, name: str, data: str) -> None:
        try:
            if resync_note.settle(self._runner, name, data):
                _log(name, "all that the resync wrote is on stable storage", step="settled")
            self._failed.pop(name, None)
        except FlushError as error:
            lost_writes.record_failed_flush(name)
            _log(name, f"not flushed after its resync: {error}", priority=journal.ERROR)
        except (SanctlError, OSError) as error:
            # Each poll tries again; each reason is said once.
            if self._failed.get(name) != str(error):
                self._failed[name] = str(error)
                _log(name, f"not flushed after its resync: {error}", priority=journal.WARNING)


def prepare(name: str, data: str) -> None:
    """Make the note's file for a replica that is being started; a failure is logged.

    A full pool, say: the replica is up all the same, and no resync begins until a monitor has made
    the file.
    """
    try:
        resync_note.prepare(name, data)
    except OSError as error:
        _log(
            name,
            f"no resync begins until it can be noted beside the data: {error}",
            step="unnoted",
            priority=journal.WARNING,
        )


def settle_when_down(name: str) -> None:
    """Flush a replica that a stop has taken out of DRBD, and clear its note.

    A note that stays, as the disk hangs or takes no writes, costs a full resync if the node boots.
    """

    def settle() -> None:
        data = lost_writes.data_file(name)
        if data is not None and not lost_writes.has_flush_failed(name):
            try:
                resync_note.clear_when_down(data)
            except FlushError:
                lost_writes.record_failed_flush(name)

    timed_call.errno_of(settle, within_s=_STOP_S)
