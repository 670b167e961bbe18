# SPDX-License-Identifier: GPL-2.0-or-later
"""Corosync's times in an inventory: a consensus that does not outlast the token is refused."""

from __future__ import annotations

import importlib
from typing import Any

import jinja2
import pytest

from sanctl.rollout import corosync_variables as corosync
from sanctl.rollout import inventory
from tests.unit.ansible.test_modules import ANSIBLE
from tests.unit.rollout.test_inventory import GROUPS, hostvars, problems


def _with(**times: Any) -> list[str]:
    variables = hostvars()
    for name in GROUPS["sanctl_nodes"]:
        variables[name] |= {f"sanctl_corosync_{key}_ms": value for key, value in times.items()}
    return problems(variables)


@pytest.mark.parametrize(
    "times",
    [
        {},
        {"token": 5000},
        {"token": 5000, "consensus": 6000},
        {"token": "5000", "consensus": "6000"},
        {"token_coefficient": 650},
        {"token_coefficient": 650, "consensus": 2580},
        {"consensus": 1800},
        {"token": 1000, "consensus": 1200},
    ],
    ids=str,
)
def test_what_goes_together(times: dict[str, Any]) -> None:
    assert _with(**times) == []


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"token": 5000, "consensus": 1800}, "consensus_ms: 1800 ms is less than 1.2 times the"),
        ({"token": 5000, "consensus": 5999}, "which is 6000 ms with 3 nodes"),
        ({"token": "5000", "consensus": "1800"}, "consensus_ms: 1800 ms is less"),
        # With each node beyond two the token is longer.
        ({"token_coefficient": 650, "consensus": 1800}, "which is 2580 ms with 3 nodes"),
        ({"consensus": 1799}, "consensus_ms: 1799 ms is less"),
        ({"token": 0}, "token_ms: 0 is no number"),
        ({"token": True}, "token_ms: True is no number"),
        ({"token": "1s"}, "token_ms: '1s' is no number"),
        ({"token_coefficient": -1}, "token_coefficient_ms: -1 is no number"),
        ({"consensus": 1800.5}, "consensus_ms: 1800.5 is no number"),
    ],
)
def test_a_mistake_is_named(times: dict[str, Any], text: str) -> None:
    (found,) = _with(**times)
    assert found.startswith("SAN-CONF-051: sanctl_corosync_")
    assert text in found


def test_times_that_differ_from_node_to_node() -> None:
    variables = hostvars()
    variables["n2"]["sanctl_corosync_token_ms"] = 5000
    (line,) = inventory.read_inventory(variables, GROUPS)["problems"]
    assert line.startswith("SAN-CONF-035")


@pytest.mark.parametrize(
    ("token", "coefficient", "nodes", "expected"),
    [
        (1500, 0, 3, 1800),
        (5000, 0, 3, 6000),
        (1500, 650, 2, 1800),
        (1500, 650, 5, 4140),
        # 1.2 tokens, and not a fraction less.
        (1501, 0, 1, 1802),
    ],
)
def test_the_role_derives_what_the_preflight_asks_for(
    token: int, coefficient: int, nodes: int, expected: int
) -> None:
    assert corosync.least_consensus_ms(token, coefficient, nodes) == expected
    yaml: Any = importlib.import_module("yaml")
    text = (ANSIBLE / "roles/sanctl_corosync/defaults/main.yml").read_text()
    defaults: dict[str, Any] = yaml.safe_load(text)
    assert {name: defaults[name] for name in corosync.DEFAULTS} == corosync.DEFAULTS
    rendered = jinja2.Environment(autoescape=False).from_string(defaults[corosync.CONSENSUS])
    values = {corosync.TOKEN: str(token), corosync.COEFFICIENT: coefficient}
    groups = {"sanctl_nodes": [f"n{number}" for number in range(nodes)]}
    assert rendered.render(groups=groups, **values).strip() == str(expected)
