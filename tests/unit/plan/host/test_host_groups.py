# SPDX-License-Identifier: GPL-2.0-or-later
"""Host groups: devices are given to all their hosts, in one change with their access lists."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from sanctl.errors import SanctlError
from sanctl.model.cib_names import GROUPS_OF_DEVICE
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host, HostName
from sanctl.model.host_group import HostGroup, HostGroupName, parse_group_names
from sanctl.model.names import DeviceName, Iqn
from sanctl.ops.host import change_group
from sanctl.ops.target_access import allow_group, deny_group
from sanctl.plan.cluster.cib_size import added_text
from sanctl.plan.health.cluster_health import all_findings
from sanctl.plan.host.access import plan_allow, plan_allow_host, plan_deny, plan_deny_host
from sanctl.plan.host.definition import (
    plan_host_change,
    plan_host_creation,
    plan_host_deletion,
    plan_host_rename,
)
from sanctl.plan.host.groups import (
    plan_allow_group,
    plan_deny_group,
    plan_group_addition,
    plan_group_creation,
    plan_group_deletion,
    plan_group_removal,
    plan_group_rename,
)
from tests.fakes.topology import topology
from tests.unit.ops.test_device import ROOM, VM1, Bench
from tests.unit.plan.host.test_host_rules import Plan, refused

A, B, C, D = (Iqn(value=f"iqn.2026-11.net.example:{each}") for each in "abcd")
H1, H2, H3, NOBODY = (HostName(value=each) for each in ("h1", "h2", "h3", "nobody"))
WEB, DB, GONE = (HostGroupName(value=each) for each in ("web", "db", "gone"))
VM2, VM9 = DeviceName(value="vm2"), DeviceName(value="vm9")


@pytest.fixture
def bench() -> Bench:
    """Devices vm1 and vm2; hosts h1 (a), h2 (b, with CHAP), h3 (c); group web of h1 and h2."""
    bench = Bench()
    bench.create("vm1")
    bench.create("vm2")
    for name, iqn, user in ((H1, A, ""), (H2, B, "h2"), (H3, C, "")):
        made = Host(name=name, iqns=(iqn,), chap_user=user)
        bench.session.change(lambda seen, made=made: plan_host_creation(seen, made))  # type: ignore[misc]
    change(bench, lambda seen: plan_group_creation(seen, HostGroup(name=WEB, hosts=(H1, H2))))
    return bench


def change(bench: Bench, plan: Plan) -> int:
    """Make a change, and return of how many patches: at most one."""
    before = len(bench.cluster.patches)
    bench.session.change(plan)
    made = len(bench.cluster.patches) - before
    assert made <= 1
    return made


def seen(bench: Bench) -> Cluster:
    return bench.session.observe()


def device(bench: Bench, name: DeviceName = VM1) -> DeviceSpec:
    found = seen(bench).cib.device(name)
    assert found is not None
    return found


def names(bench: Bench, name: DeviceName = VM1) -> list[str]:
    return [host.name.value for host in device(bench, name).hosts]


def group(bench: Bench, name: HostGroupName = WEB) -> list[str]:
    found = seen(bench).cib.host_group(name)
    assert found is not None
    return [host.value for host in found.hosts]


def findings(bench: Bench) -> dict[str, str]:
    found = all_findings(seen(bench), topology(), now_s=0.0)
    return {f"{f.code} {f.subject}": f.what + f.do for f in found if f.code > "SAN-HLT-112"}


def write(bench: Bench, name: str, value: str) -> None:
    """Write a property of the hosts' set by hand."""
    pair = bench.cluster.root.find(f".//nvpair[@name='{name}']")
    if pair is None:
        group = bench.cluster.root.find(".//cluster_property_set[@id='sanctl.hosts']")
        assert group is not None
        pair = ET.SubElement(group, "nvpair", id=name.replace("@", "by-hand."), name=name)
    pair.set("value", value)


def write_hosts(bench: Bench, value: str, name: str = "vm1") -> None:
    """Change an access list as a command does that knows no groups."""
    pair = bench.cluster.root.find(f".//primitive[@id='{name}']//nvpair[@name='hosts']")
    assert pair is not None
    pair.set("value", value)


@pytest.mark.parametrize("value", ["hosts=", "hosts=a", "hosts=a,b.example"])
def test_a_group_is_read_as_it_is_written(value: str) -> None:
    assert HostGroup.parse("web", value).value == value


