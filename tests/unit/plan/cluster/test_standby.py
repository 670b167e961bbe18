# SPDX-License-Identifier: GPL-2.0-or-later
"""A state left from before a replica stopped lets no other node go, and no replica be dropped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sanctl.errors import Refused
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, NodeState, Role
from sanctl.model.device import (
    DeviceSpec,
    OutdatedMark,
    ReplicaState,
    Tombstone,
    access_digest,
)
from sanctl.model.findings import Severity
from sanctl.model.names import DeviceName, Iqn, NodeName
from sanctl.model.restore_point import RestorePoint
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.convergence import standby_progress
from sanctl.plan.cluster.draining import drain_outlook
from sanctl.plan.cluster.preconditions import refuse_unless_changeable
from sanctl.plan.cluster.standby import plan_standby
from sanctl.plan.cluster.takeover import takeover_obstacle
from sanctl.plan.device.alteration import plan_move
from sanctl.plan.device.deletion import check_deletion
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.health.device_health import device_findings
from sanctl.plan.health.release_health import needs_findings
from sanctl.plan.pool.flash_mode import reformat_problems
from sanctl.plan.replicas.node_replacement import plan_replacement
from sanctl.plan.replicas.replica_safety import (
    drop_problems,
    is_known_up_to_date,
    new_replica_problems,
)
from sanctl.plan.site.definition import plan_site_removal
from tests.fakes.topology import topology

GOLDEN = Path(__file__).parents[3] / "golden" / "pacemaker"
VM1, N1, N2 = DeviceName.parse("vm1"), NodeName.parse("n1"), NodeName.parse("n2")


@pytest.fixture(params=[path.name for path in sorted(GOLDEN.iterdir()) if path.is_dir()])
def running(request: pytest.FixtureRequest) -> Cluster:
    """n1 serves vm1, n2's replica is in sync."""
    folder = GOLDEN / str(request.param)
    return Cluster.seen(
        parse_cib(parse_document((folder / "one-device.cib.xml").read_text())),
        parse_crm_mon((folder / "one-device.mon.xml").read_text()),
    )


def with_instances(cluster: Cluster, *instances: Instance) -> Cluster:
    return replace(cluster, mon=replace(cluster.mon, instances=instances))


def stopped_on_n2(cluster: Cluster) -> Cluster:
    """What n2 published of its replica before it stopped is left."""
    kept = (i for i in cluster.mon.instances if (i.resource, i.node) != ("vm1", "n2"))
    return with_instances(cluster, *kept)


def vm1(cluster: Cluster) -> DeviceSpec:
    device = cluster.cib.device(VM1)
    assert device is not None
    return device


def test_a_replica_that_runs_in_sync_lets_its_peer_go(running: Cluster) -> None:
    assert plan_standby(running, N1)
    assert is_known_up_to_date(running, vm1(running), N2)


def test_a_suspect_replica_takes_nothing_over(running: Cluster) -> None:
    """A flush failed there: it is connected and UpToDate, and Pacemaker does not promote it."""
    suspect = replace(running.replica(VM1, N2), is_suspect=True)
    held = {**running.cib.replicas, ("vm1", "n2"): suspect}
    cluster = replace(running, cib=replace(running.cib, replicas=held))
    assert takeover_obstacle(cluster, vm1(cluster), N2) == "the replica on n2 is suspect"


def lacking(running: Cluster) -> Cluster:
    """The release on n2 does not know what vm1 needs."""
    found = replace(running.replica(VM1, N2), lacks=("future",))
    held = {**running.cib.replicas, ("vm1", "n2"): found}
    return replace(running, cib=replace(running.cib, replicas=held))


def test_nor_does_one_whose_release_does_not_know_what_the_device_needs(running: Cluster) -> None:
    cluster = lacking(running)
    assert takeover_obstacle(cluster, vm1(cluster), N2) == (
        "the release of sanctl on n2 does not know what it needs"
    )
    with pytest.raises(Refused, match="does not know what device vm1 needs: future"):
        plan_move(cluster, VM1, N2, now_s=0.0)


def test_a_device_that_no_node_may_serve_for_that_says_so(running: Cluster) -> None:
    held = {
        each: replace(state, lacks=("future",), role="Secondary")
        for each, state in running.cib.replicas.items()
    }
    stopped = with_instances(
        replace(running, cib=replace(running.cib, replicas=held)),
        *(replace(each, role=Role.UNPROMOTED) for each in running.mon.instances),
    )
    (unserved,) = [
        each
        for each in device_findings(stopped, vm1(stopped), now_s=0.0)
        if each.code == "SAN-HLT-032"
    ]
    assert (unserved.do or "").startswith("update sanctl on n1")


