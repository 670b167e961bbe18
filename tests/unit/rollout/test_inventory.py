# SPDX-License-Identifier: GPL-2.0-or-later
"""An inventory is checked as a whole, and messages name its hosts and variables."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from sanctl.config import parse
from sanctl.config.codes import CODES
from sanctl.rollout import inventory
from sanctl.rollout.fencing_variables import DEFAULTS_S
from tests.support.doc_samples import ROOT

SHARED: dict[str, Any] = {
    "sanctl_cluster_name": "lab",
    "sanctl_iqn_prefix": "iqn.2026-11.net.example:lab",
    "sanctl_networks": {
        "iscsi": "10.77.1.0/24",
        "sync": "10.77.2.0/24",
        "heartbeat": "10.77.3.0/24",
    },
    "sanctl_pools": {
        "main": {
            "path": "/srv/sanctl/main",
            "uuid": "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11",
            "nodes": ["n1", "n2"],
        }
    },
}
GROUPS = {
    "sanctl_nodes": ["n1", "n2", "n3"],
    "sanctl_storage": ["n1", "n2"],
    "sanctl_witness": ["n3"],
    "sanctl_hosts": ["i1"],
}

Hostvars = dict[str, dict[str, Any]]


def hostvars() -> Hostvars:
    result: Hostvars = {"i1": {}}
    for number in (1, 2, 3):
        result[f"n{number}"] = copy.deepcopy(SHARED) | {
            "sanctl_node_id": number,
            "sanctl_sync": f"10.77.2.{number}",
            "sanctl_heartbeat": f"10.77.3.{number}",
            "sanctl_fence_options": {"ip": f"10.77.3.20{number}", "username": "admin"},
            "sanctl_fence_password": "secret",
        }
    for number in (1, 2):
        result[f"n{number}"]["sanctl_iscsi"] = [f"10.77.1.{number}"]
    return result


def problems(variables: Hostvars, groups: dict[str, list[str]] | None = None) -> list[str]:
    found: list[str] = inventory.read_inventory(variables, groups or GROUPS)["problems"]
    assert all(line.split(":")[0] in CODES for line in found)
    return found


def test_a_good_inventory_becomes_cluster_toml() -> None:
    survey = inventory.read_inventory(hostvars(), GROUPS)
    assert survey["problems"] == []
    topology = parse(survey["cluster_toml"])
    assert [str(node.name) for node in topology.nodes] == ["n1", "n2", "n3"]
    assert survey["nodes"][2] == {
        "name": "n3",
        "id": 3,
        "role": "witness",
        "sync": "10.77.2.3",
        "heartbeat": "10.77.3.3",
    }
    assert survey["pools"][0]["nodes"] == ["n1", "n2"]
    assert "secret" not in repr(survey)


@pytest.mark.parametrize(
    ("host", "variable", "value", "line"),
    [
        ("n2", "sanctl_sync", None, "SAN-CONF-030: host n2: sanctl_sync: is missing"),
        ("n2", "sanctl_heartbeat", "10.9.9.9", "SAN-CONF-010: host n2: sanctl_heartbeat: "),
        ("n3", "sanctl_node_id", 1, "SAN-CONF-013: host n3: sanctl_node_id: 1 is also"),
        ("n1", "sanctl_fence_options", None, "SAN-CONF-031: host n1: sanctl_fence_options: "),
        ("n1", "sanctl_fence_options", "ip", "SAN-CONF-032: host n1: sanctl_fence_options: must"),
        (
            "n1",
            "sanctl_fence_options",
            {"ip": "10.77.3.201", "passwd": "x"},
            "SAN-CONF-032: host n1: sanctl_fence_options.passwd: a secret",
        ),
        (
            "n1",
            "sanctl_fence_options",
            {"ip": "10.77.3.201", "pcmk_host_list": "n2"},
            "SAN-CONF-032: host n1: sanctl_fence_options.pcmk_host_list: is set by",
        ),
        (
            "n1",
            "sanctl_fence_options",
            {"ip": "10.77.3.201", "pcmk_action_limit": -1},
            "SAN-CONF-032: host n1: sanctl_fence_options.pcmk_action_limit: must be 1",
        ),
        (
            "n1",
            "sanctl_fence_options",
            {"ip": "10.77.3.201", "pcmk_monitor_timeout": "soon"},
            "SAN-CONF-032: host n1: sanctl_fence_options.pcmk_monitor_timeout: 'soon' is no",
        ),
        (
            "n1",
            "sanctl_pacemaker_fence_timeout_s",
            "long",
            "SAN-CONF-032: host n1: sanctl_pacemaker_fence_timeout_s: 'long' is no time",
        ),
        (
            "n1",
            "sanctl_fence_options",
            {"ip": "10.77.3.202", "username": "admin"},
            "SAN-CONF-033: host n2: sanctl_fence_options: is the same as that of n1",
        ),
        (
            "n1",
            "sanctl_fence_password",
            "",
            "SAN-CONF-032: host n1: sanctl_fence_password: is empty",
        ),
        ("n1", "sanctl_fence_agent", "ipmi", "SAN-CONF-032: host n1: sanctl_fence_agent: "),
        (
            "n1",
            "sanctl_fence_fallback_options",
            {"ip": "10.77.3.201", "username": "admin"},
            "SAN-CONF-033: host n1: sanctl_fence_fallback_options: is the same as that of n1",
        ),
        (
            "n1",
            "sanctl_fence_fallback_options",
            {"ip": "10.77.3.231", "passwd": "x"},
            "SAN-CONF-032: host n1: sanctl_fence_fallback_options.passwd: a secret",
        ),
        ("n2", "sanctl_cluster_name", "bal", "SAN-CONF-035: host n2: sanctl_cluster_name is not"),
    ],
)
def test_one_mistake_is_named(host: str, variable: str, value: object, line: str) -> None:
    variables = hostvars()
    variables[host][variable] = value
    assert [found for found in problems(variables) if found.startswith(line)]


def test_an_order_to_fence_that_waits_for_a_monitor_is_not_given_up() -> None:
    variables = hostvars()
    options = dict(variables["n1"]["sanctl_fence_options"])
    variables["n1"]["sanctl_fence_options"] = options | {"pcmk_action_limit": 1}
    assert problems(variables) == []
    options["pcmk_monitor_timeout"] = "26s"
    variables["n1"]["sanctl_fence_options"] = options
    assert problems(variables) == []
    options["pcmk_monitor_timeout"] = "50s"
    (line,) = problems(variables)
    assert "sanctl_fence_options.pcmk_monitor_timeout: 50 s is more than 26 s" in line
    assert "sanctl_pacemaker_fence_timeout_s: 50 for all nodes" in line
    for host in variables.values():
        host["sanctl_pacemaker_fence_timeout_s"] = 49
    (line,) = problems(variables)
    assert "more than 48 s" in line
    for host in variables.values():
        host["sanctl_pacemaker_fence_timeout_s"] = 50
    assert problems(variables) == []
    del options["pcmk_monitor_timeout"]
    for host in variables.values():
        host["sanctl_pacemaker_fence_ask_s"] = 51
    lines = problems(variables)
    assert len(lines) == 3, "of each node, as each has its fencing device"
    assert lines[0].startswith("SAN-CONF-032: host n1: sanctl_pacemaker_fence_ask_s: 51 s")


def test_the_times_that_are_checked_are_those_of_the_role() -> None:
    role = ROOT / "ansible/roles/sanctl_pacemaker/defaults/main.yml"
    defaults = yaml.safe_load(role.read_text())
    assert {name: defaults[name] for name in DEFAULTS_S} == DEFAULTS_S


def test_host_variables_reach_the_node() -> None:
    """What was said of its power did not, for as long as nobody had tried it."""
    variables = hostvars()
    for number in (1, 2):
        variables[f"n{number}"] |= {"sanctl_site": f"s{number}", "sanctl_rack": f"r{number}"}
    variables["n1"]["sanctl_power"] = "protected"
    survey = inventory.read_inventory(variables, GROUPS)
    assert survey["problems"] == []
    first, second, *_ = parse(survey["cluster_toml"]).nodes
    assert (first.site, first.rack, first.is_power_protected) == ("s1", "r1", True)
    assert (second.site, second.rack, second.is_power_protected) == ("s2", "r2", False)


def test_a_fallback_needs_a_first_fencing_device() -> None:
    variables = hostvars()
    strip = {"ip": "10.77.3.250", "plug": 1}
    variables["n1"] |= {
        "sanctl_fence_fallback_agent": "fence_apc_snmp",
        "sanctl_fence_fallback_options": strip,
        "sanctl_fence_fallback_password": " ",
    }
    (line,) = problems(variables)
    assert line.startswith("SAN-CONF-032: host n1: sanctl_fence_fallback_password: is empty")
    del variables["n1"]["sanctl_fence_fallback_password"]
    assert problems(variables) == []
    for host in variables.values():
        host["sanctl_sbd_mode"] = "disk"
        host["sanctl_sbd_devices"] = ["/dev/disk/by-id/x"]
    assert problems(variables) == []
    for host in variables.values():
        host["sanctl_sbd_mode"] = "diskless"
        del host["sanctl_sbd_devices"]
    assert [line for line in problems(variables) if "beside diskless SBD" in line]
    for host in variables.values():
        host["sanctl_sbd_mode"] = "disk"
        host["sanctl_sbd_devices"] = ["/dev/disk/by-id/x"]
    variables["n1"]["sanctl_fence_options"] = {}
    (line,) = problems(variables)
    assert line.startswith(
        "SAN-CONF-032: host n1: sanctl_fence_fallback_options: is a fallback without"
    )


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("sanctl_cluster_name", None, "SAN-CONF-003: sanctl_cluster_name: is missing"),
        ("sanctl_networks", {"iscsi": "10.77.1.0/24"}, "SAN-CONF-003: sanctl_networks.sync"),
        (
            "sanctl_pools",
            {"main": {"uuid": "5d4c1f6e-9d0b-4c39-8a54-0c6f6f0b7a11", "nodes": ["n1"]}},
            "SAN-CONF-016: sanctl_pools.main.path: is missing",
        ),
        (
            "sanctl_pools",
            {"main": SHARED["sanctl_pools"]["main"] | {"nodes": ["n8"]}},
            "SAN-CONF-018: sanctl_pools.main.nodes: 'n8' is not a node",
        ),
    ],
)
def test_a_mistake_for_all_is_named_once(variable: str, value: object, line: str) -> None:
    variables = hostvars()
    for name in GROUPS["sanctl_nodes"]:
        variables[name][variable] = value
    assert len([found for found in problems(variables) if found.startswith(line)]) == 1


def test_groups_exclude_each_other() -> None:
    groups = GROUPS | {"sanctl_hosts": ["i1", "n1"], "sanctl_witness": ["n3", "n2"]}
    found = problems(hostvars(), groups)
    assert [line.split(":")[0] for line in found].count("SAN-CONF-034") == 2


def test_a_storage_node_is_a_host_only_where_that_is_asked_for() -> None:
    groups = GROUPS | {"sanctl_hosts": ["i1", "n1"]}
    (line,) = problems(hostvars(), groups)
    assert line.startswith("SAN-CONF-034: host n1: is in sanctl_storage and in sanctl_hosts")
    assert "sanctl_nodes_are_hosts: true" in line
    variables = hostvars()
    for name in GROUPS["sanctl_nodes"]:
        variables[name]["sanctl_nodes_are_hosts"] = True
    assert inventory.read_inventory(variables, groups)["own_hosts"] == ["n1"]
    assert inventory.read_inventory(hostvars(), GROUPS)["own_hosts"] == []


def test_a_witness_is_never_a_host() -> None:
    variables = hostvars()
    for name in GROUPS["sanctl_nodes"]:
        variables[name]["sanctl_nodes_are_hosts"] = True
    found = problems(variables, GROUPS | {"sanctl_hosts": ["n1", "n3"]})
    assert found == ["SAN-CONF-034: host n3: is in sanctl_witness and in sanctl_hosts"]


def test_own_hosts_that_are_asked_for_and_not_listed() -> None:
    variables = hostvars()
    variables["n1"]["sanctl_nodes_are_hosts"] = True
    (line,) = problems(variables)
    assert line.startswith("SAN-CONF-052: group sanctl_hosts: has no storage node")
    variables["n1"]["sanctl_nodes_are_hosts"] = "yes"
    (line,) = problems(variables)
    assert line.startswith("SAN-CONF-052: host n1: sanctl_nodes_are_hosts is 'yes'")


def test_a_node_without_a_role() -> None:
    found = problems(hostvars(), GROUPS | {"sanctl_witness": []})
    assert any(line.startswith("SAN-CONF-003: host n3") for line in found)


def test_an_inventory_without_nodes() -> None:
    assert inventory.read_inventory({}, {})["problems"][0].startswith(
        "SAN-CONF-022: group sanctl_nodes: has no hosts"
    )


def test_sites_and_racks_reach_cluster_toml() -> None:
    variables = hostvars()
    variables["n1"] |= {"sanctl_site": "north", "sanctl_rack": "a1"}
    assert problems(variables) == [
        "SAN-CONF-046: host n2: sanctl_site: is missing, and given for n1 "
        "(give it for every storage node, or for none)",
        "SAN-CONF-046: host n2: sanctl_rack: is missing, and given for n1 "
        "(give it for every storage node, or for none)",
    ]
    variables["n2"] |= {"sanctl_site": "south", "sanctl_rack": "a1"}
    assert problems(variables) == []
    node = parse(inventory.read_inventory(variables, GROUPS)["cluster_toml"]).node("n2")
    assert node is not None and (node.site, node.rack) == ("south", "a1")