@pytest.mark.parametrize(
    "value", ["", "a,b", "hosts=b,a", "hosts=a,a", "hosts=a,", "hosts=A", "hosts=a/later", "host=a"]
)
def test_what_is_not_known_is_no_group(value: str) -> None:
    with pytest.raises(SanctlError):
        HostGroup.parse("web", value)


def test_names_of_groups() -> None:
    for name in ("", "Web", "-web", "web.", "@web", "a b", "x" * 64):
        with pytest.raises(SanctlError) as raised:
            HostGroupName.parse(name)
        assert raised.value.problems[0].code == "SAN-NAME-010"
    assert parse_group_names("web db web") == (DB, WEB)


def test_a_group_is_created_once(bench: Bench) -> None:
    same = HostGroup(name=WEB, hosts=(H1, H2))
    assert change(bench, lambda s: plan_group_creation(s, same)) == 0
    other = HostGroup(name=WEB, hosts=(H1,))
    assert refused(bench, lambda s: plan_group_creation(s, other)) == ["SAN-HOST-014"]
    taken = HostGroup(name=DB, hosts=(H2, NOBODY))
    assert refused(bench, lambda s: plan_group_creation(s, taken)) == [
        "SAN-HOST-001",
        "SAN-HOST-015",
    ]
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=DB)))
    assert group(bench, DB) == []
    change(bench, lambda s: plan_group_deletion(s, DB))
    assert seen(bench).cib.host_group(DB) is None
    # Groups are no hosts, and hosts no groups.
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=HostGroupName(value="h3"))))
    assert [host.name for host in seen(bench).cib.hosts] == [H1, H2, H3]
    assert seen(bench).cib.unreadable_hosts == ()


def test_a_device_is_given_to_a_group_and_taken_from_it(bench: Bench) -> None:
    assert change(bench, lambda s: plan_allow_group(s, VM1, WEB)) == 1
    assert device(bench).access == {A.value, f"{B}+chap=h2"}
    assert device(bench).host_groups == (WEB,)
    assert change(bench, lambda s: plan_allow_group(s, VM1, WEB)) == 0
    # A meta attribute of the primitive: what it says is nothing that agents reload for.
    pair = bench.cluster.root.find(
        f".//primitive[@id='vm1']/meta_attributes/nvpair[@name='{GROUPS_OF_DEVICE}']"
    )
    assert pair is not None and pair.get("value") == "web"
    assert change(bench, lambda s: plan_deny_group(s, VM1, WEB)) == 1
    assert device(bench).access == frozenset() and device(bench).host_groups == ()
    assert change(bench, lambda s: plan_deny_group(s, VM1, WEB)) == 0
    for plan in (plan_allow_group, plan_deny_group):
        assert refused(bench, lambda s, p=plan: p(s, VM1, GONE)) == ["SAN-HOST-013"]
        assert refused(bench, lambda s, p=plan: p(s, VM9, WEB)) == ["SAN-DEV-002"]


def test_what_hosts_had_by_themselves_becomes_the_groups() -> None:
    bench = Bench()
    bench.create("vm1", initiators=(A.value, D.value))
    for name, iqn in ((H1, A), (H2, B)):
        made = Host(name=name, iqns=(iqn,))
        bench.session.change(lambda s, made=made: plan_host_creation(s, made))  # type: ignore[misc]
    change(bench, lambda s: plan_allow_host(s, VM1, H2))
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=WEB, hosts=(H1, H2))))
    assert change(bench, lambda s: plan_allow_group(s, VM1, WEB)) == 1
    # An IQN that stayed would let the host in without its CHAP, and after it left the group.
    assert device(bench).initiators == (D,)
    assert names(bench) == ["h1", "h2"]
    change(bench, lambda s: plan_deny_group(s, VM1, WEB))
    assert device(bench).access == {D.value}