def test_it_is_a_finding_and_a_critical_one_where_that_node_serves(running: Cluster) -> None:
    cluster = lacking(running)
    (finding,) = needs_findings(cluster, vm1(cluster))
    assert (finding.code, finding.severity) == ("SAN-HLT-127", Severity.WARNING)
    served = replace(
        cluster,
        mon=replace(
            cluster.mon,
            instances=tuple(
                replace(each, role=Role.PROMOTED if each.node == "n2" else Role.UNPROMOTED)
                for each in cluster.mon.instances
            ),
        ),
    )
    (finding,) = needs_findings(served, vm1(served))
    assert finding.severity is Severity.CRITICAL and "lets no host in" not in (finding.why or "")
    closed = {
        each: replace(state, access=access_digest(()))
        for each, state in served.cib.replicas.items()
    }
    shut = replace(served, cib=replace(served.cib, replicas=closed))
    (finding,) = needs_findings(shut, vm1(shut))
    assert ("lets no host in" in (finding.why or "")) is bool(vm1(shut).access)
    host = replace(vm1(shut), initiators=(Iqn.parse("iqn.2026-11.net.example:a"),))
    (finding,) = needs_findings(shut, host)
    assert "lets no host in" in (finding.why or "")
    with pytest.raises(Refused):
        plan_standby(cluster, N1)
    assert drop_problems(running, vm1(running), (N1,)) == ()


def test_what_keeps_the_files_of_a_dropped_replica_is_said(running: Cluster) -> None:
    """Unserved, the node's agent keeps them however long it runs."""
    stone = Tombstone(device="vm1", node=N2, value=f"{vm1(running).uuid} main")
    served = replace(running, cib=replace(running.cib, tombstones=(stone,)))
    unserved = with_instances(
        served, *(replace(each, role=Role.UNPROMOTED) for each in running.mon.instances)
    )
    hints = [
        each.hint
        for cluster in (served, unserved)
        for each in new_replica_problems(cluster, vm1(cluster), N2)
        if each.code == "SAN-REP-004"
    ]
    assert ["replicas.md" in hint for hint in hints] == [False, True]


def test_a_state_left_by_a_stopped_replica_is_not_believed(running: Cluster) -> None:
    cluster = stopped_on_n2(running)
    assert cluster.cib.replicas["vm1", "n2"].is_up_to_date
    assert cluster.replica(VM1, N2) == ReplicaState()
    with pytest.raises(Refused) as refused:
        plan_standby(cluster, N1)
    assert refused.value.problems[0].code == "SAN-NODE-004"
    assert not is_known_up_to_date(cluster, vm1(cluster), N2)
    assert [each.code for each in drop_problems(cluster, vm1(cluster), (N1,))] == ["SAN-REP-001"]


def test_nor_is_it_on_a_node_in_maintenance(running: Cluster) -> None:
    cluster = stopped_on_n2(running)
    nodes = tuple(
        replace(node, state=NodeState.MAINTENANCE) if node.name == "n2" else node
        for node in cluster.mon.nodes
    )
    cluster = replace(cluster, mon=replace(cluster.mon, nodes=nodes))
    assert cluster.replica(VM1, N2) == ReplicaState()


def test_what_runs_unmanaged_is_known(running: Cluster) -> None:
    """In maintenance an operator heals by what the replicas have published."""
    unmanaged = (replace(each, is_managed=False) for each in running.mon.instances)
    assert with_instances(running, *unmanaged).replica(VM1, N2).is_up_to_date


def with_unread(cluster: Cluster) -> Cluster:
    """Device vm1 as a release sees it that cannot read its entry."""
    return replace(
        cluster, cib=replace(cluster.cib, devices=(), unreadable=(("vm1", "a new policy"),))
    )


def test_a_device_that_cannot_be_read_keeps_the_node_that_serves_it(running: Cluster) -> None:
    cluster = with_unread(running)
    with pytest.raises(Refused) as caught:
        plan_standby(cluster, N1)
    (problem,) = caught.value.problems
    assert problem.code == "SAN-NODE-004" and "vm1" in problem.text
    assert plan_standby(cluster, N1, accepted=("SAN-NODE-004",))
    assert plan_standby(cluster, N2), "it serves no device"


def test_a_standby_waits_for_a_device_that_cannot_be_read(running: Cluster) -> None:
    nodes = tuple(
        replace(node, state=NodeState.STANDBY) if node.name == "n1" else node
        for node in running.mon.nodes
    )
    cluster = replace(with_unread(running), mon=replace(running.mon, nodes=nodes))
    assert not standby_progress(cluster, N1, ()).is_done
    assert "vm1" in standby_progress(cluster, N1, ()).seen


