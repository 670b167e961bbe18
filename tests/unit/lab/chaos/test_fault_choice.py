# SPDX-License-Identifier: GPL-2.0-or-later
"""The choice of faults: repeatable from a seed, complete, within the laboratory's nodes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.lab.chaos import fault_choice
from sanctl.lab.chaos.fault import (
    AgentKilled,
    CopyKilled,
    DaemonKilled,
    DuringResync,
    Fault,
    Partition,
    PowerCut,
    PowerCutSeries,
    Reboot,
    SiteFull,
    SiteLinkCut,
    as_json,
    describe,
    is_one_sided,
    nodes_of,
    resolve,
)
from sanctl.lab.chaos.fault_choice import (
    FAULT_LISTS,
    KINDS,
    MEMBERSHIP,
    SITE_KINDS,
    NodesByRole,
    bipartitions,
    each_kind,
    quick,
    random_faults,
)

THREE = NodesByRole(storage=("n1", "n2"), witnesses=("n3",), hosts=("i1", "i2"))
TWO = NodesByRole(storage=("n1", "n2"), witnesses=(), hosts=("i1",))
VOTER = NodesByRole(storage=("n1", "n2"), witnesses=(), hosts=("i1",), qnetd_hosts=("q1",))
SITE = NodesByRole(storage=("n1", "n2"), witnesses=("n3",), hosts=("i1",), site_server="i2")
OF_SITE = SiteLinkCut | SiteFull | CopyKilled
ROLES = pytest.mark.parametrize("roles", [THREE, TWO], ids=["witness", "two"])
NAMES = {"active": "n2", "standby": "n1", "witness": "n3"}


@given(seed=st.integers(0, 10**6), count=st.integers(1, 40))
def test_a_seed_repeats_its_faults_and_a_longer_run_begins_alike(seed: int, count: int) -> None:
    faults = random_faults(THREE, seed, count)
    assert faults == random_faults(THREE, seed, count)
    assert faults == random_faults(THREE, seed, count + 5)[:count]


def test_another_seed_chooses_others() -> None:
    assert random_faults(THREE, 1, 20) != random_faults(THREE, 2, 20)


@ROLES
def test_a_hundred_faults_are_of_every_kind(roles: NodesByRole) -> None:
    kinds = {type(fault) for fault in random_faults(roles, 7, 100)}
    assert kinds == set(Fault.__args__) - set(OF_SITE.__args__)


@given(seed=st.integers(0, 10**6))
def test_of_five_faults_beside_a_site_one_is_of_it(seed: int) -> None:
    faults = random_faults(SITE, seed, 20)
    assert [type(fault) for fault in faults[::5]] == [PowerCutSeries] * 4
    assert all(isinstance(fault, OF_SITE) for fault in faults[2::5])
    for fault in faults:
        assert set(nodes_of(fault)) <= {"n1", "n2", "n3", "i1", "i2"}
        assert describe(fault) and as_json(fault)["kind"] == type(fault).__name__


def test_a_hundred_faults_beside_a_site_are_of_every_kind() -> None:
    faults = random_faults(SITE, 7, 150)
    assert {type(fault) for fault in faults} == set(Fault.__args__)
    cuts = [fault for fault in faults if isinstance(fault, SiteLinkCut)]
    assert {fault.nodes for fault in cuts} <= {("n1",), ("n2",), ("n1", "n2")}
    # The host with the ledgers keeps its paths: the server is another one.
    assert {fault.server for fault in cuts} == {"i2"}
    killed = {fault.end for fault in faults if isinstance(fault, CopyKilled)}
    assert killed == {"sender", "receiver"}


def test_faults_of_a_site_say_what_they_hit() -> None:
    cut = resolve(SiteLinkCut(nodes=("active",), server="i2"), NAMES)
    assert describe(cut) == "iscsi: n2 cut off from i2, the second site"
    assert nodes_of(cut) == ("n2", "i2")
    assert describe(SiteFull(server="i2")) == "second site on i2 full"
    assert describe(CopyKilled(end="sender", after_s=1.5)) == (
        "kill -9 of the sender of a copy, 1.5 s after its begin"
    )


@ROLES
@given(seed=st.integers(0, 10**6), count=st.integers(1, 40))
def test_every_run_has_a_series_of_power_cuts_and_ten_faults_have_two(
    roles: NodesByRole, seed: int, count: int
) -> None:
    found = [isinstance(fault, PowerCutSeries) for fault in random_faults(roles, seed, count)]
    assert any(found)
    assert all(sum(found[begin : begin + 10]) >= 2 for begin in range(len(found) - 9))


@ROLES
@given(seed=st.integers(0, 10**6))
def test_a_series_has_two_or_three_cuts_with_gaps_and_all_get_power_again(
    roles: NodesByRole, seed: int
) -> None:
    for fault in random_faults(roles, seed, 10, ["power-cut-series"]):
        assert isinstance(fault, PowerCutSeries)
        assert len(fault.cuts) in {2, 3}
        assert len(fault.gaps_s) == len(fault.cuts) - 1
        assert all(0 <= gap_s <= 10 for gap_s in fault.gaps_s)
        assert sorted(fault.power_on) == sorted(set(fault.cuts))
        assert set(nodes_of(fault)) <= set(roles.cluster)


def test_series_hit_each_node_one_node_twice_and_begin_with_and_without_a_crash() -> None:
    faults = [
        fault
        for fault in random_faults(THREE, 3, 60, ["power-cut-series"])
        if isinstance(fault, PowerCutSeries)
    ]
    assert {fault.cuts[0] for fault in faults} == set(THREE.cluster)
    assert {len(set(fault.cuts)) == len(fault.cuts) for fault in faults} == {True, False}
    assert {bool(fault.after_crash_of) for fault in faults} == {True, False}
    assert {bool(fault.power_on_gap_s) for fault in faults} == {True, False}
    assert {len(fault.cuts) for fault in faults} == {2, 3}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_of_one_kind_has_no_other(kind: str) -> None:
    roles = SITE if kind in SITE_KINDS else THREE
    assert {type(fault) for fault in random_faults(roles, 5, 12, [kind])} == {KINDS[kind]}


def test_the_kinds_of_a_site_are_those() -> None:
    assert {KINDS[kind] for kind in SITE_KINDS} == set(OF_SITE.__args__)
    assert {type(fault) for fault in FAULT_LISTS["site"](SITE)} == set(OF_SITE.__args__)


def test_a_series_names_its_nodes_gaps_and_the_crash_before_it() -> None:
    fault = PowerCutSeries(
        cuts=("witness", "standby", "standby"),
        gaps_s=(3.0, 0.5),
        power_on=("standby", "witness"),
        power_on_gap_s=4.0,
        after_crash_of="active",
        hold_s=20,
    )
    there = resolve(fault, NAMES)
    assert describe(there) == (
        "right after the recovery from a crash of n2: power cuts of n3, 3 s later n1, 0.5 s later"
        " n1; power back after 20 s, 4 s apart: n1, n3"
    )
    assert nodes_of(there) == ("n2", "n3", "n1", "n1")


@ROLES
@given(seed=st.integers(0, 10**6))
def test_random_faults_stay_within_the_lab(roles: NodesByRole, seed: int) -> None:
    everyone = {*roles.cluster, *roles.hosts}
    for fault in random_faults(roles, seed, 10):
        assert set(nodes_of(fault)) <= everyone
        assert describe(fault)
        assert as_json(fault)["kind"] == type(fault).__name__


@ROLES
def test_each_kind_is_each_kind(roles: NodesByRole) -> None:
    known = set(Fault.__args__) - set(OF_SITE.__args__)
    assert {type(fault) for fault in each_kind(roles)} >= known - {PowerCut}
    assert any(isinstance(f, PowerCut | DuringResync) for f in each_kind(roles))


@ROLES
def test_the_quick_ones_come_first_and_cut_no_power(roles: NodesByRole) -> None:
    faults = quick(roles)
    assert each_kind(roles)[: len(faults)] == faults
    costly = PowerCut | PowerCutSeries | DuringResync | Reboot | AgentKilled
    assert not [f for f in faults if isinstance(f, costly)]
    # A cut of all that carries the membership ends in a fencing.
    cuts = [set(fault.networks) for fault in faults if isinstance(fault, Partition)]
    assert cuts
    assert not [networks for networks in cuts if networks >= set(MEMBERSHIP)]


@ROLES
@pytest.mark.parametrize("name", sorted({*FAULT_LISTS} - {"site"}))
def test_scenarios_name_only_what_can_be_resolved(roles: NodesByRole, name: str) -> None:
    faults = FAULT_LISTS[name](roles)
    assert faults and len(faults) == len(set(faults))
    for fault in faults:
        there = resolve(fault, NAMES)
        assert set(nodes_of(there)) <= {"n1", "n2", "n3", "i1", "i2"}


def test_every_bipartition_comes_once() -> None:
    assert bipartitions(("a", "b")) == (("b",),)
    assert bipartitions(("a", "b", "c")) == (("a",), ("b",), ("c",))
    four = bipartitions(("a", "b", "c", "d"))
    assert len(four) == 2 ** (4 - 1) - 1
    whole = frozenset("abcd")
    assert len({frozenset({frozenset(s), whole - frozenset(s)}) for s in four}) == len(four)


def test_partitions_cover_every_network_and_side() -> None:
    found = {
        (f.networks, f.side) for f in fault_choice.partitions(THREE) if isinstance(f, Partition)
    }
    assert len(found) == len(fault_choice.network_sets()) * 3


def test_of_two_nodes_each_is_cut_off_from_the_hosts() -> None:
    found = [(f.networks, f.side) for f in fault_choice.partitions(TWO) if isinstance(f, Partition)]
    assert len(found) == len(set(found))
    for networks in fault_choice.network_sets():
        sides = {side for of, side in found if of == networks}
        assert sides == ({("n1",), ("n2",)} if "iscsi" in networks else {("n2",)})


@pytest.mark.parametrize(
    ("restarted", "is_fine"),
    [((), True), (("n1",), True), (("n2", "n3"), True), (("n1", "n3"), False)],
)
def test_a_partition_costs_one_side_only(restarted: tuple[str, ...], is_fine: bool) -> None:
    cut = Partition(networks=MEMBERSHIP, side=("n1",))
    assert is_one_sided(cut, restarted) is is_fine
    assert is_one_sided(PowerCut(nodes=("n1",)), restarted)


def test_some_partitions_are_of_corosync_alone_and_none_where_it_has_no_link() -> None:
    faults = [
        fault
        for fault in random_faults(THREE, 11, 60, ["partition"])
        if isinstance(fault, Partition)
    ]
    assert {fault.is_corosync_only for fault in faults} == {True, False}
    assert not [f for f in faults if f.is_corosync_only and f.networks == ("iscsi",)]
    races = [f for f in fault_choice.fencing_races(TWO) if isinstance(f, Partition)]
    assert {fault.is_corosync_only for fault in races} == {True, False}
    cut = Partition(networks=MEMBERSHIP, side=("n1",), is_corosync_only=True)
    assert describe(cut) == "sync and hb: Corosync of n1 cut off from all others"
    assert as_json(cut)["is_corosync_only"] is True


def test_resolve_reaches_into_a_double_fault() -> None:
    fault = DuringResync(node="standby", then=PowerCut(nodes=("active", "standby")))
    assert resolve(fault, NAMES) == DuringResync(node="n1", then=PowerCut(nodes=("n2", "n1")))
    assert describe(resolve(fault, NAMES)) == (
        "while n1 is resynced after a power cut: power cut of n2 and n1"
    )


def test_the_quorum_devices_host_is_divided_from_the_others_too() -> None:
    faults = [fault for fault in FAULT_LISTS["partitions"](VOTER) if isinstance(fault, Partition)]
    sides = {(fault.side, fault.networks) for fault in faults}
    assert len(faults) == len(sides) == 11
    assert (("q1",), ("hb",)) in sides
    assert {side for side, networks in sides if networks == ("sync", "hb")} == {("n1",), ("n2",)}
    killed = [
        (f.node, f.daemon) for f in FAULT_LISTS["daemons"](VOTER) if isinstance(f, DaemonKilled)
    ]
    assert ("q1", "corosync-qnetd") in killed and ("active", "corosync-qdevice") in killed
    assert not any("qdevice" in str(fault) for fault in FAULT_LISTS["daemons"](THREE))
