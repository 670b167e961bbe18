# SPDX-License-Identifier: GPL-2.0-or-later
"""Starts the systemd unit sanctl-flush.service where a replica needs it, if it does not run.

What the service does is in sanctl/agents/cache/only_replica_flush.py. The fence-peer handler and
monitors, which only start the service, do not have to import that.
"""

from __future__ import annotations

import contextlib

from sanctl.agents.replica import lost_writes
from sanctl.drivers import page_cache
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.cache.only_replica_flush import is_only_good_replica, waits_for_journal
from sanctl.system import state_files
from sanctl.system.files import exists
from sanctl.system.runner import Runner

_UNIT = "sanctl-flush.service"
#: There while the service runs.
CGROUP = f"/sys/fs/cgroup/system.slice/{_UNIT}"
# The fence-peer handler starts it while I/O is frozen.
_TIMEOUT_S = 2.0
#: The service looks for devices as soon as it runs, and again and again.
_ASKED_S = 1.0


def start_if_needed(runner: Runner, name: str, state: ResourceState) -> None:
    """Start the service if the replica here is the only good one, and its policy needs that."""
    if is_only_good_replica(state):
        start_unless_stable(runner, name)


def start_unless_stable(runner: Runner, name: str) -> None:
    """Start the service, unless each write of the replica is stable when it is acknowledged.

    An error is left to the next monitor.
    """
    with contextlib.suppress(SanctlError, OSError):
        if is_due(name) and not _was_asked_for():
            try:
                runner.run(["systemctl", "start", "--no-block", _UNIT], timeout_s=_TIMEOUT_S)
            except (SanctlError, OSError):
                # What the others rely on has not happened.
                _asked().remove()
                raise


def _was_asked_for() -> bool:
    """Whether another handler or monitor has just asked for it; if not, note that this one does.

    The handlers of twenty devices that lose their peer together would each start a systemctl
    before the service has begun.
    """
    with contextlib.suppress(OSError):
        age_s = _asked().age_s()
        if age_s is not None and 0 <= age_s < _ASKED_S:
            return True
        _asked().write()
    return False


def _asked() -> state_files.StateFile:
    return state_files.of_node("flush-asked")


def is_due(name: str) -> bool:
    """Whether the replica's writes wait for the journal, and the service does not run.

    Raises:
        SanctlError, OSError: that is not known.
    """
    return _is_needed(name) and not _is_running()


def is_unwatched(name: str) -> bool:
    """Whether the service is needed, and its end would not show: it is due, or has no `CGROUP`.

    Raises:
        SanctlError, OSError: that is not known.
    """
    return _is_needed(name) and not (_is_running() and exists(CGROUP))


def _is_needed(name: str) -> bool:
    path = lost_writes.data_file(name)
    held = None if path is None else page_cache.observe(path)
    return held is not None and waits_for_journal(held.mode)


def lock_path() -> str:
    """Return the path of the lock that the service holds while it runs."""
    return state_files.node_lock("flush")


def _is_running() -> bool:
    # Shared, and the service waits for the lock: this check must not keep it from starting.
    with state_files.locked(lock_path(), wait_s=0.0, shared=True) as is_free:
        return not is_free
