# SPDX-License-Identifier: GPL-2.0-or-later
"""cluster.toml: what is accepted reads back the same, what is not is named, all of it at once."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sanctl.config import parse, render
from sanctl.config.codes import CODES
from sanctl.errors import ConfigError, Problem
from sanctl.model.cache_policy import CacheMode
from sanctl.model.names import DeviceName
from sanctl.model.topology import NodeRole, PoolFilesystem, Strategy, Topology

GOOD = """
schema = 1
[cluster]
name = "lab"
iqn_prefix = "iqn.2026-11.net.example:lab"
strategy = "node-majority"
[networks.iscsi]
cidr = "10.77.1.0/24"
[networks.sync]
cidr = "10.77.2.0/24"
[networks.heartbeat]
cidr = "10.77.3.0/24"
[nodes.n3]
id = 3
role = "witness"
sync = "10.77.2.3"
heartbeat = "10.77.3.3"
[nodes.n1]
id = 1
role = "storage"
iscsi = ["10.77.1.1", "10.77.1.11"]
sync = "10.77.2.1"
heartbeat = "10.77.3.1"
[nodes."n2.example"]
id = 2
role = "storage"
iscsi = ["10.77.1.2"]
sync = "10.77.2.2"
heartbeat = "10.77.3.2"
[pools.main]
path = "/srv/sanctl/main"
uuid = "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11"
nodes = ["n2.example", "n1"]
"""


def codes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return [problem.code for problem in caught.value.problems]


def test_a_good_file_is_read() -> None:
    topology = parse(GOOD)
    assert topology.cluster == "lab"
    assert topology.strategy is Strategy.NODE_MAJORITY
    assert [str(node.name) for node in topology.nodes] == ["n1", "n2.example", "n3"]
    assert [str(node.name) for node in topology.storage_nodes] == ["n1", "n2.example"]
    node = topology.node("n1")
    assert node is not None
    assert [str(portal) for portal in node.iscsi] == ["10.77.1.1", "10.77.1.11"]
    assert node.role is NodeRole.STORAGE
    pool = topology.pool("main")
    assert pool is not None
    assert [str(name) for name in pool.nodes] == ["n1", "n2.example"]
    assert topology.node("n9") is None
    assert topology.pool("other") is None
    iqn = topology.target_iqn(DeviceName.parse("vol1"))
    assert str(iqn) == "iqn.2026-11.net.example:lab.vol1"


def test_what_is_rendered_reads_back() -> None:
    protected = GOOD.replace(
        'heartbeat = "10.77.3.2"', 'heartbeat = "10.77.3.2"\npower = "protected"'
    )
    for topology in (parse(GOOD), parse(protected)):
        assert parse(render(topology)) == topology
    assert [node.is_power_protected for node in parse(protected).nodes].count(True) == 1


def test_sites_and_racks() -> None:
    text = GOOD.replace("id = 1\n", 'id = 1\nsite = "north"\nrack = "A.1"\n')
    text = text.replace("id = 2\n", 'id = 2\nsite = "south"\nrack = "A.1"\n')
    topology = parse(text)
    node = topology.node("n1")
    assert node is not None and (node.site, node.rack) == ("north", "A.1")
    witness = topology.node("n3")
    assert witness is not None and witness.site == ""
    assert parse(render(topology)) == topology
    assert codes(text.replace("north", "north side")) == ["SAN-CONF-045"]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_any_topology_reads_back(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 3, 4, 5, 32]))
    witnesses = data.draw(st.integers(0, min(2, count - 1)))
    v6 = data.draw(st.booleans())
    nets = ["fd00:1::", "fd00:2::", "fd00:3::"] if v6 else ["10.1.0.", "10.2.0.", "10.3.0."]
    cidrs = [f"{net}/64" if v6 else f"{net}0/24" for net in nets]
    lines = ["schema = 1", "[cluster]", 'name = "c"', 'iqn_prefix = "iqn.2026-11.net.example"']
    lines += ['strategy = "node-majority"']
    for name, cidr in zip(("iscsi", "sync", "heartbeat"), cidrs, strict=True):
        lines += [f"[networks.{name}]", f'cidr = "{cidr}"']
    ids = data.draw(st.permutations(range(1, count + 1)))
    for index, number in enumerate(ids):
        lines += [f"[nodes.x{number}]", f"id = {number}"]
        if index < witnesses:
            lines += ['role = "witness"']
        else:
            lines += ['role = "storage"', f'iscsi = ["{nets[0]}{number}"]']
        lines += [f'sync = "{nets[1]}{number}"', f'heartbeat = "{nets[2]}{number}"']
    lines += ["[pools]"]
    topology: Topology = parse("\n".join(lines))
    assert parse(render(topology)) == topology


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("schema = 1", "schema = 2", "SAN-CONF-002"),
        ("schema = 1", "schema = true", "SAN-CONF-005"),
        ("schema = 1", "", "SAN-CONF-003"),
        ("schema = 1", "schema 1", "SAN-CONF-001"),
        ('name = "lab"', 'name = "Lab"', "SAN-CONF-006"),
        ('name = "lab"', "", "SAN-CONF-003"),
        ('name = "lab"', 'name = "lab"\nnmae = "x"', "SAN-CONF-004"),
        ("iqn.2026-11.net.example:lab", "iqn.2026-13.net.example:lab", "SAN-CONF-006"),
        ("iqn.2026-11.net.example:lab", "eui.0123456789abcdef", "SAN-CONF-006"),
        ("iqn.2026-11.net.example:lab", "iqn.2026-11.net.example:" + "a" * 180, "SAN-CONF-006"),
        ("node-majority", "last-man-standing", "SAN-CONF-019"),
        ("10.77.1.0/24", "10.77.1.1/24", "SAN-CONF-007"),
        ("10.77.3.0/24", "10.77.2.0/23", "SAN-CONF-008"),
        ('heartbeat = "10.77.3.2"', 'heartbeat = "n2.example"', "SAN-CONF-009"),
        ('heartbeat = "10.77.3.2"', 'heartbeat = "10.77.9.2"', "SAN-CONF-010"),
        ('heartbeat = "10.77.3.2"', 'heartbeat = "10.77.3.255"', "SAN-CONF-010"),
        ('"10.77.1.2"', '"10.77.1.11"', "SAN-CONF-011"),
        ('heartbeat = "10.77.3.2"', "", "SAN-CONF-030"),
        ('heartbeat = "10.77.3.2"', 'heartbeat = "10.77.3.2"\npower = "ups"', "SAN-CONF-047"),
        ('sync = "10.77.2.3"', "", "SAN-CONF-030"),
        ("id = 2", "id = 33", "SAN-CONF-012"),
        ("id = 2", "id = 0", "SAN-CONF-012"),
        ("id = 2", "id = 1", "SAN-CONF-013"),
        ("id = 2", 'id = "2"', "SAN-CONF-005"),
        ('role = "witness"', 'role = "wittness"', "SAN-CONF-014"),
        ('role = "witness"', 'role = "witness"\niscsi = ["10.77.1.3"]', "SAN-CONF-015"),
        ('iscsi = ["10.77.1.2"]', "", "SAN-CONF-015"),
        ('iscsi = ["10.77.1.2"]', 'iscsi = "10.77.1.2"', "SAN-CONF-005"),
        ('path = "/srv/sanctl/main"', "", "SAN-CONF-016"),
        ("/srv/sanctl/main", "/srv/../etc", "SAN-CONF-016"),
        ("/srv/sanctl/main", "srv/sanctl", "SAN-CONF-016"),
        ("/srv/sanctl/main", "/", "SAN-CONF-016"),
        ("/srv/sanctl/main", "/srv/my pool", "SAN-CONF-016"),
        ("5d4c1f6e-", "5D4C1F6E-", "SAN-CONF-017"),
        ('"n2.example", "n1"', '"n2.example", "n7"', "SAN-CONF-018"),
        ('"n2.example", "n1"', '"n3", "n1"', "SAN-CONF-018"),
        ('"n2.example", "n1"', '"n1", "n1"', "SAN-CONF-018"),
        ('"n2.example", "n1"', "", "SAN-CONF-018"),
        ("id = 2", 'id = 2\nsite = "south"', "SAN-CONF-046"),
        ("id = 2", "id = 2\nrack = 7", "SAN-CONF-046"),
        ("[pools.main]", "[pools.Main]", "SAN-CONF-006"),
        ("[nodes.n1]", "[nodes.N1]", "SAN-CONF-006"),
    ],
)
def test_one_mistake_is_named(old: str, new: str, code: str) -> None:
    assert old in GOOD
    assert code in codes(GOOD.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("schema = 1", 'schema = 1\nspare = "n4"', "SAN-CONF-004"),
        ('name = "lab"', 'name = "lab"\ncolour = "red"', "SAN-CONF-004"),
        ('cidr = "10.77.1.0/24"', 'cidr = "10.77.1.0/24"\nmtu = 9000', "SAN-CONF-004"),
        ("[networks.sync]", '[networks.nvme]\ncidr = "x"\n[networks.sync]', "SAN-CONF-004"),
        ("id = 2", 'id = 2\nnvme = ["10.77.1.2"]', "SAN-CONF-004"),
        ("[pools.main]", "[pools.main]\ntier = 2", "SAN-CONF-004"),
        ("id = 2", 'id = 2\npower = "ups"', "SAN-CONF-047"),
        ('name = "lab"', 'name = "lab"\naccept_risks = ["SAN-CONF-999"]', "SAN-CONF-038"),
    ],
)
def test_a_node_passes_over_what_a_newer_release_may_have_written(
    old: str, new: str, code: str
) -> None:
    assert code in codes(GOOD.replace(old, new, 1)), "a command that may change things names it"
    found: list[Problem] = []
    assert parse(GOOD.replace(old, new, 1), passed_over=found) == parse(GOOD)
    assert [problem.code for problem in found] == [code]


def test_a_node_runs_a_cache_of_a_mode_it_does_not_know_as_write_through() -> None:
    found: list[Problem] = []
    (pool,) = parse(CACHED.replace("write-back", "write-around"), passed_over=found).pools
    assert pool.cache is not None and pool.cache.mode is CacheMode.WRITE_THROUGH
    assert [problem.code for problem in found] == ["SAN-CONF-048"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("schema = 1", "schema = 2", "SAN-CONF-002"),
        ('role = "witness"', 'role = "arbiter"', "SAN-CONF-014"),
        ('strategy = "node-majority"', "", "SAN-CONF-003"),
    ],
)
def test_what_a_node_cannot_do_without_says_what_to_do(old: str, new: str, code: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace(old, new, 1), passed_over=[])
    (problem,) = [each for each in caught.value.problems if each.code == code]
    assert code == "SAN-CONF-014" or "run the playbook again" in problem.hint


def test_all_mistakes_are_named_at_once() -> None:
    bad = GOOD.replace('name = "lab"', 'name = "Lab"').replace("id = 3", "id = 1")
    bad = bad.replace("10.77.2.3", "10.77.9.3").replace('path = "/srv/sanctl/main"', "")
    assert sorted(codes(bad)) == ["SAN-CONF-006", "SAN-CONF-010", "SAN-CONF-013", "SAN-CONF-016"]


def test_two_nodes_are_no_majority() -> None:
    start = GOOD.index("[nodes.n3]")
    two = GOOD[:start] + GOOD[GOOD.index("[nodes.n1]") :]
    assert codes(two) == ["SAN-CONF-020"]


def test_no_storage_node() -> None:
    text = GOOD[: GOOD.index("[nodes.n1]")] + "[pools]\n"
    assert codes(text) == ["SAN-CONF-022"]


def test_pools_must_not_overlap() -> None:
    more = GOOD + '[pools.more]\npath = "/srv/sanctl/main/more"\nnodes = ["n1"]\n'
    more += 'uuid = "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a12"\n'
    assert codes(more) == ["SAN-CONF-021"]
    assert codes(more.replace("0b7a12", "0b7a11")) == ["SAN-CONF-017", "SAN-CONF-021"]


CACHED = (
    GOOD
    + """[pools.main.cache]