def test_a_device_that_cannot_be_read_may_have_its_last_replica_anywhere(running: Cluster) -> None:
    cluster = with_unread(running)
    pool = topology().pools[0]
    for problems in (reformat_problems(cluster, pool, N2), reformat_problems(cluster, pool, N1)):
        assert [problem.code for problem in problems] == ["SAN-DEV-019"]
    with pytest.raises(Refused, match="SAN-DEV-019"):
        plan_replacement(cluster, N2, N1)
    with pytest.raises(Refused, match="SAN-DEV-019"):
        plan_site_removal(cluster, "far")


def test_the_last_file_of_a_restore_point_is_not_emptied_with_its_pool(running: Cluster) -> None:
    device, pool = vm1(running), topology().pools[0]
    kept = replace(running.replica(VM1, N1), cache="write-through")
    replicas = {**running.cib.replicas, ("vm1", "n1"): kept}

    def problems(*nodes: str, is_deleting: bool = False) -> list[str]:
        point = RestorePoint(
            "vm1", "kept", "2" * 16, device.uuid, "main", 900, 64 << 20, 30, nodes, is_deleting
        )
        cib = replace(running.cib, points=(point,), replicas=replicas)
        cluster = replace(running, cib=cib)
        return [problem.code for problem in reformat_problems(cluster, pool, N2)]

    assert problems("n2") == ["SAN-SNAP-014"]
    assert problems("n1", "n2") == problems("n1") == problems("n2", is_deleting=True) == []


def test_the_mark_of_a_device_that_cannot_be_read_is_not_called_left_over(
    running: Cluster,
) -> None:
    mark = OutdatedMark(device="vm1", node=N2, uuid=vm1(running).uuid, constraint="c")
    cluster = with_unread(replace(running, cib=replace(running.cib, outdated=(mark,))))
    codes = {finding.code for finding in all_findings(cluster, None, now_s=0.0)}
    assert "SAN-HLT-004" in codes and "SAN-HLT-053" not in codes


@pytest.mark.parametrize(("role", "is_seen"), [("Primary", True), ("Secondary", False)])
def test_a_drain_sees_what_serves_while_pacemaker_shows_a_standby(
    running: Cluster, role: str, *, is_seen: bool
) -> None:
    """As after a change of the device (docs/adr/0087)."""
    held = dict(running.cib.replicas)
    held["vm1", "n1"] = replace(held["vm1", "n1"], role=role)
    cluster = with_instances(
        replace(running, cib=replace(running.cib, replicas=held)),
        *(replace(each, role=Role.UNPROMOTED) for each in running.mon.instances),
    )
    assert cluster.active_node(VM1) is None
    assert cluster.serves(VM1, N1) is is_seen
    assert (VM1 in drain_outlook(cluster, N1, waits_until_s=0.0).moving) is is_seen
    alone = replace(cluster, mon=replace(cluster.mon, has_quorum=False))
    assert not alone.serves(VM1, N1)


def in_maintenance(cluster: Cluster, name: str) -> Cluster:
    """As `crm_attribute --node NAME --name maintenance --update true` leaves it."""
    nodes = tuple(
        replace(node, state=NodeState.MAINTENANCE) if node.name == name else node
        for node in cluster.mon.nodes
    )
    return replace(cluster, mon=replace(cluster.mon, nodes=nodes))


@pytest.mark.parametrize("name", ["n1", "n2"])
def test_no_device_of_a_node_in_maintenance_is_changed(running: Cluster, name: str) -> None:
    """What broke: a move waited to its end, and a deletion stopped one replica of two."""
    cluster = in_maintenance(running, name)
    for refused in (
        lambda: plan_move(cluster, VM1, N2, now_s=0.0),
        lambda: check_deletion(cluster, VM1),
        lambda: refuse_unless_changeable(cluster, vm1(cluster)),
    ):
        with pytest.raises(Refused) as caught:
            refused()
        (problem,) = caught.value.problems
        assert problem.code == "SAN-DEV-018" and name in problem.text
        assert f"crm_attribute --node {name} --name maintenance --delete" in problem.hint
        assert "maintenance-mode" in problem.hint


def test_a_node_without_a_replica_of_it_changes_nothing(running: Cluster) -> None:
    cluster = in_maintenance(running, "n3")
    refuse_unless_changeable(cluster, vm1(cluster))
    check_deletion(cluster, VM1)
    assert drain_outlook(cluster, N1, waits_until_s=0.0).moving == (VM1,)


def test_nothing_leaves_a_node_in_maintenance(running: Cluster) -> None:
    cluster = in_maintenance(running, "n1")
    outlook = drain_outlook(cluster, N1, waits_until_s=0.0)
    assert outlook.moving == ()
    (stranded,) = outlook.stranded
    assert "n1 is in maintenance" in stranded.reason
    with pytest.raises(Refused, match="SAN-DEV-018"):
        plan_standby(cluster, N1)
