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

from sanctl.model.backup_failure import BACKUPS_ID
from sanctl.model.cib_change import (
    AddDevice,
    AddFollow,
    AddMove,
    Change,
    ClearParameter,
    CompleteDevice,
    RemoveBackupFailure,
    RemoveCopy,
    RemoveCopySchedule,
    RemoveDevice,
    RemoveExpectedBackup,
    RemoveFailureExpiry,
    RemoveFencing,
    RemoveFollow,
    RemoveGroupRecord,
    RemoveHost,
    RemoveHostGroup,
    RemoveMark,
    RemoveMove,
    RemoveNodeAttribute,
    RemovePoint,
    RemovePreference,
    RemovePruneFailure,
    RemoveRestored,
    RemoveSchedule,
    RemoveSite,
    RemoveTakeover,
    SetBackupFailure,
    SetBackupSuccess,
    SetCopy,
    SetCopySchedule,
    SetExpectedBackup,
    SetFailureExpiry,
    SetGroupRecord,
    SetGroupsOfDevice,
    SetHost,
    SetHostGroup,
    SetMark,
    SetNodeAttribute,
    SetNodes,
    SetParameter,
    SetPoint,
    SetPruneFailure,
    SetRestored,
    SetSchedule,
    SetSite,
    SetStopped,
    SetTakeover,
)
from sanctl.model.cib_names import (
    GROUP_PREFIX,
    HOST_PREFIX,
    HOSTS_ID,
    clone_id,
    host_group_id,
    host_id,
)
from sanctl.model.host import Host
from sanctl.model.names import DeviceName, NodeName
from sanctl.model.outdated_mark import PREFIX, mark_attributes, parse_mark_id
from sanctl.model.point_schedule import schedule_id
from sanctl.model.restore_point import POINTS_ID
from sanctl.model.site import SITE_PREFIX, SITES_ID
from sanctl.render import device_changes
from sanctl.render.device_elements import (
    constraint_elements,
    device_element,
    follow_elements,
    move_element,
    new_nvpair,
)
from sanctl.render.patchset import CONFIGURATION, Patchset, node_pairs


def render_patchset(root: ET.Element, changes: Sequence[Change]) -> str:
    """Return the patchset that makes these changes on the CIB they were planned on."""
    document = ET.Element("diff", format="2")
    admin_epoch, epoch = root.get("admin_epoch", "0"), root.get("epoch", "0")
    version = ET.SubElement(document, "version")
    ET.SubElement(version, "source", admin_epoch=admin_epoch, epoch=epoch)
    ET.SubElement(
        version, "target", admin_epoch=admin_epoch, epoch=str(int(epoch) + 1), num_updates="0"
    )
    patch = Patchset(root)
    for change in changes:
        _add(patch, change)
    patch.settle_positions()
    # Deletions first: Pacemaker places what it creates by position among what is left.
    document.extend(patch.deletions)
    document.extend(patch.modifications)
    document.extend(patch.creations)
    return ET.tostring(document, encoding="unicode")


