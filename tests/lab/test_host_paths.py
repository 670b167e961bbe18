# SPDX-License-Identifier: GPL-2.0-or-later
"""`sanctl host show`: the sessions that a host has with each node, and those that it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sanctl.lab.harness import collect
from sanctl.lab.harness.lab_session import wait_for
from sanctl.lab.harness.scenario import Scenario
from sanctl.lab.machines.spec import Network

NAME, HOST = "paths0", "paths1"
# The pools' monitor says it every 10 s; beside other work an action may be late.
SHOWN_S = 60.0


@pytest.fixture
def target(scenario: Scenario) -> Iterator[str]:
    scenario.sanctl("host", "create", HOST, "--iqn", scenario.host.iqn)
    try:
        scenario.sanctl(
            "device", "create", NAME, "--size", "32M", "--prefer", "n1", "--host", HOST,
            timeout_s=300,
        )  # fmt: skip
        yield f"{scenario.iqn_prefix()}.{NAME}"
    finally:
        if scenario.exists(NAME):
            scenario.delete(NAME)
        scenario.sanctl("host", "delete", HOST)


def test_a_host_s_paths(scenario: Scenario, target: str) -> None:
    host = scenario.host
    active = collect.active_node(scenario.bed, NAME)
    (standby,) = {node.name for node in scenario.bed.storage} - {active}
    address = scenario.bed.node(host.name).address(Network.ISCSI)

    def shown() -> dict[str, tuple[str, list[str]]]:
        # Asked on the witness: it has no target itself.
        text = scenario.sanctl("host", "show", HOST, "--output", "json", node="n3")
        return {
            path["node"]: (path["state"], path["addresses"])
            for path in json.loads(text)["data"]["paths"]
            if path["session"] is not None
        }

    def await_paths(*nodes: str) -> None:
        wanted = {
            node: (state, [address] if node in nodes else [])
            for node, state in ((active, "active"), (standby, "standby"))
        }
        wait_for(f"sessions with {nodes}", lambda: shown() == wanted, within_s=SHOWN_S)

    await_paths()
    host.login(target, scenario.portals([active, standby]))
    await_paths(active, standby)
    print(scenario.sanctl("host", "show", HOST, node="n3"))
    (portal,) = scenario.portals([standby])
    host.sh(f"iscsiadm -m node -T {target} -p {portal} --logout")
    await_paths(active)
