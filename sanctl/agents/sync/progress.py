# SPDX-License-Identifier: GPL-2.0-or-later
"""How far a resync or verify is, by what DRBD says: its rate, all that is to be done, what came."""

from __future__ import annotations

import time

from sanctl.model.drbd import ResourceState
from sanctl.model.resync_record import RUNNING, ResyncRecord
from sanctl.parse.drbd import SyncProgress
from sanctl.system import state_files

_STUCK_AFTER_S = 15.0
_RATE_OVER_S = 10.0


class SyncProgressTracker:
    """How one device's resync or verify has advanced since this process began."""

    def __init__(self, left_kib: int, now: float) -> None:
        self.samples = [(now, left_kib)]
        self.most_left_kib = left_kib
        self.advanced_at = now
        self.may_run = False
        self.began_s = int(time.time())

    def add(self, left_kib: int, now: float) -> None:
        """Note how much is left."""
        if left_kib < self.samples[-1][1]:
            self.advanced_at = now
        self.most_left_kib = max(self.most_left_kib, left_kib)
        self.samples.append((now, left_kib))
        while self.samples[0][0] < now - _RATE_OVER_S:
            self.samples.pop(0)

    def rate_kib_s(self) -> int:
        """Return how much was done in a second, over the last ten."""
        (begin, left_kib), (end, still_left_kib) = self.samples[0], self.samples[-1]
        return 0 if end <= begin else max(0, int((left_kib - still_left_kib) / (end - begin)))

    def is_stuck(self, now: float) -> bool:
        """Whether it may run, and has not advanced for long."""
        return self.may_run and now - self.advanced_at > _STUCK_AFTER_S


def received_kib(state: ResourceState) -> int:
    """Return the amount received from all peers: DRBD 9 may resync from one after another."""
    return sum(peer.received_kib or 0 for peer in state.peers)


class ReceivedCounter:
    """The amount that one resync received, over reconnections, where DRBD's counter is reset.

    Kept on tmpfs, for the process that follows one that was killed.
    """

    def __init__(self, name: str) -> None:
        self._file = state_files.of_device(name, "resync-received")
        words = self._file.read().split()
        # What was received before this connection, less what this connection had received before
        # the resync; and the counter's last value.
        self._before_kib, self._last_kib = map(int, words) if len(words) == 2 else (0, 0)

    def begin(self, base_kib: int, counter_kib: int) -> None:
        """Begin with a resync: what DRBD's counter was before it, and what it is."""
        self._before_kib, self._last_kib = -base_kib, counter_kib
        self._save()

    def update(self, counter_kib: int) -> None:
        """Note DRBD's counter."""
        if counter_kib < self._last_kib:
            self._before_kib += self._last_kib
        if counter_kib != self._last_kib:
            self._last_kib = counter_kib
            self._save()

    @property
    def total_kib(self) -> int:
        """What the resync has received."""
        return max(0, self._before_kib + self._last_kib)

    def _save(self) -> None:
        self._file.write(f"{self._before_kib} {self._last_kib}\n")

    def remove(self) -> None:
        """Forget it: the resync has ended."""
        self._file.remove()


def total_kib(
    seen: SyncProgress | None, tracker: SyncProgressTracker, latest: ResyncRecord | None
) -> int:
    """Return what was to be sent or compared at first; DRBD 9 does not say."""
    if seen is not None:
        return seen.total_kib
    if latest is not None and latest.stage == RUNNING:
        return max(tracker.most_left_kib, latest.changed_kib)
    return tracker.most_left_kib
