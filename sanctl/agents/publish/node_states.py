# SPDX-License-Identifier: GPL-2.0-or-later
"""Publishes the states of all replicas of this node as one private attribute.

Not in the CIB: each change of that ends the transition under way, and with it the promotions that
it has not begun (docs/adr/0067). Each replica has its state in a file on tmpfs; whoever publishes
packs all of these, under a lock. So of several that come at once the first may publish for all,
and none overwrites what another has just published.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from sanctl.agents.fencing import cluster_run
from sanctl.agents.publish import attrd_cache
from sanctl.drivers import node_attributes
from sanctl.errors import CommandError, Problem
from sanctl.model import answered_monitors
from sanctl.model.admission import says_of_hosts, without_other_runs
from sanctl.model.packed_states import NO_STATES, STATES_ATTRIBUTE, pack
from sanctl.system import lock_priority, state_files
from sanctl.system.runner import Runner

#: Begins of the name and of the value of a replica's state in the CIB, by an earlier release.
EARLIER_PREFIX, EARLIER_BEGIN = "sanctl-", "disk="
_KIND = "published"
#: A publication takes milliseconds; attrd_updater is ended after 5 s.
_LOCK_S = 8.0


def publish(runner: Runner, name: str, state: str) -> None:
    """Publish the state of one replica, and what the others have now.

    Raises:
        CommandError: pacemaker-attrd did not answer, or another publication took too long. What is
            published is as old as before; the next call tries again.
        OSError: the files could not be written or read.
    """
    file = state_files.of_device(name, _KIND)
    without_file: dict[str, str] = {}
    try:
        file.write(state)
    except OSError:
        # No room: this call publishes it, and one of another replica that it is not known.
        file.remove()
        without_file[name] = state
    # The release before published by itself; what it has left in the CIB the pool agent deletes.
    attrd_cache.of_earlier_release(name).remove()
    _publish_if_due(runner, without_file)


def published(name: str) -> str:
    """Return the state of one replica as it is published; empty without one.

    Raises:
        OSError: the file could not be read.
    """
    return state_files.of_device(name, _KIND).read()


def withdraw(runner: Runner, name: str) -> None:
    """Publish no state of a replica any more.

    Raises:
        CommandError, OSError: as of `publish`. The pool agent tries again.
    """
    state_files.of_device(name, _KIND).remove()
    publish_if_due(runner)


def delete_of_earlier_release(runner: Runner, attributes: Mapping[str, str]) -> None:
    """Delete the states that an earlier release has left in the CIB, once they are published anew.

    Args:
        runner: starts attrd_updater.
        attributes: transient attributes of this node, as the CIB has them; others are left alone.

    Raises:
        CommandError, OSError: some are left; the next monitor of the pools tries again.
    """
    for attribute, state in attributes.items():
        if is_state_of_earlier_release(attribute, state):
            name = attribute.removeprefix(EARLIER_PREFIX)
            if not attrd_cache.of_earlier_release(name).exists():
                node_attributes.delete(runner, attribute)


def is_state_of_earlier_release(attribute: str, value: str) -> bool:
    """Whether an attribute is a replica's state as an earlier release publishes it."""
    return attribute.startswith(EARLIER_PREFIX) and value.startswith(EARLIER_BEGIN)


def publish_if_due(runner: Runner) -> None:
    """Publish the states of all replicas here, if they have changed or a minute has passed.

    Raises:
        CommandError, OSError: as of `publish`.
    """
    _publish_if_due(runner, {})


def _publish_if_due(runner: Runner, without_file: Mapping[str, str]) -> None:
    lock_priority.run_as_actions_do()
    with state_files.locked_without_file(wait_s=_LOCK_S) as is_mine:
        if not is_mine:
            raise CommandError(
                Problem(
                    "SAN-CMD-002",
                    f"another process has been publishing for {_LOCK_S:g} s",
                    "the next monitor tries again",
                )
            )
        pid, cached = attrd_cache.attrd_pid(), attrd_cache.of_states()
        text = pack(_of_this_run({**_states(), **without_file}))
        has_said_nothing = text == NO_STATES and cached.read() == f"{pid} {text}"
        if has_said_nothing or attrd_cache.is_current(cached, pid, text):
            return
        # Before the program: one that is killed may still have been heard, later than it should.
        cached.remove()
        node_attributes.publish_private(runner, STATES_ATTRIBUTE, text)
        attrd_cache.record(cached, pid, text)


def _states() -> dict[str, str]:
    """Return the states by device; without those that an earlier release has published since."""
    return {
        name: state_files.of_device(name, _KIND).read() + _answered_for(name)
        for name in state_files.devices_with(_KIND)
        if not attrd_cache.of_earlier_release(name).exists()
    }


def _answered_for(name: str) -> str:
    """Return the word of monitors that were answered for; empty without any.

    Of its own: what keeps the replica's agent from its monitors keeps it from publishing, too.
    """
    note = state_files.of_node(f"{answered_monitors.NOTE_KIND}.{name}")
    with contextlib.suppress(OSError):
        age_s = note.age_s()
        word = "" if age_s is None else answered_monitors.published_word(note.read(), age_s)
        return f" {answered_monitors.KEY}={word}" if word else ""
    return ""


def _of_this_run(states: dict[str, str]) -> dict[str, str]:
    """Return the states without what was said of hosts in an earlier run of the cluster software.

    The files outlive a run that ended without a stop of the replica. Another node that starts then
    would let hosts in by such a word, although nobody has served them meanwhile.
    """
    if not any(map(says_of_hosts, states.values())):
        return states
    run = cluster_run.here_or_unknown()
    return {name: without_other_runs(state, run) for name, state in states.items()}
