# SPDX-License-Identifier: GPL-2.0-or-later
"""The inventory of a laboratory is one that the rollout accepts, whatever the shape."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sanctl.lab.machines import rollout
from sanctl.lab.machines.lab_state import Lab
from sanctl.lab.machines.spec import LabSpec
from sanctl.rollout.inventory import read_inventory


def read(spec: LabSpec, folder: Path) -> dict[str, Any]:
    """Return what the rollout makes of a laboratory's inventory."""
    (folder / "id_ed25519.pub").write_text("key\n")
    lab = SimpleNamespace(
        spec=spec,
        name=spec.name,
        directory=folder,
        machines=spec.machines,
        bmc_password=lambda: "secret",
    )
    tree = rollout.inventory_of(cast(Lab, lab))["all"]["children"]
    nodes = tree["sanctl_nodes"]
    groups = {name: list(group["hosts"]) for name, group in nodes["children"].items()}
    groups["sanctl_nodes"] = [host for hosts in groups.values() for host in hosts]
    variables: dict[str, dict[str, Any]] = {}
    for group in nodes["children"].values():
        for host, own in group["hosts"].items():
            variables[host] = nodes["vars"] | own
    for name in ("sanctl_qnetd", "sanctl_hosts"):
        groups[name] = list(tree[name]["hosts"])
        for host, own in tree[name]["hosts"].items():
            variables.setdefault(host, {}).update(own)
    return read_inventory(variables, groups)


@pytest.mark.parametrize(
    ("spec", "own"),
    [
        (LabSpec(), []),
        (LabSpec(nodes=2, witness="qnetd"), []),
        (LabSpec(own_hosts=True), ["n1", "n2"]),
        (LabSpec(own_hosts=True, initiators=0), ["n1", "n2"]),
    ],
)
def test_it_is_accepted(spec: LabSpec, own: list[str], tmp_path: Path) -> None:
    survey = read(spec, tmp_path)
    assert survey["problems"] == []
    assert survey["own_hosts"] == own
