# SPDX-License-Identifier: GPL-2.0-or-later
"""Reads and writes of outdated marks in the CIB (cibadmin(8)); when: agents.fencing.outdate.

A mark is a location constraint (sanctl/model/outdated_mark.py). A change of the CIB's section
`nodes` by cibadmin has Pacemaker 3.0 elect its DC anew and write every transient attribute again
(controld_cib.c and attrd_cib.c, `cib__client_triggers_refresh`); one of `constraints` has not.

This module talks to the CIB directly: during a failover each program costs time, and a mark
sometimes has to come with another version of the CIB. Queries are answered from this node's CIB,
changes by the whole partition.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from sanctl.drivers import cib
from sanctl.errors import CommandError, Problem
from sanctl.model.outdated_mark import PREFIX, mark_attributes, mark_id, parse_mark_id
from sanctl.model.pacemaker_boolean import is_true
from sanctl.parse.xml_output import parse_xml
from sanctl.plan.failover.action_history import Action, is_primary
from sanctl.system.runner import Runner

if TYPE_CHECKING:
    import xml.etree.ElementTree as ET

_TIMEOUT_S = 20.0
_CLEAR_TIMEOUT_S = 8.0
_CONSTRAINTS = "/cib/configuration/constraints"
#: The cluster property with the number that marks have given the CIB: the rollout makes it once all
#: nodes go by it. Pacemaker writes a CIB to its disk where the configuration has changed, and not
#: for another `admin_epoch` alone, as of marks that were there (lib/common/patchset.c,
#: `is_config_change`); so the number is in the configuration, too.
NUMBER = "sanctl-cib-number"


class DeviceMarks(NamedTuple):
    """The marks of one device.

    Attributes:
        uuid: the device's UUID; an attribute with another one is of a device that had the name
            before. A constraint with another one is in force all the same, and counts.
        paths: by node, where a mark is, as XPath and as patchsets name it; two where an older
            release has marked the replica, too.
    """

    uuid: str
    paths: tuple[tuple[str, str], ...] = ()

    def nodes(self) -> frozenset[str]:
        """Return the nodes whose replica is marked."""
        return frozenset(node for node, _ in self.paths)


class SeenMarks(NamedTuple):
    """The marks of some devices in this node's CIB, and the version of it.

    Attributes:
        admin_epoch: the first number of the CIB's version.
        epoch: the second one.
        state: the `node_state` of the peer that was asked for, None where there is none.
        primary: the devices that are Primary on that peer by the history of its actions, where its
            `node_state` expects it to be down; none while it is in maintenance, where Pacemaker
            fences for no history, and keeps no other.
        is_maintained: that peer is in maintenance, by an attribute of its own.
        attributes: of the transient attributes that were asked for those which that peer has.
        number: the ids of the property set and of the property `NUMBER` in it; None: a node may
            have a release that does not number CIBs by memberships.
        devices: by name; a device that the CIB does not have is left out.
    """

    admin_epoch: int
    epoch: int
    state: ET.Element | None
    devices: Mapping[str, DeviceMarks]
    primary: frozenset[str] = frozenset()
    number: tuple[str, str] | None = None
    is_maintained: bool = False
    attributes: Mapping[str, str] = MappingProxyType({})


def attribute_name(device: str) -> str:
    """Return the name of the node attribute that marked a replica until 0.1.0."""
    return f"{PREFIX}{device}"


def read(
    runner: Runner, devices: Collection[str], peer: str = "", attributes: Collection[str] = ()
) -> SeenMarks:
    """Read the marks of some devices on all nodes, and what is known of a peer, in one query.

    With `attributes` also those transient attributes of the peer; their names are of no others.

    Raises:
        CommandError: no answer, or the CIB has no such node.
    """
    names = {attribute_name(device): device for device in devices}
    pairs = " or ".join(f"@name='{name}'" for name in names)
    primitives = " or ".join(f"@id='{device}'" for device in devices)
    constraints = " or ".join(f"starts-with(@id,'{name}.')" for name in names)
    # It counts of a peer that is called down, and is long: of any other it is not asked for.
    history = f"//node_state[@uname='{peer}' and @expected='down']//lrm_resource[{primitives}]"
    properties = "//crm_config/cluster_property_set"
    paths = (
        "/cib",
        f"{properties}[nvpair[@name='{NUMBER}']]",
        f"{properties}/nvpair[@name='{NUMBER}']",
        f"//node_state[@uname='{peer}']",
        history,
        f"{history}/lrm_rsc_op",
        "//nodes/node",
        "//nodes/node/instance_attributes",
        f"//nodes/node/instance_attributes/nvpair[{pairs}]",
        f"//nodes/node[@uname='{peer}']/instance_attributes/nvpair[@name='maintenance']",
        f"//primitive[{primitives}]",
        f"//primitive[{primitives}]/instance_attributes/nvpair[@name='uuid']",
        f"//constraints/rsc_location[{constraints}]",
        *(
            f"//node_state[@uname='{peer}']/transient_attributes//nvpair[@name='{name}']"
            for name in attributes
        ),
    )
    answer = runner.run(
        ["cibadmin", "--query", "--no-children", "--xpath", "|".join(paths)],
        timeout_s=_TIMEOUT_S,
    )
    admin_epoch = epoch = last_node = last_path = last_set = last_device = last_resource = ""
    last_properties, number, state = "", None, None
    is_maintained = False
    given: dict[str, str] = {}
    nodes: set[str] = set()
    uuids: dict[str, str] = {}
    found: list[tuple[str, str, str, str]] = []
    histories: dict[str, list[Action]] = {}
    # Elements come in the CIB's order: an nvpair comes after the node and the set that hold it.
    for element in parse_xml(answer.stdout, "cibadmin").iter():
        name, identifier = element.get("name", ""), element.get("id", "")
        match element.tag:
            case "cib":
                admin_epoch, epoch = element.get("admin_epoch", ""), element.get("epoch", "")
            case "node":
                nodes.add(last_node := element.get("uname", ""))
                last_path = f"/cib/configuration/nodes/node[@id='{identifier}']"
            case "instance_attributes":
                last_set = f"{last_path}/instance_attributes[@id='{identifier}']"
            case "primitive":
                last_device = identifier
            case "cluster_property_set":
                last_properties = identifier
            case "nvpair" if name == NUMBER:
                # A reference (`id-ref`) has no id of its own, and is somebody else's.
                number = (last_properties, identifier) if identifier else None
            case "nvpair" if name == "uuid":
                uuids[last_device] = element.get("value", "")
            case "nvpair" if name == "maintenance":
                is_maintained = is_true(element.get("value", ""))
            case "nvpair" if name in attributes:
                given[name] = element.get("value", "")
            case "nvpair" if name in names:
                path = f"{last_set}/nvpair[@id='{identifier}']"
                found.append((names[name], last_node, element.get("value", ""), path))
            case "rsc_location":
                node = element.get("node", "")
                mark = parse_mark_id(identifier, node)
                if mark is not None:
                    path = f"{_CONSTRAINTS}/rsc_location[@id='{identifier}']"
                    found.append((mark[0], node, uuids.get(mark[0], ""), path))
            case "node_state":
                state = element
            case "lrm_resource":
                last_resource = identifier
            case "lrm_rsc_op":
                histories.setdefault(last_resource, []).append(Action.parse(element.attrib))
    if not (admin_epoch.isdecimal() and epoch.isdecimal()) or (peer and peer not in nodes):
        raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no node {peer}"))
    return SeenMarks(
        admin_epoch=int(admin_epoch),
        epoch=int(epoch),
        state=state,
        devices={
            device: DeviceMarks(
                uuid,
                tuple(
                    (node, path)
                    for name, node, value, path in found
                    if (name, value) == (device, uuid)
                ),
            )
            for device, uuid in uuids.items()
            if uuid and device in devices
        },
        primary=frozenset(
            name for name, actions in histories.items() if not is_maintained and is_primary(actions)
        ),
        number=number,
        is_maintained=is_maintained,
        attributes=given,
    )


def read_device(runner: Runner, device: str) -> SeenMarks:
    """Read the marks of one device.

    Raises:
        CommandError: no answer, or the CIB knows no such device.
    """
    seen = read(runner, [device])
    if device not in seen.devices:
        raise CommandError(Problem("SAN-AGENT-012", f"the CIB has no device {device}"))
    return seen


def set_marks(
    runner: Runner,
    devices: Iterable[str],
    peer: str,
    seen: SeenMarks,
    *,
    admin_epoch: int | None = None,
) -> None:
    """Mark a peer's replicas of some devices, all in one change or none.

    The devices are of those that `read` has returned in `seen`. With `admin_epoch` the same change
    sets that number, which makes this CIB newer than any that the peer may bring along, whatever
    changes the peer made while it was alone. Pacemaker refuses a number that is less than its own:
    then another node has raised it.

    Raises:
        CommandError: refused, or no answer came; the marks may have been set.
    """
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - seldom: no monitor pays for it

    cib = ET.Element("cib")
    configuration = ET.SubElement(cib, "configuration")
    if admin_epoch is not None:
        cib.set("admin_epoch", str(admin_epoch))
        if seen.number is not None:
            group, pair = seen.number
            config = ET.SubElement(configuration, "crm_config")
            found = ET.SubElement(config, "cluster_property_set", id=group)
            ET.SubElement(found, "nvpair", id=pair, name=NUMBER, value=str(admin_epoch))
    constraints = ET.SubElement(configuration, "constraints")
    for device in devices:
        uuid = seen.devices[device].uuid
        ET.SubElement(constraints, "rsc_location", mark_attributes(device, peer, uuid))
    runner.run(
        ["cibadmin", "--modify", "--allow-create", "--sync-call", "--xml-pipe"],
        stdin=ET.tostring(cib, encoding="unicode"),
        timeout_s=_TIMEOUT_S,
    )


def clear(runner: Runner, marks: DeviceMarks, nodes: Collection[str]) -> None:
    """Remove a device's marks on some nodes, of either form, in one change.

    Raises:
        CommandError: refused, or no answer came; the marks may have been removed.
    """
    paths = [path for node, path in marks.paths if node in nodes]
    cib.delete_at(runner, paths, timeout_s=_CLEAR_TIMEOUT_S)


def own_paths(device: str, uuid: str) -> tuple[str, ...]:
    """Return the XPaths of the marks that this node's replica of a device may have."""
    here = os.uname().nodename
    return (
        f"{_CONSTRAINTS}/rsc_location[@id='{mark_id(device, here, uuid)}']",
        f"/cib/configuration/nodes/node[@uname='{here}']/instance_attributes"
        f"/nvpair[@name='{attribute_name(device)}'][@value='{uuid}']",
    )


