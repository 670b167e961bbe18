# SPDX-License-Identifier: GPL-2.0-or-later
"""Checks an inventory's SBD variables, and the targets that monitor reach of the iscsi network."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any

from sanctl.config.document import Document
from sanctl.model.topology import RISK_SOFTDOG

# Characters that are the same in a shell, a unit's EnvironmentFile, XML and sbd's own list; no `;`
# or `,`, which separate disks.
_DISK = re.compile(r"/dev/[A-Za-z0-9._+/:@=-]+")
_MODES = ("", "diskless", "disk")
_WATCHDOGS = ("hardware", "softdog")
# SBD needs a majority of its disks: with two, losing one loses the majority.
_DISK_COUNTS = (1, 3)

Hostvars = Mapping[str, Mapping[str, Any]]


def check_sbd(document: Document, names: Sequence[str], hostvars: Hostvars) -> bool:
    """Add the problems of SBD's variables; return whether SBD fences the nodes."""
    check_same(
        document,
        names,
        hostvars,
        (
            "sanctl_sbd_mode",
            "sanctl_sbd_devices",
            "sanctl_sbd_watchdog",
            "sanctl_sbd_watchdog_timeout_s",
        ),
    )
    shared = hostvars[names[0]]
    mode = shared.get("sanctl_sbd_mode") or ""
    devices = shared.get("sanctl_sbd_devices") or []
    if mode not in _MODES:
        document.note(
            "SAN-CONF-041",
            ("variable", "sanctl_sbd_mode"),
            f"{mode!r} is not known",
            "diskless or disk",
        )
        return False
    if not isinstance(devices, list) or not all(
        isinstance(device, str) and _DISK.fullmatch(device) for device in devices
    ):
        document.note(
            "SAN-CONF-041",
            ("variable", "sanctl_sbd_devices"),
            "must be a list of block devices, below /dev, of letters, digits and . _ + / : @ = -",
            "names that are the same on every node, below /dev/disk/by-id",
        )
    elif mode == "disk" and len({*devices}) not in _DISK_COUNTS:
        document.note(
            "SAN-CONF-041", ("variable", "sanctl_sbd_devices"), "must name one disk, or three"
        )
    elif mode != "disk" and devices:
        document.note(
            "SAN-CONF-041",
            ("variable", "sanctl_sbd_devices"),
            f"are given, and sanctl_sbd_mode is {mode or 'not set'}",
            "sanctl_sbd_mode: disk",
        )
    if not mode:
        return False
    if mode == "diskless" and len(names) < 3:
        document.note(
            "SAN-CONF-043",
            ("variable", "sanctl_sbd_mode"),
            f"diskless does not go with {len(names)} nodes",
            "add a witness, or use a disk",
        )
    timeout = shared.get("sanctl_sbd_watchdog_timeout_s", 5)
    if not isinstance(timeout, int) or isinstance(timeout, bool) or timeout < 1:
        document.note(
            "SAN-CONF-041", ("variable", "sanctl_sbd_watchdog_timeout_s"), "is no number of seconds"
        )
    _check_watchdog(document, shared)
    return True


def _check_watchdog(document: Document, shared: Mapping[str, Any]) -> None:
    device = shared.get("sanctl_sbd_watchdog_device") or "/dev/watchdog"
    if not (isinstance(device, str) and _DISK.fullmatch(device)):
        document.note(
            "SAN-CONF-041",
            ("variable", "sanctl_sbd_watchdog_device"),
            f"{device!r} is not a plain path below /dev",
        )
    kind = shared.get("sanctl_sbd_watchdog") or "hardware"
    if kind not in _WATCHDOGS:
        document.note(
            "SAN-CONF-041",
            ("variable", "sanctl_sbd_watchdog"),
            f"{kind!r} is not known",
            f"one of: {', '.join(_WATCHDOGS)}",
        )
    elif kind == "softdog" and RISK_SOFTDOG not in (shared.get("sanctl_accept_risks") or ()):
        document.note(
            RISK_SOFTDOG,
            ("variable", "sanctl_sbd_watchdog"),
            "softdog cannot reset a node whose kernel hangs",
            f"use the server's watchdog, or accept the risk: sanctl_accept_risks: [{RISK_SOFTDOG}]",
        )


def check_reach(document: Document, names: Sequence[str], hostvars: Hostvars) -> None:
    """Add the problems of the variables for the reach monitor of the iscsi network."""
    targets_name, interface_name = (
        "sanctl_pacemaker_reach_targets",
        "sanctl_pacemaker_reach_interface",
    )
    check_same(document, names, hostvars, (targets_name, interface_name))
    shared = hostvars[names[0]]
    targets = shared.get(targets_name) or []
    if not isinstance(targets, list):
        document.note("SAN-CONF-044", ("variable", targets_name), "must be a list of addresses")
        return
    if targets and shared.get(interface_name):
        document.note(
            "SAN-CONF-044",
            ("variable", interface_name),
            f"is given together with {targets_name}",
            "one of the two: addresses see more",
        )
    portals = {
        str(portal): name for name in names for portal in hostvars[name].get("sanctl_iscsi") or ()
    }
    for target in targets:
        try:
            address = str(ip_address(target))
        except ValueError:
            document.note(
                "SAN-CONF-044", ("variable", targets_name), f"{target!r} is not an IP address"
            )
            continue
        if address in portals:
            document.note(
                "SAN-CONF-044",
                ("variable", targets_name),
                f"{address} is a portal of {portals[address]}",
                "a node that is cut off would make the other node look cut off too: name hosts, or "
                "the switch",
            )


def check_same(
    document: Document, names: Sequence[str], hostvars: Hostvars, variables: Sequence[str]
) -> None:
    """Add a problem for each of these variables that a host has another value of."""
    for variable in variables:
        for name in names[1:]:
            if hostvars[name].get(variable) != hostvars[names[0]].get(variable):
                document.note(
                    "SAN-CONF-035",
                    ("nodes", name),
                    f"{variable} is not the same as on {names[0]}",
                    "set it once, for the group sanctl_nodes",
                )