def test_hosts_come_and_go_with_all_devices_in_one_change(bench: Bench) -> None:
    for name in (VM1, VM2):
        change(bench, lambda s, name=name: plan_allow_group(s, name, WEB))  # type: ignore[misc]
    change(bench, lambda s: plan_allow(s, VM2, D))
    assert change(bench, lambda s: plan_group_addition(s, WEB, (H3, H1))) == 1
    assert group(bench) == names(bench) == names(bench, VM2) == ["h1", "h2", "h3"]
    assert change(bench, lambda s: plan_group_addition(s, WEB, (H3,))) == 0
    assert change(bench, lambda s: plan_group_removal(s, WEB, (H1, H2))) == 1
    assert group(bench) == names(bench) == names(bench, VM2) == ["h3"]
    assert change(bench, lambda s: plan_group_removal(s, WEB, (H1,))) == 0
    assert device(bench, VM2).access == {C.value, D.value}
    assert refused(bench, lambda s: plan_group_addition(s, WEB, (NOBODY,))) == ["SAN-HOST-001"]
    assert refused(bench, lambda s: plan_group_removal(s, WEB, (NOBODY,))) == ["SAN-HOST-001"]
    assert refused(bench, lambda s: plan_group_removal(s, GONE, (H1,))) == ["SAN-HOST-013"]
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=DB, hosts=(H1,))))
    assert refused(bench, lambda s: plan_group_addition(s, WEB, (H1,))) == ["SAN-HOST-015"]
    change(bench, lambda s: plan_group_removal(s, WEB, (H3,)))
    assert group(bench) == names(bench) == []
    assert findings(bench) == {}


