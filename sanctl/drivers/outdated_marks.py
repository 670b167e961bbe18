# SPDX-License-Identifier: GPL-2.0-or-later
"""Marks of outdated replicas in the CIB: one look that tells all about one, one change to set it.

A mark is the permanent node attribute `sanctl-outdated-NAME`, with the device's UUID as its value.
This talks to the CIB directly (cibadmin(8)): on the way of a failover each program costs, and a
mark sometimes has to come with another version of the CIB. Queries are answered from this node's
copy, changes by the whole partition.
"""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from typing import NamedTuple

from sanctl.errors import CommandError, Problem
from sanctl.system.runner import Runner

_TIMEOUT_S = 20.0


class Sight(NamedTuple):
    """What this node's copy of the CIB says of a device and a peer.

    Attributes:
        admin_epoch: the first number of the CIB's version.
        uuid: the device's UUID.
        node_id: the peer's id.
        set_id: the set of the peer's attributes that holds the mark, or would.
        pair_id: the mark, or what it would be called.
        value: the mark's value, empty without one.
        state: the peer's `node_state`, None where there is none.
        own_value: the value of this node's own mark, empty without one.
    """

    admin_epoch: int
    uuid: str
    node_id: str
    set_id: str
    pair_id: str
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


def attribute(device: str) -> str:
    """Return the name of the node attribute that marks a replica of a device."""
    return f"sanctl-outdated-{device}"


def look(runner: Runner, device: str, peer: str) -> Sight:
    """Read what the CIB says of a device's replica on a peer, in one query.

    Raises:
        CommandError: no answer, or the CIB knows no such device or node.
    """
    here = os.uname().nodename
    node, own = f"//nodes/node[@uname='{peer}']", f"//nodes/node[@uname='{here}']"
    mark = f"instance_attributes/nvpair[@name='{attribute(device)}']"
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
    admin_epoch = uuid = node_id = set_id = last_set = pair_id = value = own_value = last_node = ""
    state = None
    # In the order in which they stand in the CIB: a pair comes after the node and set that hold it.
    for element in ET.fromstring(answer.stdout).iter():  # noqa: S314 - the cluster's own CIB
        name, identifier = element.get("name"), element.get("id", "")
        match element.tag:
            case "cib":
                admin_epoch = element.get("admin_epoch", "")
            case "node":
                last_node = element.get("uname", "")
                if last_node == peer:
                    node_id = identifier
            case "instance_attributes":
                set_id, last_set = set_id or identifier, identifier
            case "nvpair" if name == "uuid":
                uuid = element.get("value", "")
            case "nvpair" if name == attribute(device) and last_node != peer:
                own_value = element.get("value", "")
            case "nvpair" if name == attribute(device):
                set_id, pair_id, value = last_set, identifier, element.get("value", "")
            case "node_state":
                state = element
    if not (admin_epoch.isdecimal() and uuid and node_id):
        raise CommandError(
            Problem("SAN-AGENT-012", f"the CIB has no device {device} or no node {peer}")
        )
    return Sight(
        admin_epoch=int(admin_epoch),
        uuid=uuid,
        node_id=node_id,
        # The ids that crm_attribute would give, so that either finds what the other wrote.
        set_id=set_id or f"nodes-{node_id}",
        pair_id=pair_id or f"nodes-{node_id}-{attribute(device)}",
        value=value,
        state=state,
        own_value=own_value,
    )


def put(runner: Runner, device: str, peer: str, seen: Sight, *, outranks: bool) -> None:
    """Mark a peer's replica of a device.

    Args:
        runner: runs cibadmin.
        device: the device's name.
        peer: the node's name.
        seen: what `look` has returned.
        outranks: raise the CIB's admin_epoch in the same change, so that this CIB is newer than any
            that the peer may bring along, whatever it has changed when it was alone. Pacemaker
            refuses a number that is less than the one it has: then somebody else has raised it.

    Raises:
        CommandError: refused, or no answer came; it may have been set.
    """
    cib = ET.Element("cib")
    if outranks:
        cib.set("admin_epoch", str(seen.admin_epoch + 1))
    nodes = ET.SubElement(ET.SubElement(cib, "configuration"), "nodes")
    node = ET.SubElement(nodes, "node", id=seen.node_id, uname=peer)
    group = ET.SubElement(node, "instance_attributes", id=seen.set_id)
    ET.SubElement(group, "nvpair", id=seen.pair_id, name=attribute(device), value=seen.uuid)
    runner.run(
        ["cibadmin", "--modify", "--allow-create", "--sync-call", "--xml-pipe"],
        stdin=ET.tostring(cib, encoding="unicode"),
        timeout_s=_TIMEOUT_S,
    )
