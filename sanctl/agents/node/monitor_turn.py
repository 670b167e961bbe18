# SPDX-License-Identifier: GPL-2.0-or-later
"""Has few monitors of replicas that wait for a node do their duties at a time.

The rules are in sanctl/plan/device/monitor_turn.py. A turn is a lock on one of some files, which
the kernel gives back when its holder ends, and a note of when it is free again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.agents.connections import reconnect_dropped, standby_first
from sanctl.agents.publish import attrd_cache, withheld_note
from sanctl.agents.replica.parts import Device
from sanctl.drivers import lio
from sanctl.errors import SanctlError
from sanctl.model.drbd import ResourceState
from sanctl.plan.device import monitor_turn as plan
from sanctl.system import state_files

_POLL_S = 0.25
_TURN = "monitor-turn"
#: Of a device: its age tells how long ago all duties were done.
_DONE = "duties-done"


@contextlib.contextmanager
def taken(device: Device, state: ResourceState) -> Iterator[bool]:
    """Hold a turn for a replica's duties, if one is needed; yield whether they are to be done now.

    Where there is no room for locks or notes they are done without a turn.
    """
    done = state_files.of_device(device.name, _DONE)
    when = plan.turn(state, _seen(device, state, _age_s(done, state)))
    with contextlib.ExitStack() as held:
        within_s = plan.WAIT_S if when is plan.Turn.NEXT else 0.0
        if when is not plan.Turn.NOW and (when is plan.Turn.LATER or not _await(held, within_s)):
            yield False
            return
        if not state.is_in_sync:
            # Before the work: one that hangs lets others go on without a turn, not itself at once.
            with contextlib.suppress(OSError):
                done.write()
        yield True


def _seen(device: Device, state: ResourceState, done_age_s: float | None) -> plan.Seen:
    words = attrd_cache.published_fields(attrd_cache.of_score(device.name))
    pid = attrd_cache.attrd_pid()
    has_order = bool(device.cache or device.awaits or device.restore)
    waits_to_connect = is_kept = is_crashed = False
    try:
        has_order = has_order or set(lio.access(device.name)) != device.access
        waits_to_connect = bool(reconnect_dropped.published_field(device.name, state))
        is_kept = standby_first.is_kept(device.name)
        is_crashed = standby_first.is_noted(device.name)
    except (SanctlError, OSError):
        done_age_s = None
    return plan.Seen(
        replicas=len(device.nodes),
        has_order=has_order,
        score=words[1] if len(words) == 2 and pid and words[0] == pid else None,
        waits_to_connect=waits_to_connect,
        done_age_s=done_age_s,
        is_withheld=withheld_note.exists(device.name),
        is_kept=is_kept,
        is_crashed=is_crashed,
    )


def _age_s(done: state_files.StateFile, state: ResourceState) -> float | None:
    """Return how long ago all duties were done; the first monitor begins the time."""
    with contextlib.suppress(OSError):
        age_s = done.age_s()
        if age_s is None and not state.is_in_sync:
            done.write()
            return 0.0
        return age_s
    return None


def _await(held: contextlib.ExitStack, within_s: float) -> bool:
    turns = plan.at_a_time(os.cpu_count() or 1)
    deadline_s = time.monotonic() + within_s
    try:
        while not _take(held, turns):
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
    except OSError:
        pass
    return True


def _take(held: contextlib.ExitStack, turns: int) -> bool:
    for number in range(turns):
        noted = state_files.of_node(f"{_TURN}.{number}")
        with contextlib.ExitStack() as attempt:
            lock = state_files.node_lock(f"{_TURN}-{number}")
            if not attempt.enter_context(state_files.locked(lock, wait_s=0.0)):
                continue
            if plan.is_free(noted.read(), time.monotonic()):
                attempt.callback(_give_back, noted, _worked_s())
                held.push(attempt.pop_all())
                return True
    return False


def _give_back(noted: state_files.StateFile, before_s: float) -> None:
    with contextlib.suppress(OSError):
        noted.write(f"{plan.free_at_s(time.monotonic(), _worked_s() - before_s):.2f}")


def _worked_s() -> float:
    """Return the processor time of this process and of the programs that it has waited for."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system
