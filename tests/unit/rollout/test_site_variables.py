# SPDX-License-Identifier: GPL-2.0-or-later
"""Second sites in the inventory: what a server needs to say, and what is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from sanctl.rollout import inventory
from sanctl.rollout.site_variables import DEFAULTS
from tests.unit.rollout.test_inventory import GROUPS, hostvars

SPECS = (
    Path(__file__).resolve().parents[3] / "ansible/roles/sanctl_second_site/meta/argument_specs.yml"
)


def survey(**sites: dict[str, Any]) -> dict[str, Any]:
    return inventory.read_inventory(hostvars() | sites, GROUPS | {"sanctl_sites": [*sites]})


def test_a_server_that_says_nothing_is_a_site_by_its_name() -> None:
    assert survey(far={})["sites"] == [
        {
            "name": "far",
            "host": "far",
            "user": "sanctl-site",
            "address": "sanctl-site@far:22",
            "path": "/srv/copies/sanctl",
        }
    ]
    assert inventory.read_inventory(hostvars(), GROUPS)["sites"] == []


def test_what_is_given_is_taken() -> None:
    found = survey(
        vault1={
            "ansible_host": "198.51.100.9",
            "sanctl_second_site_name": "far",
            "sanctl_second_site_user": "copies",
            "sanctl_second_site_port": 2222,
            "sanctl_second_site_path": "/srv/a",
        },
        near={"ansible_host": "2001:db8::1"},
    )
    assert [each["address"] for each in found["sites"]] == [
        "copies@198.51.100.9:2222",
        "sanctl-site@[2001:db8::1]:22",
    ]
    assert found["sites"][0]["name"] == "far"


def test_the_role_states_the_defaults_that_are_used() -> None:
    yaml: Any = importlib.import_module("yaml")
    options = yaml.safe_load(SPECS.read_text())["argument_specs"]["main"]["options"]
    for key, value in DEFAULTS.items():
        assert options[f"sanctl_second_site_{key}"]["default"] == value


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("name", "A site", "site name 'A site' is not valid"),
        ("user", "root", "is root"),
        ("user", "two words", "no address"),
        ("port", 70000, "no address"),
        ("path", "srv/copies", "no path"),
        ("path", "/srv/$(reboot)", "no path"),
        ("address", "far example", "no address"),
    ],
)
def test_what_no_site_can_have_is_refused(key: str, value: object, text: str) -> None:
    variable = f"sanctl_second_site_{key}"
    (line,) = survey(far={variable: value})["problems"]
    place = "address" if text == "no address" else key
    assert line.startswith(f"SAN-CONF-050: host far: sanctl_second_site_{place}: ")
    assert text in line


def test_two_sites_of_one_name_and_nodes_as_sites_are_refused() -> None:
    (line,) = survey(far={}, vault={"sanctl_second_site_name": "far"})["problems"]
    assert line.startswith(
        "SAN-CONF-050: host vault: sanctl_second_site_name: 'far' is that of far"
    )
    found = inventory.read_inventory(hostvars(), GROUPS | {"sanctl_sites": ["n2"]})["problems"]
    assert found == ["SAN-CONF-034: host n2: is in sanctl_nodes and in sanctl_sites"]
