# SPDX-License-Identifier: GPL-2.0-or-later
"""What the service does by itself: begins epochs ahead of hosts' commands; ends with its release.

An epoch (R4) begins once a device is served here, not with a host's first command. That costs as
much as a change: a host whose command takes longer than its ping waits logs in again.

The rollout ends the service when it has exchanged the release. Where that run was broken off in
between no later one would: it finds the release current. So the service looks itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from sanctl.agents.release import CURRENT, is_replaced, own_release
from sanctl.agents.reservations import in_force, replica_note
from sanctl.agents.reservations.store import NotPrimaryError, Store
from sanctl.errors import SanctlError
from sanctl.system import journal, state_files
from sanctl.system.files import exists

_POLL_S, _AGAIN_S = 1.0, 10.0
_PROGRAM = "sanctl/agents/reservations/service.py"
#: Of a device: whoever changes its role, or a host's command, waits for this.
_STORE_S = 2.0


class Ahead:
    """Looks for devices of which another process has stored the state on all replicas."""

    def __init__(self, store: Store, is_idle: Callable[[], bool] = lambda: True) -> None:
        """Begin epochs of a store, which is used by threads that hold the device's lock.

        Args:
            store: of this process.
            is_idle: returns whether no host's command waits for this process.
        """
        self._store, self._is_idle = store, is_idle
        self._release = own_release()
        #: By device, when the latest state that was seen had been stored, in nanoseconds.
        self._seen: dict[str, int | None] = {}
        #: By device, when what failed is tried again, on the monotonic clock.
        self._again_s: dict[str, float] = {}

    def follow(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            self.end_if_replaced()
            time.sleep(_POLL_S)

    def end_if_replaced(self) -> None:
        """End this process once another release is current; systemd starts the next one from there.

        As the rollout ends it: hosts' commands wait for the next process, and one that comes in
        this moment is handed to it. Not while one is being answered: on a kernel that was started
        since, and is too old (hooks.py), that answer would be lost. Nor for a release without the
        service, which systemd would not start.
        """
        if not is_replaced(self._release, CURRENT):
            return
        with contextlib.suppress(OSError):
            if exists(f"{CURRENT}/{_PROGRAM}") and self._is_idle():
                journal.write(
                    f"{CURRENT} is not {self._release} any more: ends, to be started from there",
                    priority=journal.INFO,
                    action="reservations",
                )
                os.kill(os.getpid(), signal.SIGTERM)

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
