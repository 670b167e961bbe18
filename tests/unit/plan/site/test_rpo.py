# SPDX-License-Identifier: GPL-2.0-or-later
"""What would be lost with the cluster: what is not known counts as not there."""

from __future__ import annotations

import pytest

from sanctl.model.backup import OWN_POINT, Backup, BackupName
from sanctl.model.cluster import Cluster
from sanctl.model.point_schedule import PointSchedule, Rule
from sanctl.model.site import CopyRecord, CopySchedule, ProvenCopy
from sanctl.model.site_group import CompleteMoment, GroupRecord
from sanctl.model.site_restore import RestoreRecord
from sanctl.plan.site.grouping import folder_of
from sanctl.plan.site.lost_copies import Folders, noted_at
from sanctl.plan.site.rpo import DeviceLoss, Elsewhere, SiteAnswer, losses
from tests.unit.plan.device.test_restoring import SPEC, cluster

NOW = 1_800_000_000
COPY = ProvenCopy("p", "b" * 16, NOW - 600, NOW - 500, 8, 4, 2, "c" * 64)
RECORD = CopyRecord("web", "far", SPEC.uuid, "", COPY)
EVERY = CopySchedule("web", "far", 0, Rule(900, 7))


def backup(device: str, age_s: int, uuid: str = "") -> Backup:
    name = BackupName(device, NOW - age_s, "p")
    return Backup(name=name, repository="nas", size_bytes=None, uuid=uuid)


def loss(
    *records: CopyRecord,
    schedules: tuple[CopySchedule, ...] = (),
    backups: tuple[Backup, ...] = (),
    within_s: int | None = None,
    kept: dict[str, Folders] | None = None,
    restored: tuple[RestoreRecord, ...] = (),
) -> DeviceLoss:
    seen: Cluster = cluster(None, copies=records, copy_schedules=schedules, restored=restored)
    answers = {
        site: SiteAnswer(folders, {}, noted_at(seen, site))
        for site, folders in (kept or {}).items()
    }
    (found,) = losses(seen, {"nas": backups}, answers, within_s=within_s, now_s=NOW + 0.5)
    return found


def test_nothing_is_elsewhere() -> None:
    assert loss() == DeviceLoss("web", (), None, is_met=None), "nothing is demanded"
    assert loss(within_s=10**9).is_met is False
    # A copy that was never proven, one of an earlier device, backups of another one.
    nothing = loss(
        RECORD._replace(proven=None),
        RECORD._replace(uuid="0" * 32, site="near"),
        backups=(backup("db", 1),),
        within_s=10**9,
    )
    assert nothing.lost_s is None and nothing.is_met is False
    assert nothing.elsewhere == (Elsewhere("copy", "far", "", None, None, is_late=False),)


def test_the_newest_counts_of_what_is_there() -> None:
    found = loss(RECORD, backups=(backup("web", 900), backup("web", 50)), within_s=60)
    assert found.lost_s == 50 and found.is_met
    copy, newest = found.elsewhere
    assert (copy.place, copy.age_s(NOW)) == ("far", 600)
    assert newest.name.startswith("web@p.") and newest.age_s(NOW) == 50
    assert not loss(RECORD, backups=(backup("web", 61),), within_s=60).is_met


@pytest.mark.parametrize(("age_s", "is_late"), [(2700, False), (2761, True)])
def test_a_schedule_that_is_late(age_s: int, is_late: bool) -> None:
    record = RECORD._replace(proven=COPY._replace(made_s=NOW - age_s))
    found = loss(record, schedules=(EVERY,))
    assert found.elsewhere[0].is_late is is_late and found.is_met is not is_late
    # A new backup does not make it kept.
    assert loss(record, schedules=(EVERY,), backups=(backup("web", 1),)).is_met is not is_late


