# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace

import pytest

from sanctl.model.cluster import Cluster
from sanctl.model.crm_mon import Role
from sanctl.model.findings import Finding, Severity, is_degraded
from sanctl.model.restore_point import RestorePoint
from sanctl.parse.cib import parse_cib, parse_document
from sanctl.parse.crm_mon import parse_crm_mon
from sanctl.plan.cluster.preconditions import maintenance_problems
from sanctl.plan.health.cluster_health import all_findings
from tests.fakes.pacemaker import GOLDEN, FakePacemaker
from tests.fakes.topology import topology

NOW = 1_800_000_000.0


def judge_golden(version: str, name: str) -> list[str]:
    cluster = Cluster(
        cib=parse_cib(parse_document((GOLDEN / version / f"{name}.cib.xml").read_text())),
        mon=parse_crm_mon((GOLDEN / version / f"{name}.mon.xml").read_text()),
    )
    return [finding.code for finding in all_findings(cluster, topology(), now_s=NOW)]


@pytest.mark.parametrize("version", ["2.1.5", "3.0.0"])
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("empty", []),
        ("one-device", []),
        # Captured before the survivors acted: n1 is told of, and nobody has taken over yet.
        ("n1-offline", ["SAN-HLT-032", "SAN-HLT-034", "SAN-HLT-013", "SAN-HLT-020"]),
        ("n1-unclean", ["SAN-HLT-032", "SAN-HLT-020", "SAN-HLT-034"]),
        ("failed-start", None),
    ],
)
def test_goldens(version: str, name: str, codes: list[str] | None) -> None:
    found = judge_golden(version, name)
    if codes is None:
        assert "SAN-HLT-040" in found
    else:
        assert sorted(found) == sorted(codes)


def _healthy() -> FakePacemaker:
    fake = FakePacemaker(golden="one-device")
    fake.tick()
    fake.tick()
    return fake


def _findings(fake: FakePacemaker) -> tuple[Finding, ...]:
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    return all_findings(cluster, topology(), now_s=NOW)


def _codes(fake: FakePacemaker) -> list[str]:
    return [finding.code for finding in _findings(fake)]


def test_the_fake_cluster_is_healthy() -> None:
    assert _codes(_healthy()) == []


def _property(fake: FakePacemaker, name: str, value: str) -> None:
    pair = fake.root.find(f".//nvpair[@name='{name}']")
    if pair is None:
        group = fake.root.find("configuration/crm_config/cluster_property_set")
        assert group is not None
        pair = group[0].__copy__()
        pair.set("id", name)
        pair.set("name", name)
        group.append(pair)
    pair.set("value", value)


def _permanent(fake: FakePacemaker, node: str, name: str, value: str) -> None:
    element = fake.root.find(f"configuration/nodes/node[@uname='{node}']")
    assert element is not None
    group = element.find("instance_attributes")
    if group is None:
        group = ET.SubElement(element, "instance_attributes", id=f"nodes-{node}")
    ET.SubElement(group, "nvpair", id=f"nodes-{node}-{name}", name=name, value=value)


def _drop(fake: FakePacemaker, path: str) -> None:
    for parent in fake.root.iter():
        for child in list(parent):
            if child in fake.root.findall(path):
                parent.remove(child)


def _demote(fake: FakePacemaker) -> None:
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    state = "connection=Connected replication=Established peer-disk=UpToDate out-of-sync=0"
    fake.attribute("n1", "sanctl-vm1", f"disk=UpToDate {state} role=Secondary")


