# SPDX-License-Identifier: GPL-2.0-or-later
"""Changes of what the CIB has of one device: its resource, constraints, points and copies."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from sanctl.model.backup_failure import (
    BACKUPS_ID,
    EXPECTED_PREFIX,
    FAILURE_PREFIX,
    PRUNE_PREFIX,
    SUCCESS_PREFIX,
)
from sanctl.model.cib_names import GROUPS_OF_DEVICE, clone_id, follow_id
from sanctl.model.device import DeviceSpec, deletion_id
from sanctl.model.host_group import HostGroupName
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.point_schedule import schedule_id
from sanctl.model.restore_point import POINT_PREFIX, POINTS_ID, RestorePoint
from sanctl.model.site import COPY_PREFIX, COPY_SCHEDULE_PREFIX, SITES_ID
from sanctl.model.site_restore import RESTORED_PREFIX
from sanctl.model.site_takeover import TAKEOVER_PREFIX
from sanctl.render.device_elements import (
    PRIORITY,
    add_nvpair,
    constraint_elements,
    failure_expiry_element,
    failure_expiry_id,
    new_nvpair,
    node_expression,
    short_timeouts,
)
from sanctl.render.patchset import CONFIGURATION, Patchset, node_pairs

#: Attributes of constraints that name resources.
_ENDS = ("rsc", "with-rsc", "first", "then")
_OPERATIONS = "primitive/operations/op"
_BACKUPS = f"crm_config/cluster_property_set[@id='{BACKUPS_ID}']"
_SITES = f"crm_config/cluster_property_set[@id='{SITES_ID}']"


def remove(patch: Patchset, name: DeviceName) -> None:
    """Remove a device, and all that the CIB has of it: constraints, points, copies, notes."""
    clone = clone_id(name)
    # Not what another device of the name has: restores from its copies are of other clusters.
    uuid = patch.configuration.find(
        f"resources/clone[@id='{clone}']/primitive/instance_attributes/nvpair[@name='uuid']"
    )
    restored = "" if uuid is None else f"{RESTORED_PREFIX}{name}.{uuid.get('value')}"
    # Also others', and ends of a tie: the schema refuses one that names a resource that is gone.
    for constraint in patch.configuration.findall("constraints/*"):
        if {clone, name.value} & {constraint.get(end) for end in _ENDS}:
            patch.delete("constraints", constraint.tag, constraint.get("id", ""))
    patch.delete("resources", "clone", clone)
    for point in _points(patch, name):
        patch.remove_property(POINTS_ID, point.id)
    if _has_schedule(patch, name):
        patch.remove_property(POINTS_ID, schedule_id(name.value))
    for pair in patch.configuration.findall(f"{_SITES}/nvpair"):
        identifier = pair.get("id", "")
        if identifier == restored or identifier.startswith(
            (
                f"{COPY_PREFIX}{name}.",
                f"{COPY_SCHEDULE_PREFIX}{name}.",
                f"{TAKEOVER_PREFIX}{name}.",
            )
        ):
            patch.remove_property(SITES_ID, identifier)
    for pair in patch.configuration.findall(f"{_BACKUPS}/nvpair"):
        identifier = pair.get("id", "")
        if identifier.startswith(
            tuple(
                f"{each}{name}."
                for each in (FAILURE_PREFIX, SUCCESS_PREFIX, EXPECTED_PREFIX, PRUNE_PREFIX)
            )
        ):
            patch.remove_property(BACKUPS_ID, identifier)
    for node in patch.configuration.findall("nodes/node"):
        for kind in ("outdated", "discard", "revive"):
            for group, pair in node_pairs(node, f"sanctl-{kind}-{name}"):
                patch.delete_pair(node, group, pair)


def remove_follow(patch: Patchset, name: DeviceName) -> None:
    """Remove the constraints by which a device follows a resource, those that are there."""
    for constraint in patch.configuration.findall("constraints/*"):
        if constraint.get("id") in {follow_id(name), f"{follow_id(name)}-order"}:
            patch.delete("constraints", constraint.tag, constraint.get("id", ""))


def complete(patch: Patchset, device: DeviceSpec) -> None:
    """Add what a device of an older version lacks, and give its actions today's timeouts."""
    clone = clone_id(device.name)
    present = {element.get("id") for element in patch.configuration.iter()}
    for constraint in constraint_elements(device):
        if constraint.get("id") not in present:
            patch.create("constraints", constraint)
    path = f"{CONFIGURATION}/resources/clone[@id='{clone}']"
    group = patch.find(f"resources/clone[@id='{clone}']").find("meta_attributes")
    pair = new_nvpair(f"{clone}-meta-priority", "priority", PRIORITY)
    if group is None:
        group = ET.Element("meta_attributes", id=f"{clone}-meta")
        group.append(pair)
        patch.create_at(path, 0, group)
    elif group.find("nvpair[@name='priority']") is None:
        patch.create_at(f"{path}/meta_attributes[@id='{group.get('id')}']", len(group), pair)
    operations = patch.find(f"resources/clone[@id='{clone}']").findall(_OPERATIONS)
    by_id = {operation.get("id", ""): operation for operation in operations}
    found = {each: operation.get("timeout", "") for each, operation in by_id.items()}
    for each, timeout in short_timeouts(device.name.value, found).items():
        patch.modify(
            f"{path}/primitive[@id='{device.name}']/operations/op[@id='{each}']",
            by_id[each],
            timeout,
            attribute="timeout",
        )


