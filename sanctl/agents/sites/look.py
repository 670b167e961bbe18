# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-sites.service: asks the sites who has taken devices over, and notes it.

A cluster whose power returns serves as before. This is how it learns what happened meanwhile, also
of devices that no schedule copies. It may end at any point; no answer leaves what was known.
"""

from __future__ import annotations

from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import SanctlError
from sanctl.model.site_takeover import Ending, Takeover
from sanctl.ops.session import Session
from sanctl.ops.site_takeover import note_takeovers
from sanctl.plan.site.takeover import utc_text
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner


class _Silent:
    def update(self, text: str) -> None:
        """Nobody watches."""


def main() -> int:
    """Ask each site that devices were copied to; return the exit status."""
    state_files.make_folder()
    with state_files.locked(state_files.node_lock("sites"), wait_s=0.0) as is_mine:
        if not is_mine:
            return 0
        session = Session(Pacemaker(LocalRunner()), SystemClock(), _Silent())
        try:
            cib = session.observe().cib
        except SanctlError as error:
            _warn(f"no site was asked: {error}")
            return 0
        for site in cib.sites:
            if not any(each.site == site.name for each in cib.copies):
                continue
            try:
                with SiteLink.by_ssh(site) as link:
                    for takeover, ending in note_takeovers(session, site, link):
                        _say_ended(takeover, ending)
            except (SanctlError, OSError) as error:
                _warn(f"site {site.name} does not say who has taken devices over: {error}")
    return 0


def _say_ended(takeover: Takeover, ending: Ending | None) -> None:
    how = f": given back on {ending.by}, {utc_text(ending.ended_s)} UTC" if ending else ""
    text = f"the takeover noted for device {takeover.device} at site {takeover.site} has ended{how}"
    journal.write(text, device=takeover.device, priority=journal.NOTICE, action="sites")


def _warn(text: str) -> None:
    journal.write(text, priority=journal.WARNING, action="sites")
