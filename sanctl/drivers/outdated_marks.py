# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads and writes of outdated marks in the CIB (cibadmin(8)); when: agents.fencing.outdate.

A mark is the permanent node attribute `sanctl-outdated-NAME`, with the device's UUID as its value.
This module talks to the CIB directly (cibadmin(8)): during a failover each program costs time, and
a mark sometimes has to come with another version of the CIB. Queries are answered from this node's
CIB, changes by the whole partition.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.parse.xml_output import parse_xml
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

_TIMEOUT_S = 20.0


class MarkState(NamedTuple):
    """A device's mark on a peer, in this node's CIB.

    Attributes:
        admin_epoch: the first number of the CIB's version.
        uuid: the device's UUID.
        node_id: the peer's id.
        attribute_set_id: the id of the peer's attribute set that holds the mark, or would.
        nvpair_id: the id of the mark's nvpair, or the id that it would get.
        value: the mark's value, empty without one.
        state: the peer's `node_state`, None where there is none.
        own_value: the value of this node's own mark, empty without one.
    """

    admin_epoch: int
    uuid: str
    node_id: str
    attribute_set_id: str
    nvpair_id: str
    value: str
    state: ET.Element | None
    own_value: str = ""

    @property
    def is_own_marked(self) -> bool:
        """Whether this node's replica of this very device is marked."""
        return self.own_value == self.uuid

    @property
    def is_marked(self) -> bool:
        """Whether the peer's replica of this very device is marked."""
        return self.value == self.uuid


class DeviceMarks(NamedTuple):
    """All marks of one device, and the version of the CIB that they stand in.

    Attributes:
        admin_epoch: the first number of that version.
        epoch: the second one.
        paths: by node, where its mark is, as patchsets name it.
    """

    admin_epoch: int
    epoch: int
    paths: tuple[tuple[str, str], ...]

    def nodes(self) -> frozenset[str]:
        """Return the nodes whose replica is marked."""
        return frozenset(node for node, _ in self.paths)


def attribute_name(device: str) -> str:
    """Return the name of the node attribute that marks a replica of a device."""
    return f"sanctl-outdated-{device}"


def read(runner: Runner, device: str, peer: str) -> MarkState:
    """Read the mark of a device's replica on a peer, in one query.

    Raises:
        CommandError: no answer, or the CIB has no such device or node.
    """
    here = os.uname().nodename
    node, own = f"//nodes/node[@uname='{peer}']", f"//nodes/node[@uname='{here}']"
    mark = f"instance_attributes/nvpair[@name='{attribute_name(device)}']"
    paths = (
        "/cib",
        f"//node_state[@uname='{peer}']",
        node,
        f"{node}/instance_attributes",
        f"{node}/{mark}",
        own,
        f"{own}/{mark}",
        f"//primitive[@id='{device}']/instance_attributes/nvpair[@name='uuid']",
    )
    answer = runner.run(
        ["cibadmin", "--query", "--no-children", "--xpath", "|".join(paths)],
        timeout_s=_TIMEOUT_S,
    )
    admin_epoch = uuid = node_id = attribute_set_id = last_set = nvpair_id = value = own_value = (
        last_node
    ) = ""
    state = None
    # Elements come in the CIB's order: an nvpair comes after the node and the set that hold it.
    for element in parse_xml(answer.stdout, "cibadmin").iter():
        name, identifier = element.get("name"), element.get("id", "")
        match element.tag:
            case "cib":
                admin_epoch = element.get("admin_epoch", "")
            case "node":
                last_node = element.get("uname", "")
                if last_node == peer:
                    node_id = identifier
            case "instance_attributes":
                attribute_set_id, last_set = attribute_set_id or identifier, identifier
            case "nvpair" if name == "uuid":
                uuid = element.get("value", "")
            case "nvpair" if name == attribute_name(device) and last_node != peer:
                own_value = element.get("value", "")
            case "nvpair" if name == attribute_name(device):
                attribute_set_id, nvpair_id, value = last_set, identifier, element.get("value", "")
            case "node_state":
                state = element
    if not (admin_epoch.isdecimal() and uuid and node_id):
        raise CommandError(
            Problem("SAN-AGENT-012", f"the CIB has no device {device} or no node {peer}")
        )
    return MarkState(
        admin_epoch=int(admin_epoch),
        uuid=uuid,
        node_id=node_id,
        # The ids that crm_attribute would give, so that each finds an attribute of the other.
        attribute_set_id=attribute_set_id or f"nodes-{node_id}",
        nvpair_id=nvpair_id or f"nodes-{node_id}-{attribute_name(device)}",
        value=value,
        state=state,
        own_value=own_value,
    )


