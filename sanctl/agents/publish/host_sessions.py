# SPDX-License-Identifier: GPL-2.0-or-later
"""Publishes which hosts have sessions with this node: commands ask, and no agent does."""

from __future__ import annotations

from sanctl.agents.publish import attrd_cache
from sanctl.drivers import lio_sessions, node_attributes
from sanctl.errors import SanctlError
from sanctl.model.host_session import SESSIONS_ATTRIBUTE, format_sessions
from sanctl.system import journal
from sanctl.system.runner import Runner


def publish(runner: Runner) -> None:
    """Publish the sessions, if they changed; an error is logged, and the next monitor tries again.

    Not in the CIB: each change of that starts the scheduler, and hosts log in when they like.
    """
    try:
        text = format_sessions(lio_sessions.sessions())
        pid, cached = attrd_cache.attrd_pid(), attrd_cache.of_sessions()
        if not attrd_cache.is_current(cached, pid, text):
            node_attributes.publish_private(runner, SESSIONS_ATTRIBUTE, text)
            attrd_cache.record(cached, pid, text)
    except (SanctlError, OSError) as error:
        journal.write(
            f"the hosts' sessions could not be published: {error}",
            priority=journal.WARNING,
            action="pool",
        )