def clear_own(runner: Runner, device: str, uuid: str) -> None:
    """Remove the marks of this node's replica of a device that the CIB may no longer have.

    Raises:
        CommandError: refused, or no answer came.
    """
    cib.delete_at(runner, own_paths(device, uuid), timeout_s=_CLEAR_TIMEOUT_S)


def remove_at_version(runner: Runner, seen: SeenMarks, device: str, node: str) -> None:
    """Remove a node's mark, if the CIB's configuration is still what was read.

    A patchset without `num_updates`, as in sanctl/render/cib.py: Pacemaker refuses it when the
    configuration has changed.

    Raises:
        CommandError: refused, for that reason among others, or no answer came.
    """
    import xml.etree.ElementTree as ET  # noqa: PLC0415 - seldom: no monitor pays for it

    patch = ET.Element("diff", format="2")
    version = ET.SubElement(patch, "version")
    source = {"admin_epoch": str(seen.admin_epoch), "epoch": str(seen.epoch)}
    ET.SubElement(version, "source", source)
    ET.SubElement(version, "target", {**source, "epoch": str(seen.epoch + 1), "num_updates": "0"})
    for owner, path in seen.devices[device].paths:
        if owner == node:
            ET.SubElement(patch, "change", operation="delete", path=path)
    runner.run(
        ["cibadmin", "--patch", "--sync-call", "--xml-pipe"],
        stdin=ET.tostring(patch, encoding="unicode"),
        timeout_s=_TIMEOUT_S,
    )
