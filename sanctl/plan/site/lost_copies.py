# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: whether a site still has the newest copy that the cluster has noted as proven there.

Where its storage went back to an older state, or somebody has removed files, it does not: what the
cluster has noted then says how old a copy is that nobody can use. A run notes its copy before the
site removes the one before, so what was noted both before the site was asked and after it is there,
or lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.site import ProvenCopy
from sanctl.model.site_group import CompleteMoment
from sanctl.plan.site.copy_order import newest_first
from sanctl.plan.site.grouping import moments_of
from sanctl.plan.site.moments import UNLISTED

Folders = Mapping[str, Sequence[ProvenCopy]]
Unread = Mapping[str, Sequence[str]]


class Noted(NamedTuple):
    """What a cluster has noted of the newest copies at a site.

    Attributes:
        copies: the newest proven copy by folder, DEVICE.UUID.
        moments: the newest complete moment by member, DEVICE. and the first digits of the UUID.
    """

    copies: Mapping[str, ProvenCopy]
    moments: Mapping[str, CompleteMoment]


def noted_at(cluster: Cluster, site: str) -> Noted:
    """Return what a cluster has noted of the newest copies at a site."""
    return Noted(
        {
            f"{each.device}.{each.uuid}": each.proven
            for each in cluster.cib.copies
            if each.site == site and each.proven is not None
        },
        {
            member: each.complete
            for each in cluster.cib.copy_groups
            if each.site == site and each.complete is not None
            for member in each.members
        },
    )


def lost_copy(
    folder: str, before: Noted, after: Noted, folders: Folders, unread: Unread | None = None
) -> ProvenCopy | None:
    """Return the noted copy of a device that a site lacks; None: it has it, or none is noted.

    Of a folder that the site cannot read nothing is known to be lost.

    Args:
        folder: the device's folder at the site, DEVICE.UUID.
        before: what the cluster had noted before the site was asked.
        after: what it has noted since.
        folders: what the site has answered: its proven copies, by folder.
        unread: the names of copies there whose notes cannot be read, by folder.
    """
    if folder in _unlisted(unread):
        return None
    noted, earlier = after.copies.get(folder), before.copies.get(folder)
    if noted is None or earlier is None or noted.token != earlier.token:
        return None
    return None if any(each.token == noted.token for each in folders.get(folder, ())) else noted


def lost_moment(
    folder: str, before: Noted, after: Noted, folders: Folders, unread: Unread | None = None
) -> CompleteMoment | None:
    """Return the noted complete moment of a device's group that a site lacks, and no later one has.

    A run that died may have made a later one complete that is not noted: then nothing is lost. Nor
    is it known to be where the site cannot read the folder of one of the group.
    """
    member = _member(folder)
    noted = after.moments.get(member)
    if noted is None or before.moments.get(member) != noted:
        return None
    if any(after.moments.get(_member(each)) == noted for each in _unlisted(unread)):
        return None
    has_it = any(each.made_s >= noted.made_s for each in moments_of(folder, folders))
    return None if has_it else noted


def _member(folder: str) -> str:
    return folder[: folder.index(".") + 9]


def _unlisted(unread: Unread | None) -> list[str]:
    return [folder for folder, names in (unread or {}).items() if UNLISTED in names]


def lost_problem(site: str, folder: str, name: str, newest: str, hint: str) -> Problem:
    """Return that a site lacks a copy, or a complete moment, that was noted as proven there.

    Args:
        site: the site's name.
        folder: the device's folder there, DEVICE.UUID.
        name: the name of what it lacks.
        newest: the name of the newest that it has; empty: it has none.
        hint: what to do.
    """
    device = folder.partition(".")[0]
    has = f"the newest that it has is {newest}" if newest else "it has none of the device"
    return Problem(
        "SAN-SITE-037",
        f"site {site} does not have {device}@{name} any more, which was proven there; {has}",
        f"find out whether its storage is an older state, or somebody has removed it; {hint}",
    )


def refuse_lost(
    site: str,
    folder: str,
    before: Noted,
    after: Noted,
    folders: Folders,
    *,
    unread: Unread | None = None,
) -> None:
    """Refuse to take the newest copy of a device unasked where a newer one was proven.

    Args:
        site: the site's name.
        folder: the device's folder there, DEVICE.UUID.
        before: what the cluster had noted before the site was asked.
        after: what it has noted since.
        folders: what the site has answered: its proven copies, by folder.
        unread: the names of copies there whose notes cannot be read, by folder.

    Raises:
        Refused: the site lacks what this cluster has noted last.
    """
    asked = (folder, before, after, folders, unread)
    lost = lost_copy(*asked) or lost_moment(*asked)
    if lost is not None:
        there = newest_first(folders.get(folder, ()))
        hint = f"or say {folder.partition('.')[0]}@POINT: then what was written after it is lost"
        raise Refused(lost_problem(site, folder, lost.name, there[0].name if there else "", hint))
