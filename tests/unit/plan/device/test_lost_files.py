# SPDX-License-Identifier: GPL-2.0-or-later
"""Restore points whose file is gone from a node: what the CIB says then, and `sanctl status`."""

from __future__ import annotations

from dataclasses import replace

from sanctl.model.cib_change import SetPoint
from sanctl.model.cluster import Cluster
from sanctl.model.findings import Severity
from sanctl.model.restore_point import RestorePoint, parse_lost, parse_sizes
from sanctl.plan.device.lost_files import (
    is_expected,
    may_be_added,
    plan_files_found,
    plan_files_lost,
)
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.health.point_health import lost_point_findings
from tests.unit.ops.test_snapshot import Bed, bed

__all__ = ["bed"]


def with_points(bed: Bed, *points: RestorePoint, lost: tuple[tuple[str, str], ...] = ()) -> Cluster:
    seen = bed.seen()
    return replace(seen, cib=replace(seen.cib, points=points, lost_points=frozenset(lost)))


def test_a_file_is_expected_of_a_node_that_is_named_and_later(bed: Bed) -> None:
    point = bed.create("one")._replace(made_s=1000)
    assert is_expected(point, "n1", 1601.0)
    assert not is_expected(point, "n1", 1600.0) and not is_expected(point, "n1", 5.0)
    assert not is_expected(point, "n3", 1601.0)
    assert not is_expected(point._replace(is_deleting=True), "n1", 1601.0)


def test_only_what_the_cib_has_still_is_changed(bed: Bed) -> None:
    point = bed.create("one")
    found = plan_files_lost(with_points(bed, point), [point], "n1")
    assert found == (SetPoint(point=point._replace(nodes=("n2",))),)
    for now in (
        point._replace(name="other"),
        point._replace(token="f" * 16),
        point._replace(is_deleting=True),
        point._replace(nodes=("n2",)),
        point._replace(nodes=("n1",)),
    ):
        assert plan_files_lost(with_points(bed, now), [point], "n1") == ()


def test_a_node_that_is_not_named_may_be_added_later(bed: Bed) -> None:
    point = bed.create("one")._replace(made_s=1000, nodes=("n2",))
    assert may_be_added(point, "n1", 1601.0)
    assert not may_be_added(point, "n1", 1600.0) and not may_be_added(point, "n2", 1601.0)
    assert not may_be_added(point._replace(is_deleting=True), "n1", 1601.0)


def test_a_node_with_a_replica_is_added_to_what_the_cib_has_still(bed: Bed) -> None:
    point = bed.create("one")._replace(nodes=("n2",))
    found = plan_files_found(with_points(bed, point), [point], "n1")
    assert found == (SetPoint(point=point._replace(nodes=("n1", "n2"))),)
    assert plan_files_found(with_points(bed, point), [point], "n3") == ()
    for now in (
        point._replace(name="other"),
        point._replace(token="f" * 16),
        point._replace(is_deleting=True),
        point._replace(nodes=("n1", "n2")),
    ):
        assert plan_files_found(with_points(bed, now), [point], "n1") == ()
    for now in (point._replace(uuid="f" * 32), point._replace(device="gone")):
        assert plan_files_found(with_points(bed, now), [now], "n1") == ()


def test_what_a_node_publishes_of_lost_files() -> None:
    text = f"{'1' * 16}=5 {'2' * 16}=gone x=gone {'3' * 16} gone"
    assert parse_lost(text) == {"2" * 16}
    # As a release reads it that does not know of it.
    assert parse_sizes(text) == {"1" * 16: 5}


def test_findings(bed: Bed) -> None:
    point = bed.create("one")
    gone = (point.token, "n1")
    assert list(lost_point_findings(with_points(bed, point))) == []
    deleted = point._replace(is_deleting=True)
    assert list(lost_point_findings(with_points(bed, deleted, lost=(gone,)))) == []
    for nodes in (("n2",), ("n1", "n2")):
        cluster = with_points(bed, point._replace(nodes=nodes), lost=(gone,))
        (found,) = lost_point_findings(cluster)
        assert (found.severity, found.subject) == (Severity.WARNING, "node n1")
        assert "web@one" in found.what
    assert "SAN-HLT-124" in {each.code for each in all_findings(cluster, None, now_s=0.0)}
    for lost, nodes in (((gone,), ("n1",)), ((gone, (point.token, "n2")), ("n1", "n2"))):
        cluster = with_points(bed, point._replace(nodes=nodes), lost=lost)
        (found,) = lost_point_findings(cluster)
        assert (found.severity, found.subject) == (Severity.CRITICAL, "device web")
        assert "snapshot delete web@one" in found.do
    many = [point._replace(name=f"p{n}", nodes=("n2",)) for n in range(10)]
    (found,) = lost_point_findings(with_points(bed, *many, lost=(gone,)))
    assert found.what.endswith("web@p7 and 2 more")
