# SPDX-License-Identifier: GPL-2.0-or-later
"""A device's clone, operations, timeouts and location constraints in the CIB, as XML elements."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping

from sanctl.model.cache_policy import NO_CACHE
from sanctl.model.cib_names import GROUPS_OF_DEVICE, REACH_ATTRIBUTE, clone_id, follow_id
from sanctl.model.device import DeviceSpec, deletion_id
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.promotion_score import FOLLOW, PREFERENCE, UNREACHED_PENALTY
from sanctl.model.published_reservations import ON, PARAMETER
from sanctl.model.release_needs import PARAMETER as NEEDS_PARAMETER

#: A device's weight in a fencing race (priority-fencing-delay): Pacemaker adds up the priorities of
#: the resources on a node, and one more for each promoted instance. So of two nodes with the same
#: devices the node that serves more of them is fenced later, and survives.
PRIORITY = "1"

#: Operation, interval, role, timeout in seconds. The intervals of the two monitors must differ.
#: Timeouts hold where fifty actions run at once on a busy node: what they end is not slow, it hangs
#: (docs/adr/0050). The agent's own waits are shorter (_WAIT_S in agents/device_role.py): it answers
#: first. A transition waits for its actions, and so does the next one; it waits for no monitor.
#: A start may have to wait for its turn (agents/node/start_turn.py).
OPERATIONS = (
    ("start", 0, "", 180),
    ("promote", 0, "", 90),
    ("demote", 0, "", 120),
    ("stop", 0, "", 120),
    ("monitor", 10, "Promoted", 120),
    ("monitor", 11, "Unpromoted", 120),
    ("reload-agent", 0, "", 120),
)


def device_element(device: DeviceSpec) -> ET.Element:
    """Return the promotable clone of a device."""
    name = device.name.value
    clone = ET.Element("clone", id=clone_id(name))
    meta = ET.SubElement(clone, "meta_attributes", id=f"{clone_id(name)}-meta")
    for key, value in (
        ("promotable", "true"),
        ("clone-max", str(len(device.nodes))),
        ("clone-node-max", "1"),
        ("promoted-max", "1"),
        ("promoted-node-max", "1"),
        ("notify", "false"),
        ("interleave", "true"),
        ("priority", PRIORITY),
    ):
        add_nvpair(meta, f"{clone_id(name)}-meta-{key}", key, value)
    if device.is_stopping:
        pair_id = deletion_id(name) if device.is_deleting else f"{clone_id(name)}-meta-target-role"
        add_nvpair(meta, pair_id, "target-role", "Stopped")
    primitive = ET.SubElement(
        clone, "primitive", {"id": name, "class": "ocf", "provider": "sanctl", "type": "device"}
    )
    # Meta attributes: changing them reloads nothing.
    noted = {
        **({"sanctl-new": "true"} if device.is_new else {}),
        **(
            {GROUPS_OF_DEVICE: " ".join(map(str, device.host_groups))} if device.host_groups else {}
        ),
    }
    if noted:
        own_meta = ET.SubElement(primitive, "meta_attributes", id=f"{name}-meta")
        for key, value in noted.items():
            add_nvpair(own_meta, f"{name}-meta-{key}", key, value)
    parameters = ET.SubElement(primitive, "instance_attributes", id=f"{name}-params")
    for key, value in (
        ("uuid", device.uuid),
        ("size", str(device.size.bytes)),
        ("pool", device.pool.value),
        ("replicas", str(device.replicas)),
        ("nodes", " ".join(node.value for node in device.nodes)),
        ("initiators", " ".join(iqn.value for iqn in device.initiators)),
        # A default is not written, so that a better default reaches every device.
        *((("sync", str(device.sync)),) if str(device.sync) else ()),
        *((("cache", str(device.cache)),) if device.cache != NO_CACHE else ()),
        *((("hosts", " ".join(map(str, device.hosts))),) if device.hosts else ()),
        *((("origin", str(device.origin)),) if device.origin else ()),
        *((("restore", str(device.restore)),) if device.restore else ()),
        *(((PARAMETER, ON),) if device.reservations else ()),
        *(((NEEDS_PARAMETER, " ".join(device.needs)),) if device.needs else ()),
    ):
        add_nvpair(parameters, f"{name}-params-{key}", key, value)
    # This id is the same for every device with that minor: ids are unique in a CIB, so two
    # devices can never hold one minor, whatever happens between reading and writing.
    add_nvpair(parameters, f"sanctl-minor-{device.minor}", "minor", str(device.minor))
    operations = ET.SubElement(primitive, "operations")
    for operation, interval_s, role, timeout_s in OPERATIONS:
        attributes = {
            "id": operation_id(name, operation, interval_s),
            "name": operation,
            "interval": f"{interval_s}s",
            "timeout": f"{timeout_s}s",
        }
        if role:
            attributes["role"] = role
        ET.SubElement(operations, "op", attributes)
    return clone


def operation_id(device: str, operation: str, interval_s: int) -> str:
    """Return the id of a device's operation."""
    return f"{device}-{operation}-{interval_s}s"


def short_timeouts(device: str, found: Mapping[str, str]) -> dict[str, str]:
    """Return today's timeouts, by id, of a device's operations that have a shorter one."""
    wanted = {
        operation_id(device, operation, interval_s): timeout_s
        for operation, interval_s, _, timeout_s in OPERATIONS
    }
    return {
        identifier: f"{timeout_s}s"
        for identifier, timeout_s in wanted.items()
        # What has another unit an operator has set.
        if (text := found.get(identifier, "").removesuffix("s")).isdecimal()
        and int(text) < timeout_s
    }


