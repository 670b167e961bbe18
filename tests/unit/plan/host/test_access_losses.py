# SPDX-License-Identifier: GPL-2.0-or-later
"""A host that is denied is out by all its IQNs, or what lets it in is named (also by hand)."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanctl.errors import Refused
from sanctl.model.cib_change import Change, ClearParameter, SetGroupsOfDevice, SetParameter
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec, access_digest
from sanctl.model.findings import Severity
from sanctl.model.host import Host, HostName, parse_hosts
from sanctl.model.host_group import HostGroup, HostGroupName
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.host import change_group, change_host, lags_of
from sanctl.ops.target_access import deny_all, deny_group, deny_host, deny_initiator
from sanctl.plan.cluster.convergence import access_progress
from sanctl.plan.health.access_health import access_findings
from sanctl.plan.host.access import plan_allow, plan_allow_host, plan_deny, plan_deny_host
from sanctl.plan.host.access_list import iqns_of
from sanctl.plan.host.access_loss import access_loss, hosts_denied
from sanctl.plan.host.definition import plan_host_change, plan_host_creation, plan_host_deletion
from sanctl.plan.host.groups import (
    plan_allow_group,
    plan_deny_group,
    plan_group_addition,
    plan_group_creation,
    plan_group_removal,
)
from tests.unit.ops.test_device import ROOM, VM1, Bench
from tests.unit.plan.host.test_host_rules import refused

A, B, C, D = (Iqn(value=f"iqn.2026-11.net.example:{each}") for each in "abcd")
H1, H2, H3 = (HostName(value=each) for each in ("h1", "h2", "h3"))
WEB, DB, GONE = (HostGroupName(value=each) for each in ("web", "db", "gone"))
VM9 = DeviceName(value="vm9")


@pytest.fixture
def bench() -> Bench:
    """A device vm1, the host h1 with IQN a."""
    bench = Bench()
    bench.create()
    bench.session.change(lambda seen: plan_host_creation(seen, Host(name=H1, iqns=(A,))))
    return bench


def vm1(cluster: Cluster) -> DeviceSpec:
    found = cluster.cib.device("vm1")
    assert found is not None
    return found


def deny(bench: Bench) -> tuple[bool, list[str], tuple[str, ...]]:
    """Deny host h1; return whether that changed anything, who lost the device, who still has it."""
    outcome = deny_host(bench.session, VM1, H1, **ROOM, timeout_s=60)
    return outcome.changed, [iqn.value for iqn in outcome.loss.lost], outcome.loss.left


def test_an_iqn_that_came_to_the_host_later_goes_with_it(bench: Bench) -> None:
    """Allowed by itself, then added to a host that has the device."""
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B,)))
    assert vm1(bench.session.observe()).initiators == (), "it is the host's from then on"
    assert deny(bench) == (True, [A.value, B.value], ())
    assert vm1(bench.session.observe()).access == frozenset()
    assert deny(bench) == (False, [], ())


def test_a_list_that_an_older_release_left(bench: Bench) -> None:
    """Its `host set --add-iqn` left the IQN on the list by itself, beside the host."""
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B,)))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    beside(bench, B)
    (found,) = access_findings(bench.session.observe())
    assert (found.code, found.severity) == ("SAN-HLT-123", Severity.WARNING)
    assert B.value in found.what and "target allow vm1 --host h1" in found.do
    # By its IQN it is not denied: the host would let it in.
    assert refused(bench, lambda seen: plan_deny(seen, VM1, B)) == ["SAN-HOST-010"]
    assert deny(bench) == (True, [A.value, B.value], ())
    assert vm1(bench.session.observe()).access == frozenset()
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    beside(bench, B)
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    assert vm1(bench.session.observe()).initiators == (), "what the finding says to do"
    assert not [*access_findings(bench.session.observe())]


def beside(bench: Bench, iqn: Iqn) -> None:
    """Put an IQN on the list by itself, by hand."""
    pair = bench.cluster.root.find(".//primitive[@id='vm1']//nvpair[@name='initiators']")
    assert pair is not None
    pair.set("value", iqn.value)


def test_a_host_that_is_in_by_its_iqn_alone_is_denied(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B,)))
    (found,) = access_findings(bench.session.observe())
    assert found.severity is Severity.NOTE, "it is not denied, and has no CHAP"
    assert deny(bench) == (True, [B.value], ())
    assert vm1(bench.session.observe()).access == frozenset()


def test_an_iqn_that_a_host_loses_is_out(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B,)))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    beside(bench, B)
    bench.session.change(lambda seen: plan_host_change(seen, H1, fewer=(B,)))
    assert vm1(bench.session.observe()).access == {A.value}


def test_chap_holds_for_an_iqn_that_was_on_the_list_by_itself(bench: Bench) -> None:
    """On a device that the host has; one that it does not have would ask for none."""
    bench.session.change(lambda seen: plan_host_change(seen, H1, chap_user="u"))
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    assert refused(bench, lambda s: plan_host_change(s, H1, more=(B,))) == ["SAN-HOST-005"]
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B,)))
    assert vm1(bench.session.observe()).access == {f"{A}+chap=u", f"{B}+chap=u"}
    beside(bench, B)
    bench.session.change(lambda seen: plan_deny_host(seen, VM1, H1))
    beside(bench, B)
    (found,) = access_findings(bench.session.observe())
    assert found.severity is Severity.WARNING and "CHAP" in found.why


def test_a_group_that_is_denied_takes_its_hosts_iqns_along(bench: Bench) -> None:
    group = HostGroup(name=WEB, hosts=(H1,))
    bench.session.change(lambda seen: plan_group_creation(seen, group))
    # The device is not the group's: what a host has by itself is not taken by the group's name.
    beside(bench, A)
    assert refused(bench, lambda seen: plan_deny_group(seen, VM1, WEB)) == ["SAN-HOST-020"]
    bench.session.change(lambda seen: plan_deny_host(seen, VM1, H1))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    assert refused(bench, lambda seen: plan_deny_group(seen, VM1, WEB)) == ["SAN-HOST-020"]
    bench.session.change(lambda seen: plan_allow_group(seen, VM1, WEB))
    beside(bench, A)
    (found,) = access_findings(bench.session.observe())
    assert "target deny vm1 --host-group web" in found.do
    outcome = deny_group(bench.session, VM1, WEB, **ROOM, timeout_s=60)
    assert outcome.changed and outcome.loss.lost == (A,) and outcome.loss.left == ()
    assert outcome.device.access == frozenset()
    bench.session.change(lambda seen: plan_allow_group(seen, VM1, WEB))
    beside(bench, A)
    bench.session.change(lambda seen: plan_group_removal(seen, WEB, (H1,)))
    assert vm1(bench.session.observe()).access == frozenset()


def test_hosts_of_a_group_that_is_gone_are_named(bench: Bench) -> None:
    group = HostGroup(name=WEB, hosts=(H1,))
    bench.session.change(lambda seen: plan_group_creation(seen, group))
    bench.session.change(lambda seen: plan_allow_group(seen, VM1, WEB))
    properties = bench.cluster.root.find(".//cluster_property_set[@id='sanctl.hosts']")
    assert properties is not None
    for pair in properties.findall("nvpair[@name='sanctl-host.@web']"):
        properties.remove(pair)
    outcome = deny_group(bench.session, VM1, WEB, **ROOM, timeout_s=60)
    assert outcome.changed and outcome.loss.lost == ()
    assert outcome.loss.left == (f"{A} as host h1",)
    assert hosts_denied(bench.session.observe(), VM9, WEB) == ()
    assert refused(bench, lambda seen: plan_deny_group(seen, VM1, GONE)) == ["SAN-HOST-013"]


def test_a_host_that_cannot_be_read_may_have_what_stays(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    pair = bench.cluster.root.find(".//nvpair[@name='sanctl-host.h1']")
    assert pair is not None
    pair.set("value", f"{A},{B}/kerberos")
    changed, lost, left = deny(bench)
    assert changed and lost == [A.value]
    assert left == (f"{B} by itself, which may be host h1's (SAN-HOST-012)",)


def test_a_device_that_is_gone_meanwhile(bench: Bench) -> None:
    cluster = bench.session.observe()
    loss = access_loss(cluster, cluster, VM9, (H1,))
    assert loss.lost == () and loss.left == ()


def test_a_host_that_has_only_lost_devices_is_deleted(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    beside(bench, A)
    deny(bench)
    bench.session.change(lambda seen: plan_host_deletion(seen, H1))
    assert vm1(bench.session.observe()).access == frozenset()


# Any state of the CIB, also those that no command makes: an IQN of two hosts, a host in two groups,
# an access list that repeats a host otherwise than the CIB has it.

IQNS = st.sets(st.sampled_from([A, B, C, D]), max_size=4)


def hosts() -> st.SearchStrategy[tuple[Host, ...]]:
    """Some of h1, h2 and h3, with any IQNs."""
    one = st.tuples(IQNS.filter(bool), st.booleans())
    return st.dictionaries(st.sampled_from([H1, H2, H3]), one).map(
        lambda found: tuple(
            Host(name=name, iqns=tuple(sorted(iqns)), chap_user="u" if chap else "")
            for name, (iqns, chap) in sorted(found.items())
        )
    )


GROUPS = st.dictionaries(st.sampled_from([WEB, DB]), st.sets(st.sampled_from([H1, H2, H3]))).map(
    lambda found: tuple(
        HostGroup(name=name, hosts=tuple(sorted(members)))
        for name, members in sorted(found.items())
    )
)


@cache
def seed() -> Cluster:
    bench = Bench()
    bench.create()
    return bench.session.observe()


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    given_hosts, listed = draw(hosts()), draw(hosts())
    if draw(st.booleans()):
        listed = tuple(host for host in given_hosts if host.name in {each.name for each in listed})
    device = replace(
        vm1(seed()),
        initiators=tuple(sorted(draw(IQNS))),
        hosts=listed,
        host_groups=tuple(sorted(draw(st.sets(st.sampled_from([WEB, DB]))))),
    )
    cib = replace(seed().cib, devices=(device,), hosts=given_hosts, host_groups=draw(GROUPS))
    return replace(seed(), cib=cib)


def changed(cluster: Cluster, changes: Collection[Change]) -> Cluster:
    """Return the cluster after changes of its one device."""
    device = vm1(cluster)
    for change in changes:
        if isinstance(change, SetGroupsOfDevice):
            device = replace(device, host_groups=change.groups)
        elif isinstance(change, ClearParameter):
            assert change.parameter == "hosts"
            device = replace(device, hosts=())
        elif isinstance(change, SetParameter) and change.parameter == "hosts":
            device = replace(device, hosts=parse_hosts(change.value))
        elif isinstance(change, SetParameter):
            assert change.parameter == "initiators"
            initiators = tuple(map(Iqn.parse, change.value.split()))
            device = replace(device, initiators=initiators)
    return replace(cluster, cib=replace(cluster.cib, devices=(device,)))


def denials(cluster: Cluster) -> Iterator[tuple[tuple[HostName, ...], Cluster, bool]]:
    """Yield each denial that is not refused: who is denied, the outcome, whether nothing is left.

    Something may be left to a host that is in another group of the device, or was in none.
    """
    device = vm1(cluster)

    def is_alone(name: HostName, group: HostGroupName) -> bool:
        others = {each.name for each in cluster.cib.groups_with(name)} & {*device.host_groups}
        return others == {group}

    for name in (H1, H2):
        with contextlib.suppress(Refused):
            yield (name,), changed(cluster, plan_deny_host(cluster, VM1, name)), True
        for group in (WEB, DB):
            with contextlib.suppress(Refused):
                after = changed(cluster, plan_group_removal(cluster, group, (name,)))
                yield (name,), after, is_alone(name, group)
    for group in (WEB, DB):
        with contextlib.suppress(Refused):
            after = changed(cluster, plan_deny_group(cluster, VM1, group))
            denied = hosts_denied(cluster, VM1, group)
            yield denied, after, all(is_alone(name, group) for name in denied)


@given(clusters())
def test_who_is_denied_is_out_or_named(cluster: Cluster) -> None:
    before = {word.partition("+")[0] for word in vm1(cluster).access}
    for denied, after, nothing_is_left in denials(cluster):
        loss = access_loss(cluster, after, VM1, denied)
        in_force = {word.partition("+")[0] for word in vm1(after).access}
        theirs = iqns_of(cluster, vm1(cluster), denied)
        named = {entry.split()[0] for entry in loss.left}
        assert {iqn.value for iqn in theirs} & in_force == named
        assert {iqn.value for iqn in loss.lost} == before - in_force
        assert before - in_force <= {iqn.value for iqn in theirs}, "nobody else has lost it"
        assert in_force <= before
        if nothing_is_left:
            assert theirs.isdisjoint(vm1(after).initiators)
            assert {host.name for host in vm1(after).hosts}.isdisjoint(denied)


@given(clusters())
def test_a_host_alone_is_out_by_nothing_but_another_hosts_entry(cluster: Cluster) -> None:
    """Without groups: after `target deny --host` no entry of its own, and no IQN, is left."""
    cluster = replace(
        cluster,
        cib=replace(
            cluster.cib,
            host_groups=(),
            devices=(replace(vm1(cluster), host_groups=()),),
        ),
    )
    for name in (H1, H2, H3):
        try:
            after = changed(cluster, plan_deny_host(cluster, VM1, name))
        except Refused:
            assert cluster.cib.host(name) is None and vm1(cluster).host(name) is None
            continue
        device = vm1(after)
        assert device.host(name) is None
        assert iqns_of(cluster, vm1(cluster), (name,)).isdisjoint(device.initiators)


@pytest.mark.parametrize("way", ["iqn", "host", "group", "all"])
def test_a_host_can_be_locked_out_while_a_node_is_in_maintenance(bench: Bench, way: str) -> None:
    """A node that somebody works on is no reason to let a stolen host write on."""
    group = HostGroup(name=WEB, hosts=(H1,))
    if way == "iqn":
        bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    elif way == "host":
        bench.session.change(lambda seen: plan_allow_host(seen, VM1, H1))
    else:
        bench.session.change(lambda seen: plan_group_creation(seen, group))
        bench.session.change(lambda seen: plan_allow_group(seen, VM1, WEB))
    bench.cluster.tick()
    bench.cluster.states["n2"] = "maintenance"
    assert refused(bench, lambda seen: plan_allow(seen, VM1, C)) == ["SAN-DEV-018"]
    outcome = {
        "iqn": lambda: deny_initiator(bench.session, VM1, B, **ROOM, timeout_s=60),
        "host": lambda: deny_host(bench.session, VM1, H1, **ROOM, timeout_s=60),
        "group": lambda: deny_group(bench.session, VM1, WEB, **ROOM, timeout_s=60),
        "all": lambda: deny_all(bench.session, VM1, **ROOM, timeout_s=60),
    }[way]()
    assert outcome.changed and outcome.device.access == frozenset()
    assert [(lag.node.value, lag.is_seen) for lag in outcome.not_in_force] == [("n2", True)]
    again = deny_all(bench.session, VM1, **ROOM, timeout_s=60)
    assert not again.changed and again.not_in_force == outcome.not_in_force
    assert not access_progress(
        bench.session.observe(), VM1, access_digest(outcome.device.access)
    ).is_done, "a restore awaits it there, too"
    bench.cluster.states["n2"] = "online"
    bench.cluster.tick()
    assert deny_all(bench.session, VM1, **ROOM, timeout_s=60).not_in_force == ()


def test_a_node_in_maintenance_whose_pacemaker_is_stopped_has_not_carried_it_out(
    bench: Bench,
) -> None:
    """It has stopped without stopping anything: its target goes on letting hosts in."""
    bench.session.change(lambda seen: plan_allow(seen, VM1, B))
    bench.cluster.tick()
    bench.cluster.set_permanent("n2", "maintenance", "true")
    for state in ("offline", "pending", "unclean"):
        bench.cluster.states["n2"] = state
        outcome = deny_initiator(bench.session, VM1, B, **ROOM, timeout_s=60)
        assert outcome.changed == (state == "offline")
        assert [(lag.node.value, lag.is_seen) for lag in outcome.not_in_force] == [("n2", False)]
    pair = bench.cluster.root.find(".//node[@uname='n2']//nvpair[@name='maintenance']")
    assert pair is not None
    pair.set("value", "false")
    seen = bench.session.observe()
    assert lags_of(seen, seen.cib.devices) == (), "the change is waited for"


def test_what_a_host_or_a_group_loses_is_taken_while_a_node_is_in_maintenance(
    bench: Bench,
) -> None:
    """As `target deny`; what gives anything waits for the end of the maintenance."""
    group = HostGroup(name=WEB, hosts=(H1,))
    bench.session.change(lambda seen: plan_host_change(seen, H1, more=(B, C)))
    bench.session.change(lambda seen: plan_group_creation(seen, group))
    bench.session.change(lambda seen: plan_allow_group(seen, VM1, WEB))
    bench.cluster.tick()
    bench.cluster.states["n2"] = "maintenance"
    seen = bench.session.observe()
    assert lags_of(seen, seen.cib.devices) == (), "it has the list that is to be in force"
    assert refused(bench, lambda seen: plan_host_change(seen, H1, more=(D,), fewer=(C,))) == [
        "SAN-DEV-018"
    ]
    assert refused(bench, lambda seen: plan_host_change(seen, H1, fewer=(C,), chap_user="u")) == [
        "SAN-DEV-018"
    ]
    cluster, changed = change_host(
        bench.session,
        H1,
        lambda seen: plan_host_change(seen, H1, fewer=(C,)),
        **ROOM,
        timeout_s=60,
    )
    lags = lags_of(cluster, cluster.cib.devices)
    assert changed and [(lag.device, lag.node.value) for lag in lags] == [(VM1, "n2")]
    assert vm1(cluster).access == {A.value, B.value}
    cluster, changed = change_group(
        bench.session,
        WEB,
        lambda seen: plan_group_removal(seen, WEB, (H1,)),
        ipc_buffer_bytes=ROOM["ipc_buffer_bytes"],
        timeout_s=60,
    )
    assert changed and vm1(cluster).access == frozenset()
    assert lags_of(cluster, cluster.cib.devices) == lags
    assert refused(bench, lambda seen: plan_group_addition(seen, WEB, (H1,))) == ["SAN-DEV-018"]
    bench.cluster.states["n2"] = "online"
    bench.cluster.tick()
    seen = bench.session.observe()
    assert lags_of(seen, seen.cib.devices) == ()
