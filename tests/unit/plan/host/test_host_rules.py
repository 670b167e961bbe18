# SPDX-License-Identifier: GPL-2.0-or-later
"""Hosts: created, changed, renamed and deleted with the devices that they use."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sanctl.errors import Refused, SanctlError
from sanctl.model.access import HostAccess, split_host, split_hosts
from sanctl.model.cib_change import Change
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName, parse_hosts
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.host import change_host
from sanctl.ops.target_access import allow_host, deny_host
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.host.access import plan_allow, plan_allow_host, plan_deny, plan_deny_host
from sanctl.plan.host.definition import (
    plan_host_change,
    plan_host_creation,
    plan_host_deletion,
    plan_host_rename,
)
from sanctl.plan.host.secret import HostSecrets, read_host_secrets
from tests.fakes.topology import topology
from tests.unit.ops.test_device import ROOM, VM1, Bench

A, B, C = (Iqn(value=f"iqn.2026-11.net.example:{each}") for each in "abc")
Plan = Callable[[Cluster], tuple[Change, ...]]
WEB, DB = HostName(value="web1"), HostName(value="db1.example")


def host(name: HostName = WEB, *iqns: Iqn, user: str = "", mutual: bool = False) -> Host:
    return Host(name=name, iqns=iqns or (A,), chap_user=user, is_mutual=mutual)


def refused(bench: Bench, plan: object) -> list[str]:
    """Return the codes of a refusal; the CIB is as it was."""
    before = bench.cluster.query()
    with pytest.raises(SanctlError) as raised:
        bench.session.change(plan)  # type: ignore[arg-type]
    assert bench.cluster.query() == before
    return [problem.code for problem in raised.value.problems]


@pytest.fixture
def bench() -> Bench:
    """A device vm1, the host web1 with the IQNs a and b, and db1.example with CHAP and c."""
    bench = Bench()
    bench.create()
    bench.session.change(lambda seen: plan_host_creation(seen, host(WEB, A, B)))
    bench.session.change(lambda seen: plan_host_creation(seen, host(DB, C, user="db")))
    return bench


def cib(bench: Bench) -> Cluster:
    return bench.session.observe()


def vm1(bench: Bench) -> DeviceSpec:
    found = cib(bench).cib.device("vm1")
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "web1=iqn.2026-11.net.example:a",
        "web1=iqn.2026-11.net.example:a,iqn.2026-11.net.example:b/chap=w",
        "db1.example=eui.0123456789abcdef/chap=iqn.2026-11.net.example:c/mutual",
    ],
)
def test_a_host_is_read_as_it_is_written(text: str) -> None:
    (read,) = parse_hosts(text)
    assert str(read) == text
    light = split_host(text)
    assert (light.name, light.iqns) == (read.name.value, tuple(i.value for i in read.iqns))
    assert (light.chap_user, light.is_mutual) == (read.chap_user, read.is_mutual)


@pytest.mark.parametrize(
    "text",
    [
        "web1",
        "web1=",
        "=iqn.2026-11.net.example:a",
        "web1=iqn.2026-11.net.example:a/mutual",
        "web1=iqn.2026-11.net.example:a/chap=",
        "web1=iqn.2026-11.net.example:a/chap=u/later",
        "web1=iqn.2026-11.net.example:a/kerberos",
        "web1=iqn.2026-11.net.example:a/chap=u/chap=v",
    ],
)
def test_what_is_not_known_lets_nobody_in(text: str) -> None:
    """An option of a later release must not be taken for a login without authentication."""
    with pytest.raises(ValueError, match=r"web1|iqn"):
        split_host(text)
    with pytest.raises(SanctlError):
        parse_hosts(text)


@pytest.mark.parametrize("name", ["", "Web", "web_1", "-web", "web.", "a/b", "..", "x" * 64])
def test_names_that_are_no_hosts(name: str) -> None:
    with pytest.raises(SanctlError) as raised:
        HostName.parse(name)
    assert raised.value.problems[0].code == "SAN-NAME-007"


def test_hosts_outlive_their_devices_and_one_another(bench: Bench) -> None:
    assert [each.name for each in cib(bench).cib.hosts] == [DB, WEB]
    assert bench.session.change(lambda seen: plan_host_creation(seen, host(WEB, A, B))) == ()
    bench.session.change(lambda seen: plan_host_deletion(seen, WEB))
    bench.session.change(lambda seen: plan_host_deletion(seen, DB))
    assert cib(bench).cib.hosts == ()
    bench.session.change(lambda seen: plan_host_creation(seen, host(WEB, A)))
    assert cib(bench).cib.hosts == (host(WEB, A),)


def test_what_is_taken_is_refused(bench: Bench) -> None:
    assert refused(bench, lambda s: plan_host_creation(s, host(WEB, C))) == [
        "SAN-HOST-002",
        "SAN-HOST-003",
    ]
    assert refused(bench, lambda s: plan_host_change(s, WEB, more=(C,))) == ["SAN-HOST-003"]
    assert refused(bench, lambda s: plan_host_rename(s, WEB, DB)) == ["SAN-HOST-002"]
    assert refused(bench, lambda s: plan_host_deletion(s, HostName(value="x"))) == ["SAN-HOST-001"]
    assert refused(bench, lambda s: plan_host_change(s, WEB, fewer=(A, B))) == ["SAN-HOST-006"]
    assert refused(bench, lambda s: plan_host_change(s, WEB, is_mutual=True)) == ["SAN-HOST-008"]
    assert refused(bench, lambda s: plan_host_change(s, WEB, chap_user="a b")) == ["SAN-HOST-007"]
    assert refused(bench, lambda s: plan_host_change(s, WEB, chap_user="NULL")) == ["SAN-HOST-007"]


def test_a_host_with_devices_is_not_deleted(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, WEB))
    assert refused(bench, lambda s: plan_host_deletion(s, WEB)) == ["SAN-HOST-004"]
    bench.session.change(lambda seen: plan_deny_host(seen, VM1, WEB))
    bench.session.change(lambda seen: plan_host_deletion(seen, WEB))
    assert vm1(bench).hosts == ()


def test_devices_follow_their_hosts(bench: Bench) -> None:
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, WEB))
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, DB))
    assert vm1(bench).access == {A.value, B.value, f"{C}+chap=db"}
    assert bench.session.change(lambda seen: plan_allow_host(seen, VM1, WEB)) == ()
    bench.session.change(
        lambda seen: plan_host_change(seen, WEB, fewer=(A,), chap_user="web", is_mutual=True)
    )
    assert vm1(bench).access == {f"{B}+chap=web+mutual", f"{C}+chap=db"}
    new = HostName(value="web2")
    before = vm1(bench).access
    change_host(
        bench.session, new, lambda seen: plan_host_rename(seen, WEB, new), **ROOM, timeout_s=20
    )
    assert vm1(bench).access == before
    assert vm1(bench).hosts == cib(bench).cib.hosts
    bench.session.change(lambda seen: plan_host_change(seen, new, chap_user=""))
    assert vm1(bench).access == {B.value, f"{C}+chap=db"}


def test_a_hosts_iqn_is_not_used_by_itself(bench: Bench) -> None:
    """It would get in without the host's CHAP."""
    assert refused(bench, lambda s: plan_allow(s, VM1, C)) == ["SAN-HOST-010"]
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, DB))
    assert refused(bench, lambda s: plan_deny(s, VM1, C)) == ["SAN-HOST-010"]
    with pytest.raises(SanctlError) as raised:
        bench.create("vm2", initiators=(C.value,), hosts=("nobody",))
    assert [p.code for p in raised.value.problems] == ["SAN-HOST-010", "SAN-HOST-001"]
    bench.create("vm2", hosts=("web1", "db1.example"))
    assert cib(bench).cib.device("vm2").hosts == cib(bench).cib.hosts  # type: ignore[union-attr]


