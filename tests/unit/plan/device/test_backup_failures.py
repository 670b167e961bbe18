# SPDX-License-Identifier: GPL-2.0-or-later
"""What is noted of failed backups and of successes, by clocks that may be wrong."""

from __future__ import annotations

import pytest

from sanctl.model.backup_failure import BackupFailure, BackupSuccess
from sanctl.model.cib_change import (
    Change,
    RemoveBackupFailure,
    SetBackupFailure,
    SetBackupSuccess,
)
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Severity
from sanctl.plan.device.backup_failures import (
    is_outlived,
    plan_failure_note,
    plan_failure_removal,
    plan_succeeded,
)
from sanctl.plan.device.backup_intervals import is_overdue
from sanctl.plan.health.backup_health import backup_findings
from tests.unit.ops.test_device import Bench

NOW_S, DAY_S, CODE = 1_764_150_000, 86_400, "SAN-BKP-013"


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create()
    return bench


def uuid(bench: Bench) -> str:
    (device,) = bench.session.observe().cib.devices
    return device.uuid


def seen(bench: Bench, *changes: Change) -> Cluster:
    bench.session.change(lambda _: changes)
    return bench.session.observe()


def succeeded(bench: Bench, at_s: int) -> BackupSuccess:
    return BackupSuccess("vm1", "nas", uuid(bench), at_s)


def failed(bench: Bench, at_s: int, since_s: int | None = None) -> BackupFailure:
    since_s = at_s if since_s is None else since_s
    return BackupFailure("vm1", "nas", uuid(bench), CODE, "n1", at_s, since_s)


def note(cluster: Cluster, failed_s: int, now_s: int = NOW_S) -> tuple[Change, ...]:
    return plan_failure_note(
        cluster, "vm1", "nas", code=CODE, node="n1", failed_s=failed_s, now_s=now_s
    )


@pytest.mark.parametrize("ago_s", [0, 3 * DAY_S])
def test_a_success_of_a_clock_ahead_hides_no_failure(bench: Bench, ago_s: int) -> None:
    """Also of one that broke off days ago: which of both came first is not known."""
    cluster = seen(bench, SetBackupSuccess(success=succeeded(bench, NOW_S + 10 * DAY_S)))
    changes = note(cluster, NOW_S - ago_s)
    assert changes == (
        SetBackupSuccess(success=succeeded(bench, NOW_S - ago_s)),
        SetBackupFailure(failure=failed(bench, NOW_S - ago_s)),
    )
    after = seen(bench, *changes)
    (found,) = after.cib.backup_failures
    assert not is_outlived(after, found), "nor once that time has come"
    later_s = NOW_S + 20 * DAY_S
    (last,) = note(after, later_s, later_s)
    assert last == SetBackupFailure(failure=failed(bench, later_s, NOW_S - ago_s))


def test_a_later_failure_stays_beside_a_success_that_is_put_right(bench: Bench) -> None:
    cluster = seen(
        bench,
        SetBackupSuccess(success=succeeded(bench, NOW_S + DAY_S)),
        SetBackupFailure(failure=failed(bench, NOW_S - 5)),
    )
    changes = note(cluster, NOW_S - 9)
    assert changes == (SetBackupSuccess(success=succeeded(bench, NOW_S - 9)),)
    after = seen(bench, *changes)
    assert not is_outlived(after, after.cib.backup_failures[0])


def test_a_success_of_this_moment_and_one_after_the_failure_count(bench: Bench) -> None:
    cluster = seen(bench, SetBackupSuccess(success=succeeded(bench, NOW_S)))
    assert note(cluster, NOW_S - 1) == ()
    assert note(cluster, NOW_S) == (SetBackupFailure(failure=failed(bench, NOW_S)),)
    assert (
        plan_failure_note(
            cluster, "other", "nas", code=CODE, node="n1", failed_s=NOW_S, now_s=NOW_S
        )
        == ()
    )


def test_a_success_that_is_told_after_its_clock_was_set_back_is_not_noted(bench: Bench) -> None:
    """A failure may have followed it: it stays."""
    cluster = seen(bench, SetBackupFailure(failure=failed(bench, NOW_S - 5)))
    assert plan_succeeded(cluster, succeeded(bench, NOW_S + 61), now_s=NOW_S) == ()
    moment = succeeded(bench, NOW_S + 60)
    assert plan_succeeded(cluster, moment, now_s=NOW_S) == (
        SetBackupSuccess(success=moment),
        RemoveBackupFailure(failure=failed(bench, NOW_S - 5)),
    )


