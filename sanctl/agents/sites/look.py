# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-sites.service: reads takeovers of devices at the sites, notes them in the CIB.

A cluster whose power returns serves as before. By this program it learns of takeovers meanwhile,
also of devices that no schedule copies. The program may end at any point; without a site's answer
the CIB's notes stay as they are.

A device that awaits its sites (docs/adr/0073) keeps hosts out. The program orders that hosts are
let in, once each of these sites has said that the device was not taken over there.
"""

from __future__ import annotations

import math

from sanctl.agents.promotion import admission
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.site import Site
from sanctl.model.site_takeover import Ending, Takeover
from sanctl.model.utc_time import utc_text
from sanctl.ops.session import Session
from sanctl.ops.site_takeover import note_takeovers
from sanctl.plan.site.holding import NO_SITE, Answer, Held, held, plan_admission, verdict
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

#: An answer is used for so long: the device may have been taken over since.
_FRESH_S = 60.0
#: A second time for a site whose answer has become too old while another one was asked.
_ROUNDS = 2
_NOT_READ, _TOO_OLD = "SAN-SITE-014", "SAN-SITE-026"


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
            cluster = session.observe()
        except SanctlError as error:
            _warn(f"no site was asked: {error}")
            return 0
        look = _Look(session, cluster)
        look.let_in()
        look.ask_others()
    return 0


class _Look:
    """What the sites say. One that has not answered is not asked again: the next run does that."""

    def __init__(self, session: Session, cluster: Cluster) -> None:
        """Take the cluster as it was before any site was asked."""
        self._session, self._cluster = session, cluster
        self._answers: dict[str, tuple[float, Answer]] = {}

    def let_in(self) -> None:
        """Order that hosts are let in where all sites have said so; else note why they are not.

        A site that is silent for long, or answers late, keeps out only the hosts of devices that
        await it: devices that await others are decided without it.
        """
        waiting: dict[tuple[str, ...], list[tuple[DeviceSpec, Held]]] = {}
        for device in self._cluster.cib.devices:
            found = held(self._cluster, device)
            if found is not None:
                waiting.setdefault(device.awaits, []).append((device, found))
        # What one site alone decides goes before what needs several.
        for sites in sorted(waiting, key=lambda names: (len(names), names)):
            for _ in range(_ROUNDS):
                for name in sites:
                    if self._is_too_old(name):
                        site = self._cluster.cib.site(name)
                        self._answers[name] = (
                            _ask(self._session, site) if site else (math.inf, NO_SITE)
                        )
            self._decide(sites, waiting[sites])

    def ask_others(self) -> None:
        """Ask the sites for whose answer no device waits, so that it is noted."""
        cib = self._cluster.cib
        wanted = {each.site for each in cib.copies}.union(*(each.awaits for each in cib.devices))
        for site in cib.sites:
            if site.name in wanted and site.name not in self._answers:
                _ask(self._session, site)

    def _is_too_old(self, name: str) -> bool:
        at_s, _ = self._answers.get(name, (-math.inf, ""))
        return self._session.clock.monotonic_s() - at_s > _FRESH_S

    def _decide(self, sites: tuple[str, ...], waiting: list[tuple[DeviceSpec, Held]]) -> None:
        said = {name: self._answers[name][1] for name in sites}
        # That a device was taken over holds for as long as nobody says otherwise.
        late = _TOO_OLD if any(map(self._is_too_old, sites)) else ""
        asked: list[tuple[DeviceSpec, Held]] = []
        for device, found in waiting:
            why = verdict(device, said) or late
            admission.note_reason(device.name.value, why)
            if not why:
                asked.append((device, found))
        if not asked:
            return
        try:
            changes = self._session.change(
                lambda seen: plan_admission(seen, asked), reads_replicas=False, can_wait=False
            )
        except SanctlError as error:
            _warn(f"hosts could not be let in: {error}")
            return
        if changes:
            names = ", ".join(device.name.value for device, _ in asked)
            journal.write(f"hosts are let in, as no site says otherwise: {names}", action="sites")


def _ask(session: Session, site: Site) -> tuple[float, Answer]:
    """Ask a site, and note what it says; return when it was asked, and its answer.

    A reason why it has not answered does not become too old.
    """
    try:
        with SiteLink.by_ssh(site) as link:
            # How long the connection takes to be made makes no answer older.
            link.hello()
            asked_s = session.clock.monotonic_s()
            noted = note_takeovers(session, site, link)
        for takeover, ending in noted.ended:
            _say_ended(takeover, ending)
        return asked_s, noted.successors
    except (SanctlError, OSError) as error:
        _warn(f"site {site.name} does not say who has taken devices over: {error}")
        code = error.problems[0].code if isinstance(error, SanctlError) else _NOT_READ
        return math.inf, code


def _say_ended(takeover: Takeover, ending: Ending | None) -> None:
    how = f": given back on {ending.by}, {utc_text(ending.ended_s)} UTC" if ending else ""
    text = f"the takeover noted for device {takeover.device} at site {takeover.site} has ended{how}"
    journal.write(text, device=takeover.device, priority=journal.NOTICE, action="sites")


def _warn(text: str) -> None:
    journal.write(text, priority=journal.WARNING, action="sites")
