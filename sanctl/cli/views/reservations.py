# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds JSON data, table and lines of text of a device's persistent reservations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sanctl.cli.output import UNKNOWN, print_table
from sanctl.model.cluster import Cluster
from sanctl.model.device import DeviceSpec
from sanctl.model.reservation import ALL_REGISTRANTS, TYPES, Reservations
from sanctl.plan.device.reservations import Published, published_by_active

if TYPE_CHECKING:
    from sanctl.cli.documents import target as target_documents


def reservations_data(
    cluster: Cluster, device: DeviceSpec, published: Published
) -> target_documents.Reservations:
    """Return a device's reservations for the JSON output."""
    found = published_by_active(cluster, device, published) if device.reservations else None
    state = found.reservations if found else None
    return {
        "device": device.name.value,
        "on": device.reservations,
        "active_node": cluster.serving_node(device.name),
        "type": state.type if state else None,
        "type_name": TYPES[state.type] if state and state.type else None,
        "registrations": [
            {
                "initiator": iqn,
                "host": _host_of(cluster, iqn),
                "key": hex(key),
                "holder": _holds(state, iqn),
            }
            for iqn, key in state.registrations
        ]
        if state
        else None,
    }


def _host_of(cluster: Cluster, iqn: str) -> str | None:
    for host in cluster.cib.hosts:
        if iqn in {each.value for each in host.iqns}:
            return host.name.value
    return None


def _holds(state: Reservations, iqn: str) -> bool:
    return state.type in ALL_REGISTRANTS or state.holder == iqn


def print_reservations(found: target_documents.Reservations) -> None:
    """Print a device's reservations."""
    name, registrations = found["device"], found["registrations"]
    if not found["on"]:
        print(f"device {name}: persistent reservations are off, and hosts' are refused")
    elif registrations is None:
        active = found["active_node"]
        why = f"{active} does not say" if active else "no node serves the device"
        print(f"device {name}: {UNKNOWN} (who is registered is not known: {why})")
    elif not registrations:
        print(f"device {name}: no host is registered, nothing is reserved")
    else:
        print(f"device {name}: {found['type_name'] or 'nothing is reserved'}")
        print_table(
            ("INITIATOR", "HOST", "KEY", "HOLDER"),
            (
                (
                    each["initiator"],
                    each["host"] or "-",
                    each["key"],
                    "yes" if each["holder"] else "-",
                )
                for each in registrations
            ),
        )
