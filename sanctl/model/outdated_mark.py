# SPDX-License-Identifier: GPL-2.0-or-later
"""How an outdated mark is written in the CIB: the id and attributes of its location constraint.

`<rsc_location id="sanctl-outdated-NAME.NODE.UUID" rsc="sanctl-NAME" role="Promoted" node="NODE"
score="-INFINITY"/>`: by itself it keeps the replica from being promoted. No name of a device has a
dot in it. Until 0.1.0 a mark was a node attribute, `sanctl-outdated-NAME` with the device's UUID as
its value, and the location rule `sanctl-NAME-outdated`; such marks are read and removed, too.

Imports nothing: the agents import this module.
"""

from __future__ import annotations

#: Of the constraint's id, and of the attribute's name.
PREFIX = "sanctl-outdated-"


def mark_id(device: str, node: str, uuid: str) -> str:
    """Return the id of the constraint that marks a device's replica on a node."""
    return f"{PREFIX}{device}.{node}.{uuid}"


def mark_attributes(device: str, node: str, uuid: str) -> dict[str, str]:
    """Return the attributes of that constraint, an `rsc_location` without children."""
    return {
        "id": mark_id(device, node, uuid),
        "rsc": f"sanctl-{device}",
        "role": "Promoted",
        "node": node,
        "score": "-INFINITY",
    }


def parse_mark_id(identifier: str, node: str) -> tuple[str, str] | None:
    """Return the device and the UUID of a constraint's id; None where it is no mark of the node."""
    device, dot, rest = identifier.removeprefix(PREFIX).partition(".")
    uuid = rest.removeprefix(f"{node}.")
    if not (identifier.startswith(PREFIX) and device and dot and node) or uuid == rest:
        return None
    return device, uuid