def test_a_schedule_of_which_there_is_no_copy() -> None:
    found = loss(schedules=(EVERY,))
    assert found.lost_s is None and not found.is_met and found.elsewhere[0].every_s == 900
    begun = loss(schedules=(EVERY._replace(set_s=NOW - 60),))
    assert begun.is_met is False, "the first one takes its time, and nothing is there"
    assert not begun.elsewhere[0].is_late
    assert loss(schedules=(EVERY._replace(set_s=NOW - 60),), backups=(backup("web", 1),)).is_met


def test_a_moment_ahead_is_no_negative_age() -> None:
    ahead = RECORD._replace(proven=COPY._replace(made_s=NOW + 50))
    assert loss(ahead).lost_s == 0


def test_a_moment_that_has_not_come_yet_counts_as_nothing() -> None:
    """A clock was ahead, and is put back: for a week nothing would be too old."""
    ahead = RECORD._replace(proven=COPY._replace(made_s=NOW + 7 * 86400))
    found = loss(ahead, schedules=(EVERY,), within_s=10**9)
    assert found.lost_s is None and found.is_met is False and found.elsewhere[0].is_late
    assert found.elsewhere[0].name == COPY.name, "it is there, and how old it is is not known"
    found = loss(backups=(backup("web", -7 * 86400), backup("web", 50)), within_s=60)
    assert found.lost_s == 50
    assert loss(backups=(backup("web", -7 * 86400),), within_s=60).is_met is False


def test_of_a_group_the_newest_complete_moment_counts() -> None:
    """A newer copy of one device alone does not belong to what the others have."""

    def of_group(record: GroupRecord, schedules: tuple[CopySchedule, ...] = ()) -> DeviceLoss:
        seen = cluster(None, copies=(RECORD,), copy_groups=(record,), copy_schedules=schedules)
        (found,) = losses(seen, {}, {}, within_s=None, now_s=NOW)
        return found

    group = GroupRecord.of([("web", SPEC.uuid), ("log", "1" * 32)], "far")
    assert of_group(group).lost_s is None
    complete = group._replace(complete=CompleteMoment("g", NOW - 7200, NOW - 7000))
    assert of_group(complete) == DeviceLoss(
        "web", (Elsewhere("copy", "far", "g", NOW - 7200, None, is_late=False),), 7200, is_met=None
    )
    timed = complete._replace(schedule=PointSchedule(0, (EVERY.rule,)))
    assert of_group(timed).elsewhere[0].every_s == 900 and not of_group(timed).is_met
    late = EVERY._replace(rule=Rule(60, 7))
    assert not of_group(complete, (late,)).is_met
    other = GroupRecord.of([("web", "9" * 32), ("log", "1" * 32)], "far")
    assert of_group(other).lost_s == 600, "of an earlier device of the name"


def test_backups_of_an_earlier_device_of_the_name_do_not_count() -> None:
    earlier, own = backup("web", 60, "e" * 32), backup("web", 7200, SPEC.uuid)
    assert loss(backups=(earlier,)).lost_s is None
    assert loss(backups=(earlier, own)).lost_s == 7200
    assert loss(backups=(own, backup("web", 300))).lost_s == 300, "an older release did not say"


def test_a_backup_that_a_clock_made_too_new_does_not_count() -> None:
    """For a day its time has come, and the one that was stored later says that it was wrong."""

    def stored(number: int, age_s: int) -> Backup:
        name = BackupName("web", NOW - age_s, OWN_POINT)
        return Backup(name=name, repository="nas", size_bytes=1, uuid=SPEC.uuid, number=number)

    wrong, later = stored(1, 60), stored(2, 7200)
    found = loss(backups=(wrong, later), within_s=3600)
    assert found.lost_s == 7200 and found.is_met is False
    assert found.elsewhere[0].name == str(later.name)
    assert loss(backups=(wrong,)).lost_s == 60, "nothing says so"
    # One of an older release is not of the same order.
    assert loss(backups=(wrong, backup("web", 7200))).lost_s == 60


