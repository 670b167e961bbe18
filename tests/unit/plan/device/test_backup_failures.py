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
from sanctl.plan.device.backup_failures import is_outlived, plan_failure_note, plan_succeeded
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
