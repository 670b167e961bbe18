# SPDX-License-Identifier: GPL-2.0-or-later
"""Which backups are deleted: never those of another device, nor one that a clock made the older."""

from __future__ import annotations

from datetime import UTC, datetime

from sanctl.model.backup import OWN_POINT, Backup, BackupName
from sanctl.plan.device.backup_pruning import Pruning, foreign_backup_problems, plan_pruning

OLD, NEW = "e" * 32, "a" * 32
NOW = int(datetime(2026, 11, 25, 12, tzinfo=UTC).timestamp())
DAY = 86400


def backup(
    age_s: int, number: int = 0, uuid: str = NEW, *, device: str = "web", point: str = OWN_POINT
) -> Backup:
    name = BackupName(device, NOW - age_s, point)
    return Backup(name=name, repository="nas", size_bytes=8, uuid=uuid, number=number)


def gone(backups: list[Backup], **keep: int) -> list[int]:
    """Return the ages in days of those that go."""
    found = plan_pruning(backups, "web", keep, NOW, ()).deleted
    return [(NOW - each.taken_s) // DAY for each in found]


def test_of_each_unit_the_newest_stay() -> None:
    """As borg prune does, by days in UTC."""
    twice = [backup(days * DAY + more) for days in range(10) for more in (0, 3600)]
    daily = gone(twice, daily=3)
    assert sorted(set(daily)) == list(range(10)) and daily.count(0) == daily.count(2) == 1
    assert daily.count(3) == 2
    # Those that one unit keeps are not counted by the next.
    assert len(twice) - len(gone(twice, last=2, daily=2)) == 4
    assert gone([backup(days * DAY) for days in (1, 2, 400)], yearly=9) == [2]
    assert gone([backup(1), backup(2)], weekly=5) == [], "the oldest, where there are fewer"
    assert gone([backup(DAY), backup(2 * DAY, device="db")], last=1) == []


def test_each_device_of_the_name_keeps_its_own() -> None:
    """An earlier release does not say which one: those are counted among themselves."""
    earlier = [backup(days * DAY, uuid=OLD) for days in (30, 31, 32)]
    silent = [backup(days * DAY, uuid="") for days in (20, 21)]
    own = [backup(days * DAY, number) for number, days in ((2, 1), (1, 2))]
    assert gone([*own, *earlier, *silent], last=1) == [32, 31, 21, 2]
    assert gone([*own, *earlier, *silent], last=2) == [32]


def test_those_of_another_clusters_device_of_the_name_stay() -> None:
    other = [backup(days * DAY, uuid=OLD) for days in (30, 31)]
    silent = [backup(days * DAY, uuid="") for days in (20, 21)]
    own = [backup(days * DAY) for days in (1, 2)]
    found = plan_pruning([*own, *other, *silent], "web", {"last": 1}, NOW, (), own_uuids={NEW})
    assert found == Pruning((own[1].name,), (), (), (other[1].name, silent[1].name))
    (problem,) = foreign_backup_problems("web", found)
    assert problem.code == "SAN-BKP-031" and str(other[1].name) in problem.text
    assert foreign_backup_problems("web", found._replace(of_others=())) == ()


def test_a_clock_that_was_ahead_makes_nothing_the_newest() -> None:
    ahead = backup(-7 * DAY, 1)
    own = [ahead, backup(3 * DAY, 2), backup(2 * DAY, 3), backup(DAY, 4)]
    assert gone(own, last=1) == [3, 2]
    assert plan_pruning(own, "web", {"last": 1}, NOW, ()).misdated == (ahead.name,)
    # Once its time has come, too, as long as one is there that was stored later.
    own = [backup(DAY, 1), backup(3 * DAY, 2), backup(2 * DAY, 3)]
    assert plan_pruning(own, "web", {"last": 1}, NOW, ()) == Pruning(
        (own[1].name,), (own[0].name,), ()
    )
    # Of an earlier release that is not known.
    own = [backup(DAY), backup(3 * DAY), backup(2 * DAY)]
    assert gone(own, last=1) == [3, 2]


def test_what_was_stored_last_stays_whatever_its_time_says() -> None:
    """A clock was behind; or a restore point that was named is backed up late."""
    behind = backup(400 * DAY, 9)
    assert gone([backup(DAY, 8, point="x"), backup(2 * DAY, 7, point="y"), behind], last=1) == [2]
    late = backup(5 * DAY, 3, point="kept")
    own = [backup(DAY, 2), backup(2 * DAY, 1), late]
    assert plan_pruning(own, "web", {"last": 1}, NOW, ()) == Pruning((own[1].name,), (), ())
