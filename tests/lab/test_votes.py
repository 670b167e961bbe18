# SPDX-License-Identifier: GPL-2.0-or-later
"""The votes of two storage nodes and a witness node, as Corosync and `cluster show` count them."""

from __future__ import annotations

import json
import re

import pytest

from sanctl.lab.harness import failover
from sanctl.lab.harness.scenario import Scenario


@pytest.mark.quick
def test_a_witness_node_has_one_of_three_votes(scenario: Scenario) -> None:
    bed = scenario.bed
    failover.await_healthy(bed, "n1")
    for node in bed.cluster:
        counted = bed.sh(node.name, "corosync-quorumtool -s", ok=(0, 1, 2)).stdout
        votes = dict(re.findall(r"^(Expected votes|Total votes|Quorum):\s+(\d+)", counted, re.M))
        assert votes == {"Expected votes": "3", "Total votes": "3", "Quorum": "2"}
    data = json.loads(scenario.sanctl("cluster", "show", "--output", "json"))["data"]
    assert (data["counts_by"], data["qdevice"]) == ("nodes", None)
    assert data["votes"] == {"expected": 3, "total": 3, "needed": 2}


@pytest.mark.quick
def test_every_node_shows_the_strategy(scenario: Scenario) -> None:
    for node in scenario.bed.cluster:
        words = ("cluster", "strategy", "show")
        assert scenario.sanctl(*words, node=node.name) == "node-majority, counts by nodes\n"
        shown = json.loads(scenario.sanctl(*words, "--output", "json", node=node.name))
        assert (shown["schema"], shown["status"], shown["problems"]) == (1, "ok", [])
        assert shown["data"] == {"strategy": "node-majority", "counts_by": "nodes"}