def _add(patch: Patchset, change: Change) -> None:
    match change:
        case AddDevice(device=device):
            patch.create("resources", device_element(device))
            for constraint in constraint_elements(device):
                patch.create("constraints", constraint)
        case RemoveDevice(name=name):
            device_changes.remove(patch, name)
        case CompleteDevice(device=device):
            device_changes.complete(patch, device)
        case SetStopped(name=name):
            device_changes.set_stopped(patch, name)
        case SetParameter(name=name, parameter=parameter, value=value):
            device_changes.set_parameter(patch, name, parameter, value)
        case ClearParameter(name=name, parameter=parameter):
            device_changes.clear_parameter(patch, name, parameter)
        case SetNodes(name=name, nodes=nodes, replicas=replicas):
            device_changes.set_nodes(patch, name, nodes, replicas)
        case RemovePreference(name=name):
            patch.delete("constraints", "rsc_location", f"{clone_id(name)}-prefer")
        case AddMove(name=name, node=node, until=until):
            patch.create("constraints", move_element(name, node, until))
        case RemoveMove(name=name):
            patch.delete("constraints", "rsc_location", f"{clone_id(name)}-move")
        case AddFollow(name=name, resource=resource):
            for constraint in follow_elements(name, resource):
                patch.create("constraints", constraint)
        case RemoveFollow(name=name):
            device_changes.remove_follow(patch, name)
        case SetFailureExpiry(name=name, after_s=after_s, until=until):
            device_changes.set_failure_expiry(patch, name, after_s, until)
        case RemoveFailureExpiry(name=name):
            device_changes.remove_failure_expiry(patch, name)
        case SetNodeAttribute(node=node, attribute=attribute, value=value):
            _set_node_attribute(patch, node, attribute, value)
        case RemoveNodeAttribute(node=node, attribute=attribute):
            _remove_node_attribute(patch, node, attribute)
        case RemoveFencing(node=node):
            _remove_fencing(patch, node)
        case SetMark(name=name, node=node, uuid=uuid):
            element = ET.Element("rsc_location", mark_attributes(name.value, node.value, uuid))
            patch.create("constraints", element)
        case RemoveMark(name=name, node=node):
            _remove_mark(patch, name, node)
        case SetHost(host=host):
            _set_host(patch, host)
        case RemoveHost(name=host_name):
            patch.remove_property(HOSTS_ID, host_id(host_name))
        case SetHostGroup(group=group):
            identifier = host_group_id(group.name)
            patch.set_property(HOSTS_ID, identifier, GROUP_PREFIX + str(group.name), group.value)
        case RemoveHostGroup(name=group_name):
            patch.remove_property(HOSTS_ID, host_group_id(group_name))
        case SetGroupsOfDevice(name=name, groups=groups):
            device_changes.set_groups(patch, name, groups)
        case SetPoint(point=point):
            patch.set_property(POINTS_ID, point.id, point.id, point.value)
        case RemovePoint(point=point):
            patch.remove_property(POINTS_ID, point.id)
        case SetSchedule(name=name, schedule=schedule):
            identifier = schedule_id(name.value)
            patch.set_property(POINTS_ID, identifier, identifier, schedule.value)
        case RemoveSchedule(name=name):
            patch.remove_property(POINTS_ID, schedule_id(name.value))
        case SetSite(site=site):
            patch.set_property(SITES_ID, site.id, site.id, site.value)
        case RemoveSite(name=site_name):
            patch.remove_property(SITES_ID, f"{SITE_PREFIX}{site_name}")
        case SetCopy(record=record):
            patch.set_property(SITES_ID, record.id, record.id, record.value)
            if record.read_value:
                patch.set_property(SITES_ID, record.read_id, record.read_id, record.read_value)
        case RemoveCopy(record=record):
            patch.remove_property(SITES_ID, record.id)
            if patch.has_property(SITES_ID, record.read_id):
                patch.remove_property(SITES_ID, record.read_id)
        case SetCopySchedule(schedule=copying):
            patch.set_property(SITES_ID, copying.id, copying.id, copying.value)
        case RemoveCopySchedule(schedule=copying):
            patch.remove_property(SITES_ID, copying.id)
        case SetTakeover(takeover=takeover):
            patch.set_property(SITES_ID, takeover.id, takeover.id, takeover.value)
        case RemoveTakeover(takeover=takeover):
            patch.remove_property(SITES_ID, takeover.id)
        case SetGroupRecord(record=group):
            patch.set_property(SITES_ID, group.id, group.id, group.value)
        case RemoveGroupRecord(record=group):
            patch.remove_property(SITES_ID, group.id)
        case SetRestored(record=restored):
            patch.set_property(SITES_ID, restored.id, restored.id, restored.value)
        case RemoveRestored(record=restored):
            patch.remove_property(SITES_ID, restored.id)
        case SetBackupFailure(failure=failure):
            patch.set_property(BACKUPS_ID, failure.id, failure.id, failure.value)
        case RemoveBackupFailure(failure=failure):
            patch.remove_property(BACKUPS_ID, failure.id)
        case SetBackupSuccess(success=success):
            patch.set_property(BACKUPS_ID, success.id, success.id, success.value)
        case SetExpectedBackup(expected=expected):
            patch.set_property(BACKUPS_ID, expected.id, expected.id, expected.value)
        case RemoveExpectedBackup(expected=expected):
            patch.remove_property(BACKUPS_ID, expected.id)
        case SetPruneFailure(failure=unpruned):
            patch.set_property(BACKUPS_ID, unpruned.id, unpruned.id, unpruned.value)
        case RemovePruneFailure(failure=unpruned):
            patch.remove_property(BACKUPS_ID, unpruned.id)
        case _:
            assert_never(change)


def _remove_mark(patch: Patchset, name: DeviceName, node: NodeName) -> None:
    for location in patch.configuration.findall("constraints/rsc_location"):
        identifier = location.get("id", "")
        mark = parse_mark_id(identifier, node.value)
        if mark is not None and mark[0] == name.value:
            patch.delete("constraints", "rsc_location", identifier)
    # As a release before 0.1.0 has written it.
    _remove_node_attribute(patch, node, f"{PREFIX}{name}")


def _set_node_attribute(patch: Patchset, name: NodeName, attribute: str, value: str) -> None:
    node = patch.find(f"nodes/node[@uname='{name}']")
    node_id = node.get("id", "")
    path = f"{CONFIGURATION}/nodes/node[@id='{node_id}']"
    for group, pair in node_pairs(node, attribute):
        patch.modify(
            f"{path}/instance_attributes[@id='{group.get('id')}']/nvpair[@id='{pair.get('id')}']",
            pair,
            value,
        )
        return
    # The ids that crm_attribute would give, so that each finds an attribute of the other.
    pair = new_nvpair(f"nodes-{node_id}-{attribute}", attribute, value)
    existing = node.find("instance_attributes")
    if existing is not None:
        patch.create_at(
            f"{path}/instance_attributes[@id='{existing.get('id')}']", len(existing), pair
        )
        return
    key = f"nodes-{node_id}"
    waiting = patch.created(key)
    if waiting is not None:
        waiting.append(pair)
        return
    group = ET.Element("instance_attributes", id=key)
    group.append(pair)
    patch.create_at(path, len(node), group)


def _remove_node_attribute(patch: Patchset, name: NodeName, attribute: str) -> None:
    node = patch.find(f"nodes/node[@uname='{name}']")
    for group, pair in node_pairs(node, attribute):
        patch.delete_pair(node, group, pair)


def _set_host(patch: Patchset, host: Host) -> None:
    value = str(host).removeprefix(f"{host.name}=")
    patch.set_property(HOSTS_ID, host_id(host.name), f"{HOST_PREFIX}{host.name}", value)


def _remove_fencing(patch: Patchset, node: NodeName) -> None:
    made = {f"fence-{node}", f"fence-{node}_fallback"}
    for level in patch.configuration.findall("fencing-topology/fencing-level"):
        if level.get("target") == node.value:
            patch.delete("fencing-topology", level.tag, level.get("id", ""))
    for location in patch.configuration.findall("constraints/rsc_location"):
        if location.get("rsc") in made:
            patch.delete("constraints", location.tag, location.get("id", ""))
    for primitive in patch.configuration.findall("resources/primitive"):
        if primitive.get("class") == "stonith" and primitive.get("id") in made:
            patch.delete("resources", primitive.tag, primitive.get("id", ""))