BREAKS: list[tuple[str, Callable[[FakePacemaker], object], set[str]]] = [
    ("no quorum", lambda f: setattr(f, "has_quorum", False), {"SAN-HLT-002"}),
    ("maintenance", lambda f: _property(f, "maintenance-mode", "true"), {"SAN-HLT-003"}),
    ("fencing off", lambda f: _property(f, "stonith-enabled", "false"), {"SAN-HLT-010"}),
    ("startup", lambda f: _property(f, "startup-fencing", "false"), {"SAN-HLT-017"}),
    ("policy", lambda f: _property(f, "no-quorum-policy", "ignore"), {"SAN-HLT-014"}),
    ("no fencing", lambda f: _drop(f, ".//primitive[@class='stonith']"), {"SAN-HLT-011"}),
    ("one unfenced", lambda f: _drop(f, ".//primitive[@id='fence-n2']"), {"SAN-HLT-012"}),
    ("fence stopped", lambda f: f.roles.pop(("fence-n2", "n2")), {"SAN-HLT-013"}),
    ("n3 pending", lambda f: f.states.update(n3="pending"), {"SAN-HLT-020"}),
    ("n2 crashed", lambda f: f.crash("n2"), {"SAN-HLT-020", "SAN-HLT-034", "SAN-HLT-013"}),
    (
        "two active",
        lambda f: f.roles.update({("vm1", "n1"): Role.PROMOTED, ("vm1", "n2"): Role.PROMOTED}),
        {"SAN-HLT-031"},
    ),
    (
        # As after a change: Pacemaker learns by the next monitor that the replica serves.
        "role not known",
        lambda f: f.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED}),
        {"SAN-HLT-149"},
    ),
    ("none active", _demote, {"SAN-HLT-032"}),
    (
        "resync",
        lambda f: f.attribute(
            "n2",
            "sanctl-vm1",
            "disk=Inconsistent connection=Connected replication=SyncTarget out-of-sync=9",
        ),
        {"SAN-HLT-035"},
    ),
    ("silent replica", lambda f: f.attribute("n2", "sanctl-vm1", None), {"SAN-HLT-035"}),
    (
        "failure",
        lambda f: f.failures.append({"op_key": "vm1_monitor_10000", "node": "n1"}),
        {"SAN-HLT-040"},
    ),
    ("pool error", lambda f: f.attribute("n1", "sanctl-pool-main", "error=X"), {"SAN-HLT-061"}),
    (
        "pool full",
        lambda f: f.attribute("n1", "sanctl-pool-main", "total=100 free=9"),
        {"SAN-HLT-062"},
    ),
    (
        "pool not yet filling",
        lambda f: f.attribute("n1", "sanctl-pool-main", "total=100 free=21"),
        set(),
    ),
    (
        "pool filling",
        lambda f: f.attribute("n1", "sanctl-pool-main", "total=100 free=20"),
        {"SAN-HLT-062"},
    ),
    (
        "pool nearly full",
        lambda f: f.attribute("n1", "sanctl-pool-main", "total=100 free=5"),
        {"SAN-HLT-064"},
    ),
    (
        "promised, and free",
        lambda f: f.attribute(
            "n1", "sanctl-pool-main", f"total={1 << 30} free={1 << 29} allocated={1 << 29}"
        ),
        set(),
    ),
    (
        "promised, and taken by something else",
        lambda f: f.attribute(
            "n1", "sanctl-pool-main", f"total={1 << 30} free={1 << 29} allocated={1 << 28}"
        ),
        {"SAN-HLT-063"},
    ),
    ("no pools", lambda f: _drop(f, ".//clone[@id='sanctl-pools']"), {"SAN-HLT-060"}),
    ("node unknown", lambda f: _drop(f, ".//nodes/node[@id='3']"), {"SAN-HLT-070"}),
    (
        "outdated",
        lambda f: _permanent(f, "n2", "sanctl-outdated-vm1", "5d4c" * 8),
        {"SAN-HLT-052"},
    ),
    (
        "unreadable",
        lambda f: _drop(f, ".//nvpair[@name='size']"),
        {"SAN-HLT-004"},
    ),
]


@pytest.mark.parametrize(("what", "act", "codes"), BREAKS, ids=[entry[0] for entry in BREAKS])
def test_each_finding(what: str, act: Callable[[FakePacemaker], object], codes: set[str]) -> None:
    fake = _healthy()
    act(fake)
    assert set(_codes(fake)) == codes


_SEVERAL = "disk=UpToDate connection={} replication=Established,{} peer-disk=UpToDate,{} peers={}"


@pytest.mark.parametrize(
    ("peers", "codes"),
    [
        # n3 is not there, and that is said of n3.
        ("n2,n9", set()),
        ("n9,n2", {"SAN-HLT-035"}),
    ],
)
def test_absent_replicas_have_one_finding_each(peers: str, codes: set[str]) -> None:
    fake = _healthy()
    value = _SEVERAL.format("Connected,Connecting", "Off", "DUnknown", peers)
    fake.attribute("n1", "sanctl-vm1", value)
    assert set(_codes(fake)) == codes


