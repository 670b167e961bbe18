# SPDX-License-Identifier: GPL-2.0-or-later
"""One discovery finds all paths: each node names the portals of every replica node (ADR 51).

The tests build on each other's device, in file order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.failover import await_healthy
from sanctl.lab.harness.lab_session import LabSession, wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network

pytestmark = pytest.mark.in_order

NAME = "disc0"
CHANGE_S = 300.0
_TARGETS = "/sys/kernel/config/target/iscsi"
# "Service unavailable", the login response for a target without a TPG at that portal.
_UNAVAILABLE = re.compile(r"Service unavailable\(769\)")


@pytest.fixture(scope="module")
def target(scenario: Scenario) -> Iterator[str]:
    yield scenario.create(NAME, "64M", prefer="n1")
    if scenario.exists(NAME):  # the last test deletes it
        scenario.delete(NAME)


def paths_at(scenario: Scenario, portal: str, target: str) -> set[str]:
    """Return what a portal answers open-iscsi: `ADDRESS:PORT,TAG` of each path of the target."""
    return {path for name, path in scenario.host.discovered_paths(portal) if name == target}


def libiscsi_paths_at(scenario: Scenario, portal: str, target: str) -> set[str]:
    out = scenario.host.sh(f"iscsi-ls -i {scenario.host.iqn} iscsi://{portal}", ok=range(256))
    return set(re.findall(rf"^Target:{re.escape(target)} Portal:(\S+)$", out, re.MULTILINE))


def of_nodes(bed: LabSession, *names: str) -> set[str]:
    """Return the paths to these nodes as discovery names them; the tag is the node's id."""
    return {f"{bed.node(name).address(Network.ISCSI)}:3260,{name.lstrip('n')}" for name in names}


def await_paths(scenario: Scenario, node: str, target: str, wanted: set[str]) -> None:
    (portal,) = scenario.portals([node])
    wait_for(
        f"{node} to name {', '.join(sorted(wanted)) or 'nothing'}",
        lambda: paths_at(scenario, portal, target) == wanted,
        within_s=120,
    )


def targets_of(bed: LabSession, node: str) -> list[str]:
    """Return what is in configfs; nothing where no device was started since the boot."""
    return bed.sh(node, f"ls {_TARGETS}", ok=range(256)).stdout.split()


def listening(bed: LabSession, node: str) -> set[str]:
    """Return the addresses of a node's LIO portals, its own and those that it lists."""
    return set(bed.sh(node, "ss -Hltn 'sport = :3260' | awk '{print $4}'").stdout.split())


@pytest.mark.quick
def test_each_node_names_every_path(scenario: Scenario, target: str) -> None:
    expected = of_nodes(scenario.bed, "n1", "n2")
    for portal in scenario.portals():
        assert paths_at(scenario, portal, target) == expected
        assert libiscsi_paths_at(scenario, portal, target) == expected


def test_hosts_that_are_not_on_the_list_are_told_nothing(scenario: Scenario, target: str) -> None:
    for portal in scenario.portals():
        out = scenario.host.sh(
            f"iscsi-ls -i iqn.2026-11.net.example:stranger iscsi://{portal}", ok=range(256)
        )
        assert target not in out
    scenario.sanctl("target", "deny", NAME, scenario.host.iqn, "--yes", timeout_s=CHANGE_S)
    for node in ("n1", "n2"):
        await_paths(scenario, node, target, set())
    scenario.sanctl("target", "allow", NAME, scenario.host.iqn, timeout_s=CHANGE_S)
    for node in ("n1", "n2"):
        await_paths(scenario, node, target, of_nodes(scenario.bed, "n1", "n2"))


