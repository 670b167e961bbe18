# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run does beside its faults: restore points at random moments, copies to a second site."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sanctl.lab.chaos.ledgers import DeviceLedger
from sanctl.lab.chaos.paced import FAILURES, PrintLine, Watch
from sanctl.lab.chaos.point_watch import PointWatch
from sanctl.lab.chaos.report import BesideReport
from sanctl.lab.chaos.site_faults import SiteFaults
from sanctl.lab.chaos.site_watch import SiteWatch, server_of
from sanctl.lab.harness import site_server
from sanctl.lab.harness.lab_session import LabSession


@dataclass(frozen=True, slots=True, kw_only=True)
class BesidePlan:
    """What is done beside the faults of a run.

    Attributes:
        seed: decides the moments of restore points, and the nodes that commands are given to.
        points_s: the mean interval of restore points; None: none are made.
        site_s: the interval of copies to the second site; None: there is none.
        server: the host that is its server.
    """

    seed: int = 0
    points_s: float | None = None
    site_s: float | None = None
    server: str = ""


NOTHING = BesidePlan()


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What goes on beside the faults.

    Attributes:
        points: makes restore points.
        copies: makes copies.
        faults: injects the faults of the second site.
    """

    points: PointWatch | None = None
    copies: SiteWatch | None = None
    faults: SiteFaults | None = None

    @property
    def watches(self) -> Sequence[Watch]:
        """All that is judged; copies first, as their restore points may be gone later."""
        return tuple(each for each in (self.copies, self.points) if each is not None)

    def finish(self) -> list[str]:
        """Return what keeps one more restore point and copy from being made and being right."""
        return [text for each in self.watches for text in each.finish()]

    def report(self) -> BesideReport:
        """Return what is known so far."""
        return BesideReport(
            points=self.points.tally if self.points else None,
            copies=self.copies.tally if self.copies else None,
            worst_age_s=self.copies.worst_age_s() if self.copies else 0.0,
        )


@contextlib.contextmanager
def opened(
    bed: LabSession, loads: Sequence[DeviceLedger], plan: BesidePlan, print_line: PrintLine
) -> Iterator[Beside]:
    """Prepare what goes on beside the faults, all of it of the first device; end it at the end.

    Raises:
        CommandError: the host cannot be made the server of a site, or the cluster does not take it.
    """
    points = copies = faults = None
    with contextlib.ExitStack() as ends:
        if plan.site_s is not None:
            where = server_of(plan.server)
            copies = SiteWatch(
                bed, loads[0], where, seed=plan.seed, every_s=plan.site_s, print_line=print_line
            )
            # What a run has left that was killed, or that found something wrong.
            site_server.remove(bed, where)
            ends.callback(_remove_site, bed, copies, print_line)
            address = site_server.make(bed, where)
            copies.add(address)
            ends.callback(copies.end)
            faults = SiteFaults(bed, copies, print_line)
        if plan.points_s is not None:
            points = PointWatch(
                bed, loads[0], seed=plan.seed, mean_s=plan.points_s, print_line=print_line
            )
            ends.callback(points.end)
        yield Beside(points=points, copies=copies, faults=faults)


def _remove_site(bed: LabSession, copies: SiteWatch, print_line: PrintLine) -> None:
    """Remove the site, unless something is wrong with its copies: then they are evidence."""
    server = copies.where.server
    if copies.tally.wrong:
        print_line(f"the site on {server} stays, to be looked at; the next run removes it")
        return
    try:
        site_server.remove(bed, copies.where)
    except FAILURES as error:
        # After a fault from which the cluster did not recover.
        print_line(f"the site on {server} is not removed, the next run does it: {error}")