def test_a_host_that_joins_gives_its_iqn_to_the_group(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    change(bench, lambda s: plan_host_creation(s, Host(name=NOBODY, iqns=(D, Iqn(value=f"{D}2")))))
    change(bench, lambda s: plan_host_change(s, NOBODY, fewer=(D,)))
    change(bench, lambda s: plan_allow(s, VM1, D))
    change(bench, lambda s: plan_host_change(s, NOBODY, more=(D,)))
    assert change(bench, lambda s: plan_group_addition(s, WEB, (NOBODY,))) == 1
    assert device(bench).initiators == ()
    change(bench, lambda s: plan_group_removal(s, WEB, (NOBODY,)))
    assert D.value not in device(bench).access


def test_a_host_of_the_group_is_neither_allowed_nor_denied_by_itself(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    for plan in (plan_allow_host, plan_deny_host):
        assert refused(bench, lambda s, p=plan: p(s, VM1, H1)) == ["SAN-HOST-016"]
    assert refused(bench, lambda s: plan_deny(s, VM1, A)) == ["SAN-HOST-010"]
    # A device that is not the group's, and a host that is not in it.
    change(bench, lambda s: plan_allow_host(s, VM2, H1))
    change(bench, lambda s: plan_deny_host(s, VM2, H1))
    change(bench, lambda s: plan_allow_host(s, VM1, H3))
    assert names(bench) == ["h1", "h2", "h3"]
    change(bench, lambda s: plan_deny_group(s, VM1, WEB))
    assert names(bench) == ["h3"]


def test_devices_are_created_for_groups(bench: Bench) -> None:
    bench.create("vm3", hosts=("h3", "h1"), host_groups=("web",), initiators=(D.value,))
    vm3 = DeviceName(value="vm3")
    assert names(bench, vm3) == ["h1", "h2", "h3"]
    assert device(bench, vm3).host_groups == (WEB,)
    assert findings(bench) == {}
    for more, codes in (
        ({"host_groups": ("gone",)}, ["SAN-HOST-013"]),
        ({"host_groups": ("Web",)}, ["SAN-NAME-010"]),
        ({"host_groups": ("web",), "initiators": (A.value,)}, ["SAN-HOST-010"]),
    ):
        before = bench.cluster.query()
        with pytest.raises(SanctlError) as raised:
            bench.create("vm4", "10M", **more)
        assert [problem.code for problem in raised.value.problems] == codes
        assert bench.cluster.query() == before


def test_a_group_with_devices_is_not_deleted(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    assert refused(bench, lambda s: plan_group_deletion(s, WEB)) == ["SAN-HOST-017"]
    assert refused(bench, lambda s: plan_group_deletion(s, GONE)) == ["SAN-HOST-013"]
    change(bench, lambda s: plan_deny_group(s, VM1, WEB))
    change(bench, lambda s: plan_group_deletion(s, WEB))
    assert [host.name for host in seen(bench).cib.hosts] == [H1, H2, H3]


def test_a_renamed_group_keeps_its_devices(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    access = device(bench).access
    parameters = dict(bench.cluster.devices()["vm1"])
    assert change(bench, lambda s: plan_group_rename(s, WEB, DB)) == 1
    assert device(bench).host_groups == (DB,) and device(bench).access == access
    assert bench.cluster.devices()["vm1"] == parameters, "agents notice nothing"
    assert group(bench, DB) == ["h1", "h2"] and seen(bench).cib.host_group(WEB) is None
    assert change(bench, lambda s: plan_group_rename(s, DB, DB)) == 0
    assert refused(bench, lambda s: plan_group_rename(s, WEB, GONE)) == ["SAN-HOST-013"]
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=WEB)))
    assert refused(bench, lambda s: plan_group_rename(s, DB, WEB)) == ["SAN-HOST-014"]
    # A device that names a group which somebody deleted by hand would get the other's name.
    change(bench, lambda s: plan_allow_group(s, VM2, WEB))
    remove(bench, "sanctl-host.@web")
    assert refused(bench, lambda s: plan_group_rename(s, DB, WEB)) == ["SAN-HOST-014"]


def remove(bench: Bench, name: str) -> None:
    group = bench.cluster.root.find(".//cluster_property_set[@id='sanctl.hosts']")
    assert group is not None
    for pair in group.findall(f"nvpair[@name='{name}']"):
        group.remove(pair)


def test_hosts_are_renamed_and_deleted_with_their_group(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    access = device(bench).access
    new = HostName(value="z1")
    assert change(bench, lambda s: plan_host_rename(s, H1, new)) == 1
    assert group(bench) == names(bench) == ["h2", "z1"]
    assert device(bench).access == access
    assert refused(bench, lambda s: plan_host_deletion(s, new)) == ["SAN-HOST-019"]
    change(bench, lambda s: plan_group_removal(s, WEB, (new,)))
    change(bench, lambda s: plan_host_deletion(s, new))
    # Of a name that a group has already nobody becomes a host.
    write(bench, "sanctl-host.@web", "hosts=h2,z1")
    made = Host(name=new, iqns=(A,))
    assert refused(bench, lambda s: plan_host_creation(s, made)) == ["SAN-HOST-015"]
    assert refused(bench, lambda s: plan_host_rename(s, H3, new)) == ["SAN-HOST-015"]
    assert "SAN-HLT-114 host group web" in findings(bench)
    assert refused(bench, lambda s: plan_allow_group(s, VM2, WEB)) == ["SAN-HOST-001"]
    change(bench, lambda s: plan_group_removal(s, WEB, (new,)))
    assert findings(bench) == {}


def test_a_list_that_an_older_command_changed(bench: Bench) -> None:
    """`target deny` of a release without groups: the host stays out until someone names both."""
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    write_hosts(bench, f"h2={B}/chap=h2")
    assert "h1" in findings(bench)["SAN-HLT-113 device vm1"]
    assert change(bench, lambda s: plan_group_addition(s, WEB, (H1,))) == 0
    assert change(bench, lambda s: plan_group_addition(s, WEB, (H1, H3))) == 1
    assert names(bench) == ["h2", "h3"], "h3 alone was added"
    for plan in (plan_allow_host, plan_deny_host):
        assert refused(bench, lambda s, p=plan: p(s, VM1, H1)) == ["SAN-HOST-016"]
    assert change(bench, lambda s: plan_allow_group(s, VM1, WEB)) == 1
    assert names(bench) == ["h1", "h2", "h3"] and findings(bench) == {}
    write_hosts(bench, f"h2={B}/chap=h2 h3={C}")
    change(bench, lambda s: plan_group_removal(s, WEB, (H1,)))
    assert names(bench) == ["h2", "h3"] and findings(bench) == {}


def test_a_group_that_is_gone(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    remove(bench, "sanctl-host.@web")
    assert "web" in findings(bench)["SAN-HLT-114 device vm1"]
    assert names(bench) == ["h1", "h2"]
    change(bench, lambda s: plan_deny_host(s, VM1, H1))
    assert refused(bench, lambda s: plan_allow_group(s, VM1, WEB)) == ["SAN-HOST-013"]
    change(bench, lambda s: plan_deny_group(s, VM1, WEB))
    assert names(bench) == ["h2"] and findings(bench) == {}


def test_a_group_that_cannot_be_read_may_have_any_host(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    write(bench, "sanctl-host.@web", "hosts=h1,h2/from=later")
    assert seen(bench).cib.unreadable_groups == ("web",)
    assert seen(bench).cib.unreadable_hosts == ()
    assert "SAN-HLT-115 host group web" in findings(bench)
    for plan in (
        lambda s: plan_group_creation(s, HostGroup(name=DB, hosts=(H3,))),
        lambda s: plan_allow_group(s, VM2, WEB),
        lambda s: plan_deny_group(s, VM1, WEB),
        lambda s: plan_group_addition(s, WEB, (H3,)),
        lambda s: plan_group_removal(s, WEB, (H1,)),
        lambda s: plan_group_rename(s, WEB, DB),
        lambda s: plan_group_deletion(s, WEB),
        lambda s: plan_host_rename(s, H3, NOBODY),
        lambda s: plan_host_deletion(s, H3),
    ):
        assert refused(bench, plan) == ["SAN-HOST-018"]
    same = HostGroup(name=WEB)
    assert refused(bench, lambda s: plan_group_creation(s, same)) == ["SAN-HOST-018"] * 2
    # A host can be taken off by itself; what hosts are is changed as before.
    change(bench, lambda s: plan_deny_host(s, VM1, H1))
    change(bench, lambda s: plan_host_change(s, H2, chap_user="other"))
    assert device(bench).access == {f"{B}+chap=other"}
    # One that is in a readable group is in no other, as far as is known: it may be.
    write(bench, "sanctl-host.@db", "hosts=h3")
    assert refused(bench, lambda s: plan_group_addition(s, DB, (H1,))) == ["SAN-HOST-018"]


def test_nothing_is_left_out_while_a_device_cannot_be_read(bench: Bench) -> None:
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    write_hosts(bench, f"h1={A}/kerberos")
    for plan in (
        lambda s: plan_group_addition(s, WEB, (H3,)),
        lambda s: plan_group_removal(s, WEB, (H1,)),
        lambda s: plan_group_rename(s, WEB, DB),
        lambda s: plan_group_deletion(s, WEB),
    ):
        assert refused(bench, plan) == ["SAN-HOST-012"]
    # One device by name goes on.
    change(bench, lambda s: plan_allow_group(s, VM2, WEB))
    change(bench, lambda s: plan_deny_group(s, VM2, WEB))


def test_a_host_of_a_group_that_cannot_be_read(bench: Bench) -> None:
    write(bench, "sanctl-host.h2", f"{B}/kerberos")
    assert refused(bench, lambda s: plan_allow_group(s, VM1, WEB)) == ["SAN-HOST-012"]
    assert refused(bench, lambda s: plan_group_addition(s, WEB, (H2,))) == ["SAN-HOST-012"]
    assert findings(bench) == {}, "SAN-HLT-095 says it"


def test_a_host_in_two_groups_keeps_what_the_other_gives(bench: Bench) -> None:
    """No command does that: someone wrote it by hand."""
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=DB, hosts=(H3,))))
    for name in (WEB, DB):
        change(bench, lambda s, name=name: plan_allow_group(s, VM1, name))  # type: ignore[misc]
    change(bench, lambda s: plan_allow_group(s, VM2, DB))
    write(bench, "sanctl-host.@db", "hosts=h1,h3")
    found = findings(bench)
    assert "db" in found["SAN-HLT-114 host group web"] and "SAN-HLT-113 device vm2" in found
    change(bench, lambda s: plan_group_removal(s, DB, (H1,)))
    assert names(bench) == ["h1", "h2", "h3"] and findings(bench) == {}


def test_a_device_whose_deletion_has_begun_is_not_passed_over(bench: Bench) -> None:
    for name in (VM1, VM2):
        change(bench, lambda s, name=name: plan_allow_group(s, name, WEB))  # type: ignore[misc]
    clone = bench.cluster.root.find(".//clone[@id='sanctl-vm2']/meta_attributes")
    assert clone is not None
    ET.SubElement(clone, "nvpair", id="stop", name="target-role", value="Stopped")
    assert refused(bench, lambda s: plan_group_addition(s, WEB, (H3,))) == ["SAN-DEV-014"]
    assert refused(bench, lambda s: plan_group_removal(s, WEB, (H1,))) == ["SAN-DEV-014"]


def test_notes_of_a_device_that_other_tools_have_touched(bench: Bench) -> None:
    """crm_resource --meta makes sets of its own: each note is found, and all of them go."""
    primitive = bench.cluster.root.find(".//primitive[@id='vm1']")
    assert primitive is not None
    for mine in primitive.findall("meta_attributes"):
        primitive.remove(mine)
    change(bench, lambda s: plan_allow_group(s, VM1, WEB))
    other = ET.SubElement(primitive, "meta_attributes", id="vm1-meta_attributes")
    ET.SubElement(other, "nvpair", id="again", name=GROUPS_OF_DEVICE, value="web")
    change(bench, lambda s: plan_group_creation(s, HostGroup(name=DB, hosts=(H3,))))
    change(bench, lambda s: plan_allow_group(s, VM1, DB))
    assert device(bench).host_groups == (DB, WEB)
    assert len(primitive.findall(f".//nvpair[@name='{GROUPS_OF_DEVICE}']")) == 1
    for name in (WEB, DB):
        change(bench, lambda s, name=name: plan_deny_group(s, VM1, name))  # type: ignore[misc]
    assert device(bench).host_groups == () and names(bench) == []
    assert primitive.findall(f".//nvpair[@name='{GROUPS_OF_DEVICE}']") == []
    # What is no name of a group is not taken for none.
    ET.SubElement(other, "nvpair", id="odd", name=GROUPS_OF_DEVICE, value="@web")
    assert [name for name, _ in seen(bench).cib.unreadable] == ["vm1"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("word", ["add", "remove", "allow", "deny", "rename"])
def test_a_command_that_dies_after_its_change_is_run_again(bench: Bench, word: str) -> None:
    """There is one change: before it all is as it was, after it nothing is left to do but wait."""
    bench.session.change(lambda s: plan_allow_group(s, VM2, WEB))
    if word == "deny":
        bench.session.change(lambda s: plan_allow_group(s, VM1, WEB))

    def run() -> object:
        if word == "allow":
            return allow_group(bench.session, VM1, WEB, **ROOM, timeout_s=30)
        if word == "deny":
            return deny_group(bench.session, VM1, WEB, **ROOM, timeout_s=30)
        if word == "rename":
            name, plan = DB, lambda s: plan_group_rename(s, WEB, DB)
        else:
            rule = plan_group_addition if word == "add" else plan_group_removal
            host = H3 if word == "add" else H1
            name, plan = WEB, lambda s: rule(s, WEB, (host,))
        return change_group(bench.session, name, plan, ipc_buffer_bytes=128 << 10, timeout_s=30)

    def kill() -> None:
        raise Killed

    old = bench.cluster.query()
    bench.cluster.on_patch.append(kill)
    with pytest.raises(Killed):
        run()
    assert bench.cluster.query() == old
    bench.cluster.on_patch.clear()
    bench.cluster.after_patch = kill
    with pytest.raises(Killed):
        run()
    bench.cluster.after_patch = lambda: None
    patches = len(bench.cluster.patches)
    assert findings(bench) == {}, "group and access list have changed together"
    if word == "rename":
        with pytest.raises(SanctlError) as raised:
            run()
        assert raised.value.problems[0].code == "SAN-HOST-013"
    else:
        run()
    assert len(bench.cluster.patches) == patches
    wanted = {"add": ["h1", "h2", "h3"], "remove": ["h2"]}.get(word, ["h1", "h2"])
    assert names(bench, VM2) == wanted
    assert names(bench) == (["h1", "h2"] if word == "allow" else [])


def test_the_change_is_made_of_what_the_cluster_has_become(bench: Bench) -> None:
    """A device that is given to the group meanwhile gives the new host its access, too."""
    bench.session.change(lambda s: plan_allow_group(s, VM1, WEB))
    other = Bench.__new__(Bench)
    other.__dict__.update(bench.__dict__)

    def meanwhile() -> None:
        bench.cluster.on_patch.clear()
        other.session.change(lambda s: plan_allow_group(s, VM2, WEB))

    bench.cluster.on_patch.append(meanwhile)
    bench.session.change(lambda s: plan_group_addition(s, WEB, (H3,)))
    assert names(bench) == names(bench, VM2) == ["h1", "h2", "h3"]


def test_what_is_added_counts_for_pacemakers_messages(bench: Bench) -> None:
    cluster = seen(bench)
    made = plan_group_creation(cluster, HostGroup(name=DB, hosts=(H3,)))
    assert added_text(cluster, made) == "hosts=h3"
    given = plan_allow_group(cluster, VM1, WEB)
    assert added_text(cluster, given) == f"web\nh1={A} h2={B}/chap=h2"
    assert added_text(cluster, plan_group_removal(cluster, WEB, (H1,))) == ""


def test_nothing_changes_without_quorum(bench: Bench) -> None:
    bench.cluster.has_quorum = False
    for plan in (
        lambda s: plan_group_creation(s, HostGroup(name=DB)),
        lambda s: plan_group_deletion(s, WEB),
        lambda s: plan_group_rename(s, WEB, DB),
        lambda s: plan_group_addition(s, WEB, (H3,)),
        lambda s: plan_group_removal(s, WEB, (H1,)),
        lambda s: plan_allow_group(s, VM1, WEB),
        lambda s: plan_deny_group(s, VM1, WEB),
    ):
        assert refused(bench, plan) == ["SAN-CLU-001"]