def test_a_listed_portal_serves_nothing(scenario: Scenario, target: str) -> None:
    """Not even on a node that has the other node's address."""
    bed = scenario.bed
    (own,), (other,) = scenario.portals(["n1"]), scenario.portals(["n2"])
    login = f"iscsi-inq -i {scenario.host.iqn} iscsi://%s/{target}/0"
    # For processes of n1 alone: it answers nobody who asks for the address.
    begin = f"sysctl -q net.ipv4.conf.all.arp_ignore=1; ip address add {other}/32 dev lo"
    end = f"ip address del {other}/32 dev lo; sysctl -q net.ipv4.conf.all.arp_ignore=0"
    assert "SANCTL" in bed.sh("n1", login % own, ok=range(256)).stdout  # The test can fail.
    try:
        bed.sh("n1", begin)
        done = bed.sh("n1", login % other, ok=range(256))
    finally:
        bed.sh("n1", end)
    assert done.status != 0 and _UNAVAILABLE.search(done.stdout + done.stderr)
    for node, tag in (("n1", 2), ("n2", 1)):
        tpg = f"{_TARGETS}/{target}/tpgt_{tag}"
        assert bed.sh(node, f"cat {tpg}/enable; ls {tpg}/lun {tpg}/acls/*").stdout.split() == [
            "0", f"{tpg}/acls/{scenario.host.iqn}:", *_ACL_PARTS, f"{tpg}/lun:"
        ]  # fmt: skip


# What the kernel itself puts into an initiator's folder: no mapped LUN among it.
_ACL_PARTS = ("attrib", "auth", "cmdsn_depth", "fabric_statistics", "info", "param", "tag")


def test_dropped_and_added_replicas_are_followed(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    scenario.sanctl("device", "replicas", NAME, "1", "--drop", "n2", "--yes", timeout_s=CHANGE_S)
    await_paths(scenario, "n1", target, of_nodes(bed, "n1"))
    # No portal is left where no target is: a discovery there would be refused.
    wait_for(f"no {NAME} on n2", lambda: target not in targets_of(bed, "n2"), within_s=120)
    scenario.sanctl("device", "replicas", NAME, "2", "--add", "n2", timeout_s=CHANGE_S)
    for node in ("n1", "n2"):
        await_paths(scenario, node, target, of_nodes(bed, "n1", "n2"))


def test_what_a_start_could_not_list_the_monitor_lists(scenario: Scenario, target: str) -> None:
    """As after an update of sanctl under a running device, and a change of cluster.toml."""
    bed = scenario.bed
    tpg = f"{_TARGETS}/{target}/tpgt_2"
    bed.sh(
        "n1",
        f"rmdir {tpg}/np/* {tpg}/acls/* {tpg}; touch /etc/sanctl/cluster.toml;"
        f" ls {_TARGETS}/{target}",
    )
    await_paths(scenario, "n1", target, of_nodes(bed, "n1", "n2"))


@pytest.mark.faults
def test_a_node_that_is_down_is_named_too(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    (here,), (lost) = scenario.portals(["n1"]), scenario.portals(["n2"])
    # A host that was installed just then: it has no records.
    scenario.host.logout(target)
    bed.cut_power("n2")
    try:
        assert paths_at(scenario, here, target) == of_nodes(bed, "n1", "n2")
        assert libiscsi_paths_at(scenario, here, target) == of_nodes(bed, "n1", "n2")
        assert not answers(bed, scenario.host.name, lost[0])
    finally:
        bed.ensure_power("n2")
        await_healthy(bed, "n1")
    await_paths(scenario, "n2", target, of_nodes(bed, "n1", "n2"))
    scenario.host.logout(target)


def answers(bed: LabSession, host: str, portal: str) -> bool:
    script = f"timeout 2 bash -c '</dev/tcp/{portal}/3260'"
    return bed.sh(host, script, ok=range(256)).status == 0


def test_one_discovery_is_enough_to_log_in_everywhere(scenario: Scenario, target: str) -> None:
    host, portals = scenario.host, scenario.portals()
    host.logout(target)
    host.discover(portals[1])
    host.sh(f"iscsiadm -m node -T {target} --login")
    assert set(host.sessions(target)) == set(portals)
    wait_for(
        "a multipath device of both paths",
        lambda: len(host.paths(target, portals)) == len(portals),
        within_s=120,
    )
    assert collect.active_node(scenario.bed, NAME) == "n1"


def test_nothing_is_left_of_what_was_listed(scenario: Scenario, target: str) -> None:
    bed = scenario.bed
    scenario.delete(NAME)
    for node in ("n1", "n2"):
        assert target not in targets_of(bed, node)
        if not any(each.startswith("iqn.") for each in targets_of(bed, node)):
            wait_for(f"no portal on {node}", partial(is_silent, bed, node), within_s=10)


def is_silent(bed: LabSession, node: str) -> bool:
    return not listening(bed, node)
