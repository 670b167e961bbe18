# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a second site may be added or removed; else the CIB's changes."""

from __future__ import annotations

from collections.abc import Collection

from sanctl.errors import Problem, Refused
from sanctl.model.cib_change import (
    Change,
    RemoveCopy,
    RemoveCopySchedule,
    RemoveGroupRecord,
    RemoveRestored,
    RemoveSite,
    RemoveTakeover,
    SetSite,
)
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.site import SITE_PREFIX, Site
from sanctl.model.site_takeover import Takeover
from sanctl.plan.cluster.preconditions import refuse_without_quorum, unreadable_device_problems
from sanctl.plan.device.restore_refusals import being_restored_problem, unknown_content_problem
from sanctl.plan.site.copying import point_removal
from sanctl.plan.site.hold_release import sites_to_ask
from sanctl.plan.site.takeover import takeover_text

TAKEN_OVER = "SAN-SITE-039"
"""The refusal that an operator may accept: who goes on instead of a device is told by the site."""


def existing_site(cluster: Cluster, name: str) -> Site:
    """Return the site of that name.

    Raises:
        Refused: there is none, or its entry in the CIB cannot be read.
    """
    site = cluster.cib.site(name)
    if site is not None:
        return site
    if f"{SITE_PREFIX}{name}" in cluster.cib.ids:
        raise Refused(
            Problem(
                "SAN-SITE-012",
                f"the CIB's entry of site {name} cannot be read",
                "upgrade sanctl on this node if a later release made it; else note the schedules "
                "and groups ('sanctl replicate status'), which go with it: 'sanctl site remove' "
                "and 'sanctl site add' make it anew",
            )
        )
    known = ", ".join(each.name for each in cluster.cib.sites)
    raise Refused(
        Problem(
            "SAN-SITE-002",
            f"there is no site {name}",
            f"sites are: {known}" if known else "'sanctl site add' makes one",
        )
    )


def plan_site_addition(cluster: Cluster, site: Site) -> tuple[Change, ...]:
    """Return the change that adds a site.

    Raises:
        Refused: there is a site of that name, or no quorum.
    """
    refuse_without_quorum(cluster)
    refuse_taken(cluster, site.name)
    return (SetSite(site=site),)


def plan_site_limit(cluster: Cluster, name: str, limit_bytes_s: int) -> tuple[Change, ...]:
    """Return the change by which a site gets another limit of the rate; none if it has that.

    Raises:
        Refused: there is no such site, or no quorum.
    """
    refuse_without_quorum(cluster)
    site = existing_site(cluster, name)
    if site.limit_bytes_s == limit_bytes_s:
        return ()
    return (SetSite(site=site._replace(limit_bytes_s=limit_bytes_s)),)


def plan_site_place(cluster: Cluster, moved: Site) -> tuple[Change, ...]:
    """Return the change by which a site is at another place; none if it is there.

    What is known of copies there stays: the directory was found to carry the site's mark.

    Args:
        cluster: the cluster.
        moved: the site as it was looked at, at the place where it is now.

    Raises:
        Refused: there is no such site, it is another one by now, or no quorum.
    """
    refuse_without_quorum(cluster)
    site = existing_site(cluster, moved.name)
    if site.mark != moved.mark:
        raise Refused(
            Problem(
                "SAN-SITE-006",
                f"site {moved.name} was removed and added meanwhile: it is another directory now",
                "'sanctl site list' shows it",
            )
        )
    # The limit is that of now.
    changed = moved._replace(limit_bytes_s=site.limit_bytes_s)
    return () if changed == site else (SetSite(site=changed),)


def refuse_taken(cluster: Cluster, name: str) -> None:
    """Raise Refused if there is a site of that name, readable or not."""
    if f"{SITE_PREFIX}{name}" in cluster.cib.ids:
        raise Refused(
            Problem(
                "SAN-SITE-003",
                f"there is a site {name} already",
                f"another name; or 'sanctl site remove {name}' first, which leaves its copies "
                "and takes its schedules along",
            )
        )


def awaited_problem(device: DeviceSpec, site: str) -> Problem:
    """Return that a site is not removed while a device awaits it."""
    return Problem(
        "SAN-SITE-024",
        f"device {device.name} awaits site {site} after a restart of the cluster",
        f"first: 'sanctl replicate set {device.name} --to {site} --no-hold-after-restart'",
    )


def _taken_over_problem(takeover: Takeover) -> Problem:
    """Return that a site is not removed while another device goes on by what it says."""
    name, site = takeover.device, takeover.site
    said = takeover_text(site, takeover.successor, is_lost=takeover.is_lost)
    return Problem(
        TAKEN_OVER,
        f"device {name} is taken over: {said}. Without the site nothing tells of that any more, "
        "and hosts may write to both",
        f"bring home what was written there (docs/howto/site-lost.md), or end it: 'sanctl "
        f"replicate giveback {name} --at {site}'; --accept {TAKEN_OVER} removes the site all "
        "the same",
    )


def taken_over_at(cluster: Cluster, name: str) -> tuple[Takeover, ...]:
    """Return the takeovers of this cluster's devices of which a site has told."""
    return tuple(
        each
        for each in cluster.cib.takeovers
        if each.site == name and cluster.cib.takeover(each.device, name) is not None
    )


def plan_site_removal(
    cluster: Cluster, name: str, *, accepted: Collection[str] = ()
) -> tuple[Change, ...]:
    """Return the changes that remove a site, and the restore points that are kept for it.

    Its copies stay there.

    Raises:
        Refused: there is no such site, no quorum, a device is being filled from a copy there, or
            awaits it; or one cannot be read; or it says that another device has taken over one of
            this cluster, and that was not accepted.
    """
    refuse_without_quorum(cluster)
    unread = unreadable_device_problems(
        cluster, f"may be being filled from site {name}, or await it"
    )
    if unread:
        raise Refused(*unread)
    users = [
        device
        for device in cluster.cib.devices
        # Also of one that is held as a copy there, and is to become something else.
        if name in sites_to_ask(cluster, device)
    ]
    if users:
        raise Refused(
            *(
                being_restored_problem(cluster, device)
                if device.is_restoring
                else unknown_content_problem(cluster, device)
                or being_restored_problem(cluster, device)
                for device in users
            )
        )
    waiting = [device for device in cluster.cib.devices if name in device.awaits]
    if waiting:
        raise Refused(*(awaited_problem(device, name) for device in waiting))
    if f"{SITE_PREFIX}{name}" not in cluster.cib.ids:
        existing_site(cluster, name)
    taken_over = taken_over_at(cluster, name)
    if taken_over and TAKEN_OVER not in accepted:
        raise Refused(*map(_taken_over_problem, taken_over))
    changes: list[Change] = []
    for record in cluster.cib.copies:
        if record.site == name:
            tokens = (record.attempt, record.proven.token if record.proven else "")
            changes += point_removal(cluster, record.device, tokens)
            changes.append(RemoveCopy(record=record))
    changes += [
        RemoveCopySchedule(schedule=each)
        for each in cluster.cib.copy_schedules
        if each.site == name
    ]
    changes += [
        RemoveGroupRecord(record=each) for each in cluster.cib.copy_groups if each.site == name
    ]
    changes += [
        RemoveTakeover(takeover=each) for each in cluster.cib.takeovers if each.site == name
    ]
    changes += [RemoveRestored(record=each) for each in cluster.cib.restored if each.site == name]
    return (*changes, RemoveSite(name=name))
