# SPDX-License-Identifier: GPL-2.0-or-later
"""What would be lost with the cluster, and how long restores took: as JSON fields and texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sanctl.cli.views.site import utc
from sanctl.errors import Problem
from sanctl.model.names import format_bytes
from sanctl.model.site_restore import RestoreRecord
from sanctl.plan.site.choosing import unread_problem
from sanctl.plan.site.copy_ages import CopyAge, worst_s
from sanctl.plan.site.lost_copies import lost_problem
from sanctl.plan.site.moments import UNLISTED
from sanctl.plan.site.rpo import DeviceLoss, Elsewhere

if TYPE_CHECKING:
    from sanctl.cli.documents import report as report_documents

#: Of a device of which no copy was made a device in this cluster; others are not asked.
NEVER = "never tested here"
_COPY_AGAIN = "'sanctl replicate run' makes a new copy"


class RpoReport(NamedTuple):
    """What `sanctl report rpo` has found.

    Attributes:
        cluster: the cluster's name.
        now_s: when, in seconds since 1970.
        within_s: how old the newest copy or backup of a device may be; None: not said.
        devices: the devices, by name.
        others: restores from copies of devices that this cluster does not have.
        unread: why repositories could not be read, by name.
        silent: why sites did not say what they keep, by name.
    """

    cluster: str
    now_s: float
    within_s: int | None
    devices: tuple[DeviceLoss, ...]
    others: tuple[RestoreRecord, ...]
    unread: Mapping[str, Problem]
    silent: Mapping[str, Problem]

    @property
    def gaps(self) -> tuple[str, ...]:
        """What the report does not have, and why."""
        return (
            *(f"repository {name} is not counted: {why}" for name, why in self.unread.items()),
            *(f"site {name} does not say what it keeps: {e}" for name, e in self.silent.items()),
            *map(str, (*self.missing, *self.unclear)),
        )

    @property
    def missing(self) -> tuple[Problem, ...]:
        """Which copies sites lack that were proven there."""
        return tuple(
            lost_problem(each.place, f"{loss.device}.", each.missing, each.name, _COPY_AGAIN)
            for loss in self.devices
            for each in loss.elsewhere
            if each.missing
        )

    @property
    def unclear(self) -> tuple[Problem, ...]:
        """Of which copies sites cannot read what they are."""
        return tuple(
            unread_problem(each.place, f"{loss.device}.", each.unread, _counts(each.unread))
            for loss in self.devices
            for each in loss.elsewhere
            if each.unread
        )


def _counts(unread: Sequence[str]) -> str:
    """Say what counts instead of copies that a site cannot read."""
    return "what the cluster has noted counts" if UNLISTED in unread else "it does not count"


def age_text(seconds: int | None) -> str:
    """Return a duration for people, such as 2d 3:04:05; - for one that is not known."""
    if seconds is None:
        return "-"
    days, rest = divmod(seconds, 86400)
    clock = f"{rest // 3600}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}d {clock}" if days else clock


def met_text(loss: DeviceLoss) -> str:
    """Say whether what is demanded of a device is met; - where nothing is."""
    return "-" if loss.is_met is None else "yes" if loss.is_met else "no"


def lost_text(loss: DeviceLoss) -> str:
    """Say how much would be lost of a device."""
    return "all" if loss.lost_s is None else f"the last {age_text(loss.lost_s)}"


def place_text(each: Elsewhere) -> str:
    """Say where a copy or backup is."""
    return f"{each.kind} {each.place}"


def moment_text(moment_s: int | None) -> str:
    """Return a moment in UTC; none for one that is not there."""
    return "none" if moment_s is None else utc(moment_s).replace("T", " ").removesuffix("Z")


def restore_text(record: RestoreRecord | None) -> str:
    """Say when a copy of a device was made a device here, and how long it took."""
    if record is None:
        return NEVER
    took = "took not known" if record.duration_s is None else _took_text(record.duration_s)
    return f"{utc(record.ended_s)[:10]}, {took} for {format_bytes(record.size_bytes)}"


def source_text(record: RestoreRecord) -> str:
    """Say from which copy which device was made."""
    return f"{record.point} of site {record.site}, as {record.into}"


def folder_text(record: RestoreRecord) -> str:
    """Return the device that was copied, as it is named on the command line."""
    return f"{record.device}.{record.uuid[:8]}"


def _took_text(seconds: int) -> str:
    """Return how long something took, never less: 45 s, 12 min, 3 h 05 min."""
    if seconds < 120:
        return f"{seconds} s"
    minutes = -(-seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def table_rows(report: RpoReport) -> Iterator[tuple[str, ...]]:
    """Return the rows of the table: what is elsewhere of each device."""
    for loss in report.devices:
        head = (loss.device, lost_text(loss), met_text(loss))
        rows = [_row(each, report.now_s) for each in loss.elsewhere]
        first = rows[0] if rows else ("nowhere", "none", "-", "-", "-")
        yield (*head, *first)
        yield from (("", "", "", *row) for row in rows[1:])


def _row(each: Elsewhere, now_s: float) -> tuple[str, ...]:
    # A clock was ahead when it was made.
    is_unknown = bool(each.name) and each.made_s is None
    age = "not known" if is_unknown else age_text(each.age_s(now_s))
    return (
        place_text(each),
        each.name or "none",
        age + (", late" if each.is_late else ""),
        age_text(each.every_s),
        age_text(worst_s(each.ages)),
    )


def restore_rows(report: RpoReport) -> Iterator[tuple[str, ...]]:
    """Return the rows of the table of restores: of each device, and of copies of other ones."""
    for loss in report.devices:
        record = loss.restored
        name = folder_text(record) if record else loss.device
        yield (name, restore_text(record), source_text(record) if record else "-")
    for record in report.others:
        yield (folder_text(record), restore_text(record), source_text(record))


def rpo_data(report: RpoReport) -> report_documents.Rpo:
    """Return the report."""
    return {
        "cluster": report.cluster,
        "at": utc(int(report.now_s)),
        "within_s": report.within_s,
        "unread": sorted(report.unread),
        "silent": sorted(report.silent),
        "devices": [_loss_data(each, report.now_s) for each in report.devices],
        "other_restores": [_restore_data(each) for each in report.others],
    }


def _loss_data(loss: DeviceLoss, now_s: float) -> report_documents.DeviceLoss:
    return {
        "device": loss.device,
        "lost_s": loss.lost_s,
        "met": loss.is_met,
        "restored": _restore_data(loss.restored) if loss.restored else None,
        "elsewhere": [
            {
                "kind": each.kind,
                "place": each.place,
                "name": each.name or None,
                "made": utc(each.made_s) if each.made_s is not None else None,
                "age_s": each.age_s(now_s),
                "every_s": each.every_s,
                "late": each.is_late,
                "worst_s": worst_s(each.ages),
                "kept": [_age_data(age) for age in each.ages],
                "missing": each.missing or None,
            }
            for each in loss.elsewhere
        ],
    }


def _age_data(age: CopyAge) -> report_documents.KeptCopy:
    return {
        "name": age.name,
        "made": utc(age.made_s),
        "proven": utc(age.proven_s),
        "age_before_s": age.before_s,
    }


def _restore_data(record: RestoreRecord) -> report_documents.RestoreTest:
    return {
        "device": record.device,
        "uuid": record.uuid,
        "site": record.site,
        "point": record.point,
        "into": record.into,
        "begun": utc(record.begun_s),
        "ended": utc(record.ended_s),
        "duration_s": record.duration_s,
        "size_bytes": record.size_bytes,
    }
