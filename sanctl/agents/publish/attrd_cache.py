# SPDX-License-Identifier: GPL-2.0-or-later
"""Remembers which attribute values pacemaker-attrd was given, and when they must be sent again.

pacemaker-attrd holds transient attributes in memory. After a restart it has none, and it wipes what
the CIB had of them (docs/adr/0036-a-killed-attrd-moves-devices.md). A replica without a score is no
candidate for promotion: so a value counts as published only while the process that was given it
runs. The state files are on tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import time

from sanctl.plan.device import short_monitor
from sanctl.system import state_files
from sanctl.system.state_files import StateFile

#: As in /proc/PID/comm, where the kernel keeps 15 characters of a program's name.
_DAEMON = "pacemaker-attrd"
_PROC = "/proc"
#: Of what the node publishes itself: pools, votes, sessions, reach, the states of all its replicas.
_REPEAT_S = short_monitor.MINUTE_S
_IN_CIB_AFTER_S = 5.0
_KIND = "attrd-cache"


def attrd_pid() -> str:
    """Return the process id of pacemaker-attrd; empty where it does not run.

    Callers ask before they publish: if the daemon ends in between, the record has a stale pid.
    """
    file = state_files.of_node("attrd-pid")
    last_pid = file.read()
    if last_pid and _is_daemon(last_pid):
        return last_pid
    for entry in os.listdir(_PROC):
        if entry.isdigit() and _is_daemon(entry):
            with contextlib.suppress(OSError):
                file.write(entry)
            return entry
    return ""


def of_device(name: str) -> StateFile:
    """Return the record of the state that a device's agent has published."""
    return state_files.of_device(name, f"{_KIND}.state")


def of_earlier_release(name: str) -> StateFile:
    """Return the record of the state that an earlier release has published, into the CIB."""
    return state_files.of_device(name, _KIND)


def of_score(name: str) -> StateFile:
    """Return the record of the promotion score that a device's agent has published."""
    return state_files.of_device(name, f"{_KIND}.score")


def devices_with_score() -> list[str]:
    """Return the devices of which a promotion score has been published."""
    return state_files.devices_with(f"{_KIND}.score")


def of_pools() -> StateFile:
    """Return the record of what the pools' agent has published of the pools."""
    return state_files.of_node(f"{_KIND}.pools")


def of_states() -> StateFile:
    """Return the record of what was published of all replicas of this node together."""
    return state_files.of_node(f"{_KIND}.states")


def of_votes() -> StateFile:
    """Return the record of what the pools' agent has published of the votes."""
    return state_files.of_node(f"{_KIND}.votes")


def of_sessions() -> StateFile:
    """Return the record of what the pools' agent has published of the hosts' sessions."""
    return state_files.of_node(f"{_KIND}.sessions")


def of_reach() -> StateFile:
    """Return the record of how many addresses of the iscsi network this node was said to reach."""
    return state_files.of_node(f"{_KIND}.reach")


def period_of_device(name: str, *, is_in_sync: bool) -> short_monitor.Period:
    """Return the period in which a device's score and state are published once."""
    return short_monitor.period(
        name=name,
        replicas_here=state_files.count_devices(),
        is_in_sync=is_in_sync,
        now_s=time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def is_current(cached: StateFile, pid: str, text: str, *, within_s: float = _REPEAT_S) -> bool:
    """Whether this text was published to the daemon with this pid within that time.

    A record from the future was written before the clock was set, and does not count.
    """
    age_s = cached.age_s()
    return age_s is not None and 0 <= age_s < within_s and cached.read() == f"{pid} {text}"


def must_be_in_cib(cached: StateFile, pid: str, *, after_s: float = _IN_CIB_AFTER_S) -> bool:
    """Whether the daemon with this pid got values so long ago that the CIB must have them."""
    age_s = cached.age_s()
    is_old = age_s is not None and age_s >= after_s
    return is_old and bool(pid) and cached.read().startswith(f"{pid} ")


def have_published_again(cached: StateFile) -> None:
    """Have the next whole monitor publish this again, although nothing has changed.

    The words stay: handlers compare the state with them.

    Raises:
        OSError: the record is as it was.
    """
    cached.make_old()


def record(cached: StateFile, pid: str, text: str) -> None:
    """Write down what was published to the daemon with this pid.

    Where there is no room for it no record is left, so that the next monitor publishes again.
    """
    try:
        cached.write(f"{pid} {text}")
    except OSError:
        cached.remove()


def published_fields(cached: StateFile) -> list[str]:
    """Return the words that were published last, after the pid; empty where nothing was."""
    return cached.read().split()


def _is_daemon(process: str) -> bool:
    try:
        with open(f"{_PROC}/{process}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip() == _DAEMON
    except OSError:
        return False