def test_the_next_success_takes_the_place_of_one_of_a_clock_ahead(bench: Bench) -> None:
    cluster = seen(bench, SetBackupSuccess(success=succeeded(bench, NOW_S + DAY_S)))
    new = succeeded(bench, NOW_S)
    assert plan_succeeded(cluster, new, now_s=NOW_S) == (SetBackupSuccess(success=new),)
    cluster = seen(bench, SetBackupSuccess(success=new))
    assert plan_succeeded(cluster, new, now_s=NOW_S) == ()
    assert plan_succeeded(cluster, succeeded(bench, NOW_S - 1), now_s=NOW_S) == ()


@pytest.mark.parametrize(
    ("every_s", "ago_s", "overdue"),
    [
        (0, 99 * DAY_S, False),
        (DAY_S, 0, False),
        (DAY_S, 2 * DAY_S, False),
        (DAY_S, 2 * DAY_S + 1, True),
        (DAY_S, -DAY_S, False),
        (DAY_S, -DAY_S - 1, True),
        (7 * DAY_S, 13 * DAY_S, False),
    ],
)
def test_a_backup_is_overdue_after_two_intervals(
    bench: Bench, every_s: int, ago_s: int, overdue: bool
) -> None:
    success = succeeded(bench, NOW_S - ago_s)._replace(every_s=every_s)
    assert is_overdue(success.succeeded_s, every_s, NOW_S) == overdue
    cluster = seen(bench, SetBackupSuccess(success=success))
    found = list(backup_findings(cluster, now_s=NOW_S))
    assert [each.code for each in found] == ["SAN-HLT-169"] * overdue
    for each in found:
        assert (each.severity, each.subject) == (Severity.WARNING, "device vm1")
        assert ("yet to come" in each.what) == (ago_s < 0)
        assert ("every 24 h" in each.what) == (ago_s > 0)
        assert "'sanctl backup run vm1 --repository nas' on a standby" in each.do


def test_a_backup_of_a_device_that_had_the_name_is_not_awaited(bench: Bench) -> None:
    old = succeeded(bench, 1)._replace(uuid="f" * 32, every_s=DAY_S)
    gone = succeeded(bench, 1)._replace(device="gone", every_s=DAY_S)
    cluster = seen(bench, SetBackupSuccess(success=old), SetBackupSuccess(success=gone))
    assert list(backup_findings(cluster, now_s=NOW_S)) == []


def test_the_interval_stays_beside_a_backup_that_a_person_makes(bench: Bench) -> None:
    timed = succeeded(bench, NOW_S - 9)._replace(every_s=DAY_S)
    cluster = seen(bench, SetBackupSuccess(success=timed))
    (change,) = plan_succeeded(cluster, succeeded(bench, NOW_S), now_s=NOW_S)
    assert change == SetBackupSuccess(success=timed._replace(succeeded_s=NOW_S))
    hourly = succeeded(bench, NOW_S)._replace(every_s=3600)
    assert plan_succeeded(cluster, hourly, now_s=NOW_S) == (SetBackupSuccess(success=hourly),)


def test_forget_takes_the_interval_away_too(bench: Bench) -> None:
    timed = succeeded(bench, NOW_S - 9)._replace(every_s=DAY_S)
    failure = failed(bench, NOW_S)
    cluster = seen(bench, SetBackupSuccess(success=timed), SetBackupFailure(failure=failure))
    changes = plan_failure_removal(cluster, "vm1", "nas")
    assert changes == (
        RemoveBackupFailure(failure=failure),
        SetBackupSuccess(success=succeeded(bench, NOW_S - 9)),
    )
    after = seen(bench, *changes)
    assert plan_failure_removal(after, "vm1", "nas") == ()


@pytest.mark.parametrize(
    ("value", "every_s"),
    [("{} 5", 0), ("{} 5 86400", DAY_S), ("{} 5 86400 1", None), ("{} 5 x", None), ("{}", None)],
)
def test_a_success_as_it_is_read(value: str, every_s: int | None) -> None:
    text = value.format("a" * 32)
    found = BackupSuccess.parse("sanctl-backed-up.vm1.nas", text)
    expected = None if every_s is None else BackupSuccess("vm1", "nas", "a" * 32, 5, every_s)
    assert found == expected
    assert found is None or found.value == text