def set_mark(
    runner: Runner, device: str, peer: str, seen: MarkState, *, raises_admin_epoch: bool
) -> None:
    """Mark a peer's replica of a device.

    Args:
        runner: runs cibadmin.
        device: the device's name.
        peer: the node's name.
        seen: the mark's state, as `read` has returned it.
        raises_admin_epoch: raise the CIB's admin_epoch in the same change, so that this CIB is
            newer than any that the peer may bring along, whatever changes the peer made while it
            was alone. Pacemaker refuses a number that is less than its own: then another node has
            raised it.

    Raises:
        CommandError: refused, or no answer came; the mark may have been set.
    """
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - seldom: no monitor pays for it

    cib = ET.Element("cib")
    if raises_admin_epoch:
        cib.set("admin_epoch", str(seen.admin_epoch + 1))
    nodes = ET.SubElement(ET.SubElement(cib, "configuration"), "nodes")
    node = ET.SubElement(nodes, "node", id=seen.node_id, uname=peer)
    group = ET.SubElement(node, "instance_attributes", id=seen.attribute_set_id)
    ET.SubElement(group, "nvpair", id=seen.nvpair_id, name=attribute_name(device), value=seen.uuid)
    runner.run(
        ["cibadmin", "--modify", "--allow-create", "--sync-call", "--xml-pipe"],
        stdin=ET.tostring(cib, encoding="unicode"),
        timeout_s=_TIMEOUT_S,
    )


def read_all(runner: Runner, device: str) -> DeviceMarks:
    """Read all marks of a device in one query, and the version of the CIB that has them.

    Raises:
        CommandError: no answer, or the CIB knows no such device.
    """
    node, group = "//nodes/node", "//nodes/node/instance_attributes"
    paths = (
        "/cib",
        node,
        group,
        f"{group}/nvpair[@name='{attribute_name(device)}']",
        f"//primitive[@id='{device}']/instance_attributes/nvpair[@name='uuid']",
    )
    answer = runner.run(
        ["cibadmin", "--query", "--no-children", "--xpath", "|".join(paths)],
        timeout_s=_TIMEOUT_S,
    )
    admin_epoch = epoch = uuid = last_node = last_path = ""
    found: list[tuple[str, str, str]] = []
    for element in parse_xml(answer.stdout, "cibadmin").iter():
        identifier = element.get("id", "")
        match element.tag:
            case "cib":
                admin_epoch, epoch = element.get("admin_epoch", ""), element.get("epoch", "")
            case "node":
                last_node = element.get("uname", "")
                last_path = f"/cib/configuration/nodes/node[@id='{identifier}']"
            case "instance_attributes":
                group = f"{last_path}/instance_attributes[@id='{identifier}']"
            case "nvpair" if element.get("name") == "uuid":
                uuid = element.get("value", "")
            case "nvpair":
                path = f"{group}/nvpair[@id='{identifier}']"
                found.append((last_node, path, element.get("value", "")))
    if not (admin_epoch.isdecimal() and epoch.isdecimal() and uuid):
        raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no device {device}"))
    return DeviceMarks(
        admin_epoch=int(admin_epoch),
        epoch=int(epoch),
        paths=tuple((node, path) for node, path, value in found if value == uuid),
    )


def remove_at_version(runner: Runner, marks: DeviceMarks, node: str) -> None:
    """Remove a node's mark, if the CIB's configuration is still what `read_all` has read.

    A patchset without `num_updates`, as in sanctl/render/cib.py: Pacemaker refuses it when the
    configuration has changed.

    Raises:
        CommandError: refused, for that reason among others, or no answer came.
    """
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - seldom: no monitor pays for it

    patch = ET.Element("diff", format="2")
    version = ET.SubElement(patch, "version")
    source = {"admin_epoch": str(marks.admin_epoch), "epoch": str(marks.epoch)}
    ET.SubElement(version, "source", source)
    ET.SubElement(version, "target", {**source, "epoch": str(marks.epoch + 1), "num_updates": "0"})
    for owner, path in marks.paths:
        if owner == node:
            ET.SubElement(patch, "change", operation="delete", path=path)
    runner.run(
        ["cibadmin", "--patch", "--sync-call", "--xml-pipe"],
        stdin=ET.tostring(patch, encoding="unicode"),
        timeout_s=_TIMEOUT_S,
    )
