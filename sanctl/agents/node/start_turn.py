# SPDX-License-Identifier: GPL-2.0-or-later
"""Has a start wait for its turn: few starts run on a node at a time, however many are ordered.

Pacemaker orders as many actions at once as it may (node-action-limit), and that number is high: a
promotion that is not begun with the first ones waits for a later transition (docs/adr/0050). Starts
take processor time, and of fifty at once on a small node none would end in its time.

A transition ends with its last action, and what has become necessary meanwhile begins after that.
So the wait is short. And a start that waits when a node leaves the cluster fails at once, if
another node goes on serving the device: it has done nothing yet, and the pool agent has Pacemaker
repeat it (agents/node/failure_cleanup.py). Where none does, the start may be the failover.

A node that had left before the wait began is not looked for. If it was the one that served the
device, nobody does: a start that failed then would keep its node from serving for about a minute.
Nor is the loss to be seen later than a moment after it: Pacemaker deletes a lost node's scores as
soon as it hears of the loss, and a start that it orders after that is part of the transition with
the failover, which it does not hold up. One that was ordered just before it waits once for at most
`plan.longest_wait_s`.

A turn is a lock on one of some files, which the kernel gives back when its holder ends.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from sanctl.agents import ocf
from sanctl.agents.connections import primary_node
from sanctl.agents.replica.parts import Device
from sanctl.drivers import quorum_library
from sanctl.errors import CommandError, Problem, SanctlError
from sanctl.plan.device import start_turn as plan
from sanctl.system import journal, state_files
from sanctl.system.runner import Runner

_POLL_S = 0.5
#: One that waits asks Corosync for all: a connection costs Corosync megabytes of memory, and with
#: fifty at once a small node's kernel killed it.
_LOOK_S = 2.0
#: What was seen longer ago may be of another wait, before nodes came and left.
_SEEN_S = 3 * _LOOK_S
_DEFAULT_S = 60.0


@contextlib.contextmanager
def taken(runner: Runner, device: Device) -> Iterator[contextlib.ExitStack]:
    """Hold one of the node's turns for a start; after some time go on without one.

    Yields what gives the turn back before the end, for waits that take no processor.

    Raises:
        CommandError: SAN-AGENT-017, a node left the cluster while the start waited.
    """
    turns = plan.at_a_time(os.cpu_count() or 1)
    begin_s = time.monotonic()
    deadline_s = begin_s + plan.longest_wait_s(ocf.remaining_s(_DEFAULT_S))
    with contextlib.ExitStack() as held:
        if not _take(held, turns):
            _log(device, f"waits for its turn: {turns} starts run at a time")
            _await(runner, device, held, turns, deadline_s)
            _log(device, f"goes on after {time.monotonic() - begin_s:.0f} s")
        yield held


def _log(device: Device, what: str) -> None:
    journal.write(f"{device.name}: start: {what}", device=device.name, action="start", step="turn")


def _await(
    runner: Runner, device: Device, held: contextlib.ExitStack, turns: int, deadline_s: float
) -> None:
    before = _members()
    # Before a node is lost: then all that wait would ask at once.
    active = _active_node(runner, device)
    looked_s = time.monotonic()
    while not _take(held, turns):
        now_s = time.monotonic()
        if now_s >= deadline_s:
            return
        if now_s - looked_s >= _LOOK_S:
            now, looked_s = _members(), now_s
            match plan.after_look(before, now, active):
                case plan.Wait.ON:
                    before = now or before
                case plan.Wait.NO_LONGER:
                    return
                case plan.Wait.GIVE_WAY:
                    raise CommandError(
                        Problem(
                            "SAN-AGENT-017",
                            f"{device.name}: a node left the cluster while this start waited for"
                            f" its turn, and {active} serves: it makes way for the failover",
                            "it is tried again by itself in about a minute",
                        )
                    )
        time.sleep(_POLL_S)


def _take(held: contextlib.ExitStack, turns: int) -> bool:
    """Hold a turn until `held` ends; True, too, where there can be no lock."""
    try:
        for number in range(turns):
            with contextlib.ExitStack() as attempt:
                lock = state_files.node_lock(f"start-{number}")
                if attempt.enter_context(state_files.locked(lock, wait_s=0.0)):
                    held.push(attempt.pop_all())
                    return True
    except OSError:
        return True
    return False


def _members() -> frozenset[str] | None:
    """Return the nodes of this node's partition, as one of those that wait here has last seen it.

    None where that is not known.
    """
    noted = state_files.of_node("start-members")
    try:
        with state_files.locked(state_files.node_lock("start-members"), wait_s=0.0) as is_mine:
            age_s = noted.age_s()
            if is_mine and (age_s is None or not 0 <= age_s < _LOOK_S / 2):
                found = quorum_library.membership(within_s=1.0)
                noted.write("" if found is None else " ".join(sorted(found.members)))
        age_s = noted.age_s()
        if age_s is None or not 0 <= age_s < _SEEN_S:
            return None
        return frozenset(noted.read().split()) or None
    except (SanctlError, OSError):
        return None


def _active_node(runner: Runner, device: Device) -> str:
    """Return the other node that serves the device; empty: none does, or it is not known."""
    try:
        return primary_node.find(runner, device) or ""
    except SanctlError:
        return ""