def constraint_elements(device: DeviceSpec) -> Iterator[ET.Element]:
    """Return the constraints a device is created with."""
    clone = clone_id(device.name)
    replicas = ET.Element("rsc_location", id=f"{clone}-replicas", rsc=clone)
    rule = ET.SubElement(
        replicas,
        "rule",
        {"id": f"{clone}-replicas-rule", "score": "-INFINITY", "boolean-op": "and"},
    )
    for node in device.nodes:
        rule.append(node_expression(clone, node))
    yield replicas
    outdated = ET.Element("rsc_location", id=f"{clone}-outdated", rsc=clone)
    rule = ET.SubElement(
        outdated, "rule", id=f"{clone}-outdated-rule", role="Promoted", score="-INFINITY"
    )
    ET.SubElement(
        rule,
        "expression",
        id=f"{clone}-outdated-mark",
        attribute=f"sanctl-outdated-{device.name}",
        operation="eq",
        value=device.uuid,
    )
    yield outdated
    yield reach_element(device)
    if device.prefer is not None:
        yield ET.Element(
            "rsc_location",
            id=f"{clone}-prefer",
            rsc=clone,
            role="Promoted",
            node=device.prefer.value,
            score=str(PREFERENCE),
        )


def reach_element(device: DeviceSpec) -> ET.Element:
    """Return the constraint that moves the promoted role off a node that hosts cannot reach.

    A penalty and no ban: if no node is reached, all have the penalty and nothing moves. Only a
    published value counts: a node that has published none (yet) gets no penalty.
    """
    clone = clone_id(device.name)
    location = ET.Element("rsc_location", id=f"{clone}-reach", rsc=clone)
    rule = ET.SubElement(
        location,
        "rule",
        {
            "id": f"{clone}-reach-rule",
            "role": "Promoted",
            "score": str(-UNREACHED_PENALTY),
            "boolean-op": "and",
        },
    )
    ET.SubElement(
        rule,
        "expression",
        id=f"{clone}-reach-told",
        attribute=REACH_ATTRIBUTE,
        operation="defined",
    )
    ET.SubElement(
        rule,
        "expression",
        id=f"{clone}-reach-none",
        attribute=REACH_ATTRIBUTE,
        operation="lt",
        value="1",
        type="number",
    )
    return location


def move_element(name: DeviceName, node: NodeName, until: str) -> ET.Element:
    """Return the constraint that moves the promoted role to a node until a time."""
    clone = clone_id(name)
    location = ET.Element("rsc_location", id=f"{clone}-move", rsc=clone)
    rule = ET.SubElement(
        location,
        "rule",
        {
            "id": f"{clone}-move-rule",
            "role": "Promoted",
            "score": "INFINITY",
            "boolean-op": "and",
        },
    )
    ET.SubElement(
        rule,
        "expression",
        id=f"{clone}-move-to",
        attribute="#uname",
        operation="eq",
        value=node.value,
    )
    ET.SubElement(rule, "date_expression", id=f"{clone}-move-until", operation="lt", end=until)
    return location


def follow_elements(name: DeviceName, resource: str) -> Iterator[ET.Element]:
    """Return the constraints by which a device is served where a resource runs.

    The score is one among those of the replicas: none is promoted that cannot serve. Where the
    resource is stopped, both are without effect. With `influence` the resource would be kept off
    nodes for the device's sake. The order holds where both are started or stopped together.
    """
    yield ET.Element(
        "rsc_colocation",
        {
            "id": follow_id(name),
            "rsc": clone_id(name),
            "rsc-role": "Promoted",
            "with-rsc": resource,
            "score": str(FOLLOW),
            "influence": "false",
        },
    )
    yield ET.Element(
        "rsc_order",
        {
            "id": f"{follow_id(name)}-order",
            "first": clone_id(name),
            "first-action": "promote",
            "then": resource,
            "then-action": "start",
            "kind": "Optional",
        },
    )


def failure_expiry_id(name: DeviceName) -> str:
    """Return the id of a clone's set of meta attributes by which its failures are forgotten."""
    return f"{clone_id(name)}-forget"


def failure_expiry_element(name: DeviceName, after_s: int, until: str) -> ET.Element:
    """Return the meta attributes by which failures are forgotten after a while, until a time."""
    identifier = failure_expiry_id(name)
    group = ET.Element("meta_attributes", id=identifier)
    rule = ET.SubElement(group, "rule", id=f"{identifier}-rule", score="0")
    ET.SubElement(rule, "date_expression", id=f"{identifier}-until", operation="lt", end=until)
    add_nvpair(group, f"{identifier}-after", "failure-timeout", f"{after_s}s")
    return group


def node_expression(clone: str, node: NodeName) -> ET.Element:
    """Return the expression of the location rule that exempts a node: it may have a replica."""
    return ET.Element(
        "expression",
        id=f"{clone}-replicas-not-{node}",
        attribute="#uname",
        operation="ne",
        value=node.value,
    )


def new_nvpair(identifier: str, name: str, value: str) -> ET.Element:
    """Return an nvpair."""
    return ET.Element("nvpair", id=identifier, name=name, value=value)


def add_nvpair(parent: ET.Element, identifier: str, name: str, value: str) -> None:
    """Append an nvpair to an element."""
    ET.SubElement(parent, "nvpair", id=identifier, name=name, value=value)
