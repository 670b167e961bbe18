# SPDX-License-Identifier: GPL-2.0-or-later
"""The operations of one XML patchset of the CIB: what it deletes, modifies and creates."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from sanctl.render.device_elements import new_nvpair

CONFIGURATION = "/cib/configuration"


class Patchset:
    """Collects operations on the configuration of a CIB that was read.

    Attributes:
        configuration: as it was read; it is left as it is.
        deletions: in the patchset these come first.
        modifications: then these.
        creations: the last ones.
    """

    def __init__(self, root: ET.Element) -> None:
        configuration = root.find("configuration")
        assert configuration is not None
        self.configuration = configuration
        self.deletions: list[ET.Element] = []
        self.modifications: list[ET.Element] = []
        self.creations: list[ET.Element] = []

    def find(self, path: str) -> ET.Element:
        """Return an element of the configuration that is known to be there."""
        element = self.configuration.find(path)
        assert element is not None, f"planned on a CIB that has {path}"
        return element

    def create(self, section: str, element: ET.Element) -> None:
        """Append an element to another, by its path below the configuration."""
        parent = self.find(section)
        self.create_at(f"{CONFIGURATION}/{section}", len(parent), element)

    def create_at(self, path: str, children: int, element: ET.Element) -> None:
        """Append an element to a parent that has that many children now."""
        change = ET.Element("change", operation="create", path=path, position=str(children))
        change.append(element)
        self.creations.append(change)

    def created(self, identifier: str) -> ET.Element | None:
        """Return an element that this patchset creates."""
        return next((each[0] for each in self.creations if each[0].get("id") == identifier), None)

    def delete(self, section: str, tag: str, identifier: str) -> None:
        """Delete an element."""
        path = f"{CONFIGURATION}/{section}/{tag}[@id='{identifier}']"
        self.delete_at(path)

    def delete_at(self, path: str) -> None:
        """Delete what is at a path."""
        self.deletions.append(ET.Element("change", operation="delete", path=path))

    def delete_pair(self, node: ET.Element, group: ET.Element, pair: ET.Element) -> None:
        """Delete an attribute of a node."""
        path = (
            f"{CONFIGURATION}/nodes/node[@id='{node.get('id')}']"
            f"/instance_attributes[@id='{group.get('id')}']/nvpair[@id='{pair.get('id')}']"
        )
        self.delete_at(path)

    def modify(
        self, path: str, element: ET.Element, value: str, *, attribute: str = "value"
    ) -> None:
        """Change the value of an nvpair, or another attribute of an element, in place."""
        change = ET.Element("change", operation="modify", path=path)
        changes = ET.SubElement(change, "change-list")
        ET.SubElement(changes, "change-attr", name=attribute, operation="set", value=value)
        result = ET.SubElement(change, "change-result")
        ET.SubElement(result, element.tag, {**element.attrib, attribute: value})
        self.modifications.append(change)

    def set_property(self, set_id: str, identifier: str, name: str, value: str) -> None:
        """Set a cluster property in a set of sanctl's own."""
        group = f"crm_config/cluster_property_set[@id='{set_id}']"
        found = self.configuration.find(f"{group}/nvpair[@id='{identifier}']")
        if found is not None:
            path = f"{CONFIGURATION}/{group}/nvpair[@id='{identifier}']"
            self.modify(path, found, value)
            return
        pair = new_nvpair(identifier, name, value)
        if self.configuration.find(group) is not None:
            self.create(group, pair)
            return
        waiting = self.created(set_id)
        if waiting is not None:
            waiting.append(pair)
            return
        made = ET.Element("cluster_property_set", id=set_id)
        made.append(pair)
        self.create("crm_config", made)

    def has_property(self, set_id: str, identifier: str) -> bool:
        """Whether a set of sanctl's own has that cluster property."""
        group = f"crm_config/cluster_property_set[@id='{set_id}']"
        return self.configuration.find(f"{group}/nvpair[@id='{identifier}']") is not None

    def remove_property(self, set_id: str, identifier: str) -> None:
        """Remove a cluster property from a set of sanctl's own."""
        self.delete(f"crm_config/cluster_property_set[@id='{set_id}']", "nvpair", identifier)

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


def node_pairs(node: ET.Element, attribute: str) -> list[tuple[ET.Element, ET.Element]]:
    """Return the pairs of that name on a node, each with the group in which it is."""
    return [
        (group, pair)
        for group in node.findall("instance_attributes")
        for pair in group.findall("nvpair")
        if pair.get("name") == attribute
    ]
