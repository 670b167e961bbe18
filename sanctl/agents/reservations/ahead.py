# SPDX-License-Identifier: GPL-2.0-or-later
"""Begins the service's epoch (R4) once a device is served here, not with a host's first command.

That costs as much as a change: a host whose command takes longer than its ping waits logs in again.
"""

from __future__ import annotations

import contextlib
import time

from sanctl.agents.reservations import in_force, replica_note
from sanctl.agents.reservations.store import NotPrimaryError, Store
from sanctl.errors import SanctlError
from sanctl.system import state_files

_POLL_S, _AGAIN_S = 1.0, 10.0
#: Of a device: whoever changes its role, or a host's command, waits for this.
_STORE_S = 2.0


class Ahead:
    """Looks for devices of which another process has stored the state on all replicas."""

    def __init__(self, store: Store) -> None:
        """Begin epochs of a store, which is used by threads that hold the device's lock."""
        self._store = store
        #: By device, when the latest state that was seen had been stored, in nanoseconds.
        self._seen: dict[str, int | None] = {}
        #: By device, when what failed is tried again, on the monotonic clock.
        self._again_s: dict[str, float] = {}

    def follow(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            time.sleep(_POLL_S)

    def look(self) -> None:
        """Begin an epoch for each device that was promoted since; what fails is tried again."""
        with contextlib.suppress(OSError):
            for name in state_files.devices_with(in_force.SETTLED):
                # A host's command says what is wrong, once there is one.
                with contextlib.suppress(SanctlError, OSError, ValueError, LookupError, TypeError):
                    self._look_at(name)

    def _look_at(self, name: str) -> None:
        written_ns = state_files.of_device(name, in_force.SETTLED).written_ns()
        if written_ns in {None, self._seen.get(name)}:
            return
        if time.monotonic() < self._again_s.get(name, 0.0):
            return
        self._again_s[name] = time.monotonic() + _AGAIN_S
        if self._begin(name):
            self._seen[name] = written_ns
            del self._again_s[name]

    def _begin(self, name: str) -> bool:
        replica = replica_note.read(name)
        if replica is None:
            return True
        with state_files.locked(replica_note.lock_path(name), wait_s=0.0) as is_mine:
            if not is_mine:
                del self._again_s[name]
                return False
            with contextlib.suppress(NotPrimaryError):
                self._store.settle(replica, until=time.monotonic() + _STORE_S)
        return True
