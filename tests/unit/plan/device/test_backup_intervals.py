# SPDX-License-Identifier: GPL-2.0-or-later
"""How often backups are expected: of several timers, and of one that has made none yet."""

from __future__ import annotations

import pytest

from sanctl.errors import Refused
from sanctl.model.backup_failure import BackupSuccess, ExpectedBackup
from sanctl.model.cib_change import (
    Change,
    RemoveBackupFailure,
    RemoveExpectedBackup,
    SetBackupFailure,
    SetBackupSuccess,
    SetExpectedBackup,
)
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Finding, Severity
from sanctl.model.names import DeviceName
from sanctl.plan.device.backup_failures import plan_failure_removal, plan_succeeded
from sanctl.plan.device.backup_intervals import plan_first_run, plan_interval, shortest_s
from sanctl.plan.health.backup_health import backup_findings
from tests.unit.ops.test_device import Bench
from tests.unit.plan.device.test_backup_failures import (
    DAY_S,
    NOW_S,
    bench,
    failed,
    seen,
    succeeded,
    uuid,
)

__all__ = ["bench"]

VM1, WEEK_S = DeviceName.parse("vm1"), 7 * DAY_S


def expected(bench: Bench, since_s: int, every_s: int = DAY_S) -> ExpectedBackup:
    return ExpectedBackup("vm1", "nas", uuid(bench), since_s, every_s)


def timed(bench: Bench, at_s: int, every_s: int) -> BackupSuccess:
    return succeeded(bench, at_s)._replace(every_s=every_s)


def first_run(cluster: Cluster, every_s: int, now_s: int = NOW_S) -> tuple[Change, ...]:
    return plan_first_run(cluster, "vm1", "nas", every_s=every_s, now_s=now_s)


def interval(cluster: Cluster, every_s: int, now_s: int = NOW_S) -> tuple[Change, ...]:
    return plan_interval(cluster, VM1, "nas", every_s=every_s, now_s=now_s)


def found(cluster: Cluster, now_s: int) -> list[Finding]:
    return list(backup_findings(cluster, now_s=now_s))


def test_a_weekly_backup_does_not_put_the_daily_one_off(bench: Bench) -> None:
    cluster = seen(bench, SetBackupSuccess(success=timed(bench, NOW_S - DAY_S, DAY_S)))
    changes = plan_succeeded(cluster, timed(bench, NOW_S, WEEK_S), now_s=NOW_S)
    assert changes == (SetBackupSuccess(success=timed(bench, NOW_S, DAY_S)),)
    after = seen(bench, *changes)
    assert found(after, NOW_S + 2 * DAY_S) == []
    assert [each.code for each in found(after, NOW_S + 2 * DAY_S + 1)] == ["SAN-HLT-169"]


def test_a_daily_backup_comes_before_the_weekly_one(bench: Bench) -> None:
    cluster = seen(bench, SetBackupSuccess(success=timed(bench, NOW_S - DAY_S, WEEK_S)))
    (change,) = plan_succeeded(cluster, timed(bench, NOW_S, DAY_S), now_s=NOW_S)
    assert change == SetBackupSuccess(success=timed(bench, NOW_S, DAY_S))
    assert shortest_s((0, WEEK_S, DAY_S)) == DAY_S and shortest_s((0,)) == shortest_s(()) == 0


def test_a_timer_that_is_changed_has_its_own_interval(bench: Bench) -> None:
    """The playbook says it: else the daily one would be awaited that is there no more."""
    cluster = seen(bench, SetBackupSuccess(success=timed(bench, NOW_S - DAY_S, DAY_S)))
    changes = interval(cluster, WEEK_S)
    assert changes == (SetBackupSuccess(success=timed(bench, NOW_S - DAY_S, WEEK_S)),)
    after = seen(bench, *changes)
    assert interval(after, WEEK_S) == () and found(after, NOW_S + WEEK_S) == []
    with pytest.raises(Refused, match="SAN-DEV-002"):
        plan_interval(cluster, DeviceName.parse("none"), "nas", every_s=DAY_S, now_s=NOW_S)


def test_a_timer_that_was_set_up_and_makes_nothing_is_told(bench: Bench) -> None:
    changes = interval(bench.session.observe(), DAY_S)
    assert changes == (SetExpectedBackup(expected=expected(bench, NOW_S)),)
    cluster = seen(bench, *changes)
    assert found(cluster, NOW_S + 2 * DAY_S) == []
    (late,) = found(cluster, NOW_S + 2 * DAY_S + 1)
    assert (late.code, late.severity, late.subject) == (
        "SAN-HLT-171",
        Severity.WARNING,
        "device vm1",
    )
    assert "every 24 h" in late.what and "2025-11-26" in late.what
    assert "'sanctl backup forget vm1 --repository nas'" in late.do
    (ahead,) = found(cluster, NOW_S - DAY_S - 1)
    assert "yet to come" in ahead.what
    # The first moment stays, with another interval too.
    assert interval(cluster, DAY_S, NOW_S + 9) == ()
    (changed,) = interval(cluster, WEEK_S, NOW_S + 9)
    assert changed == SetExpectedBackup(expected=expected(bench, NOW_S, WEEK_S))