def test_a_disk_that_was_dropped_is_not_waited_for_as_a_resync() -> None:
    fake = _healthy()
    fake.attribute("n2", "sanctl-vm1", "disk=Diskless connection=Connected replication=Established")
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-023")
    told = {finding.code: finding for finding in _findings(fake)}
    assert "journalctl -k on n2" in told["SAN-HLT-035"].do
    assert "shut itself down" in told["SAN-HLT-061"].what
    assert "night-page" in told["SAN-HLT-061"].do
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-CMD-001")
    told = {finding.code: finding for finding in _findings(fake)}
    assert "drbdsetup is not installed" in told["SAN-HLT-061"].what
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-003")
    told = {finding.code: finding for finding in _findings(fake)}
    assert "damaged" in told["SAN-HLT-061"].what
    assert "journalctl SANCTL_ACTION=pool" in told["SAN-HLT-061"].do
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-033")
    told = {finding.code: finding for finding in _findings(fake)}
    assert "another filesystem of the pool" in told["SAN-HLT-061"].what
    assert "SAN-POOL-033" in told["SAN-HLT-061"].do
    fake.attribute("n2", "sanctl-pool-main", "error=SAN-POOL-036")
    told = {finding.code: finding for finding in _findings(fake)}
    assert "mounted read-only" in told["SAN-HLT-061"].what
    assert "remount it read-write" in told["SAN-HLT-061"].do


@pytest.mark.parametrize(
    ("resource", "is_tried_again"),
    [("sanctl-pool", True), ("sanctl-reached", True), ("vm1", False)],
)
def test_a_failure_says_whether_pacemaker_tries_again(resource: str, is_tried_again: bool) -> None:
    fake = _healthy()
    fake.failures.append({"op_key": f"{resource}_start_0", "node": "n1"})
    (finding,) = _findings(fake)
    assert ("two minutes" in finding.why) is is_tried_again
    assert f"--cleanup --resource {resource}" in finding.do


@pytest.mark.parametrize(
    ("resource", "subject", "texts"),
    [
        ("vm1", "device vm1", ("journalctl SANCTL_DEVICE=vm1 on n1",)),
        (
            "fence-n2",
            "fencing fence-n2",
            ("stonith_admin --history '*'", "'sanctl node fence n2 --test'", "-t pacemaker-fenced"),
        ),
        ("sanctl-pool", "resource sanctl-pool", ("SANCTL_DEVICE=pool + SANCTL_ACTION=pool on n1",)),
        (
            "sanctl-reached",
            "resource sanctl-reached",
            ("SANCTL_DEVICE=sanctl-reached + SANCTL_ACTION=reach on n1",),
        ),
        ("guest", "resource guest", ("journalctl -u pacemaker on n1",)),
    ],
)
def test_a_failure_says_where_its_agent_logs(
    resource: str, subject: str, texts: tuple[str, ...]
) -> None:
    """What broke: SANCTL_DEVICE=fence-n2 and SANCTL_DEVICE=sanctl-pool find no line."""
    fake = _healthy()
    fake.failures.append({"op_key": f"{resource}_monitor_10000", "node": "n1"})
    (finding,) = _findings(fake)
    assert (finding.code, finding.subject) == ("SAN-HLT-040", subject)
    assert [text for text in texts if text not in finding.do] == []