def test_a_list_by_iqn_becomes_a_hosts() -> None:
    bench = Bench()
    bench.create(initiators=(A.value, B.value))
    # Elsewhere the IQN would get in without CHAP.
    asked = host(WEB, A, user="web")
    assert refused(bench, lambda s: plan_host_creation(s, asked)) == ["SAN-HOST-005"]
    bench.session.change(lambda seen: plan_host_creation(seen, host(WEB, A)))
    assert refused(bench, lambda s: plan_host_change(s, WEB, chap_user="w")) == ["SAN-HOST-005"]
    access = vm1(bench).access
    bench.session.change(lambda seen: plan_allow_host(seen, DeviceName(value="vm1"), WEB))
    assert vm1(bench).initiators == (B,) and vm1(bench).access == access
    bench.session.change(lambda seen: plan_host_change(seen, WEB, chap_user="w"))
    assert vm1(bench).access == {f"{A}+chap=w", B.value}


GOOD, OTHER = "abcdefghijkl", "mnopqrstuvwx"


@pytest.mark.parametrize(
    ("text", "mutual", "found"),
    [
        (f"secret = {GOOD}\n", False, HostSecrets(GOOD)),
        (f"# a comment\n\nsecret={GOOD}\nmutual={OTHER}\n", True, HostSecrets(GOOD, OTHER)),
        (f"secret = {GOOD}\nmutual = {OTHER}\n", False, HostSecrets(GOOD)),
        ("", False, "none"),
        (f"secret = {GOOD}\n", True, "'mutual': there is none"),
        (f"secret = {GOOD}\nmutual = {GOOD}\n", True, "same"),
        (f"secret = {GOOD[:11]}\n", False, "11 characters"),
        (f"secret = {'x' * 65}\n", False, "65 characters"),
        ("secret = abcdef ghijkl\n", False, "other characters"),
        ("secret = abcdefghijk'\n", False, "other characters"),
        ("secret = abcdefghijkä\n", False, "other characters"),
        ("secret = NULLabcdefghijkl\n", False, "NULL"),
        (f"secret = {GOOD}\nsecret = {OTHER}\n", False, "line 2"),
        (f"{GOOD}\n", False, "line 1"),
    ],
)
def test_secrets(text: str, mutual: bool, found: HostSecrets | str) -> None:
    read = read_host_secrets(text, is_mutual=mutual)
    if isinstance(found, HostSecrets):
        assert read == found and GOOD not in repr(read)
    else:
        assert isinstance(read, str) and found in read and GOOD not in read