def test_the_first_run_of_a_timer_is_noted_once(bench: Bench) -> None:
    cluster = bench.session.observe()
    assert first_run(cluster, 0) == ()
    assert plan_first_run(cluster, "none", "nas", every_s=DAY_S, now_s=NOW_S) == ()
    changes = first_run(cluster, WEEK_S)
    assert changes == (SetExpectedBackup(expected=expected(bench, NOW_S, WEEK_S)),)
    after = seen(bench, *changes)
    assert first_run(after, WEEK_S, NOW_S + 9) == ()
    (changed,) = first_run(after, DAY_S, NOW_S + 9)
    assert changed == SetExpectedBackup(expected=expected(bench, NOW_S, DAY_S))
    with_success = seen(bench, SetBackupSuccess(success=succeeded(bench, NOW_S)))
    assert first_run(with_success, DAY_S) == ()


def test_a_timer_of_a_device_that_had_the_name_is_another_one(bench: Bench) -> None:
    old = expected(bench, 5)._replace(uuid="f" * 32)
    gone = old._replace(device="gone")
    cluster = seen(bench, SetExpectedBackup(expected=old), SetExpectedBackup(expected=gone))
    assert found(cluster, NOW_S) == []
    new = (SetExpectedBackup(expected=expected(bench, NOW_S)),)
    assert first_run(cluster, DAY_S) == new and interval(cluster, DAY_S) == new
    success = succeeded(bench, NOW_S)
    assert plan_succeeded(cluster, success, now_s=NOW_S) == (
        RemoveExpectedBackup(expected=old),
        SetBackupSuccess(success=success),
    )


def test_the_first_success_ends_the_waiting_and_has_its_interval(bench: Bench) -> None:
    known = expected(bench, NOW_S - 9)
    cluster = seen(bench, SetExpectedBackup(expected=known))
    changes = plan_succeeded(cluster, succeeded(bench, NOW_S), now_s=NOW_S)
    assert changes == (
        RemoveExpectedBackup(expected=known),
        SetBackupSuccess(success=timed(bench, NOW_S, DAY_S)),
    )
    after = seen(bench, *changes)
    assert after.cib.expected_backups == ()
    assert [each.code for each in found(after, NOW_S + 3 * DAY_S)] == ["SAN-HLT-169"]
    # As a release leaves it that knows nothing of the waiting.
    beside = seen(bench, SetExpectedBackup(expected=known))
    assert found(beside, NOW_S + 9) == []


def test_a_first_try_that_failed_says_more_than_the_waiting(bench: Bench) -> None:
    known = expected(bench, NOW_S - 3 * DAY_S)
    failure = failed(bench, NOW_S)
    cluster = seen(bench, SetExpectedBackup(expected=known), SetBackupFailure(failure=failure))
    (said,) = found(cluster, NOW_S)
    assert said.code == "SAN-HLT-158" and "(SAN-BKP-013)" in said.what
    assert "none has succeeded since the first try, at 2025-11-23" in said.what
    # One of a device that had the name says nothing of this one.
    old = failure._replace(uuid="f" * 32)
    cluster = seen(bench, SetBackupFailure(failure=old))
    assert [each.code for each in found(cluster, NOW_S)] == ["SAN-HLT-171"]
    cluster = seen(
        bench,
        SetExpectedBackup(expected=known._replace(uuid="f" * 32)),
        SetBackupFailure(failure=failure),
    )
    (said,) = found(cluster, NOW_S)
    assert "it was the first try" in said.what


def test_a_failure_after_a_success_says_since_when(bench: Bench) -> None:
    cluster = seen(
        bench,
        SetBackupSuccess(success=succeeded(bench, NOW_S - 9 * DAY_S)),
        SetBackupFailure(failure=failed(bench, NOW_S, NOW_S - DAY_S)),
    )
    (said,) = found(cluster, NOW_S)
    assert "none has succeeded since 2025-11-25" in said.what and "first try" not in said.what
    cluster = seen(bench, SetBackupFailure(failure=failed(bench, NOW_S)))
    (said,) = found(cluster, NOW_S)
    assert "succeeded since" not in said.what and "first try" not in said.what


def test_forget_ends_the_waiting_too(bench: Bench) -> None:
    known, failure = expected(bench, 5), failed(bench, NOW_S)
    cluster = seen(bench, SetExpectedBackup(expected=known), SetBackupFailure(failure=failure))
    changes = plan_failure_removal(cluster, "vm1", "nas")
    assert changes == (
        RemoveBackupFailure(failure=failure),
        RemoveExpectedBackup(expected=known),
    )
    assert found(seen(bench, *changes), NOW_S) == []


@pytest.mark.parametrize("value", ["{} 5", "{} 5 6 7", "{} x 6", "x 5 6", ""])
def test_what_says_nothing_of_a_timer(value: str) -> None:
    text = value.format("a" * 32)
    assert ExpectedBackup.parse("sanctl-backup-expected.vm1.nas", text) is None


def test_what_is_expected_is_read_as_it_was_written() -> None:
    known = ExpectedBackup("vm1", "nas", "a" * 32, 5, 6)
    assert ExpectedBackup.parse(known.id, known.value) == known
    assert ExpectedBackup.parse(f"z{known.id}", known.value) is None