@pytest.mark.parametrize(
    ("action", "node", "severity"),
    [
        ("promote_0", "n1", Severity.NOTE),
        ("promote_0", "n2", Severity.WARNING),
        ("demote_0", "n1", Severity.NOTE),
        ("demote_0", "n2", Severity.WARNING),
        ("monitor_10000", "n1", Severity.WARNING),
    ],
)
def test_what_failed_before_the_promotion_of_the_one_that_serves_degrades_nothing(
    action: str, node: str, severity: Severity
) -> None:
    """A promotion or a demotion without quorum: the cluster tries again, and has it."""
    fake = _healthy()
    fake.failures.append({"op_key": f"vm1_{action}", "node": node})
    (finding,) = _findings(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-040", severity)
    # A cleanup where it serves has Pacemaker forget that it does.
    assert finding.do.startswith("nothing while n1 serves it") is (severity is Severity.NOTE)


@pytest.mark.parametrize("action", ["promote_0", "demote_0"])
def test_one_that_the_cluster_has_not_recovered_from_degrades(action: str) -> None:
    fake = _healthy()
    fake.failures.append({"op_key": f"vm1_{action}", "node": "n1"})
    fake.failed_instances.add(("vm1", "n1"))
    (finding,) = _findings(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-040", Severity.WARNING)


def test_the_failure_of_a_device_that_cannot_be_read() -> None:
    fake = _healthy()
    _drop(fake, ".//nvpair[@name='size']")
    fake.failures.append({"op_key": "vm1_monitor_10000", "node": "n1"})
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-040")
    assert "journalctl SANCTL_DEVICE=vm1 on n1" in finding.do


@pytest.mark.parametrize(
    ("end", "is_served", "texts"),
    [
        ("2099-01-01 00:00:00Z", True, ("wait until its time is over",)),
        ("2020-01-01 00:00:00Z", True, ("'sanctl device move vm1 --to n1' removes it",)),
        (
            "2020-01-01 00:00:00Z",
            False,
            ("cibadmin --delete --xpath", "//rsc_location[@id='sanctl-vm1-move']"),
        ),
    ],
)
def test_what_an_interrupted_move_left(end: str, is_served: bool, texts: tuple[str, ...]) -> None:
    """What broke: it was said to end by itself, and the constraint and the note stayed."""
    fake = _healthy()
    constraints = fake.root.find("configuration/constraints")
    assert constraints is not None
    constraints.append(
        ET.fromstring(
            '<rsc_location id="sanctl-vm1-move" rsc="sanctl-vm1"><rule id="r" score="INFINITY" '
            'role="Promoted"><expression id="e" attribute="#uname" operation="eq" value="n2"/>'
            f'<date_expression id="d" operation="lt" end="{end}"/></rule></rsc_location>'
        )
    )
    if not is_served:
        _demote(fake)
    (finding,) = [each for each in _findings(fake) if each.code == "SAN-HLT-050"]
    assert finding.severity is Severity.NOTE
    assert [text for text in texts if text not in finding.do] == []


@pytest.mark.parametrize(
    ("nodes", "is_said"), [(("n1", "n2"), True), (("n2",), False), ((), False)]
)
def test_what_fills_a_pool_may_be_restore_points(nodes: tuple[str, ...], is_said: bool) -> None:
    fake = _healthy()
    fake.attribute("n1", "sanctl-pool-main", "total=100 free=9")
    cib = parse_cib(parse_document(fake.query()))
    point = RestorePoint("vm1", "p", "1" * 16, "d" * 32, "main", 1, 1 << 20, 0, nodes)
    cluster = Cluster(
        cib=replace(cib, points=(point,) if nodes else ()), mon=parse_crm_mon(fake.monitor())
    )
    finding = next(
        each for each in all_findings(cluster, topology(), now_s=NOW) if each.code == "SAN-HLT-062"
    )
    assert ("sanctl snapshot delete DEVICE@POINT" in finding.do) is is_said
    assert "sanctl device replicas DEVICE COUNT --add NODE --drop n1" in finding.do


def test_a_node_in_maintenance_is_to_end_that() -> None:
    fake = _healthy()
    fake.states["n1"] = "maintenance"
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-020")
    assert "promote another one in vain" in finding.why
    assert finding.do.startswith("end it: 'crm_attribute --node n1 --name maintenance --delete'")
    assert "crm_attribute --name maintenance-mode --update true" in finding.do


@pytest.mark.parametrize(
    ("word", "texts"),
    [
        ("forgotten:1764150000:vm2,vm3,vm4+46",
         ("n1 has forgotten a request", "2025-11-26", "vm2, vm3, vm4 and 46 more",
          "n1 reboots by itself", "'sanctl node fence n1 --no-drain --accept SAN-NODE-004'")),
        ("forgotten:1764150000:-", ("no other node can serve", "another node with a replica back")),
        ("forgotten:1764150000:?", ("could not be seen", "SANCTL_ACTION=hung-io on n1")),
        ("disk:1764150000:-", ("journalctl -k on n1", "n1 reboots by itself")),
        ("disk:1764150000:vm2", ("disk on n1 does not answer", "until it answers")),
    ],
)  # fmt: skip
def test_hosts_that_wait_for_good_are_critical(word: str, texts: tuple[str, ...]) -> None:
    fake = _healthy()
    fake.attribute(
        "n1", "sanctl-vm1", f"disk=UpToDate connection=Connected peer-disk=UpToDate hung={word}"
    )
    (finding,) = _findings(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-125", Severity.CRITICAL)
    told = f"{finding.what} {finding.why} {finding.do}"
    assert [text for text in texts if text not in told] == []
    # Of a node that is gone it says nothing any more: its kernel has ended, or will be.
    fake.states["n1"] = "offline"
    assert "SAN-HLT-125" not in _codes(fake)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("1764150000:1", "one was answered for, since 2025-11-26"),
        ("1764150000:8", "8 or more in a row were answered for, since 2025-11-26"),
    ],
)
def test_monitors_that_are_answered_for_are_a_warning(word: str, text: str) -> None:
    fake = _healthy()
    fake.attribute(
        "n1",
        "sanctl-vm1",
        f"disk=UpToDate connection=Connected peer-disk=UpToDate answered-for={word}",
    )
    (finding,) = _findings(fake)
    assert (finding.code, finding.severity) == ("SAN-HLT-168", Severity.WARNING)
    assert text in finding.what and "monitors on n1" in finding.what
    assert "SAN-AGENT-022" in finding.do and "has n1 fenced" in finding.do
    # Of a node that is gone it says nothing any more.
    fake.states["n1"] = "offline"
    assert "SAN-HLT-168" not in _codes(fake)


def test_leftovers_are_notes() -> None:
    fake = _healthy()
    _permanent(fake, "n2", "sanctl-outdated-gone", "0" * 32)
    _permanent(fake, "n3", "sanctl-delete-gone", "u main")
    findings = _findings(fake)
    assert {f.code for f in findings} == {"SAN-HLT-051", "SAN-HLT-053"}
    assert not is_degraded(findings)
    assert all(f.severity is Severity.NOTE for f in findings)


def test_a_disk_that_may_have_newer_data_is_named() -> None:
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    back = "disk=UpToDate connection=Connected replication=Established peer-disk=Diskless"
    fake.attribute("n1", "sanctl-vm1", back)
    lost = "disk=Diskless connection=Connected replication=Established peer-disk=UpToDate"
    fake.attribute("n2", "sanctl-vm1", lost)
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-032")
    assert "the disk on n2 may have newer data than n1" in finding.do


def test_a_suspect_replica_is_not_promoted_by_undraining_its_node() -> None:
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    good = "disk=UpToDate connection=Connecting replication=Off peer-disk=DUnknown"
    for node in ("n1", "n2"):
        fake.attribute(node, "sanctl-vm1", f"{good} suspect=1")
        fake.attribute(node, "sanctl.drained", "true")

    def advice() -> str:
        return next(each for each in _findings(fake) if each.code == "SAN-HLT-032").do

    assert "undrain" not in advice()
    assert advice().startswith("the replica on n1 is suspect") and "device heal vm1" in advice()
    fake.attribute("n2", "sanctl-vm1", good)
    assert "'sanctl node undrain n2'" in advice()
    fake.attribute("n2", "sanctl.drained", "")
    assert advice().startswith("n2 has the data")
    fake.crash("n2")
    assert advice().startswith("bring n2 back; else: the replica on n1 is suspect")


@pytest.mark.parametrize("first", ["Diskless", "Inconsistent"])
def test_disks_that_all_nodes_have_dropped_are_named(first: str) -> None:
    """It said to bring back a node, with all nodes there."""
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    lost = "disk={} connection=Connected replication=Established peer-disk=Diskless"
    fake.attribute("n1", "sanctl-vm1", lost.format(first))
    fake.attribute("n2", "sanctl-vm1", lost.format("Diskless"))
    disks = "n1 and n2" if first == "Diskless" else "n2"
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-032")
    assert f"check its disk on {disks} (" in finding.do
    fake.crash("n2")
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-032")
    assert "check its disk" not in finding.do


def test_a_disk_that_is_missing_is_named_where_the_other_replica_may_not_be_served() -> None:
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    behind = "disk=Outdated connection=Connected replication=Established peer-disk=Diskless"
    fake.attribute("n1", "sanctl-vm1", behind)
    lost = "disk=Diskless connection=Connected replication=Established peer-disk=Outdated"
    fake.attribute("n2", "sanctl-vm1", lost)
    finding = next(each for each in _findings(fake) if each.code == "SAN-HLT-037")
    assert finding.do.startswith("check its disk on n2 (") and "device heal vm1" in finding.do


@pytest.mark.parametrize("disk", ["UpToDate", "Outdated", "Consistent"])
def test_a_replica_that_missed_the_drop_of_a_third_one_is_named(disk: str) -> None:
    """It said to look why the good one is not promoted."""
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.STOPPED, ("vm1", "n2"): Role.UNPROMOTED})
    fake.crash("n1")
    fake.attribute("n1", "sanctl-vm1", "")
    alone = f"disk={disk} connection=Connecting replication=Off peer-disk=DUnknown"
    fake.attribute("n2", "sanctl-vm1", f"{alone} suspended=quorum")
    found = {each.code: each.do for each in _findings(fake)}
    for code in "SAN-HLT-032", "SAN-HLT-037":
        assert found[code].startswith("bring n1 back: ") and "dropped" in found[code]
        assert found[code].count("'sanctl device heal vm1'") == 1
    fake.attribute("n2", "sanctl-vm1", alone)
    assert all("dropped" not in each.do for each in _findings(fake))


