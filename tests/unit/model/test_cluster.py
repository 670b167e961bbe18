# SPDX-License-Identifier: GPL-2.0-or-later
"""Both views of the cluster, put together."""

from __future__ import annotations

from dataclasses import replace

from sanctl.model.cib import MoveConstraint
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.names import DeviceName
from tests.unit.ops.test_device import Bench

VM1 = DeviceName.parse("vm1")


def promoting(bench: Bench) -> Cluster:
    """What is seen while Pacemaker has the device promoted on n1, once more or for the first."""
    seen = bench.session.observe()
    instances = tuple(
        replace(each, role=Role.PROMOTING) if each.role is Role.PROMOTED else each
        for each in seen.mon.instances
    )
    return Cluster.seen(seen.cib, replace(seen.mon, instances=instances))


def test_a_primary_that_is_promoted_once_more_goes_on_serving() -> None:
    bench = Bench()
    bench.create()
    assert promoting(bench).active_node(VM1) == "n1"


def test_a_standby_that_is_being_promoted_does_not_serve_yet() -> None:
    bench = Bench()
    bench.create()
    for pair in bench.cluster.root.findall("status/node_state[@uname='n1']//nvpair"):
        if pair.get("name") == "sanctl-vm1":
            pair.set("value", pair.get("value", "").replace("role=Primary", "role=Secondary"))
    assert promoting(bench).active_node(VM1) is None


def test_an_old_published_role_does_not_count_on_a_moves_target() -> None:
    bench = Bench()
    bench.create()
    seen = promoting(bench)
    instances = tuple(
        replace(each, role=Role.PROMOTING) if each.role is Role.PROMOTED else each
        for each in seen.mon.instances
    )
    move = MoveConstraint(device="vm1", node="n1", until="2030-01-01 00:00:00Z")
    moving = Cluster.seen(replace(seen.cib, moves=(move,)), replace(seen.mon, instances=instances))
    assert moving.active_node(VM1) is None
