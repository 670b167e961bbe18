# SPDX-License-Identifier: GPL-2.0-or-later
"""SBD and the reach monitor in an inventory: each mistake is named."""

from __future__ import annotations

from typing import Any

import pytest

from sanctl.rollout import inventory
from tests.unit.rollout.test_inventory import GROUPS, hostvars, problems

_DISK = "/dev/disk/by-id/wwn-0x1"
_SOFTDOG = {"sanctl_sbd_watchdog": "softdog", "sanctl_accept_risks": ["SAN-CONF-042"]}


def _with(shared: dict[str, Any], *, fence: bool = True) -> list[str]:
    variables = hostvars()
    for name in GROUPS["sanctl_nodes"]:
        variables[name] |= shared
        if not fence:
            del variables[name]["sanctl_fence_options"]
    return problems(variables)


@pytest.mark.parametrize(
    "shared",
    [
        {"sanctl_sbd_mode": "diskless"},
        {"sanctl_sbd_mode": "diskless", **_SOFTDOG},
        {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [_DISK]},
        {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [_DISK, _DISK + "2", _DISK + "3"]},
    ],
    ids=str,
)
@pytest.mark.parametrize("fence", [True, False], ids=["with-bmc", "alone"])
def test_what_goes_together(shared: dict[str, Any], fence: bool) -> None:
    assert _with(shared, fence=fence) == []


@pytest.mark.parametrize(
    ("shared", "line"),
    [
        ({"sanctl_sbd_mode": "yes"}, "SAN-CONF-041: sanctl_sbd_mode: 'yes' is not known"),
        ({"sanctl_sbd_mode": "disk"}, "SAN-CONF-041: sanctl_sbd_devices: must name one"),
        (
            {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [_DISK, _DISK + "2"]},
            "SAN-CONF-041: sanctl_sbd_devices: must name one",
        ),
        (
            {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [_DISK, _DISK, _DISK, _DISK + "2"]},
            "SAN-CONF-041: sanctl_sbd_devices: must name one",
        ),
        (
            {"sanctl_sbd_mode": "diskless", "sanctl_sbd_devices": [_DISK]},
            "SAN-CONF-041: sanctl_sbd_devices: are given, and sanctl_sbd_mode is diskless",
        ),
        (
            {"sanctl_sbd_devices": [_DISK]},
            "SAN-CONF-041: sanctl_sbd_devices: are given, and sanctl_sbd_mode is not set",
        ),
        (
            {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": "sdb"},
            "SAN-CONF-041: sanctl_sbd_devices: must be a list",
        ),
        *(
            (
                {"sanctl_sbd_mode": "disk", "sanctl_sbd_devices": [_DISK + wrong]},
                "SAN-CONF-041: sanctl_sbd_devices: must be a list",
            )
            for wrong in ('"', "$(reboot)", "`reboot`", "\\", ";/dev/sda", ",/dev/sda", " x", "\n")
        ),
        (
            {
                "sanctl_sbd_mode": "disk",
                "sanctl_sbd_devices": [_DISK],
                "sanctl_sbd_watchdog_device": "/dev/watchdog\nSBD_OPTS=-n",
            },
            "SAN-CONF-041: sanctl_sbd_watchdog_device: ",
        ),
        (
            {"sanctl_sbd_mode": "diskless", "sanctl_sbd_watchdog_timeout_s": 0},
            "SAN-CONF-041: sanctl_sbd_watchdog_timeout_s: is no number",
        ),
        (
            {"sanctl_sbd_mode": "diskless", "sanctl_sbd_watchdog": "ipmi"},
            "SAN-CONF-041: sanctl_sbd_watchdog: 'ipmi'",
        ),
        (
            {"sanctl_sbd_mode": "diskless", "sanctl_sbd_watchdog": "softdog"},
            "SAN-CONF-042: sanctl_sbd_watchdog: softdog cannot",
        ),
        (
            {"sanctl_pacemaker_reach_targets": "10.77.1.9"},
            "SAN-CONF-044: sanctl_pacemaker_reach_targets: must be a list",
        ),
        (
            {"sanctl_pacemaker_reach_targets": ["switch"]},
            "SAN-CONF-044: sanctl_pacemaker_reach_targets: 'switch' is not",
        ),
        (
            {"sanctl_pacemaker_reach_targets": ["10.77.1.2"]},
            "SAN-CONF-044: sanctl_pacemaker_reach_targets: 10.77.1.2 is a portal of n2",
        ),
        (
            {
                "sanctl_pacemaker_reach_targets": ["10.77.1.9"],
                "sanctl_pacemaker_reach_interface": "eth1",
            },
            "SAN-CONF-044: sanctl_pacemaker_reach_interface: is given together",
        ),
    ],
)
def test_one_mistake_is_named_once(shared: dict[str, Any], line: str) -> None:
    (found,) = _with(shared)
    assert found.startswith(line)


def test_all_mistakes_are_named_at_once() -> None:
    found = _with(
        {
            "sanctl_sbd_mode": "disk",
            "sanctl_sbd_watchdog": "softdog",
            "sanctl_pacemaker_reach_targets": ["switch", "10.77.1.1"],
        }
    )
    codes = sorted(line.split(":")[0] for line in found)
    assert codes == ["SAN-CONF-041", "SAN-CONF-042", "SAN-CONF-044", "SAN-CONF-044"]


def test_without_sbd_every_node_needs_a_fencing_device() -> None:
    found = _with({}, fence=False)
    assert [line.split(":")[0] for line in found] == ["SAN-CONF-031"] * 3


def test_diskless_sbd_needs_three_nodes() -> None:
    variables = {name: v for name, v in hostvars().items() if name != "n3"}
    for name in ("n1", "n2"):
        variables[name]["sanctl_sbd_mode"] = "diskless"
    groups = GROUPS | {"sanctl_nodes": ["n1", "n2"], "sanctl_witness": []}
    assert any(line.startswith("SAN-CONF-043") for line in problems(variables, groups))


def test_settings_that_differ_from_node_to_node() -> None:
    variables = hostvars()
    variables["n2"]["sanctl_sbd_mode"] = "diskless"
    variables["n3"]["sanctl_pacemaker_reach_targets"] = ["10.77.1.9"]
    lines = inventory.read_inventory(variables, GROUPS)["problems"]
    assert [line.split(":")[0] for line in lines] == ["SAN-CONF-035", "SAN-CONF-035"]
