# SPDX-License-Identifier: GPL-2.0-or-later
"""What the pool agent publishes of Corosync's links: those that are lost beside one that works.

Nothing else says so before the last link goes as well: the membership is whole, and Corosync's log
alone has a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.drivers import corosync
from sanctl.errors import SanctlError
from sanctl.model.lost_link import format_links, parse_links
from sanctl.plan.health.lost_links import lost_links
from sanctl.system import journal, state_files

if TYPE_CHECKING:
    from sanctl.system.runner import Runner

#: Between two looks, each a process. A link that is down at two of them is published.
_EVERY_S = 30.0


def field(runner: Runner) -> str:
    """Return what is published, after a blank; empty where no link is lost.

    What cannot be found out is logged, and what was found out last is published.
    """
    said = ""
    try:
        note = state_files.of_node("corosync-links")
        age_s = note.age_s()
        before = note.read()
        seen_before, _, said = before.partition(" ")
        if age_s is None or not 0.0 <= age_s < _EVERY_S:
            # First: a Corosync that does not answer is not asked by every monitor.
            note.write(before)
            seen = lost_links(corosync.links(runner))
            # One that is down at one look alone may be a link that has just come up.
            said = format_links(seen & parse_links(seen_before))
            note.write(f"{format_links(seen)} {said}")
    except (SanctlError, OSError) as error:
        journal.write(
            f"the state of Corosync's links is not known: {error}",
            priority=journal.WARNING,
            action="links",
        )
    return f" links-down={said}" if said else ""