@pytest.mark.parametrize(
    ("words", "is_found"),
    [
        (("secrets=a", "secrets=b"), True),
        (("secrets=a", "secrets=a"), False),
        # One lacks a secret, which has a finding of its own, or is of an older release.
        (("secrets=a", ""), False),
        # A change of the hosts is on its way.
        (("secrets=a acl=1", "secrets=b acl=2"), False),
        (("secrets=a acl=1", "secrets=b acl=1"), True),
    ],
)
def test_a_node_that_missed_a_change_of_a_secret(words: tuple[str, str], is_found: bool) -> None:
    fake = _healthy()
    good = "disk=UpToDate connection=Connected replication=Established peer-disk=UpToDate"
    for node, word in zip(("n1", "n2"), words, strict=True):
        fake.attribute(node, "sanctl-vm1", f"{good} {word}")
    found = [each for each in _findings(fake) if each.code == "SAN-HLT-129"]
    assert bool(found) is is_found
    if found:
        assert found[0].what.endswith("differ: n1, another on n2")
        fake.crash("n2")
        assert "SAN-HLT-129" not in _codes(fake)


@pytest.mark.parametrize("state", ["offline", "pending", "unclean"])
def test_maintenance_is_not_to_end_before_all_nodes_are_online(state: str) -> None:
    """Its Pacemaker was updated and is away: n2 serves, and would be fenced as the mode ends."""
    fake = _healthy()
    _property(fake, "maintenance-mode", "true")
    (ends,) = [each for each in _findings(fake) if each.code == "SAN-HLT-003"]
    assert ends.do == "end it: crm_attribute --name maintenance-mode --delete"
    fake.states["n2"] = state
    (waits,) = [each for each in _findings(fake) if each.code == "SAN-HLT-003"]
    assert waits.do.startswith(f"not before n2 ({state}) is online: Pacemaker would fence it")
    cluster = Cluster(
        cib=parse_cib(parse_document(fake.query())), mon=parse_crm_mon(fake.monitor())
    )
    (problem,) = maintenance_problems(cluster)
    assert (problem.code, problem.hint) == ("SAN-DEV-018", waits.do)


