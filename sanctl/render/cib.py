# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of the CIB as one XML patchset, which Pacemaker applies only to the version planned on.

Compare-and-swap: the patchset names the configuration version it starts from, and Pacemaker refuses
it when the configuration has changed since ("Update was older than existing configuration", "diff
failed"). `num_updates` is left out of the source on purpose: it counts changes of the status
section, which changes with every monitor result, while `epoch` rises with any change of the
configuration, and only that decides whether a plan still holds. Pacemaker accepts any value for a
version part that the source does not name (read in, and tried with, 2.1.5 and 3.0.0).
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import assert_never

from sanctl.model.cib_change import (
    AddDevice,
    AddMove,
    Change,
    ClearParameter,
    CompleteDevice,
    RemoveCopy,
    RemoveCopySchedule,
    RemoveDevice,
    RemoveFencing,
    RemoveHost,
    RemoveHostGroup,
    RemoveMark,
    RemoveMove,
    RemoveNodeAttribute,
    RemovePoint,
    RemovePreference,
    RemoveSchedule,
    RemoveSite,
    SetCopy,
    SetCopySchedule,
    SetGroupsOfDevice,
    SetHost,
    SetHostGroup,
    SetMark,
    SetNodeAttribute,
    SetNodes,
    SetParameter,
    SetPoint,
    SetSchedule,
    SetSite,
    SetStopped,
)
from sanctl.model.cluster import (
    GROUP_PREFIX,
    GROUPS_OF_DEVICE,
    HOST_PREFIX,
    HOSTS_ID,
    clone_id,
    host_group_id,
    host_id,
)
from sanctl.model.device import DeviceSpec
from sanctl.model.host import Host
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.outdated_mark import PREFIX, mark_attributes, parse_mark_id
from sanctl.model.point_schedule import schedule_id
from sanctl.model.restore_point import POINT_PREFIX, POINTS_ID, RestorePoint
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX, SITE_PREFIX, SITES_ID
from sanctl.render.device_elements import (
    PRIORITY,
    add_nvpair,
    constraint_elements,
    device_element,
    move_element,
    new_nvpair,
    node_expression,
    short_timeouts,
)

_CONFIGURATION = "/cib/configuration"
_OPERATIONS = "primitive/operations/op"
_HOSTS = f"crm_config/cluster_property_set[@id='{HOSTS_ID}']"
_SITES = f"crm_config/cluster_property_set[@id='{SITES_ID}']"


def render_patchset(root: ET.Element, changes: Sequence[Change]) -> str:
    """Return the patchset that makes these changes on the CIB they were planned on."""
    patch = ET.Element("diff", format="2")
    admin_epoch, epoch = root.get("admin_epoch", "0"), root.get("epoch", "0")
    version = ET.SubElement(patch, "version")
    ET.SubElement(version, "source", admin_epoch=admin_epoch, epoch=epoch)
    ET.SubElement(
        version, "target", admin_epoch=admin_epoch, epoch=str(int(epoch) + 1), num_updates="0"
    )
    writer = _Writer(root)
    for change in changes:
        writer.add(change)
    writer.settle_positions()
    # Deletions first: Pacemaker places what it creates by position among what is left.
    patch.extend(writer.deletions)
    patch.extend(writer.modifications)
    patch.extend(writer.creations)
    return ET.tostring(patch, encoding="unicode")


class _Writer:
    """Collects the operations of a patchset."""

    def __init__(self, root: ET.Element) -> None:
        configuration = root.find("configuration")
        assert configuration is not None
        self._configuration = configuration
        self.deletions: list[ET.Element] = []
        self.modifications: list[ET.Element] = []
        self.creations: list[ET.Element] = []

    def add(self, change: Change) -> None:
        match change:
            case AddDevice(device=device):
                self._create("resources", device_element(device))
                for constraint in constraint_elements(device):
                    self._create("constraints", constraint)
            case RemoveDevice(name=name):
                self._remove_device(name)
            case CompleteDevice(device=device):
                self._complete_device(device)
            case SetStopped(name=name):
                self._set_stopped(name)
            case SetParameter(name=name, parameter=parameter, value=value):
                self._set_parameter(name, parameter, value)
            case ClearParameter(name=name, parameter=parameter):
                self._clear_parameter(name, parameter)
            case SetNodes(name=name, nodes=nodes, replicas=replicas):
                self._set_nodes(name, nodes, replicas)
            case RemovePreference(name=name):
                self._delete("constraints", "rsc_location", f"{clone_id(name)}-prefer")
            case AddMove(name=name, node=node, until=until):
                self._create("constraints", move_element(name, node, until))
            case RemoveMove(name=name):
                self._delete("constraints", "rsc_location", f"{clone_id(name)}-move")
            case SetNodeAttribute(node=node, attribute=attribute, value=value):
                self._set_node_attribute(node, attribute, value)
            case RemoveNodeAttribute(node=node, attribute=attribute):
                self._remove_node_attribute(node, attribute)
            case RemoveFencing(node=node):
                self._remove_fencing(node)
            case SetMark(name=name, node=node, uuid=uuid):
                element = ET.Element("rsc_location", mark_attributes(name.value, node.value, uuid))
                self._create("constraints", element)
            case RemoveMark(name=name, node=node):
                self._remove_mark(name, node)
            case SetHost(host=host):
                self._set_host(host)
            case RemoveHost(name=host_name):
                self._delete(_HOSTS, "nvpair", host_id(host_name))
            case SetHostGroup(group=group):
                identifier = host_group_id(group.name)
                self._set_property(
                    HOSTS_ID, identifier, GROUP_PREFIX + str(group.name), group.value
                )
            case RemoveHostGroup(name=group_name):
                self._delete(_HOSTS, "nvpair", host_group_id(group_name))
            case SetGroupsOfDevice(name=name, groups=groups):
                self._set_groups(name, groups)
            case SetPoint(point=point):
                self._set_property(POINTS_ID, point.id, point.id, point.value)
            case RemovePoint(point=point):
                self._remove_point(point.id)
            case SetSchedule(name=name, schedule=schedule):
                identifier = schedule_id(name.value)
                self._set_property(POINTS_ID, identifier, identifier, schedule.value)
            case RemoveSchedule(name=name):
                self._remove_point(schedule_id(name.value))
            case SetSite(site=site):
                self._set_property(SITES_ID, site.id, site.id, site.value)
            case RemoveSite(name=site_name):
                self._remove_of_sites(f"{SITE_PREFIX}{site_name}")
            case SetCopy(record=record):
                self._set_property(SITES_ID, record.id, record.id, record.value)
            case RemoveCopy(record=record):
                self._remove_of_sites(record.id)
            case SetCopySchedule(schedule=copying):
                self._set_property(SITES_ID, copying.id, copying.id, copying.value)
            case RemoveCopySchedule(schedule=copying):
                self._remove_of_sites(copying.id)
            case _:
                assert_never(change)

    def _remove_device(self, name: DeviceName) -> None:
        clone = clone_id(name)
        for location in self._configuration.findall("constraints/*"):
            if location.get("rsc") == clone:
                self._delete("constraints", location.tag, location.get("id", ""))
        self._delete("resources", "clone", clone)
        for point in self._points(name):
            self._remove_point(point.id)
        if self._has_schedule(name):
            self._remove_point(schedule_id(name.value))
        for pair in self._configuration.findall(f"{_SITES}/nvpair"):
            if pair.get("id", "").startswith(
                (f"{COPY_PREFIX}{name}.", f"{COPY_SCHEDULE_PREFIX}{name}.")
            ):
                self._remove_of_sites(pair.get("id", ""))
        for node in self._configuration.findall("nodes/node"):
            for kind in ("outdated", "discard", "revive"):
                for group, pair in _node_pairs(node, f"sanctl-{kind}-{name}"):
                    self._delete_pair(node, group, pair)

    def _remove_mark(self, name: DeviceName, node: NodeName) -> None:
        for location in self._configuration.findall("constraints/rsc_location"):
            identifier = location.get("id", "")
            mark = parse_mark_id(identifier, node.value)
            if mark is not None and mark[0] == name.value:
                self._delete("constraints", "rsc_location", identifier)
        # As a release before 0.1.0 has written it.
        self._remove_node_attribute(node, f"{PREFIX}{name}")

    def _complete_device(self, device: DeviceSpec) -> None:
        clone = clone_id(device.name)
        present = {element.get("id") for element in self._configuration.iter()}
        for constraint in constraint_elements(device):
            if constraint.get("id") not in present:
                self._create("constraints", constraint)
        path = f"{_CONFIGURATION}/resources/clone[@id='{clone}']"
        group = self._find(f"resources/clone[@id='{clone}']").find("meta_attributes")
        pair = new_nvpair(f"{clone}-meta-priority", "priority", PRIORITY)
        if group is None:
            group = ET.Element("meta_attributes", id=f"{clone}-meta")
            group.append(pair)
            self._create_at(path, 0, group)
        elif group.find("nvpair[@name='priority']") is None:
            self._create_at(f"{path}/meta_attributes[@id='{group.get('id')}']", len(group), pair)
        operations = self._find(f"resources/clone[@id='{clone}']").findall(_OPERATIONS)
        by_id = {operation.get("id", ""): operation for operation in operations}
        found = {each: operation.get("timeout", "") for each, operation in by_id.items()}
        for each, timeout in short_timeouts(device.name.value, found).items():
            self._modify(
                f"{path}/primitive[@id='{device.name}']/operations/op[@id='{each}']",
                by_id[each],
                timeout,
                attribute="timeout",
            )

    def _set_stopped(self, name: DeviceName) -> None:
        clone = self._find(f"resources/clone[@id='{clone_id(name)}']")
        group = clone.find("meta_attributes")
        path = f"{_CONFIGURATION}/resources/clone[@id='{clone_id(name)}']"
        pair_id = f"{clone_id(name)}-meta-target-role"
        # crm_resource --meta makes sets of its own. A target-role in one of them wins over ours: a
        # deletion waited for ever for a device that was Started there.
        for parent, others in (
            (path, clone.findall("meta_attributes")[1:]),
            (f"{path}/primitive[@id='{name}']", clone.findall("primitive/meta_attributes")),
        ):
            for other in others:
                for each in other.findall("nvpair[@name='target-role']"):
                    self.deletions.append(
                        ET.Element(
                            "change",
                            operation="delete",
                            path=f"{parent}/meta_attributes[@id='{other.get('id')}']"
                            f"/nvpair[@id='{each.get('id')}']",
                        )
                    )
        if group is None:
            group = ET.Element("meta_attributes", id=f"{clone_id(name)}-meta")
            add_nvpair(group, pair_id, "target-role", "Stopped")
            self._create_at(path, 0, group)
            return
        pair = group.find("nvpair[@name='target-role']")
        group_path = f"{path}/meta_attributes[@id='{group.get('id')}']"
        if pair is None:
            self._create_at(group_path, len(group), new_nvpair(pair_id, "target-role", "Stopped"))
        else:
            self._modify(f"{group_path}/nvpair[@id='{pair.get('id')}']", pair, "Stopped")

    def _parameters(self, name: DeviceName) -> tuple[str, ET.Element]:
        """Return a device's instance attributes and their path."""
        primitive = self._find(f"resources/clone[@id='{clone_id(name)}']/primitive")
        group = primitive.find("instance_attributes")
        assert group is not None, "a device without parameters does not parse"
        path = (
            f"{_CONFIGURATION}/resources/clone[@id='{clone_id(name)}']/primitive[@id='{name}']"
            f"/instance_attributes[@id='{group.get('id')}']"
        )
        return path, group

    def _clear_parameter(self, name: DeviceName, parameter: str) -> None:
        path, group = self._parameters(name)
        for pair in group.findall(f"nvpair[@name='{parameter}']"):
            path_of_pair = f"{path}/nvpair[@id='{pair.get('id')}']"
            self.deletions.append(ET.Element("change", operation="delete", path=path_of_pair))

    def _set_parameter(self, name: DeviceName, parameter: str, value: str) -> None:
        path, group = self._parameters(name)
        pair = group.find(f"nvpair[@name='{parameter}']")
        if pair is None:
            self._create_at(
                path, len(group), new_nvpair(f"{name}-params-{parameter}", parameter, value)
            )
        else:
            self._modify(f"{path}/nvpair[@id='{pair.get('id')}']", pair, value)

    def _set_groups(self, name: DeviceName, groups: tuple[HostGroupName, ...]) -> None:
        primitive = self._find(f"resources/clone[@id='{clone_id(name)}']/primitive")
        path = f"{_CONFIGURATION}/resources/clone[@id='{clone_id(name)}']/primitive[@id='{name}']"
        # crm_resource --meta makes sets of its own.
        sets = [
            (f"{path}/meta_attributes[@id='{each.get('id')}']", each)
            for each in primitive.findall("meta_attributes")
        ]
        pairs = [
            (f"{group_path}/nvpair[@id='{pair.get('id')}']", pair)
            for group_path, group in sets
            for pair in group.findall(f"nvpair[@name='{GROUPS_OF_DEVICE}']")
        ]
        for pair_path, _ in pairs[1:] if groups else pairs:
            self.deletions.append(ET.Element("change", operation="delete", path=pair_path))
        if not groups:
            return
        value = " ".join(map(str, groups))
        if pairs:
            self._modify(*pairs[0], value)
            return
        made = new_nvpair(f"{name}-meta-{GROUPS_OF_DEVICE}", GROUPS_OF_DEVICE, value)
        if sets:
            self._create_at(sets[0][0], len(sets[0][1]), made)
            return
        element = ET.Element("meta_attributes", id=f"{name}-meta")
        element.append(made)
        self._create_at(path, 0, element)

    def _set_nodes(self, name: DeviceName, nodes: tuple[NodeName, ...], replicas: int) -> None:
        self._set_parameter(name, "nodes", " ".join(node.value for node in nodes))
        self._set_parameter(name, "replicas", str(replicas))
        self._raise_clone_max(name, len(nodes))
        clone = clone_id(name)
        path = f"rsc_location[@id='{clone}-replicas']/rule[@id='{clone}-replicas-rule']"
        rule = self._find(f"constraints/{path}")
        wanted = {node.value for node in nodes}
        held: set[str] = set()
        for expression in rule.findall("expression[@attribute='#uname']"):
            value = expression.get("value", "")
            if value in wanted:
                held.add(value)
            else:
                self._delete(f"constraints/{path}", "expression", expression.get("id", ""))
        for node in nodes:
            if node.value not in held:
                self._create(f"constraints/{path}", node_expression(clone, node))
        # The files of restore points go with the replica beside which they are.
        for point in self._points(name):
            kept = tuple(node for node in point.nodes if node in wanted)
            if not kept:
                self._remove_point(point.id)
            elif kept != point.nodes:
                self._set_property(POINTS_ID, point.id, point.id, point._replace(nodes=kept).value)

    def _raise_clone_max(self, name: DeviceName, count: int) -> None:
        """Let Pacemaker run at least that many instances.

        Never fewer than before: where clone-max is lowered while an instance that has to stop still
        runs, Pacemaker takes the instance that stays for the surplus one and stops it (Pacemaker
        3.0.0, "Removed resource NAME:1 is active"). The rule alone decides where instances are.
        """
        clone = self._find(f"resources/clone[@id='{clone_id(name)}']")
        path = f"{_CONFIGURATION}/resources/clone[@id='{clone_id(name)}']"
        group = clone.find("meta_attributes")
        pair = None if group is None else group.find("nvpair[@name='clone-max']")
        # Without the attribute Pacemaker runs one instance per node, and the rule decides.
        if group is not None and pair is not None and int(pair.get("value", "0")) < count:
            path += f"/meta_attributes[@id='{group.get('id')}']/nvpair[@id='{pair.get('id')}']"
            self._modify(path, pair, str(count))

    def _set_node_attribute(self, name: NodeName, attribute: str, value: str) -> None:
        node = self._find(f"nodes/node[@uname='{name}']")
        node_id = node.get("id", "")
        path = f"{_CONFIGURATION}/nodes/node[@id='{node_id}']"
        for group, pair in _node_pairs(node, attribute):
            self._modify(
                f"{path}/instance_attributes[@id='{group.get('id')}']"
                f"/nvpair[@id='{pair.get('id')}']",
                pair,
                value,
            )
            return
        # The ids that crm_attribute would give, so that each finds an attribute of the other.
        pair = new_nvpair(f"nodes-{node_id}-{attribute}", attribute, value)
        existing = node.find("instance_attributes")
        if existing is not None:
            self._create_at(
                f"{path}/instance_attributes[@id='{existing.get('id')}']", len(existing), pair
            )
            return
        key = f"nodes-{node_id}"
        waiting = next((e for e in self.creations if e[0].get("id") == key), None)
        if waiting is not None:
            waiting[0].append(pair)
            return
        group = ET.Element("instance_attributes", id=key)
        group.append(pair)
        self._create_at(path, len(node), group)

    def _remove_node_attribute(self, name: NodeName, attribute: str) -> None:
        node = self._find(f"nodes/node[@uname='{name}']")
        for group, pair in _node_pairs(node, attribute):
            self._delete_pair(node, group, pair)

    def _set_host(self, host: Host) -> None:
        value = str(host).removeprefix(f"{host.name}=")
        self._set_property(HOSTS_ID, host_id(host.name), f"{HOST_PREFIX}{host.name}", value)

    def _set_property(self, set_id: str, identifier: str, name: str, value: str) -> None:
        """Set a cluster property in a set of sanctl's own."""
        group = f"crm_config/cluster_property_set[@id='{set_id}']"
        found = self._configuration.find(f"{group}/nvpair[@id='{identifier}']")
        if found is not None:
            path = f"{_CONFIGURATION}/{group}/nvpair[@id='{identifier}']"
            self._modify(path, found, value)
            return
        pair = new_nvpair(identifier, name, value)
        if self._configuration.find(group) is not None:
            self._create(group, pair)
            return
        made = ET.Element("cluster_property_set", id=set_id)
        made.append(pair)
        self._create("crm_config", made)

    def _points(self, name: DeviceName) -> list[RestorePoint]:
        found = [
            RestorePoint.parse(pair.get("name", ""), pair.get("value", ""))
            for pair in self._configuration.findall(
                f"crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"
            )
            if pair.get("id", "").startswith(f"{POINT_PREFIX}{name}.")
        ]
        return [point for point in found if point is not None]

    def _has_schedule(self, name: DeviceName) -> bool:
        group = f"crm_config/cluster_property_set[@id='{POINTS_ID}']"
        identifier = schedule_id(name.value)
        return self._configuration.find(f"{group}/nvpair[@id='{identifier}']") is not None

    def _remove_point(self, identifier: str) -> None:
        path = f"crm_config/cluster_property_set[@id='{POINTS_ID}']"
        self._delete(path, "nvpair", identifier)

    def _remove_of_sites(self, identifier: str) -> None:
        self._delete(_SITES, "nvpair", identifier)

    def _remove_fencing(self, node: NodeName) -> None:
        made = {f"fence-{node}", f"fence-{node}_fallback"}
        for level in self._configuration.findall("fencing-topology/fencing-level"):
            if level.get("target") == node.value:
                self._delete("fencing-topology", level.tag, level.get("id", ""))
        for location in self._configuration.findall("constraints/rsc_location"):
            if location.get("rsc") in made:
                self._delete("constraints", location.tag, location.get("id", ""))
        for primitive in self._configuration.findall("resources/primitive"):
            if primitive.get("class") == "stonith" and primitive.get("id") in made:
                self._delete("resources", primitive.tag, primitive.get("id", ""))

    def _find(self, path: str) -> ET.Element:
        element = self._configuration.find(path)
        assert element is not None, f"planned on a CIB that has {path}"
        return element

    def _create(self, section: str, element: ET.Element) -> None:
        parent = self._find(section)
        self._create_at(f"{_CONFIGURATION}/{section}", len(parent), element)

    def _create_at(self, path: str, children: int, element: ET.Element) -> None:
        """Append an element to a parent that has that many children now."""
        change = ET.Element("change", operation="create", path=path, position=str(children))
        change.append(element)
        self.creations.append(change)

    def settle_positions(self) -> None:
        """Set the positions of created elements: after the existing ones that are not deleted."""
        added: dict[str, int] = {}
        for change in self.creations:
            path = change.get("path", "")
            removed = sum(
                1 for gone in self.deletions if gone.get("path", "").rpartition("/")[0] == path
            )
            position = int(change.get("position", "")) - removed + added.get(path, 0)
            change.set("position", str(position))
            added[path] = added.get(path, 0) + 1

    def _delete(self, section: str, tag: str, identifier: str) -> None:
        path = f"{_CONFIGURATION}/{section}/{tag}[@id='{identifier}']"
        self.deletions.append(ET.Element("change", operation="delete", path=path))

    def _delete_pair(self, node: ET.Element, group: ET.Element, pair: ET.Element) -> None:
        path = (
            f"{_CONFIGURATION}/nodes/node[@id='{node.get('id')}']"
            f"/instance_attributes[@id='{group.get('id')}']/nvpair[@id='{pair.get('id')}']"
        )
        self.deletions.append(ET.Element("change", operation="delete", path=path))

    def _modify(
        self, path: str, element: ET.Element, value: str, *, attribute: str = "value"
    ) -> None:
        """Change the value of an nvpair, or another attribute of an element, in place."""
        change = ET.Element("change", operation="modify", path=path)
        changes = ET.SubElement(change, "change-list")
        ET.SubElement(changes, "change-attr", name=attribute, operation="set", value=value)
        result = ET.SubElement(change, "change-result")
        ET.SubElement(result, element.tag, {**element.attrib, attribute: value})
        self.modifications.append(change)


def _node_pairs(node: ET.Element, attribute: str) -> list[tuple[ET.Element, ET.Element]]:
    return [
        (group, pair)
        for group in node.findall("instance_attributes")
        for pair in group.findall("nvpair")
        if pair.get("name") == attribute
    ]