origin = "/dev/disk/by-id/slow"
device = "/dev/disk/by-id/flash"
mode = "write-back"
"""
)


def test_a_cached_pool_reads_back() -> None:
    pool = parse(render(parse(CACHED))).pools[0]
    assert pool.cache is not None
    assert (str(pool.cache.flash), pool.cache.mode) == (
        "/dev/disk/by-id/flash",
        CacheMode.WRITE_BACK,
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('origin = "/dev/disk/by-id/slow"\n', ""),
        ("/dev/disk/by-id/slow", "/srv/slow"),
        ("/dev/disk/by-id/slow", "/dev/../etc"),
        ("/dev/disk/by-id/slow", "/dev/disk/by-id/flash"),
        ("write-back", "write-around"),
        ('mode = "write-back"', 'filesystem = "btrfs"'),
    ],
)
def test_what_is_wrong_with_a_cache_is_named(old: str, new: str) -> None:
    assert codes(CACHED.replace(old, new, 1)) == ["SAN-CONF-048"]


@pytest.mark.parametrize("filesystem", [*PoolFilesystem, None])
def test_a_new_pool_with_flash_gets_xfs_unless_ext4_is_named(
    filesystem: PoolFilesystem | None,
) -> None:
    line = f'filesystem = "{filesystem}"\n' if filesystem is not None else ""
    for text in (CACHED + line, render(parse(CACHED + line))):
        cache = parse(text).pools[0].cache
        assert cache is not None and cache.filesystem is (filesystem or PoolFilesystem.XFS)
    # Releases that know no other filesystem read the configuration of a cluster with the usual one.
    assert ("filesystem" in render(parse(CACHED + line))) == (filesystem is PoolFilesystem.EXT4)


def test_pools_do_not_share_flash() -> None:
    more = CACHED + '[pools.more]\npath = "/srv/more"\nnodes = ["n1"]\n'
    more += 'uuid = "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a12"\n[pools.more.cache]\n'
    more += 'origin = "/dev/disk/by-id/slow2"\ndevice = "/dev/disk/by-id/flash"\n'
    assert codes(more) == ["SAN-CONF-048"]


def test_a_problem_says_where_it_is() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(GOOD.replace("10.77.3.3", "10.9.9.9"), source="x.toml")
    assert str(caught.value.problems[0]).startswith("SAN-CONF-010: x.toml: nodes.n3.heartbeat: ")


def test_codes_are_explained() -> None:
    assert all(text.endswith(".") for text in CODES.values())
