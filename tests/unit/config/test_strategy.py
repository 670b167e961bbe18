# SPDX-License-Identifier: GPL-2.0-or-later
"""Which strategies go with which nodes, in cluster.toml and in the inventory's words."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.config import inventory, parse, render
from sanctl.errors import ConfigError
from sanctl.model.topology import Strategy
from sanctl.model.vote_mode import MAJORITY_OF_NODES, VoteMode, Votes
from tests.fakes.topology import CLUSTER_TOML
from tests.unit.config.test_inventory import GROUPS, hostvars

WITNESS = CLUSTER_TOML[CLUSTER_TOML.index("[nodes.n3]") : CLUSTER_TOML.index("[pools.main]")]
PAIR = CLUSTER_TOML.replace(WITNESS, "")
QDEVICE = '[qdevice]\nhost = "10.77.3.100"\n'
HEARTBEAT = PAIR.replace('"node-majority"', '"heartbeat"')
RISK = '"heartbeat"\naccept_risks = ["SAN-RISK-001"]'


def codes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return [problem.code for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "strategy", "tally"),
    [
        (CLUSTER_TOML, Strategy.NODE_MAJORITY, MAJORITY_OF_NODES),
        (PAIR + QDEVICE, Strategy.NODE_MAJORITY, VoteMode(votes=Votes.QDEVICE, host="10.77.3.100")),
        (HEARTBEAT, Strategy.HEARTBEAT, VoteMode(votes=Votes.TWO_NODE)),
        # Prepared for a change, and not asked for its vote.
        (HEARTBEAT + QDEVICE, Strategy.HEARTBEAT, VoteMode(votes=Votes.TWO_NODE)),
        (
            HEARTBEAT.replace('"heartbeat"', RISK),
            Strategy.HEARTBEAT,
            VoteMode(votes=Votes.TWO_NODE),
        ),
    ],
)
def test_what_goes_together(text: str, strategy: Strategy, tally: VoteMode) -> None:
    topology = parse(text)
    assert (topology.strategy, topology.vote_mode) == (strategy, tally)
    assert parse(render(topology)) == topology


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PAIR, ["SAN-CONF-020"]),
        (CLUSTER_TOML.replace('"node-majority"', '"heartbeat"'), ["SAN-CONF-036"]),
        (CLUSTER_TOML + QDEVICE, ["SAN-CONF-037"]),
        (PAIR + QDEVICE.replace("10.77.3.100", "q.example.net"), ["SAN-CONF-009"]),
        (PAIR + QDEVICE.replace("10.77.3.100", "10.77.3.2"), ["SAN-CONF-011"]),
        (PAIR + "[qdevice]\n", ["SAN-CONF-003"]),
        (PAIR + QDEVICE + 'algorithm = "lms"\n', ["SAN-CONF-004"]),
        (HEARTBEAT.replace('"heartbeat"', RISK.replace("001", "999")), ["SAN-CONF-038"]),
        (
            CLUSTER_TOML.replace('"node-majority"', RISK.replace("heartbeat", "node-majority")),
            ["SAN-CONF-038"],
        ),
        # Links that share a network are refused under every strategy, beside all else.
        (
            CLUSTER_TOML.replace('"node-majority"', '"heartbeat"').replace(
                'cidr = "10.77.3.0/24"', 'cidr = "10.77.2.0/23"'
            ),
            ["SAN-CONF-008", "SAN-CONF-036"],
        ),
        (
            HEARTBEAT.replace('heartbeat = "10.77.3.2"\n', ""),
            ["SAN-CONF-030"],
        ),
    ],
)
def test_what_does_not(text: str, expected: list[str]) -> None:
    assert codes(text) == expected


def pair(**shared: Any) -> tuple[dict[str, dict[str, Any]], dict[str, list[str]]]:
    variables = hostvars()
    del variables["n3"]
    for name in ("n1", "n2"):
        variables[name] |= shared
    groups = {**GROUPS, "sanctl_nodes": ["n1", "n2"], "sanctl_witness": []}
    return variables, groups


def test_an_inventory_of_two_nodes_and_a_quorum_device() -> None:
    variables, groups = pair()
    variables["q1"] = {"sanctl_qnetd_address": "10.77.3.100"}
    groups["sanctl_qnetd"] = ["q1"]
    survey = inventory.read_inventory(variables, groups)
    assert survey["problems"] == []
    assert (survey["tally"], survey["qnetd"]) == ("qdevice@10.77.3.100", "q1")
    groups["sanctl_qnetd"] = ["q1", "n2"]
    lines = inventory.read_inventory(variables, groups)["problems"]
    assert [line.split(":")[0] for line in lines] == ["SAN-CONF-034", "SAN-CONF-037"]


def test_an_inventory_of_two_nodes_alone() -> None:
    survey = inventory.read_inventory(*pair(sanctl_strategy="heartbeat"))
    assert survey["problems"] == []
    assert (survey["strategy"], survey["tally"], survey["qnetd"]) == ("heartbeat", "two-node", "")
    assert survey["has_fencing"] is True
    (line,) = inventory.read_inventory(*pair())["problems"]
    assert line.startswith("SAN-CONF-020: group sanctl_nodes: ")


def test_heartbeat_without_fencing_is_a_risk_to_be_named() -> None:
    without = {"sanctl_strategy": "heartbeat", "sanctl_fence_options": None}
    lines = inventory.read_inventory(*pair(**without))["problems"]
    assert [line.split(":")[0] for line in lines] == ["SAN-CONF-031", "SAN-CONF-031"]
    assert all("SAN-RISK-001" in line for line in lines)
    survey = inventory.read_inventory(*pair(**without, sanctl_accept_risks=["SAN-RISK-001"]))
    assert (survey["problems"], survey["has_fencing"]) == ([], False)
    variables, groups = pair(**without, sanctl_accept_risks=["SAN-RISK-001"])
    variables["n1"]["sanctl_fence_options"] = {"ip": "10.77.3.201"}
    # Fenced in one direction only: that is a mistake, not the risk that was accepted.
    (line,) = inventory.read_inventory(variables, groups)["problems"]
    assert line.startswith("SAN-CONF-031: host n2")


def test_node_majority_cannot_do_without_fencing() -> None:
    variables, groups = hostvars(), GROUPS
    for name in GROUPS["sanctl_nodes"]:
        variables[name] |= {"sanctl_fence_options": None, "sanctl_accept_risks": ["SAN-RISK-001"]}
    found = {line.split(":")[0] for line in inventory.read_inventory(variables, groups)["problems"]}
    assert found == {"SAN-CONF-031", "SAN-CONF-038"}
