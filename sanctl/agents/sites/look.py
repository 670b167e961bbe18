# SPDX-License-Identifier: GPL-2.0-or-later
"""Program of sanctl-sites.service: asks the sites who has taken devices over, and notes it.

A cluster whose power returns serves as before. This is how it learns what happened meanwhile, also
of devices that no schedule copies. It may end at any point; no answer leaves what was known.

Of a device that awaits its sites (docs/adr/0073), and keeps hosts out until then, it orders that
they are let in, once each of these sites has said that it was not taken over there.
"""

from __future__ import annotations

from sanctl.agents.promotion import admission
from sanctl.drivers.pacemaker import Pacemaker
from sanctl.drivers.site_link import SiteLink
from sanctl.errors import SanctlError
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.site_takeover import Ending, Takeover
from sanctl.ops.session import Session
from sanctl.ops.site_takeover import note_takeovers
from sanctl.plan.site.holding import Answer, Held, held, plan_admission, verdict
from sanctl.plan.site.takeover import utc_text
from sanctl.system import journal, state_files
from sanctl.system.clock import SystemClock
from sanctl.system.runner import LocalRunner

#: An answer is used for so long: who was asked may have been taken over since.
_FRESH_S = 60.0
_NOT_READ = "SAN-SITE-014"


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
        answers: dict[str, tuple[float, Answer]] = {}
        for site in cluster.cib.sites:
            is_copied_to = any(each.site == site.name for each in cluster.cib.copies)
            if not is_copied_to and not any(site.name in d.awaits for d in cluster.cib.devices):
                continue
            asked_s = session.clock.monotonic_s()
            try:
                with SiteLink.by_ssh(site) as link:
                    noted = note_takeovers(session, site, link)
                for takeover, ending in noted.ended:
                    _say_ended(takeover, ending)
                answers[site.name] = asked_s, noted.successors
            except (SanctlError, OSError) as error:
                _warn(f"site {site.name} does not say who has taken devices over: {error}")
                code = error.problems[0].code if isinstance(error, SanctlError) else _NOT_READ
                answers[site.name] = asked_s, code
        _let_in(session, cluster, answers)
    return 0


def _say_ended(takeover: Takeover, ending: Ending | None) -> None:
    how = f": given back on {ending.by}, {utc_text(ending.ended_s)} UTC" if ending else ""
    text = f"the takeover noted for device {takeover.device} at site {takeover.site} has ended{how}"
    journal.write(text, device=takeover.device, priority=journal.NOTICE, action="sites")


def _let_in(session: Session, cluster: Cluster, answers: dict[str, tuple[float, Answer]]) -> None:
    """Order that hosts are let in where all sites have said so; else note why they are not.

    Args:
        session: the cluster.
        cluster: as it was before the sites were asked.
        answers: what each has said, and when it was asked.
    """
    now_s = session.clock.monotonic_s()
    fresh = {site: said for site, (at_s, said) in answers.items() if now_s - at_s <= _FRESH_S}
    missing: dict[str, Answer] = {
        name: "SAN-SITE-002"
        for device in cluster.cib.devices
        for name in device.awaits
        if cluster.cib.site(name) is None
    }
    asked: list[tuple[DeviceSpec, Held]] = []
    for device in cluster.cib.devices:
        found = held(cluster, device)
        if found is None:
            continue
        why = verdict(device, {**missing, **fresh})
        admission.note_reason(device.name.value, why)
        if not why:
            asked.append((device, found))
    if not asked:
        return
    try:
        changes = session.change(lambda seen: plan_admission(seen, asked), reads_replicas=False)
    except SanctlError as error:
        _warn(f"hosts could not be let in: {error}")
        return
    if changes:
        names = ", ".join(device.name.value for device, _ in asked)
        journal.write(f"hosts are let in, as no site says otherwise: {names}", action="sites")


def _warn(text: str) -> None:
    journal.write(text, priority=journal.WARNING, action="sites")
