# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `replicate takeover` and `replicate giveback`: which of two sites goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import Refused
from sanctl.model.cib_change import RemoveTakeover
from sanctl.model.device import DeviceSpec
from sanctl.model.names import DeviceName
from sanctl.model.site import Site
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Ending, Successor, Takeover
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.definition import existing_site
from sanctl.plan.site.takeover import (
    choose_taken,
    copy_taken,
    ending_of,
    known_takeovers,
    plan_takeovers,
    taken_over_problem,
)


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


def take_over(
    session: Session, name: DeviceName, node: str, connect: Callable[[Site], SiteLink]
) -> TakenOver:
    """Note at the site that a device goes on instead of the one whose copy it was made from.

    If that one had taken this one over, that ends, and only then: whatever dies in between, none
    of both is copied.

    Args:
        session: the cluster.
        name: the device that goes on.
        node: this node.
        connect: makes a connection to a site.

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
        found = link.takeovers(site.path, site.mark)
        current = known_takeovers(cluster, site.name, found).get(own)
        took_back = current is not None and current.uuid == copy.uuid
        if current is not None and took_back:
            ending = Ending(current, int(session.clock.wall_s()), node)
            link.give_back(site.path, site.mark, own, ending)
        note_takeovers(session, site, link)
    return TakenOver(copy, changed, took_back)


def find_taken(
    session: Session, site_name: str, wanted: WantedCopy, connect: Callable[[Site], SiteLink]
) -> tuple[str, Successor] | None:
    """Return the folder of the device that was taken over that is meant, and by what; or None.

    What the site says is noted.

    Raises:
        Refused: there is no such site, or several devices may be meant.
        CommandError: the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    with connect(site) as link:
        found = link.takeovers(site.path, site.mark)
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    cluster = session.observe()
    return choose_taken(site.name, known_takeovers(cluster, site.name, found), wanted)


def give_back(
    session: Session,
    site_name: str,
    taken: tuple[str, Successor],
    node: str,
    connect: Callable[[Site], SiteLink],
) -> None:
    """End the takeover of a device, also one that is lost at the site.

    The site notes that it has ended, so that the other cluster learns of it.

    Args:
        session: the cluster.
        site_name: the site.
        taken: the folder of the device that was taken over, and by what, as `find_taken` says.
        node: this node.
        connect: makes a connection to a site.

    Raises:
        Refused: there is no such site.
        CommandError: another device has taken over meanwhile, or the site cannot be reached.
    """
    site = existing_site(session.observe(), site_name)
    folder, successor = taken
    with connect(site) as link:
        ending = Ending(successor, int(session.clock.wall_s()), node)
        link.give_back(site.path, site.mark, folder, ending)
        note_takeovers(session, site, link)


class Noted(NamedTuple):
    """What a site says of takeovers, as it was noted.

    Attributes:
        successors: what has taken over, by the folder of the device, DEVICE.UUID; also what the
            site has lost, and this cluster has noted.
        ended: what is noted no more, and by what it has ended.
    """

    successors: dict[str, Successor]
    ended: tuple[tuple[Takeover, Ending | None], ...]


def note_takeovers(session: Session, site: Site, link: SiteLink) -> Noted:
    """Ask a site who has taken devices over, and note what it says of this cluster's devices.

    Raises:
        CommandError: the site cannot be reached, or the CIB not be changed.
    """
    found = link.takeovers(site.path, site.mark)
    made = session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    gone = (each.takeover for each in made if isinstance(each, RemoveTakeover))
    known = known_takeovers(session.observe(), site.name, found)
    return Noted(dict(known), tuple((each, ending_of(each, found)) for each in gone))


def refuse_taken_over(session: Session, site: Site, device: DeviceSpec, link: SiteLink) -> None:
    """Raise Refused if another device goes on instead of one; what the site says is noted."""
    found = link.takeovers(site.path, site.mark)
    session.change(lambda seen: plan_takeovers(seen, site.name, found), reads_replicas=False)
    folder = f"{device.name}.{device.uuid}"
    successor = known_takeovers(session.observe(), site.name, found).get(folder)
    if successor is not None:
        is_lost = folder not in found.successors
        name = device.name.value
        raise Refused(taken_over_problem(name, site.name, successor, is_lost=is_lost))
