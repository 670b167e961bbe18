# SPDX-License-Identifier: GPL-2.0-or-later
"""Rules: which moment of a group a device is made from, and which devices take over together.

A copy of a device that is copied with others is used as of the newest moment that is complete at
the site. A copy that would leave the devices here of several moments is used only with --allow-mix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.errors import Problem, Refused
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.device_restore import GIVEN_UP
from sanctl.model.names import DeviceName
from sanctl.model.site import ProvenCopy
from sanctl.model.site_copy import SiteCopy, WantedCopy
from sanctl.model.site_takeover import Successor
from sanctl.model.utc_time import utc_text
from sanctl.plan.cluster.preconditions import existing_device
from sanctl.plan.site.choosing import (
    choose_copy,
    meant_folder,
    refuse_unread,
    unread_problem,
)
from sanctl.plan.site.copy_order import is_surely_older, newest_first
from sanctl.plan.site.grouping import group_copies, moments_of
from sanctl.plan.site.moments import UNLISTED, GroupCopy, Moment, moment_of
from sanctl.plan.site.takeover import copy_taken

_OPTION = "--allow-mix"
Folders = Mapping[str, Sequence[ProvenCopy]]


class Choice(NamedTuple):
    """A copy that a device is to hold.

    Attributes:
        copy: the copy, by its names and with its digest.
        proven: the copy as the site has it.
        notes: lines for the operator about the copy's moment; empty: a copy of one device alone.
    """

    copy: SiteCopy
    proven: ProvenCopy
    notes: tuple[str, ...]


def choose_of_moment(
    cluster: Cluster,
    site: str,
    folders: Folders,
    wanted: WantedCopy,
    *,
    filled: DeviceName | None,
    allows_mix: bool,
    unread: Mapping[str, Sequence[str]] | None = None,
) -> Choice:
    """Return the copy that a device is to hold, for a device of a group one of a complete moment.

    Without a named copy the moment is the newest complete one, also if other devices here are of
    another moment: those may have been made for a test.

    Args:
        cluster: the cluster, and what its devices were made from.
        site: the site's name.
        folders: all proven copies at the site, by folder, DEVICE.UUID.
        wanted: the names as the operator typed them.
        filled: the device that is filled; None: a device is created.
        allows_mix: the operator wants the newest or the named copy, whatever moment it is of.
        unread: the names of copies there whose notes cannot be read, by folder.

    Raises:
        Refused: there is no such copy, there are several, or a copy that cannot be read may be the
            newest; the copy is of no complete moment, or the newest moment is not clear; or a
            device is created beside others of another moment.
        CommandError: the site's digest of the copy is not the one that this cluster has noted.
    """
    folder = meant_folder(site, folders, wanted, unread)
    if not any(copy.group for copy in folders[folder]):
        return Choice(*choose_copy(cluster, site, folders, wanted, unread=unread), ())
    moments = moments_of(folder, folders)
    if allows_mix:
        copy, proven = choose_copy(cluster, site, folders, wanted, unread=unread)
        moment = _of_token(moments, folder, proven.token)
        note = "it is of no complete moment of its group, as --allow-mix has it"
        return Choice(copy, proven, _notes(moment, folders) if moment else (note,))
    if wanted.point:
        copy, proven = choose_copy(cluster, site, folders, wanted)
        moment = _of_token(moments, folder, proven.token)
        if moment is None:
            raise Refused(_no_moment(site, folder, f"copy {proven.name}", moments))
    else:
        # A moment with one of them may be complete, and newer.
        group = {each for copy in folders[folder] for each in copy.group}
        refuse_unread(site, folder, unread or {}, sorted(group))
        moment = _newest(site, folder, folders[folder], moments)
        token = moment.token_of(folder)
        copy, proven = choose_copy(cluster, site, folders, wanted, token=token)
    mixed = _others(cluster, moment, folder, filled)
    if mixed and filled is None:
        raise Refused(_mix(moment, mixed))
    notes = _notes(moment, folders)
    if moment.id != moments[0].id:
        notes += (f"the newest complete moment is {moments[0].name}",)
    if mixed:
        notes += (f"of another moment than {moment.name} here: {_listed(mixed)}; fill them, too",)
    return Choice(copy, proven, notes)


def _of_token(moments: Sequence[Moment], folder: str, token: str) -> Moment | None:
    return next((each for each in moments if each.token_of(folder) == token), None)


def _newest(
    site: str, folder: str, copies: Sequence[ProvenCopy], moments: Sequence[Moment]
) -> Moment:
    if not moments:
        raise Refused(_no_moment(site, folder, "what the site has of it", moments))
    last = max(moments, key=lambda each: each.number)
    if last.id != moments[0].id:
        raise Refused(
            Problem(
                "SAN-SITE-019",
                f"of {folder.partition('.')[0]} the newest complete moment is {moments[0].name}, "
                f"and the one that came last is {last.name}: a node's clock may be wrong, or one "
                "run has overtaken another",
                "find out which one holds the latest data, and say DEVICE@POINT",
            )
        )
    own = next(each for each in copies if each.token == moments[0].token_of(folder))
    later = [each for each in copies if not each.group and not is_surely_older(each, own)]
    if later:
        latest = newest_first(later)[0]
        # The group may have ended since, and the moment be months old.
        device = folder.partition(".")[0]
        raise Refused(
            Problem(
                "SAN-SITE-019",
                f"the newest copy of {device} is {latest.name}, {utc_text(latest.made_s)} UTC, of "
                f"it alone; the newest moment that it has with others is {moments[0].name}, "
                f"{utc_text(moments[0].made_s)} UTC",
                f"say {device}@{moments[0].name} for that moment; or {device}@{latest.name} with "
                f"{_OPTION}: what others hold may not belong to it",
            )
        )
    return moments[0]


def _devices_from(
    cluster: Cluster, folder: str, filled: DeviceName | None
) -> list[tuple[DeviceSpec, SiteCopy]]:
    """Return the devices here that hold, or are to hold, a copy in a folder; not the filled one."""
    found = []
    for device in cluster.cib.devices:
        order = device.restore
        copy = order.copy if order is not None and order.state != GIVEN_UP else None
        if copy is not None and copy.folder == folder and device.name != filled:
            found.append((device, copy))
    return found


def _holds(device: DeviceSpec, copy: SiteCopy) -> bool:
    return device.restore is not None and device.restore.held_copy == copy


def _others(
    cluster: Cluster, moment: Moment, folder: str, filled: DeviceName | None
) -> list[tuple[DeviceSpec, SiteCopy]]:
    """Return the devices here from other folders of the group of which none is of the moment."""
    mixed = []
    for other in moment.group:
        found = _devices_from(cluster, other, filled) if other != folder else []
        if not any(moment_of(copy.token) == moment.id for _, copy in found):
            mixed += found
    return mixed


def _listed(found: Sequence[tuple[DeviceSpec, SiteCopy]]) -> str:
    return ", ".join(f"{device.name} ({copy.device}@{copy.point})" for device, copy in found)


def _mix(moment: Moment, mixed: Sequence[tuple[DeviceSpec, SiteCopy]]) -> Problem:
    return Problem(
        "SAN-SITE-029",
        f"devices here would be of several moments of one group: this one of {moment.name}, and "
        f"{_listed(mixed)}",
        f"take the same moment, as DEVICE@POINT; delete what was a test; or {_OPTION}",
    )


def _no_moment(site: str, folder: str, what: str, moments: Sequence[Moment]) -> Problem:
    device = folder.partition(".")[0]
    return Problem(
        "SAN-SITE-028",
        f"device {device} is copied to site {site} together with others, and {what} is of no "
        "moment that is complete there",
        (f"take {device}@{moments[0].name}, the newest one that is; or " if moments else "")
        + f"{_OPTION} takes it, and the devices may not belong together",
    )


def _notes(moment: Moment, folders: Folders) -> tuple[str, ...]:
    """Say of which moment all is, and what the site has of later ones, which is not used."""
    names = ", ".join(folder.partition(".")[0] for folder in moment.group)
    notes = [f"moment {moment.name} of {names}, {utc_text(moment.made_s)} UTC, is complete"]
    for folder in moment.group:
        newest = newest_first(folders[folder])[0]
        later_s = newest.made_s - moment.made_s
        if moment_of(newest.token) != moment.id and later_s > 0:
            notes.append(
                f"not used: the copy {newest.name} of {folder.partition('.')[0]} alone, "
                f"{-(-later_s // 60)} min later"
            )
    return tuple(notes)


def devices_taking_over(
    cluster: Cluster, names: Sequence[DeviceName], folders: Folders, *, allows_mix: bool
) -> tuple[DeviceSpec, ...]:
    """Return the devices that take over together: the named ones and the rest of their group.

    Args:
        cluster: the cluster, and what its devices were made from.
        names: the devices that were typed.
        folders: all proven copies at the site, by folder, DEVICE.UUID.
        allows_mix: the operator wants those that were typed alone, whatever they were made from.

    Raises:
        Refused: there is no such device; a device was not made from a copy; or this cluster has
            none, or several, made from the same moment's copy of another device of the group.
    """
    found = {name: existing_device(cluster, name) for name in names}
    copies = {name: copy_taken(device) for name, device in found.items()}
    if allows_mix:
        return tuple(found.values())
    problems: list[Problem] = []
    for name in names:
        copy = copies[name]
        for folder in _group_of(copy, folders):
            there = _devices_from(cluster, folder, name)
            same = [
                each
                for each, its in there
                if moment_of(its.token) == moment_of(copy.token) and _holds(each, its)
            ]
            named = [each for each in same if each.name in copies]
            same = named or same
            if len(same) == 1:
                found[same[0].name] = same[0]
                continue
            problems.append(_not_together(found[name], copy, folder, there, len(same)))
    if problems:
        raise Refused(*problems)
    return tuple(found.values())


def _group_of(copy: SiteCopy, folders: Folders) -> tuple[str, ...]:
    """Return the other folders of the group that a copy is of.

    What the copy says; where the site has it no more, or it is of its device alone, what the newest
    copies of the device say: a device that is copied with others belongs to them.
    """
    copies = [each for each in group_copies(folders) if each.folder == copy.folder]
    own = [each for each in copies if each.token == copy.token]
    newest = max(own or copies, key=lambda each: each.number, default=None)
    return tuple(each for each in newest.group if each != copy.folder) if newest else ()


def refuse_unlisted(
    site: str, folder: str, folders: Folders, unread: Mapping[str, Sequence[str]]
) -> None:
    """Refuse where a site cannot read the folder of a device, or of one that it is copied with.

    Which devices belong together is not known then.

    Args:
        site: the site's name.
        folder: the device's folder there, DEVICE.UUID.
        folders: all proven copies at the site, by folder.
        unread: the names of copies there whose notes cannot be read, by folder.
    """
    group = {each for copy in folders.get(folder, ()) for each in copy.group}
    for each in (folder, *sorted(group)):
        if UNLISTED in unread.get(each, ()):
            hint = f"or {_OPTION}: then of {folder.partition('.')[0]} alone"
            raise Refused(unread_problem(site, each, unread[each], hint))


def taken_together(
    folder: str, taken: Mapping[str, Successor], folders: Folders
) -> tuple[str, ...]:
    """Return the folders of the devices that were taken over together with a device.

    These devices are of its group, have not left it, and were taken over from the copy of the same
    restore point. A device that was taken over by itself, or from another moment, is given back by
    itself.

    Args:
        folder: the folder of the device.
        taken: the devices that go on, by the folder of the replaced device.
        folders: all proven copies at the site, by folder, DEVICE.UUID.
    """
    point = taken[folder].point
    own = [copy for copy in group_copies(folders) if copy.folder == folder]
    # Where the site has the copy no more, any group of the device says which others may be meant.
    of_point = [copy for copy in own if copy.name == point] or own
    together = {other for copy in of_point for other in copy.group if not _has_left(other, own)} - {
        folder
    }
    return tuple(
        sorted(other for other in together.intersection(taken) if taken[other].point == point)
    )


def _has_left(folder: str, copies: Sequence[GroupCopy]) -> bool:
    """Whether a device has left the group by the word of copies, and not come back since."""
    said = [copy for copy in copies if folder in copy.group or folder in copy.left]
    return folder not in max(said, key=lambda copy: copy.number).group


def _not_together(
    device: DeviceSpec,
    copy: SiteCopy,
    folder: str,
    there: Sequence[tuple[DeviceSpec, SiteCopy]],
    count: int,
) -> Problem:
    other = folder.partition(".")[0]
    has = f"; from others: {_listed(there)}" if there and not count else ""
    return Problem(
        "SAN-SITE-029",
        f"device {device.name} was made from {copy.device}@{copy.point}, and {count or 'no'} "
        f"device{'s' if count else ''} here from the copy of {other} of that moment{has}",
        "name the one that goes on, too"
        if count
        else f"'sanctl replicate restore' or 'failback' of {other} from that moment; or {_OPTION}: "
        f"then {device.name} alone goes on instead of {copy.device}",
    )
