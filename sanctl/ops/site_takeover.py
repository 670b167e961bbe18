# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate takeover` and `replicate giveback`: which of two sites goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import Refused
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.site import Site
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Successor
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.takeover import choose_taken, copy_taken, plan_takeovers, taken_over_problem


class TakenOver(NamedTuple):
    """What a takeover has come to.

    Attributes:
        copy: the copy that the device was made from.
        changed: it was not noted before.
        took_back: the other device had taken this one over, and that has ended.
    """

    copy: SiteCopy
    changed: bool
    took_back: bool


def take_over(session: Session, name: DeviceName, connect: Callable[[Site], SiteLink]) -> TakenOver:
    """Note at the site that a device goes on instead of the one whose copy it was made from.

    If that one had taken this one over, that ends, and only then: whatever dies in between, none
    of both is copied.

    Raises:
        Refused: there is no such device, or it was not made from a copy.
        CommandError: a third device goes on already, or the site cannot be reached.
    """
    cluster = session.observe()
    device = existing_device(cluster, name)
    copy = copy_taken(device)
    site = existing_site(cluster, copy.site)
    successor = Successor(name.value, device.uuid, copy.point, int(session.clock.wall_s()))
    own = f"{name}.{device.uuid}"
    session.reporter.update(f"connecting to site {site.name}")
    with connect(site) as link:
        changed = link.take_over(site.path, site.mark, copy.folder, successor)
        current = link.takeovers(site.path, site.mark).get(own)
        took_back = current is not None and current.uuid == copy.uuid
        if took_back:
            link.give_back(site.path, site.mark, own)
        note_takeovers(session, site, link)
    return TakenOver(copy, changed, took_back)


def find_taken(
    session: Session, site_name: str, wanted: WantedCopy, connect: Callable[[Site], SiteLink]
) -> tuple[str, Successor] | None:
    """Return the folder of the device that was taken over that is meant, and by what; or None.

    Raises:
        Refused: there is no such site, or several devices may be meant.
        CommandError: the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    with connect(site) as link:
        return choose_taken(site.name, link.takeovers(site.path, site.mark), wanted)


def give_back(
    session: Session, site_name: str, folder: str, connect: Callable[[Site], SiteLink]
) -> bool:
    """End the takeover of a device, by its folder at the site; return whether there was one.

    Raises:
        Refused: there is no such site.
        CommandError: the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    with connect(site) as link:
        changed = link.give_back(site.path, site.mark, folder)
        note_takeovers(session, site, link)
    return changed


def note_takeovers(session: Session, site: Site, link: SiteLink) -> None:
    """Ask a site who has taken devices over, and note what it says of this cluster's devices.

    Raises:
        CommandError: the site cannot be reached, or the CIB not be changed.
    """
    found = link.takeovers(site.path, site.mark)
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)


def refuse_taken_over(session: Session, site: Site, device: DeviceSpec, link: SiteLink) -> None:
    """Raise Refused if another device goes on instead of one; what the site says is noted."""
    found = link.takeovers(site.path, site.mark)
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    successor = found.get(f"{device.name}.{device.uuid}")
    if successor is not None:
        raise Refused(taken_over_problem(device.name.value, site.name, successor))
