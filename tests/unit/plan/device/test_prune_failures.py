# SPDX-License-Identifier: GPL-2.0-or-later
"""What is noted of failed prunes, and of a device that had the name."""

from __future__ import annotations

import pytest

from sanctl.model.backup_failure import PruneFailure
from sanctl.model.cib_change import Change, RemovePruneFailure, SetPruneFailure
from sanctl.model.cluster import Cluster
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.device.prune_failures import plan_prune_failure, plan_prune_succeeded
from sanctl.plan.health.backup_health import backup_findings
from tests.unit.ops.test_device import Bench
from tests.unit.plan.device.test_backup_failures import NOW_S, bench, seen, uuid

__all__ = ["bench"]


def failed(bench: Bench, at_s: int, since_s: int) -> PruneFailure:
    return PruneFailure("vm1", "nas", uuid(bench), "SAN-BKP-013", "n1", at_s, since_s)


def note(cluster: Cluster, at_s: int, device: str = "vm1") -> tuple[Change, ...]:
    return plan_prune_failure(cluster, device, "nas", code="SAN-BKP-013", node="n1", failed_s=at_s)


def test_the_first_failure_says_since_when(bench: Bench) -> None:
    cluster = bench.session.observe()
    assert note(cluster, NOW_S, "none") == () == plan_prune_succeeded(cluster, "vm1", "nas")
    first = failed(bench, NOW_S, NOW_S)
    assert note(cluster, NOW_S) == (SetPruneFailure(failure=first),)
    assert added_text(cluster, note(cluster, NOW_S)) == first.value
    cluster = seen(bench, *note(cluster, NOW_S))
    assert note(cluster, NOW_S + 9) == (SetPruneFailure(failure=failed(bench, NOW_S + 9, NOW_S)),)
    # A node's clock is behind.
    behind = failed(bench, NOW_S - 9, NOW_S - 9)
    assert note(cluster, NOW_S - 9) == (SetPruneFailure(failure=behind),)
    gone = plan_prune_succeeded(cluster, "vm1", "nas")
    assert gone == (RemovePruneFailure(failure=first),)
    assert plan_prune_succeeded(cluster, "vm1", "far") == ()
    assert seen(bench, *gone).cib.prune_failures == ()


def test_a_failure_of_a_device_that_had_the_name_is_none(bench: Bench) -> None:
    old = failed(bench, 5, 5)._replace(uuid="f" * 32)
    gone = old._replace(device="gone")
    cluster = seen(bench, SetPruneFailure(failure=old), SetPruneFailure(failure=gone))
    assert list(backup_findings(cluster, now_s=NOW_S)) == []
    new = failed(bench, NOW_S, NOW_S)
    assert note(cluster, NOW_S) == (SetPruneFailure(failure=new),)
    assert plan_prune_succeeded(cluster, "vm1", "nas") == (RemovePruneFailure(failure=old),)


@pytest.mark.parametrize("value", ["{} SAN-BKP-013 n1 9", "{} bkp n1 9 5", "x SAN-BKP-013 n1 9 5"])
def test_what_is_no_note(value: str) -> None:
    identifier = "sanctl-backup-prune.vm1.nas"
    assert PruneFailure.parse(identifier, value.format("a" * 32)) is None


def test_a_note_is_read_as_it_was_written() -> None:
    known = PruneFailure("vm1", "nas", "a" * 32, "SAN-BKP-013", "n1", 9, 5)
    assert PruneFailure.parse(known.id, known.value) == known
    assert PruneFailure.parse("sanctl-backup.vm1.nas", known.value) is None
