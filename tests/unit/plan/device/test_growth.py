# SPDX-License-Identifier: GPL-2.0-or-later
"""No device is larger than a file can be, and a growth that nothing has begun is taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sanctl.errors import Refused
from sanctl.model.cib_change import SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Instance, NodeState, Role
from sanctl.model.names import ByteSize, DeviceName, PoolName
from sanctl.model.pool_space import largest_file_bytes
from sanctl.parse.published_state import parse_replica_state
from sanctl.plan.cluster.convergence import resize_progress
from sanctl.plan.device.alteration import plan_resize
from sanctl.plan.device.creation_request import DeviceArguments, parse_device_request
from sanctl.plan.device.node_eligibility import file_problem, node_problems
from sanctl.plan.device.placement_preview import preview_placement
from tests.fakes.topology import wide_topology
from tests.unit.plan.device.test_bitmap_memory import MAIN, N1, N2, TIB, cluster_of, codes

EXT4 = f"largest-file={((1 << 32) - 1) * 4096}"
IN_SYNC = "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate"
NAME = DeviceName.parse("big0")
MIB = 1 << 20


def test_ext4_numbers_the_blocks_of_a_file_with_32_bits() -> None:
    assert largest_file_bytes("ext4", 4096) == 16 * TIB - 4096
    assert largest_file_bytes("ext4", 1024) == 4 * TIB - 1024
    assert largest_file_bytes("xfs", 4096) is largest_file_bytes("btrfs", 4096) is None


@pytest.mark.parametrize(
    ("published", "size_bytes", "is_refused"),
    [
        (EXT4, 16 * TIB - MIB, False),
        (EXT4, 16 * TIB, True),
        ("", 60 * TIB, False),
        ("largest-file=0", 60 * TIB, False),
        ("largest-file=?", 60 * TIB, False),
    ],
    ids=str,
)
def test_above_the_largest_file_there_is_no_replica_and_what_is_unknown_is_not_refused(
    published: str, size_bytes: int, *, is_refused: bool
) -> None:
    cluster = cluster_of(n1=published)
    wanted = ["SAN-POOL-034"] * is_refused
    assert codes(node_problems(cluster, MAIN, N1, size_bytes)) == wanted
    assert file_problem(cluster, MAIN, N2, size_bytes) is None
    assert file_problem(cluster, PoolName.parse("fast"), N1, size_bytes) is None


def test_a_node_without_such_a_file_is_passed_over_and_the_preview_says_why() -> None:
    cluster = cluster_of(n1=EXT4)
    wanted = parse_device_request(DeviceArguments(name="new0", size="16T", replicas="2"))
    seen = preview_placement(wanted, cluster, wide_topology(), drbd_version="9.3.3")
    (reason,) = [each.reason for each in seen if not each.is_chosen]
    assert "pool main on n1 has no file of 16 TiB" in reason


def grown(size_bytes: int, *said: str) -> Cluster:
    """A device of that size on n1 and n2, whose replicas say so."""
    cluster = cluster_of(size_bytes, n2=EXT4)
    nodes = ("n1", "n2")
    return replace(
        cluster,
        cib=replace(
            cluster.cib,
            replicas={
                (NAME.value, node): parse_replica_state(f"{IN_SYNC} out-of-sync=0 {each}")
                for node, each in zip(nodes, said, strict=True)
            },
        ),
        mon=replace(
            cluster.mon,
            instances=tuple(
                Instance(resource=NAME.value, node=node, role=Role.UNPROMOTED) for node in nodes
            ),
        ),
    )


def refusal(cluster: Cluster, size: str) -> list[str]:
    try:
        plan_resize(cluster, NAME, ByteSize.parse(size))
    except Refused as error:
        return [each.code for each in error.problems]
    return []


def test_a_device_grows_up_to_the_largest_file_of_each_of_its_nodes() -> None:
    cluster = grown(8 * TIB, f"size={8 * TIB}", f"size={8 * TIB}")
    assert refusal(cluster, "16777215M") == []
    assert refusal(cluster, "16T") == ["SAN-POOL-034"]


SAME = f"size={8 * TIB} file={8 * TIB}"


def test_a_growth_that_no_replica_has_begun_is_taken_back() -> None:
    cluster = grown(20 * TIB, SAME, SAME)
    size = ByteSize.parse("8T")
    assert plan_resize(cluster, NAME, size) == (
        SetParameter(name=NAME, parameter="size", value=str(8 * TIB)),
    )
    assert refusal(cluster, "7T") == refusal(cluster, "9T") == ["SAN-DEV-012"]


@pytest.mark.parametrize(
    "said",
    [
        f"size={8 * TIB}",
        f"file={8 * TIB}",
        "size=? file=?",
        f"size={8 * TIB} file={20 * TIB}",
        f"size={20 * TIB} file={20 * TIB}",
        f"size={20 * TIB} file={8 * TIB}",
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_of_which_a_replica_has_begun_it_or_may_have_it_stays(said: str, *, is_first: bool) -> None:
    cluster = grown(20 * TIB, *((said, SAME) if is_first else (SAME, said)))
    assert refusal(cluster, "8T") == ["SAN-DEV-012"]


def test_a_replica_that_is_not_there_says_nothing() -> None:
    cluster = grown(20 * TIB, SAME, SAME)
    gone = replace(cluster, mon=replace(cluster.mon, instances=cluster.mon.instances[:1]))
    assert refusal(gone, "8T") == ["SAN-DEV-012"]


def test_what_a_node_said_before_its_standby_may_be_old() -> None:
    cluster = grown(20 * TIB, SAME, SAME)
    nodes = (replace(cluster.mon.nodes[0], state=NodeState.STANDBY), *cluster.mon.nodes[1:])
    assert refusal(replace(cluster, mon=replace(cluster.mon, nodes=nodes)), "8T") == ["SAN-DEV-012"]


def test_a_resize_is_done_when_every_replica_says_that_size() -> None:
    assert not resize_progress(grown(8 * TIB, SAME, f"size={4 * TIB}"), NAME).is_done
    assert resize_progress(grown(8 * TIB, SAME, SAME), NAME).is_done