def test_what_a_site_keeps_and_the_last_restore() -> None:
    older = COPY._replace(name="o", token="e" * 16, made_s=NOW - 4000, proven_s=NOW - 3900)
    kept: dict[str, Folders] = {"far": {folder_of(SPEC): (COPY, older)}}
    record = RestoreRecord("web", SPEC.uuid, "far", "o", "test", NOW - 90, NOW - 30, 8)
    found = loss(RECORD, kept=kept, restored=(record,))
    assert [each.before_s for each in found.elsewhere[0].ages] == [None, 3500]
    assert found.restored == record and found.is_met is None
    assert loss(RECORD).elsewhere[0].ages == (), "it was not asked"


def test_a_copy_that_the_site_lacks_does_not_count() -> None:
    """Its storage went back to an older state: what the cluster has noted nobody can use."""
    older = COPY._replace(name="o", token="e" * 16, made_s=NOW - 9000, proven_s=NOW - 8900)
    here = folder_of(SPEC)
    found = loss(RECORD, schedules=(EVERY,), kept={"far": {here: (older,)}})
    assert found.elsewhere[0].missing == "p" and found.elsewhere[0].name == "o"
    assert found.lost_s == 9000 and found.elsewhere[0].is_late and found.is_met is False
    empty = loss(RECORD, kept={"far": {}}, within_s=10**9)
    assert empty.lost_s is None and empty.is_met is False and empty.elsewhere[0].missing == "p"
    assert loss(RECORD, kept={"far": {here: (older, COPY)}}).elsewhere[0].missing == ""
    # The copies of an earlier device of the name are in a folder of their own.
    assert loss(RECORD, kept={"far": {"web." + "0" * 32: (COPY,)}}).lost_s is None


def test_a_copy_that_came_while_the_site_was_asked_is_not_missing() -> None:
    seen = cluster(None, copies=(RECORD,))
    older = COPY._replace(name="o", token="e" * 16)
    before = noted_at(cluster(None, copies=(RECORD._replace(proven=older),)), "far")
    answer = SiteAnswer({folder_of(SPEC): (older,)}, {folder_of(SPEC): ("x",)}, before)
    (found,) = losses(seen, {}, {"far": answer}, within_s=None, now_s=NOW)
    assert found.elsewhere[0].missing == "" and found.elsewhere[0].name == "p"
    assert found.elsewhere[0].unread == ("x",)


def test_a_complete_moment_that_the_site_lacks_does_not_count() -> None:
    names = (folder_of(SPEC), "log." + "1" * 32)

    def moment(name: str, digit: str, age_s: int) -> dict[str, tuple[ProvenCopy, ...]]:
        made = COPY._replace(name=name, made_s=NOW - age_s, group=tuple(sorted(names)))
        return {
            folder: (made._replace(token=digit * 12 + f"{number:04x}", number=number + 1),)
            for number, folder in enumerate(names)
        }

    group = GroupRecord.of([("web", SPEC.uuid), ("log", "1" * 32)], "far")
    group = group._replace(complete=CompleteMoment("g", NOW - 600, NOW - 500))
    seen = cluster(None, copies=(RECORD,), copy_groups=(group,))

    def found(folders: Folders) -> Elsewhere:
        answer = SiteAnswer(folders, {}, noted_at(seen, "far"))
        (each,) = losses(seen, {}, {"far": answer}, within_s=None, now_s=NOW)
        return each.elsewhere[0]

    assert found(moment("g", "a", 600)).missing == ""
    # A run that died has made a later one complete, and has not noted it.
    assert found(moment("h", "b", 60)).missing == ""
    older = found(moment("f", "c", 7200))
    assert (older.missing, older.name, older.made_s) == ("g", "f", NOW - 7200)
    none = found({names[0]: moment("f", "c", 7200)[names[0]]})
    assert (none.missing, none.name, none.made_s) == ("g", "", None)
