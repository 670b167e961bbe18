# SPDX-License-Identifier: GPL-2.0-or-later
"""SAN-DOC-011: memory for DRBD's bitmaps of the replicas that a node has to keep."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.names import ByteSize
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.health.memory_health import memory_finding
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
