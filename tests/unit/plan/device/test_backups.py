# SPDX-License-Identifier: GPL-2.0-or-later
"""Which node reads a device for a backup, which repository is meant, what is left, what stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sanctl.errors import Refused, UsageError
from sanctl.model.backup import Repository, own_point_name
from sanctl.model.cib_change import ClearParameter, SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import NodeState
from sanctl.model.device import DeviceSpec, ReplicaState
from sanctl.model.device_restore import DONE, RestoreOrder
from sanctl.model.findings import Severity
from sanctl.model.names import DeviceName
from sanctl.model.restore_point import PointOrder, RestorePoint
from sanctl.parse.borg import Writer, comment_of
from sanctl.plan.device import backups, restore_progress
from sanctl.plan.device.restoring import CopyBackup, Wait
from sanctl.plan.health.restore_health import restore_findings
from tests.unit.plan.device.test_restoring import GOOD, ORDER, cluster, step

DONE_ORDER = ORDER._replace(state=DONE)
OWN = GOOD._replace(name=own_point_name("4" * 16), token="4" * 16)
BACKUP = RestoreOrder.from_backup("1" * 16, "nas", "web@good.20260101-000000", 1000)


def seen(in_sync: tuple[str, ...] = ("n1", "n2"), **changes: Any) -> Cluster:
    """A device of which n1 is the active node, with replicas in sync on these nodes."""
    made = cluster(DONE_ORDER, **changes)
    replicas = {}
    for node, peer in (("n1", "n2"), ("n2", "n1")):
        disk = "UpToDate" if node in in_sync else "Inconsistent"
        replicas["web", node] = replace(
            ReplicaState(),
            disk=disk,
            role="Primary" if node == "n1" else "Secondary",
            connection="Connected",
            replication="Established",
            peer_disk="UpToDate" if peer in in_sync else "Inconsistent",
            out_of_sync_kib=0,
        )
    return replace(made, cib=replace(made.cib, replicas=replicas))


def device(made: Cluster) -> DeviceSpec:
    found = made.cib.device("web")
    assert found is not None
    return found


def is_read(made: Cluster, here: str, point: RestorePoint | None = None, **options: bool) -> bool:
    options = {"may_be_active": False, "may_be_elsewhere": False} | options
    return backups.check_reader(made, device(made), point, here, **options)


def test_a_standby_reads() -> None:
    made = seen()
    assert backups.readers(made, device(made), None) == ("n2", "n1")
    assert is_read(made, "n2")
    with pytest.raises(Refused, match=r"SAN-BKP-004.*run it on n2"):
        is_read(made, "n1")
    assert is_read(made, "n1", may_be_active=True)


def test_of_those_where_it_runs_one_reads() -> None:
    made = seen()
    assert is_read(made, "n2", may_be_elsewhere=True)
    for on_active in (False, True):
        assert not is_read(made, "n1", may_be_elsewhere=True, may_be_active=on_active)
    assert not is_read(made, "n3", may_be_elsewhere=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"in_sync": ("n1",)},
        {"states": (NodeState.ONLINE, NodeState.OFFLINE)},
        {"states": (NodeState.ONLINE, NodeState.UNCLEAN)},
    ],
)
def test_without_a_standby_it_has_to_be_said(changes: dict[str, Any]) -> None:
    made = seen(**changes)
    for elsewhere in (False, True):
        with pytest.raises(Refused, match=r"SAN-BKP-004.*--on-active"):
            is_read(made, "n1", may_be_elsewhere=elsewhere)
        assert is_read(made, "n1", may_be_active=True, may_be_elsewhere=elsewhere)
    with pytest.raises(Refused, match=r"SAN-BKP-003.*run it on n1"):
        is_read(made, "n2")


def test_where_the_active_node_may_read_the_others_have_not_failed() -> None:
    made = seen(in_sync=("n1",))
    for node, reads in (("n1", True), ("n2", False), ("n3", False)):
        assert is_read(made, node, may_be_elsewhere=True, may_be_active=True) is reads


def test_a_node_without_a_replica_has_not_failed() -> None:
    made = seen(states=(NodeState.ONLINE, NodeState.OFFLINE))
    assert not is_read(made, "n3", may_be_elsewhere=True)
    with pytest.raises(Refused, match=r"SAN-BKP-003.*run it on n1"):
        is_read(made, "n3")
    # No node with a replica is there to say it.
    made = seen(states=(NodeState.OFFLINE, NodeState.OFFLINE))
    with pytest.raises(Refused, match=r"SAN-BKP-003.*no node that is there can"):
        is_read(made, "n3", may_be_elsewhere=True)


def test_a_restore_point_is_read_where_it_is() -> None:
    made = seen(in_sync=("n1",))
    assert is_read(made, "n2", GOOD)
    with pytest.raises(Refused, match=r"SAN-BKP-003.*web@good.*run it on n1"):
        is_read(made, "n2", GOOD._replace(nodes=("n1",)))
    with pytest.raises(Refused, match="no node that is there can"):
        is_read(made, "n2", GOOD._replace(nodes=("n3",)))


def test_which_restore_point_is_not_read() -> None:
    assert backups.point_problem(GOOD) is None
    for point in (GOOD._replace(is_deleting=True), OWN):
        problem = backups.point_problem(point)
        assert problem is not None and problem.code == "SAN-BKP-005"


def test_its_own_restore_point_is_removed_whatever_had_come_of_it() -> None:
    name = "web"
    made = seen(points=(GOOD, OWN))
    assert backups.own_point(made, device(made)) == OWN
    (change,) = backups.plan_own_point_removed(made, name, OWN.token)
    assert change == SetPoint(point=OWN._replace(is_deleting=True))
    # Another backup's, or an operator's.
    assert backups.plan_own_point_removed(made, name, "9" * 16) == ()
    assert backups.plan_own_point_removed(made, "gone", OWN.token) == ()
    going = seen(points=(OWN._replace(is_deleting=True),))
    assert backups.own_point(going, device(going)) is None
    assert backups.plan_own_point_removed(going, name, OWN.token) == ()
    # Ordered, and not made yet: it is not made any more.
    ordered = seen(points=())
    order = PointOrder(OWN.name, OWN.token, 1000)
    cib = replace(ordered.cib, devices=(replace(device(ordered), point_order=order),))
    (withdrawn,) = backups.plan_own_point_removed(replace(ordered, cib=cib), name, OWN.token)
    assert withdrawn == ClearParameter(name=DeviceName.parse(name), parameter="point")
    with pytest.raises(Refused, match="SAN-CLU"):
        backups.plan_own_point_removed(seen(points=(OWN,), has_quorum=False), name, OWN.token)


@pytest.mark.parametrize(
    ("state", "may"),
    [(NodeState.OFFLINE, False), (NodeState.UNCLEAN, True), (NodeState.ONLINE, True)],
)
def test_a_node_that_is_not_known_to_be_gone_may_run_one(state: NodeState, may: bool) -> None:
    made = seen(states=(NodeState.ONLINE, state))
    assert backups.may_run_elsewhere(made, device(made), "n1") is may


BEGUN = "web@good.20260102-000000"
#: When that point was made.
GOOD_S = 1767312000


def archives_of(comment: str) -> dict[str, str]:
    return {
        "web@good.20260101-000000": comment,
        f"{BEGUN}.writing": comment,
        "web@good.20260103-000000.writing.checkpoint": comment,
        "web2@good.20260102-000000.writing": comment,
        "web@mine.writing": comment,
        "other": comment,
    }


def test_what_is_left_of_backups_that_broke_off() -> None:
    there = archives_of("")
    checkpoint = "web@good.20260103-000000.writing.checkpoint"
    assert backups.left_over(there, "web", ()) == (f"{BEGUN}.writing", checkpoint)
    assert backups.left_over(there, "web", (f"{BEGUN}.writing",)) == (checkpoint,)


@pytest.mark.parametrize(
    ("comment", "age_s", "node"),
    [
        (comment_of(1, "a" * 32, Writer("n1", GOOD_S)), 60, None),
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S)), 60, "n2"),
        # A node of that name of another cluster.
        (comment_of(1, "e" * 32, Writer("n1", GOOD_S)), 60, "n1"),
        (comment_of(1, "e" * 32, Writer("n1", GOOD_S)), 7 * 24 * 3600, None),
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S)), 7 * 24 * 3600 - 1, "n2"),
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S)), 7 * 24 * 3600, None),
        # Its clock is ahead.
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S)), -60, "n2"),
        # Of a clock so wrong that it would be open for years.
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S)), -8 * 24 * 3600, None),
        # A restore point may be older than its backup.
        (comment_of(1, "a" * 32, Writer("n2", GOOD_S + 9**9)), 9**9, "n2"),
        ("of an earlier release", 60, "another node"),
        ("of an earlier release", 7 * 24 * 3600, None),
    ],
)
def test_an_archive_that_another_node_may_be_about_to_make_a_backup(
    comment: str, age_s: float, node: str | None
) -> None:
    wanted = {f"{BEGUN}.writing": node} if node else {}
    now_s = GOOD_S + age_s
    found = backups.open_archives(
        archives_of(comment), "web", here="n1", now_s=now_s, own_uuids={"a" * 32}
    )
    assert found == wanted


def test_what_is_kept() -> None:
    counts = {"daily": 14, "weekly": 8}
    assert backups.keep_counts({"last": None, **counts}) == counts
    for nothing in ({}, {"daily": None}, {"last": 0}):
        with pytest.raises(UsageError, match="SAN-BKP-006"):
            backups.keep_counts(nothing)  # type: ignore[arg-type]


def test_which_repository_is_meant() -> None:
    one, two = (Repository(name=name, location=f"/{name}") for name in ("one", "two"))
    assert backups.find_repository((one,), None) == one
    assert backups.find_repository((one, two), "two") == two
    for known, name in (((), None), ((), "one"), ((one, two), None), ((one,), "two")):
        with pytest.raises(Refused, match="SAN-BKP-002"):
            backups.find_repository(known, name)


def test_a_device_is_filled_from_a_backup_when_hosts_are_out() -> None:
    made = cluster(BACKUP, points=())
    assert step(made) == CopyBackup(repository="nas", backup="web@good.20260101-000000")
    assert step(made, is_closed=False) == Wait(why="n1 still lets hosts in")
    assert restore_progress.stuck_problem(made, device(made)) is None
    (finding,) = restore_findings(made, device(made))
    assert finding.severity is Severity.WARNING and "backup nas::web@good" in finding.what
