# SPDX-License-Identifier: GPL-2.0-or-later
"""The example inventory is right and the wrong ones are refused, as Ansible itself reads them."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sanctl.config import inventory, parse

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "ansible" / "inventory.example.yml"
INVALID = sorted((Path(__file__).parent / "invalid").glob("*.yml"))
BIN = Path(sys.executable).parent


def read(path: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """Return host variables and groups, without a server in sight."""
    # In this process: starting ansible-inventory once for each file takes longer than all tests.
    loader: Any = importlib.import_module("ansible.parsing.dataloader").DataLoader()
    manager: Any = importlib.import_module("ansible.inventory.manager").InventoryManager(
        loader=loader, sources=[str(path)]
    )
    variables: Any = importlib.import_module("ansible.vars.manager").VariableManager(
        loader=loader, inventory=manager
    )
    groups = {
        name: [str(host) for host in hosts] for name, hosts in manager.get_groups_dict().items()
    }
    hostvars = {host.name: variables.get_vars(host=host) for host in manager.get_hosts()}
    return hostvars, groups


def test_the_example_is_right() -> None:
    survey = inventory.read_inventory(*read(EXAMPLE))
    assert survey["problems"] == []
    assert parse(survey["cluster_toml"]).cluster == "san1"


def test_there_are_wrong_ones() -> None:
    assert len(INVALID) >= 6


@pytest.mark.parametrize("path", INVALID, ids=lambda path: path.stem)
def test_a_wrong_one_is_refused(path: Path) -> None:
    expected = path.read_text().splitlines()[0].removeprefix("# expect: ").split()
    problems = inventory.read_inventory(*read(path))["problems"]
    assert sorted({line.split(":")[0] for line in problems}) == sorted(expected)


def test_preflight_lists_everything_and_touches_nothing(tmp_path: Path) -> None:
    """The playbook itself, against servers that do not exist: it must not get as far as them."""
    wrong = EXAMPLE.read_text().replace("192.0.2.130", "198.51.100.1")
    wrong = wrong.replace("            path: /srv/sanctl/main\n", "")
    path = tmp_path / "inventory.yml"
    path.write_text(wrong)
    done = subprocess.run(
        [BIN / "ansible-playbook", "-i", path, ROOT / "ansible" / "site.yml"],
        check=False,
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "ANSIBLE_HOME": str(tmp_path),
            "ANSIBLE_CONFIG": str(ROOT / "ansible" / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "SAN1_BMC_PASSWORD": "geheim",
        },
    )
    assert done.returncode == 2
    assert "SAN-CONF-010: host san1-b: sanctl_sync" in done.stdout
    assert "SAN-CONF-016: sanctl_pools.main.path" in done.stdout
    assert "unreachable=0" in done.stdout
    assert "Gathering Facts" not in done.stdout
    assert "geheim" not in done.stdout + done.stderr
