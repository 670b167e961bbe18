# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-DOC-011: memory for DRBD's bitmaps of the replicas that a node has to keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.device import PoolUsage
from sanctl.model.names import ByteSize
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.memory_health import memory_finding, memory_findings
from tests.fakes.pacemaker import FakePacemaker

GIB, TIB = 1 << 30, 1 << 40


def cluster_of(*sizes: int) -> Cluster:
    """A cluster with devices of these sizes, each with replicas on n1 and n2."""
    fake = FakePacemaker(golden="one-device")
    cib = parse_cib(parse_document(fake.query()))
    (one,) = cib.devices
    devices = tuple(replace(one, size=ByteSize(bytes=size)) for size in sizes)
    return Cluster(cib=replace(cib, devices=devices), mon=parse_crm_mon(fake.monitor()))


@pytest.mark.parametrize(
    ("count", "total_bytes", "bitmaps", "is_said"),
    [
        (50, 2 * GIB, 1, True),
        (16, 2 * GIB, 1, False),
        (17, 2 * GIB, 1, True),
        (16, 6 * GIB, 3, False),
        (17, 6 * GIB, 3, True),
        (0, GIB, 3, False),
    ],
)
def test_more_than_a_quarter_of_the_memory_is_said(
    count: int, total_bytes: int, bitmaps: int, is_said: bool
) -> None:
    cluster = cluster_of(*[TIB] * count)
    found = memory_finding(cluster, "n2", total_bytes=total_bytes, bitmaps=bitmaps)
    assert memory_finding(cluster, "n3", total_bytes=GIB, bitmaps=bitmaps) is None
    assert (found is not None) is is_said
    if found is not None:
        assert (found.code, found.subject) == ("SAN-DOC-011", "node n2")


def test_status_says_it_of_each_node_whose_agent_runs() -> None:
    """It was said by doctor on that very node alone."""
    seen = cluster_of(*[TIB] * 17)
    low = PoolUsage(memory_bytes=2 * GIB, bitmaps=1)

    def told(**pools: PoolUsage) -> list[tuple[str, str]]:
        usages = {("main", node): usage for node, usage in pools.items()}
        cluster = replace(seen, cib=replace(seen.cib, pools=usages))
        return [(each.code, each.subject) for each in memory_findings(cluster)]

    assert told(n1=low, n2=low) == [("SAN-HLT-165", f"node {each}") for each in ("n1", "n2")]
    # It has enough, it does not say, and it runs no agent.
    enough = PoolUsage(memory_bytes=4 * GIB, bitmaps=1)
    assert told(n1=enough, n2=PoolUsage(), n3=low, n9=low) == []
