# SPDX-License-Identifier: GPL-2.0-or-later
"""Carries out `site add`, `site set`, `site remove` and `replicate schedule`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from sanctl.drivers.site_link import SiteLink
from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.names import DeviceName
from sanctl.model.point_schedule import Rule
from sanctl.model.site import Site, fingerprint_of
from sanctl.ops.cib_room import within_room
from sanctl.ops.session import Session
from sanctl.plan.cluster.preconditions import refuse_without_quorum
from sanctl.plan.site.definition import (
    existing_site,
    plan_site_addition,
    plan_site_limit,
    plan_site_place,
    plan_site_removal,
    refuse_taken,
)
from sanctl.plan.site.group_record import plan_group_schedule
from sanctl.plan.site.schedule import plan_copy_schedule


def add_site(
    session: Session,
    wanted: Site,
    connect: Callable[[Site], SiteLink],
    *,
    fingerprint: str,
    ipc_buffer_bytes: int,
) -> Site:
    """Look at a second site, mark its directory as one, and add it.

    Args:
        session: the cluster.
        wanted: the site, with the mark that its directory gets if it has none, and without a key.
        connect: makes a connection to it.
        fingerprint: the fingerprint that the server's key must have; empty: any.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.

    Raises:
        Refused: there is a site of that name, no quorum, or the server has another key.
        CommandError: it cannot be reached, or the directory is none that can be a site.
    """
    cluster = session.observe()
    refuse_without_quorum(cluster)
    refuse_taken(cluster, wanted.name)
    session.reporter.update(f"connecting to {wanted.address}")
    with connect(wanted) as link:
        link.hello()
        key = _key_of(link, wanted.name, fingerprint)
        site = wanted._replace(host_key=key, mark=link.survey(wanted.path, wanted.mark))
    session.change(
        within_room(session, lambda seen: plan_site_addition(seen, site), ipc_buffer_bytes)
    )
    return site


def _key_of(link: SiteLink, name: str, fingerprint: str) -> str:
    """Return the server's key; refuse one that does not have the fingerprint, if one is given."""
    key = link.host_key()
    if fingerprint and fingerprint_of(key) != fingerprint:
        raise Refused(
            Problem(
                "SAN-SITE-015",
                f"the server of site {name} has the key {fingerprint_of(key)}, not {fingerprint}",
                "'ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub' on the server shows it",
            )
        )
    return key


class Place(NamedTuple):
    """Where a site is; None: where it was.

    Attributes:
        address: user, host and port.
        path: the directory.
    """

    address: tuple[str, str, int] | None = None
    path: str | None = None


def move_site(
    session: Session,
    name: str,
    place: Place,
    connect: Callable[[Site], SiteLink],
    *,
    fingerprint: str,
    ipc_buffer_bytes: int,
) -> tuple[Site, bool]:
    """Find a site at another place, such as after its disk was carried there.

    Its directory has to carry the mark of this site, so all that is known of the copies stays
    true, and the next copy goes on from the newest one. Nothing is written there.

    Args:
        session: the cluster.
        name: the site.
        place: where it is now.
        connect: makes a connection to a site.
        fingerprint: the fingerprint that the server's key must have; empty: any at another
            address, and the key that is known at the same one.
        ipc_buffer_bytes: the IPC buffer of the Pacemaker that runs here.

    Returns:
        The site, and whether there was anything to do.

    Raises:
        Refused: there is no such site, no quorum, or the server has another key.
        CommandError: it cannot be reached, or the directory there is not this site's.
    """
    cluster = session.observe()
    refuse_without_quorum(cluster)
    site = existing_site(cluster, name)
    user, host, port = place.address or (site.user, site.host, site.port)
    is_known = not fingerprint and (host, port) == (site.host, site.port)
    moved = site._replace(
        user=user,
        host=host,
        port=port,
        path=place.path or site.path,
        host_key=site.host_key if is_known else "",
    )
    session.reporter.update(f"connecting to {moved.address}")
    with connect(moved) as link:
        link.hello()
        moved = moved._replace(host_key=_key_of(link, name, fingerprint))
        # In this order: a directory with the mark is marked no more.
        link.folders(moved.path, moved.mark)
        link.survey(moved.path, moved.mark)
    changes = session.change(
        within_room(session, lambda seen: plan_site_place(seen, moved), ipc_buffer_bytes)
    )
    return existing_site(session.observe(), name), bool(changes)


def limit_site(session: Session, name: str, limit_bytes_s: int) -> tuple[Site, bool]:
    """Limit what is sent to a site in a second, from the next copy on; 0: no limit.

    Returns:
        The site, and whether there was anything to do.

    Raises:
        Refused: there is no such site, or no quorum.
    """
    changes = session.change(lambda seen: plan_site_limit(seen, name, limit_bytes_s))
    return existing_site(session.observe(), name), bool(changes)


def change_copy_schedule(
    session: Session, device: DeviceName, site: str, rule: Rule | None, *, ipc_buffer_bytes: int
) -> bool:
    """Have a device copied to a site by itself; without a rule, by command alone.

    Returns:
        Whether there was anything to do.

    Raises:
        Refused: there is no such device or site, or the device has no standby.
    """

    def plan(seen: Cluster) -> tuple[Change, ...]:
        return plan_copy_schedule(seen, device, site, rule, session.clock.wall_s())

    return bool(session.change(within_room(session, plan, ipc_buffer_bytes)))


def change_group_schedule(
    session: Session,
    devices: Sequence[DeviceName],
    site: str,
    rule: Rule | None,
    *,
    ipc_buffer_bytes: int,
) -> bool:
    """Have devices copied to a site together by themselves; without a rule that ends.

    Returns:
        Whether there was anything to do.

    Raises:
        Refused: there is no such device or site, a device has no standby, or another group with one
            of them is copied by a schedule.
    """
    names = [device.value for device in devices]

    def plan(seen: Cluster) -> tuple[Change, ...]:
        return plan_group_schedule(seen, names, site, rule, session.clock.wall_s())

    return bool(session.change(within_room(session, plan, ipc_buffer_bytes)))


def remove_site(session: Session, name: str, *, accepted: Collection[str] = ()) -> None:
    """Remove a second site, and the restore points that are kept for it. Its copies stay there.

    Raises:
        Refused: there is no such site, no quorum, or what `plan_site_removal` says.
    """
    session.change(lambda seen: plan_site_removal(seen, name, accepted=accepted))
