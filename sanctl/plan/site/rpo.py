# SPDX-License-Identifier: GPL-2.0-or-later
"""Rule: what would be lost of a device with this cluster: how old what is elsewhere is.

A copy counts by when its restore point was made, and only once it is proven; of devices that are
copied together the newest moment that is complete. Where the site has answered, and does not have
what the cluster has noted, the newest that it has counts. A backup counts by when its restore point
was made, and only once it is whole. What is not known counts as not there; so does a moment that
has not come yet, as a clock was ahead that said it, and a backup of which later ones say that it
was misdated. What nothing demands is neither met nor missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sanctl.model.backup import Backup
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.site import CopyRecord, ProvenCopy
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.plan.device.backup_pruning import is_misdated
from sanctl.plan.site.copy_ages import CopyAge, copy_ages
from sanctl.plan.site.copy_order import is_ahead, newest_first
from sanctl.plan.site.group_record import is_group_late
from sanctl.plan.site.grouping import folder_of, moments_of
from sanctl.plan.site.lost_copies import Folders, Noted, lost_copy, lost_moment, noted_at
from sanctl.plan.site.restored import restore_of
from sanctl.plan.site.schedule import is_late


class SiteAnswer(NamedTuple):
    """What a site has said of its copies.

    Attributes:
        folders: all its proven copies, by folder, DEVICE.UUID.
        unread: the names of copies whose notes it cannot read, by folder.
        noted: what the cluster had noted of it before it was asked.
    """

    folders: Folders
    unread: Mapping[str, Sequence[str]]
    noted: Noted


class Elsewhere(NamedTuple):
    """The newest copy or backup of a device in one place.

    Attributes:
        kind: `copy` or `backup`.
        place: the site's or the repository's name.
        name: its restore point's or the backup's name; empty: there is none.
        made_s: what it holds is of that moment, in seconds since 1970; None: there is none, or the
            moment has not come yet.
        every_s: how often one is due by schedule; None: by none that sanctl knows.
        is_late: the schedule is not kept.
        ages: the copies that the site keeps and that count, in the order in which they began to;
            empty: there are none, or it was not asked.
        missing: what the cluster has noted as the newest one there, and the site does not have;
            empty: it has it, or was not asked.
        unread: the names of copies there of which the site cannot read what they are.
    """

    kind: str
    place: str
    name: str
    made_s: int | None
    every_s: int | None
    is_late: bool
    ages: tuple[CopyAge, ...] = ()
    missing: str = ""
    unread: tuple[str, ...] = ()

    def age_s(self, now_s: float) -> int | None:
        """Return how old it is; None: there is none."""
        return max(0, int(now_s) - self.made_s) if self.made_s is not None else None


class DeviceLoss(NamedTuple):
    """What of a device is elsewhere.

    Attributes:
        device: its name.
        elsewhere: the newest in each place.
        lost_s: how much of what was written would be lost with the cluster: the age of the newest
            of them, in seconds; None: all of it.
        is_met: no schedule is late, and what is demanded is there; None: nothing is demanded.
        restored: the last restore from a copy of it in this cluster; None: there was none.
    """

    device: str
    elsewhere: tuple[Elsewhere, ...]
    lost_s: int | None
    is_met: bool | None
    restored: RestoreRecord | None = None


def losses(
    cluster: Cluster,
    backups: Mapping[str, Sequence[Backup]],
    kept: Mapping[str, SiteAnswer],
    *,
    within_s: int | None,
    now_s: float,
) -> tuple[DeviceLoss, ...]:
    """Return what would be lost of each device with the cluster, by name.

    Args:
        cluster: as observed, after sites were asked.
        backups: the whole backups by repository; those that could not be read are left out.
        kept: what sites have, by site; those that were not asked are left out.
        within_s: how old the newest copy or backup may be; None: as old as schedules allow.
        now_s: seconds since 1970.
    """
    return tuple(
        _loss(device, _elsewhere(cluster, device, backups, now_s, kept), within_s, now_s)._replace(
            restored=restore_of(cluster, device.name.value)
        )
        for device in sorted(cluster.cib.devices, key=lambda each: each.name.value)
    )


def _loss(
    device: DeviceSpec, found: tuple[Elsewhere, ...], within_s: int | None, now_s: float
) -> DeviceLoss:
    ages = [age for each in found if (age := each.age_s(now_s)) is not None]
    lost_s = min(ages, default=None)
    is_late = any(each.is_late for each in found)
    is_met = None
    if within_s is not None or is_late or any(each.every_s is not None for each in found):
        is_recent = lost_s is not None and (within_s is None or lost_s <= within_s)
        is_met = is_recent and not is_late
    return DeviceLoss(device.name.value, found, lost_s, is_met)


def _elsewhere(
    cluster: Cluster,
    device: DeviceSpec,
    backups: Mapping[str, Sequence[Backup]],
    now_s: float,
    kept: Mapping[str, SiteAnswer],
) -> tuple[Elsewhere, ...]:
    name = device.name.value
    # Of an earlier device of that name it says nothing.
    records = {
        each.site: each
        for each in cluster.cib.copies
        if each.device == name and each.uuid == device.uuid
    }
    schedules = {each.site: each for each in cluster.cib.copy_schedules if each.device == name}
    groups = {each.site: each for each in cluster.cib.copy_groups if each.has(name, device.uuid)}
    copies = tuple(
        _copy(
            cluster,
            device,
            site,
            (records.get(site), groups.get(site)),
            kept.get(site),
            now_s=now_s,
        )
        for site in sorted({*records, *schedules, *groups})
    )
    return (*copies, *_backups(device, backups, now_s))


def _copy(
    cluster: Cluster,
    device: DeviceSpec,
    site: str,
    known: tuple[CopyRecord | None, GroupRecord | None],
    answer: SiteAnswer | None,
    *,
    now_s: float,
) -> Elsewhere:
    """Return the newest copy at a site that counts.

    Of a device that is copied together with others that is the newest complete moment: with newer
    copies of it alone the devices would not belong together.
    """
    record, group = known
    folder, missing = folder_of(device), ""
    if answer is not None:
        noted = noted_at(cluster, site)
        record, group, missing = _as_answered(folder, record, group, answer, noted)
    schedule = cluster.cib.copy_schedule(device.name.value, site)
    proven: ProvenCopy | CompleteMoment | None = record.proven if record else None
    rule = schedule.rule if schedule else None
    late = schedule is not None and is_late(schedule, record, now_s)
    if group is not None:
        proven, rule = group.complete, group.rule
        late = late or is_group_late(group, now_s)
    return Elsewhere(
        "copy",
        site,
        proven.name if proven else "",
        proven.made_s if proven and not is_ahead(proven.made_s, now_s) else None,
        rule.every_s if rule else None,
        late,
        copy_ages(folder, answer.folders, is_grouped=group is not None) if answer else (),
        missing,
        tuple(answer.unread.get(folder, ())) if answer else (),
    )


def _as_answered(
    folder: str,
    record: CopyRecord | None,
    group: GroupRecord | None,
    answer: SiteAnswer,
    noted: Noted,
) -> tuple[CopyRecord | None, GroupRecord | None, str]:
    """Return what is noted of a device's copies as far as the site has it, and what it lacks."""
    if group is not None:
        moment = lost_moment(folder, answer.noted, noted, answer.folders, answer.unread)
        if moment is None:
            return record, group, ""
        found = next(iter(moments_of(folder, answer.folders)), None)
        there = CompleteMoment(found.name, found.made_s, found.made_s) if found else None
        return record, group._replace(complete=there), moment.name
    copy = lost_copy(folder, answer.noted, noted, answer.folders, answer.unread)
    if record is None or copy is None:
        return record, group, ""
    newest = next(iter(newest_first(answer.folders.get(folder, ()))), None)
    return record._replace(proven=newest), group, copy.name


def _backups(
    device: DeviceSpec, backups: Mapping[str, Sequence[Backup]], now_s: float
) -> tuple[Elsewhere, ...]:
    found = []
    for repository in sorted(backups):
        own = [
            each
            for each in backups[repository]
            # Without a UUID an older release has made it; it counts, as with that release.
            if each.name.device == device.name.value and each.uuid in {"", device.uuid}
        ]
        if own:
            same = {each.uuid: [other for other in own if other.uuid == each.uuid] for each in own}
            known = [each for each in own if not is_misdated(each, same[each.uuid], now_s)]
            newest = max(known or own, key=lambda each: each.name.taken_s)
            found.append(
                Elsewhere(
                    "backup",
                    repository,
                    str(newest.name),
                    newest.name.taken_s if known else None,
                    None,
                    is_late=False,
                )
            )
    return tuple(found)