def test_a_node_in_standby_may_be_there_when_maintenance_ends() -> None:
    fake = _healthy()
    _property(fake, "maintenance-mode", "true")
    fake.states["n2"] = "standby"
    (ends,) = [each for each in _findings(fake) if each.code == "SAN-HLT-003"]
    assert ends.do.startswith("end it")


@pytest.mark.parametrize("state", ["unclean", "offline", "pending"])
def test_what_a_lost_nodes_replica_said_hides_no_device_that_is_down(state: str) -> None:
    """Its role was forgotten, it is fenced in vain, and its attributes are still there."""
    fake = _healthy()
    fake.roles.update({("vm1", "n1"): Role.UNPROMOTED, ("vm1", "n2"): Role.UNPROMOTED})
    fake.states["n1"] = state
    codes = {each.code for each in _findings(fake) if each.subject == "device vm1"}
    assert "SAN-HLT-032" in codes and "SAN-HLT-149" not in codes


@pytest.mark.parametrize("state", ["unclean", "offline"])
def test_a_part_without_quorum_lets_no_other_node_be_switched_off(state: str) -> None:
    """What it does not see may be the part that serves."""
    fake = _healthy()
    fake.crash("n2")
    fake.crash("n3")
    fake.states.update(n2=state, n3=state)
    fake.roles["vm1", "n1"] = Role.UNPROMOTED
    fake.has_quorum = False
    told = {(each.code, each.subject): each for each in _findings(fake)}
    for key in (
        ("SAN-HLT-020", "node n2"),
        ("SAN-HLT-032", "device vm1"),
        ("SAN-HLT-034", "device vm1"),
    ):
        assert told[key].do.startswith("run 'sanctl status' on n2 first"), key
        assert "Switch nothing off" in told[key].do
    asked = [each.do for each in told.values() if "020" in each.code]
    assert not any("stonith_admin" in each or "confirm-off" in each for each in asked)
    fake.states["n3"] = "online"
    fake.has_quorum = True
    (node,) = [each for each in _findings(fake) if each.subject == "node n2"]
    assert "switch nothing off" not in node.do.lower()