def set_stopped(patch: Patchset, name: DeviceName) -> None:
    """Have Pacemaker stop a device everywhere, because it is being deleted (`deletion_id`)."""
    clone = patch.find(f"resources/clone[@id='{clone_id(name)}']")
    group = clone.find("meta_attributes")
    path = f"{CONFIGURATION}/resources/clone[@id='{clone_id(name)}']"
    pair_id = deletion_id(name)
    # crm_resource --meta makes sets of its own. A target-role in one of them wins over ours: a
    # deletion waited for ever for a device that was Started there.
    for parent, others in (
        (path, clone.findall("meta_attributes")[1:]),
        (f"{path}/primitive[@id='{name}']", clone.findall("primitive/meta_attributes")),
    ):
        for other in others:
            for each in other.findall("nvpair[@name='target-role']"):
                patch.delete_at(
                    f"{parent}/meta_attributes[@id='{other.get('id')}']"
                    f"/nvpair[@id='{each.get('id')}']"
                )
    if group is None:
        group = ET.Element("meta_attributes", id=f"{clone_id(name)}-meta")
        add_nvpair(group, pair_id, "target-role", "Stopped")
        patch.create_at(path, 0, group)
        return
    group_path = f"{path}/meta_attributes[@id='{group.get('id')}']"
    kept = len(group)
    for each in group.findall("nvpair[@name='target-role']"):
        if each.get("id") == pair_id and each.get("value") == "Stopped":
            return
        # One that another tool has written. Deletions come first in a patchset.
        patch.delete_at(f"{group_path}/nvpair[@id='{each.get('id')}']")
        kept -= 1
    patch.create_at(group_path, kept, new_nvpair(pair_id, "target-role", "Stopped"))


def set_parameter(patch: Patchset, name: DeviceName, parameter: str, value: str) -> None:
    """Set a parameter of a device."""
    path, group = _parameters(patch, name)
    pair = group.find(f"nvpair[@name='{parameter}']")
    if pair is None:
        patch.create_at(
            path, len(group), new_nvpair(f"{name}-params-{parameter}", parameter, value)
        )
    else:
        patch.modify(f"{path}/nvpair[@id='{pair.get('id')}']", pair, value)


def clear_parameter(patch: Patchset, name: DeviceName, parameter: str) -> None:
    """Remove a parameter of a device."""
    path, group = _parameters(patch, name)
    for pair in group.findall(f"nvpair[@name='{parameter}']"):
        path_of_pair = f"{path}/nvpair[@id='{pair.get('id')}']"
        patch.delete_at(path_of_pair)


def set_groups(patch: Patchset, name: DeviceName, groups: tuple[HostGroupName, ...]) -> None:
    """Note the host groups that a device is given to; agents do not see it."""
    primitive = patch.find(f"resources/clone[@id='{clone_id(name)}']/primitive")
    path = f"{CONFIGURATION}/resources/clone[@id='{clone_id(name)}']/primitive[@id='{name}']"
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
        patch.delete_at(pair_path)
    if not groups:
        return
    value = " ".join(map(str, groups))
    if pairs:
        patch.modify(*pairs[0], value)
        return
    made = new_nvpair(f"{name}-meta-{GROUPS_OF_DEVICE}", GROUPS_OF_DEVICE, value)
    if sets:
        patch.create_at(sets[0][0], len(sets[0][1]), made)
        return
    element = ET.Element("meta_attributes", id=f"{name}-meta")
    element.append(made)
    patch.create_at(path, 0, element)