def test_a_host_that_cannot_be_read_keeps_out_itself_alone() -> None:
    """An option of a later release, or a typing error: the others, and each action, go on."""
    hosts, unreadable = split_hosts("web1=iqn.a db=iqn.b/chap=db/lock lone x=")
    assert hosts == (HostAccess("web1", ("iqn.a",)),)
    assert unreadable == ("db", "lone", "x")


def spoil(bench: Bench, path: str, value: str) -> None:
    """Write what this release cannot read into the CIB."""
    element = bench.cluster.root.find(path)
    assert element is not None
    element.set("value", value)


def test_no_iqn_is_given_away_while_a_host_cannot_be_read(bench: Bench) -> None:
    """The IQN c of db1.example looks free then, and would log in without CHAP."""
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, WEB))
    spoil(bench, f".//nvpair[@name='sanctl-host.{DB}']", f"{C}/chap=db/kerberos")
    assert cib(bench).cib.unreadable_hosts == (DB.value,)
    other = HostName(value="db2")
    for plan in (
        lambda s: plan_host_creation(s, host(other, C)),
        lambda s: plan_host_change(s, WEB, more=(C,)),
        lambda s: plan_host_change(s, WEB, chap_user="web"),
        lambda s: plan_host_rename(s, WEB, other),
        lambda s: plan_allow(s, VM1, C),
    ):
        assert refused(bench, plan) == ["SAN-HOST-012"]
    with pytest.raises(SanctlError) as raised:
        bench.create("vm2", initiators=(C.value,))
    assert [p.code for p in raised.value.problems] == ["SAN-HOST-012"]
    # What takes an IQN away, or gives none, goes on.
    bench.create("vm2", hosts=("web1",))
    bench.session.change(lambda seen: plan_deny_host(seen, VM1, WEB))
    assert vm1(bench).access == set()
    assert "SAN-HLT-095" in {each.code for each in all_findings(cib(bench), topology(), now_s=0.0)}


def test_no_host_is_changed_while_a_device_cannot_be_read(bench: Bench) -> None:
    """The device would keep what the host was, or lets an IQN in that is to have CHAP."""
    bench.session.change(lambda seen: plan_allow_host(seen, VM1, WEB))
    spoil(bench, ".//primitive[@id='vm1']//nvpair[@name='hosts']", f"{WEB}={A}/kerberos")
    for plan in (
        lambda s: plan_host_deletion(s, WEB),
        lambda s: plan_host_change(s, WEB, fewer=(A,)),
        lambda s: plan_host_rename(s, WEB, HostName(value="db2")),
        lambda s: plan_host_creation(s, host(HostName(value="db2"), Iqn(value=f"{A}2"))),
    ):
        assert refused(bench, plan) == ["SAN-HOST-012"]


def test_hosts_that_pacemakers_messages_cannot_hold_are_refused(bench: Bench) -> None:
    few = bench.session.compressed_cib_bytes() * 5 // 4 + 40

    def change(plan: Plan) -> None:
        change_host(bench.session, WEB, plan, ipc_buffer_bytes=few, timeout_s=20)

    many = [Iqn(value=f"iqn.2026-11.net.example:{number * 7919:x}") for number in range(99)]
    before = bench.cluster.query()
    with pytest.raises(Refused) as raised:
        change(lambda seen: plan_host_change(seen, WEB, more=many))
    assert [p.code for p in raised.value.problems] == ["SAN-CLU-006"]
    with pytest.raises(Refused) as raised:
        allow_host(bench.session, VM1, WEB, ipc_buffer_bytes=64, timeout_s=20)
    assert [p.code for p in raised.value.problems] == ["SAN-CLU-006"]
    assert bench.cluster.query() == before
    # What takes away is not refused, however large the CIB is.
    change(lambda seen: plan_host_change(seen, WEB, fewer=(A,)))
    assert deny_host(bench.session, VM1, WEB, ipc_buffer_bytes=64, timeout_s=20).changed is False