def set_failure_expiry(patch: Patchset, name: DeviceName, after_s: int, until: str) -> None:
    """Have Pacemaker forget failures of a device that are older than that, until a time."""
    remove_failure_expiry(patch, name)
    clone = patch.find(f"resources/clone[@id='{clone_id(name)}']")
    path = f"{CONFIGURATION}/resources/clone[@id='{clone_id(name)}']"
    # Behind the clone's own set: what is added to the first one found has to stay.
    patch.create_at(
        path, len(clone.findall("meta_attributes")), failure_expiry_element(name, after_s, until)
    )


def remove_failure_expiry(patch: Patchset, name: DeviceName) -> None:
    """Take that back, where it is there."""
    clone = f"resources/clone[@id='{clone_id(name)}']"
    group = f"meta_attributes[@id='{failure_expiry_id(name)}']"
    if patch.configuration.find(f"{clone}/{group}") is not None:
        patch.delete_at(f"{CONFIGURATION}/{clone}/{group}")


def set_nodes(
    patch: Patchset, name: DeviceName, nodes: tuple[NodeName, ...], replicas: int
) -> None:
    """Set the nodes with a replica; a restore point is on a node only beside a replica."""
    set_parameter(patch, name, "nodes", " ".join(node.value for node in nodes))
    set_parameter(patch, name, "replicas", str(replicas))
    _raise_clone_max(patch, name, len(nodes))
    clone = clone_id(name)
    path = f"rsc_location[@id='{clone}-replicas']/rule[@id='{clone}-replicas-rule']"
    rule = patch.find(f"constraints/{path}")
    wanted = {node.value for node in nodes}
    held: set[str] = set()
    for expression in rule.findall("expression[@attribute='#uname']"):
        value = expression.get("value", "")
        if value in wanted:
            held.add(value)
        else:
            patch.delete(f"constraints/{path}", "expression", expression.get("id", ""))
    for node in nodes:
        if node.value not in held:
            patch.create(f"constraints/{path}", node_expression(clone, node))
    # The files of restore points go with the replica beside which they are.
    for point in _points(patch, name):
        kept = tuple(node for node in point.nodes if node in wanted)
        if not kept:
            patch.remove_property(POINTS_ID, point.id)
        elif kept != point.nodes:
            patch.set_property(POINTS_ID, point.id, point.id, point._replace(nodes=kept).value)


def _raise_clone_max(patch: Patchset, name: DeviceName, count: int) -> None:
    """Let Pacemaker run at least that many instances.

    Never fewer than before: where clone-max is lowered while an instance that has to stop still
    runs, Pacemaker takes the instance that stays for the surplus one and stops it (Pacemaker
    3.0.0, "Removed resource NAME:1 is active"). The rule alone decides where instances are.
    """
    clone = patch.find(f"resources/clone[@id='{clone_id(name)}']")
    path = f"{CONFIGURATION}/resources/clone[@id='{clone_id(name)}']"
    group = clone.find("meta_attributes")
    pair = None if group is None else group.find("nvpair[@name='clone-max']")
    # Without the attribute Pacemaker runs one instance per node, and the rule decides.
    if group is not None and pair is not None and int(pair.get("value", "0")) < count:
        path += f"/meta_attributes[@id='{group.get('id')}']/nvpair[@id='{pair.get('id')}']"
        patch.modify(path, pair, str(count))


def _parameters(patch: Patchset, name: DeviceName) -> tuple[str, ET.Element]:
    """Return a device's instance attributes and their path."""
    primitive = patch.find(f"resources/clone[@id='{clone_id(name)}']/primitive")
    group = primitive.find("instance_attributes")
    assert group is not None, "a device without parameters does not parse"
    path = (
        f"{CONFIGURATION}/resources/clone[@id='{clone_id(name)}']/primitive[@id='{name}']"
        f"/instance_attributes[@id='{group.get('id')}']"
    )
    return path, group


def _points(patch: Patchset, name: DeviceName) -> list[RestorePoint]:
    found = [
        RestorePoint.parse(pair.get("name", ""), pair.get("value", ""))
        for pair in patch.configuration.findall(
            f"crm_config/cluster_property_set[@id='{POINTS_ID}']/nvpair"
        )
        if pair.get("id", "").startswith(f"{POINT_PREFIX}{name}.")
    ]
    return [point for point in found if point is not None]


def _has_schedule(patch: Patchset, name: DeviceName) -> bool:
    group = f"crm_config/cluster_property_set[@id='{POINTS_ID}']"
    identifier = schedule_id(name.value)
    return patch.configuration.find(f"{group}/nvpair[@id='{identifier}']") is not None
